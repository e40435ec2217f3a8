"""Bounds on a small ReLU network over a box: the triangle relaxation and its dual.

`Compact` is the network left after presolve: the actions scaled to [0, 1] and, in layer order, the neurons
whose sign is not known.  Pre-activation i is `constant[i] + rows[i, :d] @ a + rows[i, d:] @ z` with z the
earlier neurons' activations; row n is Q itself.  The first few "neurons" are the rows of the action set: bounded
as neurons are, and read by nobody (`rows`).  A neuron's bounds [lower, upper] say everything about its
phase: lower >= 0 is active, upper <= 0 inactive, otherwise the point (y, z) is relaxed to the triangle
(lower, 0), (0, 0), (upper, upper).

Give every neuron one multiplier t on `y = its row`.  Then for any t whatever

    Q <= constants + max over the box of g(t) a + sum over neurons of max over the triangle of c_i z - t_i y,

with c_i the coefficient of z_i that the later neurons' multipliers leave behind.  This is all that the
certificate of `exact` rests on: backward-linear (CROWN) bounds, linear programs and parents' multipliers
differ only in how t was found.  The maximum over a triangle is attained at one of its corners.

A neuron that reads the actions alone may have a plane above it over the box, its cap (`facets`).  For any w_i >= 0 its
term is then at most w_i cap_i(a) + max over the triangle of (c_i - w_i) z - t_i y, and the first part joins g(t) a.

Rounding
--------
Everything is computed in float64, and yet every bound holds in real arithmetic.  Let u be the unit roundoff and
gamma = u * (a count of operations, `operations`).  Each neuron has a size, the sum of the absolute values of all
that is added up to bound it, and from it a margin:

    B_i = |constant_i| + sum over actions of |row_ik| + sum over neurons of |row_ij| (3 B_j + 1),    m_i = gamma B_i.

What a node claims: its box holds exactly, and the pre-activation of neuron i lies in [lower_i - m_i, upper_i + m_i].
Why each step keeps that claim, in whatever order the compiler adds:

1. `bound_layer`.  All slopes are at most 1 and, since bounds are scaled to a width of 1 at the root, an envelope's
   offset is at most 1/4, so rounding costs at most gamma / 2 times the same sum with (B_j + 1/4) for (3 B_j + 1).
   That an earlier neuron may exceed its bounds by m_j moves its z off the envelope, off z = y or off z = 0 by at
   most m_j, times the coefficient it has by then; coefficients compound, but by the factor 3 in B_j the sum of
   these terms is at most 5/3 m_j |row_ij| for each j.  Together they stay below m_i.
2. `tightening.cut_box`.  The plane may be wrong by m_i, the bound it is held against by m_i, and the sum over the
   box and the new ends of its sides are rounded by less than m_i, in units of the plane: it is relaxed by 3 m_i.
3. `tightening.tighten` calls a node empty when two bounds of one neuron contradict each other by more than 2 m_i.
4. `dual_bound`.  Replacing y by the nearest point within its bounds moves c_i z - t_i y by (|c_i| + |t_i|) m_i at
   most.  The multipliers are arbitrary, so the sum itself is rounded by at most gamma / 2 times
   2 B'_n + sum (|c_i| + 4 |t_i|) B_i, with B'_n the first two terms of B_n.  As c_i is made of row n and of rows
   times multipliers, sum |c_i| m_i is at most a third of (m_n - gamma B'_n) + sum |t_i| m_i.  The bound returned
   includes m_n + 4 sum |t_i| m_i, which is more than all of that.  A cap is wrong by 2 m_i at most, w_i z moves by
   w_i m_i with y, and what w_i adds to the sum, at most 4 w_i B_i, is rounded by gamma / 2 times that: 5 w_i m_i, and
   less than one more where a cap is a mixture of two.  8 w_i m_i is included.
5. `tightening.cut_by_value` removes what the same sum, with one term replaced, proves to lie below the cutoff: its
   errors are those that the bound already includes, and gamma counts the operations that round the new ends too.

Products that underflow are wrong by 1e-323; the margins' floor, `TINY`, is far above that.  An overflow makes
a bound infinite or NaN, and then nothing is proved.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from caql.maxq.exact.compilation import NATURAL, compiled

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
ROUNDOFF = 2.0**-53
TINY = 1e-280
"""Far above the smallest float64, far below anything that matters."""


class Compact(NamedTuple):
    """The presolved network; arrays are larger than used: n neurons, row n is Q; `columns` is `rows` transposed."""

    rows: Floats
    columns: Floats
    constant: Floats
    margin: Floats
    """m_i: by how much a bound of neuron i may be wrong, in the scaled units of its row; for row n gamma B_n."""
    first: Integers
    """Neuron i reads the activations of neurons 0 .. first[i] - 1: the earlier layers."""
    count: Integers
    """(2,): the first so many are rows of the action set, and the first so many read the actions alone."""


class Node(NamedTuple):
    """A subproblem: a box of actions, bounds per neuron, multipliers and a basis to start from."""

    low: Floats
    high: Floats
    lower: Floats
    upper: Floats
    multiplier: Floats
    basis: NDArray[np.int8]
    """Per neuron the nonbasic ones of its three variables (bits 1, 2, 4), then 1 per basic action."""
    share: Floats
    """Multipliers of the caps, zero or more; of neurons that read the actions alone."""
    point: Floats
    """Where the caps are to be low: the maximiser of the parent's program."""
    cap: Floats
    """(1 + d, n): planes above these neurons over the box, a column each, the constant first (`facets`)."""


class Known(NamedTuple):
    """What is known of a node and of the search: the node's bound, the best value, and the certificate so far."""

    bound: float
    best: float
    proved: float


class Planes(NamedTuple):
    """Upper bounding planes of one layer's neurons, a column each, then of their negatives; and the bounds they give.

    A lower bound is an upper bound of the negative, so one computation serves both.
    """

    slope: Floats
    constant: Floats
    up: Floats
    over: Floats


class Layer(NamedTuple):
    """Affine functions to bound: of the first `count` neurons, `width` of them, from column `at` on."""

    count: int
    at: int
    width: int


class Scratch(NamedTuple):
    """Arrays for the bounds: a row being substituted, the coefficients c, and which fixed phases are not implied."""

    row: Floats
    coefficient: Floats
    binding: NDArray[np.int8]


@compiled
def operations(actions: int, neurons: int, layers: int) -> float:
    """gamma: the unit roundoff times twice the longest chain of operations behind any number in a bound."""
    return ROUNDOFF * (2.0 * (actions + neurons) + 8.0 * layers + 20.0)


@compiled
def bound_layer(net: Compact, d: int, layer: Layer, block: Floats, node: Node, planes: Planes) -> None:
    """Bounds of the layer's affine functions of the actions and the first neurons, all at once.

    Their coefficients are columns of `block`, their constants `planes.constant`.  The tighter of interval and
    backward-linear bounds goes to `planes.up`: first of the functions, then of their negatives.  The planes themselves
    stay in `planes.slope[:d]` and `planes.constant`.
    """
    slope, constant, up, over = planes
    d, count, at, width = d & NATURAL, layer.count & NATURAL, layer.at & NATURAL, layer.width & NATURAL
    both = 2 * width
    for i in range(width):
        up[i] = constant[i]
        up[width + i] = constant[width + i] = -constant[i]
    for k in range(d + count):
        if k < d:
            most, least = node.high[k], node.low[k]
        else:
            most, least = max(node.upper[k - d], 0.0), max(node.lower[k - d], 0.0)
            if most <= 0.0:  # inactive: its column is not read again
                continue
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
def dual_bound(net: Compact, n: int, d: int, node: Node, scratch: Scratch, adapt: bool) -> float:
    """The upper bound on Q that the node's multipliers prove, rounding included.

    Leaves g in `row[:d]` and c in `coefficient`.  With `adapt`, a neuron that has become active or inactive since its
    multiplier was found gets the nearest multiplier that costs nothing.  A row of the action set keeps its own, which
    may be of either sign if the row has two sides.
    """
    row, coefficient = scratch.row, scratch.coefficient
    n, d, flat = n & NATURAL, d & NATURAL, net.count[1] & NATURAL
    for k in range(d + n):
        row[k] = net.rows[n, k]
    bound, rounding = net.constant[n], net.margin[n]
    for i in range(n - 1, flat - 1, -1):
        c = row[d + i]
        coefficient[i] = c
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
        rounding += 4.0 * abs(t) * net.margin[i]
        if t != 0.0:
            bound += t * net.constant[i]
            for k in range(d + net.first[i]):
                row[k] += t * net.rows[i, k]
    for i in range(flat):
        coefficient[i] = row[d + i]
    bound += flat_terms(net, d, node, scratch, adapt)
    for k in range(d):
        bound += row[k] * (node.high[k] if row[k] > 0.0 else node.low[k])
    return bound + rounding


@compiled
def flat_terms(net: Compact, d: int, node: Node, scratch: Scratch, adapt: bool) -> float:
    """What the neurons that read the actions alone add to the bound, but for the actions; their slopes join `row`.

    One loop for all of them, without branches, so that it becomes a few instructions.
    """
    row, multiplier, share = scratch.row, node.multiplier, node.share
    rows, flat, total, capped = net.count[0], net.count[1] & NATURAL, 0.0, 0.0
    for i in range(flat):
        c, low, up, t = scratch.coefficient[i], node.lower[i], node.upper[i], multiplier[i]
        free = low < 0.0 and up > 0.0
        least = c if low >= 0.0 else t
        most = 0.0 if low < 0.0 and up <= 0.0 else t
        t = max(least, min(most, t)) if adapt and i >= rows else t
        w = max(share[i], 0.0) if free else 0.0
        w = max(c, 0.0) if adapt and t == 0.0 and w > 0.0 else w
        multiplier[i], share[i] = t, w
        at_low, at_up = (c - w) * max(low, 0.0) - t * low, (c - w) * max(up, 0.0) - t * up
        total += max(max(at_low, at_up), 0.0 if free else at_low)
        total += t * net.constant[i] + w * node.cap[0, i]
        total += (4.0 * abs(t) + 8.0 * w) * net.margin[i]
        capped += w
    for k in range(d & NATURAL):
        slope = row[k]
        for i in range(flat):
            slope += multiplier[i] * net.columns[k, i]
        row[k] = slope
    if capped > 0.0:
        for k in range(d & NATURAL):
            slope = row[k]
            for i in range(flat):
                slope += share[i] * node.cap[1 + k, i]
            row[k] = slope
    return total


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
        node.share[i] = 0.0
        if t != 0.0:
            for k in range(d + net.first[i]):
                row[k] += t * net.rows[i, k]
