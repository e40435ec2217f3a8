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

from caql.maxq.compilation import compiled

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
MARGIN = 1e-11
"""Every tightening is loosened by this much (all variables are scaled to ranges near 1)."""


class Compact(NamedTuple):
    """The presolved network; arrays are larger than used: n neurons, row n is Q."""

    rows: Floats
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


class Scratch(NamedTuple):
    """Room for the bounds: a row being substituted, the coefficients c, and which fixed phases are not implied."""

    row: Floats
    coefficient: Floats
    binding: NDArray[np.int8]


@compiled
def largest(net: Compact, d: int, count: int, constant: float, row: Floats, node: Node) -> tuple[float, float]:
    """Upper bound of `constant + row @ (a, z)` and the constant left; `row[:d]` becomes the bounding plane's."""
    interval = constant
    for j in range(count):
        c = row[d + j]
        interval += c * (max(node.upper[j], 0.0) if c > 0.0 else max(node.lower[j], 0.0))
    for k in range(d):
        interval += row[k] * (node.high[k] if row[k] > 0.0 else node.low[k])
    for j in range(count - 1, -1, -1):
        c = row[d + j]
        low, up = node.lower[j], node.upper[j]
        if c == 0.0 or up <= 0.0:
            continue
        slope = c
        if low < 0.0:
            if c > 0.0:
                slope = c * up / (up - low)
                constant -= slope * low
            elif up <= -low:
                continue
        constant += slope * net.constant[j]
        for k in range(d + net.first[j]):
            row[k] += slope * net.rows[j, k]
    bound = constant
    for k in range(d):
        bound += row[k] * (node.high[k] if row[k] > 0.0 else node.low[k])
    return min(bound, interval), constant


@compiled
def cut_box(d: int, row: Floats, slack: float, node: Node) -> tuple[bool, bool]:
    """Keep only actions within `slack` of the maximum of `row @ a`; (box not empty, box changed)."""
    changed = False
    for k in range(d):
        g = row[k]
        width = node.high[k] - node.low[k]
        reach = slack + MARGIN
        if g > 0.0 and reach < g * width:
            node.low[k] = node.high[k] - reach / g
            changed = changed or reach < 0.9 * g * width
        elif g < 0.0 and reach < -g * width:
            node.high[k] = node.low[k] - reach / g
            changed = changed or reach < -0.9 * g * width
        if node.low[k] > node.high[k] + 1e-9:
            return False, True
        if node.low[k] > node.high[k]:
            node.low[k] = node.high[k]
    return True, changed


@compiled
def tighten(net: Compact, n: int, d: int, node: Node, scratch: Scratch) -> bool:
    """Bounds of all neurons from the box and the box from the fixed phases, in place; False when none is left."""
    row = scratch.row
    for _ in range(2):
        changed = False
        for i in range(n):
            count = net.first[i]
            stored_low, stored_up = node.lower[i], node.upper[i]
            for k in range(d + count):
                row[k] = net.rows[i, k]
            up, constant = largest(net, d, count, net.constant[i], row, node)
            if up < stored_low - 1e-9:
                return False
            top = constant
            for k in range(d):
                top += row[k] * (node.high[k] if row[k] > 0.0 else node.low[k])
            if stored_low >= 0.0 and top > stored_low:
                nonempty, cut = cut_box(d, row, top - stored_low, node)
                if not nonempty:
                    return False
                changed = changed or cut
            for k in range(d + count):
                row[k] = -net.rows[i, k]
            negative, constant = largest(net, d, count, -net.constant[i], row, node)
            low = -negative
            if low > stored_up + 1e-9:
                return False
            top = constant
            for k in range(d):
                top += row[k] * (node.high[k] if row[k] > 0.0 else node.low[k])
            if stored_up <= 0.0 and top > -stored_up:
                nonempty, cut = cut_box(d, row, top + stored_up, node)
                if not nonempty:
                    return False
                changed = changed or cut
            scratch.binding[i] = (stored_low >= 0.0 and low < 0.0) or (stored_up <= 0.0 and up > 0.0)
            node.lower[i] = max(stored_low, low - MARGIN) if low < 0.0 else max(stored_low, low)
            node.upper[i] = min(stored_up, up + MARGIN) if up > 0.0 else min(stored_up, up)
            if node.lower[i] > node.upper[i]:
                node.upper[i] = stored_low if stored_low >= 0.0 else node.upper[i]
                node.lower[i] = node.upper[i]
        if not changed:
            break
    return True


@compiled
def dual_bound(net: Compact, n: int, d: int, node: Node, scratch: Scratch, adapt: bool) -> float:
    """The upper bound on Q that the node's multipliers prove; leaves g in `row[:d]` and c in `coefficient`.

    With `adapt`, a neuron that has become active or inactive since its multiplier was found gets the nearest
    multiplier that costs nothing.
    """
    row = scratch.row
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
def cut_by_value(net: Compact, n: int, d: int, node: Node, scratch: Scratch, slack: float) -> bool:
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
