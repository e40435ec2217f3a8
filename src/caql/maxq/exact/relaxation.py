"""Bounds on a small ReLU network over a box: the triangle relaxation and its dual.

`Compact` is the network left after presolve: the actions scaled to [0, 1] and, in layer order, the neurons
whose sign is not known.  Pre-activation i is `constant[i] + rows[i, :d] @ a + rows[i, d:] @ z` with z the
earlier neurons' activations; row n is Q itself.  A neuron's bounds [lower, upper] say everything about its
phase: lower >= 0 is active, upper <= 0 inactive, otherwise the point (y, z) is relaxed to the triangle
(lower, 0), (0, 0), (upper, upper).

Give every neuron one multiplier t on `y = its row`.  Then for any t whatever

    Q <= constants + max over the box of g(t) a + sum over neurons of max over the triangle of c_i z - t_i y,

with c_i the coefficient of z_i that the later neurons' multipliers leave behind.  This is all that the
certificate of `exact` rests on: backward-linear (CROWN) bounds, linear programs and parents' multipliers
differ only in how t was found.  The maximum over a triangle is attained at one of its corners.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from caql.maxq.exact.compilation import NATURAL, compiled

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
MARGIN = 1e-11
"""Every tightening is loosened by this much (all variables are scaled to ranges near 1)."""


class Compact(NamedTuple):
    """The presolved network; arrays are larger than used: n neurons, row n is Q; `columns` is `rows` transposed."""

    rows: Floats
    columns: Floats
    constant: Floats
    first: Integers
    """Neuron i reads the activations of neurons 0 .. first[i] - 1: the earlier layers."""


class Node(NamedTuple):
    """A subproblem: a box of actions, bounds per neuron, multipliers and a basis to start from."""

    low: Floats
    high: Floats
    lower: Floats
    upper: Floats
    multiplier: Floats
    basis: NDArray[np.int8]
    """Per neuron the nonbasic ones of its three variables (bits 1, 2, 4), then 1 per basic action."""


class Planes(NamedTuple):
    """Upper bounding planes of one layer's neurons, a column each, then of their negatives; and the bounds they give.

    A lower bound is an upper bound of the negative, so one computation serves both.
    """

    slope: Floats
    constant: Floats
    up: Floats
    over: Floats


class Scratch(NamedTuple):
    """Room for the bounds: a row being substituted, the coefficients c, and which fixed phases are not implied."""

    row: Floats
    coefficient: Floats
    binding: NDArray[np.int8]


@compiled
def bound_layer(
    net: Compact, d: int, count: int, block: Floats, at: int, width: int, node: Node, planes: Planes
) -> None:
    """Bounds of `width` affine functions of the actions and the first `count` neurons, all at once.

    Their coefficients are columns `at`, `at + 1`, ... of `block`, their constants `planes.constant`.  The tighter
    of interval and backward-linear bounds goes to `planes.up`: first of the functions, then of their negatives.  The
    planes themselves stay in `planes.slope[:d]` and `planes.constant`.
    """
    slope, constant, up, over = planes
    d, count, at, width = d & NATURAL, count & NATURAL, at & NATURAL, width & NATURAL
    both = 2 * width
    for i in range(width):
        up[i] = constant[i]
        up[width + i] = constant[width + i] = -constant[i]
    for k in range(d + count):
        if k < d:
            most, least = node.high[k], node.low[k]
        else:
            most, least = max(node.upper[k - d], 0.0), max(node.lower[k - d], 0.0)
        for i in range(width):
            c = block[k, at + i]
            slope[k, i] = c
            slope[k, width + i] = -c
            rising, falling = max(c, 0.0), min(c, 0.0)
            up[i] += rising * most + falling * least
            up[width + i] -= rising * least + falling * most
    if count == 0:
        return
    for j in range(count - 1, -1, -1):
        if node.upper[j] <= 0.0:
            continue
        steep, offset, unit = 1.0, 0.0, 1.0
        if node.lower[j] < 0.0:
            steep = node.upper[j] / (node.upper[j] - node.lower[j])
            offset = -steep * node.lower[j]
            unit = 1.0 if node.upper[j] > -node.lower[j] else 0.0
        bias = net.constant[j]
        for i in range(both):
            rising, falling = max(slope[d + j, i], 0.0), min(slope[d + j, i], 0.0)
            over[i] = steep * rising + unit * falling
            constant[i] += over[i] * bias + offset * rising
        for k in range(d + net.first[j]):
            weight = net.rows[j, k]
            for i in range(both):
                slope[k, i] += over[i] * weight
    for i in range(both):
        over[i] = constant[i]
    for k in range(d):
        most, least = node.high[k], node.low[k]
        for i in range(both):
            over[i] += max(slope[k, i], 0.0) * most + min(slope[k, i], 0.0) * least
    for i in range(both):
        up[i] = min(up[i], over[i])


@compiled
def cut_box(d: int, planes: Planes, i: int, least: float, node: Node) -> tuple[bool, bool]:
    """Keep only actions at which plane i is at least `least`: (box not empty, box changed)."""
    reach = planes.constant[i] - least + MARGIN
    for k in range(d):
        g = planes.slope[k, i]
        reach += g * (node.high[k] if g > 0.0 else node.low[k])
    if not reach >= 0.0:
        return reach > -1e-9, True
    changed = False
    for k in range(d):
        g = planes.slope[k, i]
        width = node.high[k] - node.low[k]
        if reach < abs(g) * width:
            if g > 0.0:
                node.low[k] = node.high[k] - reach / g
            else:
                node.high[k] = node.low[k] - reach / g
            changed = changed or reach < 0.9 * abs(g) * width
    return True, changed


@compiled
def tighten(net: Compact, n: int, d: int, node: Node, scratch: Scratch, planes: Planes) -> bool:
    """Bounds of all neurons from the box and the box from the fixed phases, in place; False when none is left.

    The first layer, where bounds are exact, is done again when its half-spaces have shrunk the box.
    """
    start = np.int64(0)
    again = True
    while start < n:
        count = net.first[start]
        end = start
        while end < n and net.first[end] == count:
            planes.constant[end - start] = net.constant[end]
            end += 1
        width = end - start
        bound_layer(net, d, count, net.columns, start, width, node, planes)
        changed = False
        for i in range(start, end):
            up, low = planes.up[i - start], -planes.up[width + i - start]
            stored_low, stored_up = node.lower[i], node.upper[i]
            if up < stored_low - 1e-9 or low > stored_up + 1e-9:
                return False
            nonempty, cut = True, False
            if stored_low >= 0.0 and low < stored_low:
                nonempty, cut = cut_box(d, planes, i - start, stored_low, node)
            elif stored_up <= 0.0 and up > stored_up:
                nonempty, cut = cut_box(d, planes, width + i - start, -stored_up, node)
            if not nonempty:
                return False
            changed = changed or cut
            scratch.binding[i] = (stored_low >= 0.0 and low < 0.0) or (stored_up <= 0.0 and up > 0.0)
            node.lower[i] = max(stored_low, low - MARGIN if low < 0.0 else low)
            node.upper[i] = min(stored_up, up + MARGIN if up > 0.0 else up)
            if node.lower[i] > node.upper[i]:
                node.upper[i] = stored_low if stored_low >= 0.0 else node.upper[i]
                node.lower[i] = node.upper[i]
        if changed and again and count == 0:
            again = False
        else:
            start = end
    return True


@compiled
def dual_bound(net: Compact, n: int, d: int, node: Node, scratch: Scratch, adapt: bool) -> float:
    """The upper bound on Q that the node's multipliers prove; leaves g in `row[:d]` and c in `coefficient`.

    With `adapt`, a neuron that has become active or inactive since its multiplier was found gets the nearest
    multiplier that costs nothing.
    """
    row = scratch.row
    n, d = n & NATURAL, d & NATURAL
    for k in range(d + n):
        row[k] = net.rows[n, k]
    bound = net.constant[n]
    for i in range(n - 1, -1, -1):
        c = row[d + i]
        scratch.coefficient[i] = c
        low, up = node.lower[i], node.upper[i]
        t = node.multiplier[i]
        if low >= 0.0:
            if adapt and t < c:
                t = c
            bound += max((c - t) * low, (c - t) * up)
        elif up <= 0.0:
            if adapt and t > 0.0:
                t = 0.0
            bound += max(-t * low, -t * up)
        else:
            bound += max(0.0, max(-t * low, (c - t) * up))
        node.multiplier[i] = t
        if t != 0.0:
            bound += t * net.constant[i]
            for k in range(d + net.first[i]):
                row[k] += t * net.rows[i, k]
    for k in range(d):
        bound += row[k] * (node.high[k] if row[k] > 0.0 else node.low[k])
    return bound


@compiled
def backward_multipliers(net: Compact, n: int, d: int, node: Node, scratch: Scratch) -> None:
    """The multipliers of the backward-linear bound, with the adaptive lower slope."""
    row = scratch.row
    for k in range(d + n):
        row[k] = net.rows[n, k]
    for i in range(n - 1, -1, -1):
        c = row[d + i]
        low, up = node.lower[i], node.upper[i]
        t = 0.0
        if low >= 0.0:
            t = c
        elif up > 0.0:
            if c > 0.0:
                t = c * up / (up - low)
            elif up > -low:
                t = c
        node.multiplier[i] = t
        if t != 0.0:
            for k in range(d + net.first[i]):
                row[k] += t * net.rows[i, k]


@compiled
def cut_by_value(n: int, d: int, node: Node, scratch: Scratch, slack: float) -> bool:
    """Cut off what the bound just evaluated proves to be `slack` below it (reduced-cost tightening).

    Valid only right after `dual_bound`; False when nothing was cut.
    """
    slack = slack * (1.0 + 1e-9) + 1e-300
    cut = False
    for k in range(d):
        g = scratch.row[k]
        if g > 0.0 and slack < g * (node.high[k] - node.low[k]):
            node.low[k] = node.high[k] - slack / g
            cut = True
        elif g < 0.0 and slack < -g * (node.high[k] - node.low[k]):
            node.high[k] = node.low[k] - slack / g
            cut = True
    for i in range(n):
        low, up = node.lower[i], node.upper[i]
        if low >= 0.0 or up <= 0.0:
            continue
        t = node.multiplier[i]
        w = scratch.coefficient[i] - t
        left, right = -t * low, w * up
        need = max(0.0, max(left, right)) - slack
        if max(left, 0.0) < need:
            node.lower[i] = 0.0
            scratch.binding[i] = 1
            cut = True
        elif t < 0.0 and left < need:
            node.lower[i] = -need / t
            cut = True
        if max(right, 0.0) < need:
            node.upper[i] = 0.0
            scratch.binding[i] = 1
            cut = True
        elif w < 0.0 and right < need:
            node.upper[i] = need / w
            cut = True
    return cut
