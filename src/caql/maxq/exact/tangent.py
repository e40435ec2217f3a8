"""Bounds that touch the network at a corner of the box: tangent planes, made without a linear program.

The triangle of a neuron forgets that its pre-activation is a function of the actions.  Over a box the least concave
function above relu(c + r v) is lower: it is relu itself at every corner.  Measure v from a corner, v in [0, 1]^d, and
change the actions one after the other: those with r_k > 0, in some order, from 1 down to 0, then those with r_k < 0, in
the opposite order, from 0 up to 1.  What each step takes off relu is a slope G_k, and

    relu(c + r v) <= relu(c) + G v          for all v in the box, whatever the order

(a convex function of a sum is supermodular, so its concave envelope is its Lovasz extension; these are the facets that
Anderson et al. 2020 cut a neuron's hull with).  Below relu lie 0 and c + r v, of which one touches it at the corner.
So, layer by layer, every neuron has a plane above and a plane below it, all of them exact at the corner, and so is
what becomes of Q:

    Q(v) <= Q(corner) + G v,         at most Q(corner) + sum of max(G_k, 0).

Where the best action is a corner, and it often is, that proves it as soon as no G_k is positive.  Which corner, and the
order, come from the bound before: an action whose slope there is large can afford the larger share, so it goes first.
Two planes are better than one: some mixture of the two has the smallest maximum (`mix`).

Rounding
--------
gamma, B and m are those of `relaxation`; A_i is |constant_i| + sum over actions of |row_ik|, and S_i the sum of the
absolute values of all that is added up for a plane of pre-activation i.  The slopes of a plane of relu are no larger
than those of its argument, so S_i <= A_i + sum |row_ij| S_j <= B_i.  A computed plane of pre-activation i is wrong by
at most 2 m_i, anywhere in the box:

- Adding it up costs (2 d + n + 6) u S_i <= gamma A_i + sum |row_ij| m_j.
- The chain of `bend` is, step by step, that of a function whose slopes differ from the argument's by u S_j each: it is
  exact for one within (3 d + 1) u S_j <= 2 m_j of it.
- A phase that the node claims is wrong by at most m_j, and the argument itself by 2 m_j.

Together gamma A_i + sum |row_ij| (1 + 2 + 1 + 2) m_j, and 3 sum |row_ij| m_j <= m_i - gamma A_i.  Mixing two planes and
adding up over the box cost less than 2 m_n each, an end of the box that `cut_by_plane` rounds less than m_n.  What is
added to the maximum of a plane is 8 m_n (`tangent_bound`).
"""

from __future__ import annotations

from typing import NamedTuple

from caql.maxq.exact.compilation import NATURAL, compiled
from caql.maxq.exact.relaxation import Compact, Floats, Integers, Node

LANES = 8
"""Slopes are added up so many at a time, which the compiler makes one or two instructions of."""


class Tangent(NamedTuple):
    """The planes of all neurons: slopes for the actions, in `order`, then the constant, then zeros.

    Row 2 i of `planes` is above neuron i's activation, row 2 i + 1 below it.
    """

    planes: Floats
    origin: Floats
    span: Floats
    """The corner, and the way from there to the opposite one, in `order`: a = origin + span v."""
    order: Integers
    """Which action is changed first."""
    plane: Floats
    other: Floats
    """Planes of Q, in terms of each action's share of its side, from its lower end; then the constant."""


@compiled
def choose_corner(d: int, node: Node, tangent: Tangent, corner: Floats, slopes: Floats) -> None:
    """The corner nearest to a point, and the order: large slopes, per side of the box, first."""
    order = tangent.order
    for k in range(d):
        size, place = abs(slopes[k]), k
        while place > 0 and abs(slopes[order[place - 1]]) < size:
            order[place] = order[place - 1]
            place -= 1
        order[place] = k
    for m in range(d):
        k = order[m]
        low, high = node.low[k], node.high[k]
        tangent.origin[m], tangent.span[m] = low, high - low
        if corner[k] - low > high - corner[k]:
            tangent.origin[m], tangent.span[m] = high, low - high


@compiled
def add_up(net: Compact, d: int, i: int, above: int, tangent: Tangent, target: Floats) -> None:
    """A plane of pre-activation i, or of Q: above it, or below it, by the planes of the activations that it reads."""
    rows, planes = net.rows, tangent.planes
    i, d, reads = i & NATURAL, d & NATURAL, net.first[i] & NATURAL
    for start in range(0, target.size & NATURAL, LANES):
        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
        for j in range(net.count[0] & NATURAL, reads):
            weight = rows[i, d + j]
            row = 2 * j + ((weight > 0.0) != above)
            s0 += weight * planes[row, start]
            s1 += weight * planes[row, start + 1]
            s2 += weight * planes[row, start + 2]
            s3 += weight * planes[row, start + 3]
            s4 += weight * planes[row, start + 4]
            s5 += weight * planes[row, start + 5]
            s6 += weight * planes[row, start + 6]
            s7 += weight * planes[row, start + 7]
        target[start], target[start + 1], target[start + 2], target[start + 3] = s0, s1, s2, s3
        target[start + 4], target[start + 5], target[start + 6], target[start + 7] = s4, s5, s6, s7
    constant = net.constant[i]
    for m in range(d):
        weight = rows[i, tangent.order[m]]
        constant += weight * tangent.origin[m]
        target[m] += weight * tangent.span[m]
    target[d] += constant


@compiled
def bend(d: int, plane: Floats) -> None:
    """The plane above relu of a plane, in its place.  There are no branches, which would be guessed wrong."""
    value = plane[d]
    for m in range(d):
        value += max(plane[m], 0.0)
    for m in range(d):
        slope, before = plane[m], max(value, 0.0)
        value -= max(slope, 0.0)
        plane[m] = (before - max(value, 0.0)) + min(slope, 0.0)
    plane[d] = max(value, 0.0)
    for m in range(d - 1, -1, -1):
        slope, before = plane[m], max(value, 0.0)
        value += min(slope, 0.0)
        plane[m] = (max(value, 0.0) - before) + max(slope, 0.0)


@compiled
def clear_plane(plane: Floats) -> None:
    """The plane that is 0."""
    for m in range(plane.size):
        plane[m] = 0.0


@compiled
def tangent_plane(net: Compact, n: int, d: int, node: Node, tangent: Tangent) -> float:
    """The plane of Q at the chosen corner into `tangent.other`; returns its constant there.

    That is Q itself, unless phases were fixed that the corner does not have.
    """
    planes, other = tangent.planes, tangent.other
    last = net.first[n - 1] if n > 0 else 0  # from here on only Q reads, and needs one of the two planes
    for i in range(net.count[0], n):
        upper, lower, weight = planes[2 * i], planes[2 * i + 1], net.rows[n, d + i]
        if node.upper[i] <= 0.0 or (i >= last and weight == 0.0):
            clear_plane(upper)
            clear_plane(lower)
            continue
        if i < last or weight > 0.0:
            add_up(net, d, i, True, tangent, upper)
            if node.lower[i] < 0.0:
                bend(d, upper)
        if i < last or weight < 0.0:
            add_up(net, d, i, False, tangent, lower)
            if node.lower[i] < 0.0 and not lower[d] > 0.0:
                clear_plane(lower)
    add_up(net, d, n, True, tangent, other)
    constant = other[d]
    for m in range(d):  # from the order to the actions, through `planes`, which are not needed any more
        slope = other[m]
        if tangent.span[m] < 0.0:
            other[d] += slope
            slope = -slope
        planes[0, tangent.order[m]] = slope
    for k in range(d):
        other[k] = planes[0, k]
    return constant


@compiled
def highest(d: int, plane: Floats) -> float:
    """The largest value of a plane over the box."""
    value = plane[d]
    for k in range(d):
        value += max(plane[k], 0.0)
    return value


@compiled
def mix(d: int, plane: Floats, other: Floats) -> float:
    """Make `plane` the mixture of the two that has the smallest maximum, and return that."""
    best, share = highest(d, plane), 0.0
    for m in range(d + 1):
        at = 1.0
        if m < d:
            if (plane[m] > 0.0) == (other[m] > 0.0):
                continue
            at = plane[m] / (plane[m] - other[m])
        value = (1.0 - at) * plane[d] + at * other[d]
        for k in range(d):
            value += max((1.0 - at) * plane[k] + at * other[k], 0.0)
        if value < best:
            best, share = value, at
    for k in range(d + 1):
        plane[k] = (1.0 - share) * plane[k] + share * other[k]
    return highest(d, plane)


@compiled
def cut_by_plane(d: int, node: Node, plane: Floats, slack: float) -> bool:
    """Cut off what the plane proves to be `slack` below its maximum; False when nothing was cut."""
    slack = slack * (1.0 + 1e-9)
    cut = False
    for k in range(d):
        slope, width = abs(plane[k]), node.high[k] - node.low[k]
        if slack < slope:
            kept = width * (slack / slope) * (1.0 + 1e-15)
            if plane[k] > 0.0:
                node.low[k] = max(node.low[k], node.high[k] - kept)
            else:
                node.high[k] = min(node.high[k], node.low[k] + kept)
            cut = True
    return cut
