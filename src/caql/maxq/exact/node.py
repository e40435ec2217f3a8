"""What happens at one node of the branch and bound: tighten, bound, solve the relaxation, climb, choose a split.

The relaxation's point is a good place to look for a better action: its linear region is maximised by fixing every
phase in the tableau at hand, and the search goes on over the kinks that pay.  The neuron to split is the one
whose envelope costs most: multiplier times distance to the graph.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from caql.maxq.exact.compilation import NATURAL, allocating, compiled
from caql.maxq.exact.presolve import Affine, Stack, presolve
from caql.maxq.exact.relaxation import (
    Compact,
    Floats,
    Node,
    Planes,
    Scratch,
    backward_multipliers,
    cut_by_value,
    dual_bound,
    tighten,
)
from caql.maxq.exact.simplex import INFEASIBLE, OPTIMAL, Tableau, current, dual_simplex, unwritten
from caql.maxq.exact.tableau import E, P, Z, read_multipliers, read_point, write_down

KINKS_WEIGHT = 0.35
"""How much first-layer neurons are preferred for splitting, per first-layer neuron and action dimension."""


class Search(NamedTuple):
    """Room for one search at a time: a point, its activations and pre-activations, the best point so far."""

    point: Floats
    active: Floats
    pre: Floats
    best: Floats
    saved: Floats
    split: Floats


class Room(NamedTuple):
    """All the arrays that a thread works in."""

    net: Compact
    node: Node
    scratch: Scratch
    tab: Tableau
    affine: Affine
    planes: Planes
    search: Search


class Limits(NamedTuple):
    """When to stop: absolute and relative gap, nodes, seconds."""

    absolute: float
    relative: float
    nodes: int
    time: float


@allocating
def make_room(actions: int, neurons: int, widest: int) -> Room:
    """Arrays for networks of at most this many actions and neurons."""
    d, n, w = actions, neurons, widest
    columns = d + n
    net = Compact(np.empty((n + 1, columns)), np.empty((columns, n + 1)), np.empty(n + 1), np.empty(n + 1, np.int64))
    node = Node(np.empty(d), np.empty(d), np.empty(n), np.empty(n), np.empty(n), np.empty(n + d, np.int8))
    scratch = Scratch(np.empty(columns + 1), np.empty(n), np.empty(n, np.int8))
    variables = d + 3 * n + 1
    tab = Tableau(
        np.empty((2 * n + 3, (columns + 4) // 4 * 4)),
        np.empty(2 * n + 2, np.int64),
        np.empty(columns + 1, np.int64),
        np.empty(2 * n + 2),
        np.empty(columns + 1),
        np.empty(variables),
        np.empty(variables),
        np.empty(2 * n + 2),
        np.empty(2 * n + 2),
        np.empty(variables),
        np.empty((n + 1, columns + 1)),
        np.empty(n + 1, np.int64),
        np.empty(columns + 5),
        np.empty(columns + 1, np.int64),
        np.empty(n),
        np.empty(n),
        np.empty((d + 1, n)),
        np.empty(n, np.int64),
        np.empty(variables, np.int64),
    )
    affine = Affine(np.empty((columns, w)), np.empty(w), np.empty((columns, w)), np.empty(w))
    planes = Planes(np.empty((columns, 2 * w)), np.empty(2 * w), np.empty(2 * w), np.empty(2 * w))
    search = Search(np.empty(d), np.empty(n + 1), np.empty(n + 1), np.empty(d), np.empty(n), np.empty(2))
    return Room(net, node, scratch, tab, affine, planes, search)


@compiled
def value_at(net: Compact, n: int, d: int, search: Search) -> float:
    """Q of the presolved network at `search.point`; leaves the pre-activations in `search.pre`."""
    n, d = n & NATURAL, d & NATURAL
    for i in range(n + 1):
        y = net.constant[i]
        for k in range(d):
            y += net.rows[i, k] * search.point[k]
        for j in range(net.first[i]):
            y += net.rows[i, d + j] * search.active[j]
        search.pre[i] = y
        search.active[i] = max(y, 0.0)
    return search.pre[n]


@compiled
def offer(net: Compact, n: int, d: int, search: Search, best: float) -> float:
    """The better of the best value so far and the value at `search.point`."""
    value = value_at(net, n, d, search)
    if value > best:
        for k in range(d):
            search.best[k] = search.point[k]
        return value
    return best


@compiled
def costliest_envelope(net: Compact, n: int, d: int, node: Node, tab: Tableau) -> int:
    """The free neuron with the largest envelope multiplier x distance to the graph; -1 when none is free.

    A split of the first layer also cuts the box, the more so the fewer actions there are for its kinks.
    The distance of a triangle's point to the two lines z = 0 and z = y is min(z, p).
    Reads the reduced costs that `read_multipliers` leaves behind.
    """
    choice, best = -1, -1.0
    n, d = n & NATURAL, d & NATURAL
    kinks = 0
    for i in range(n):
        kinks += net.first[i] == 0
    weight = max(1.0, KINKS_WEIGHT * kinks / d)
    for i in range(n):
        if node.lower[i] < 0.0 and node.upper[i] > 0.0:
            e = d + 3 * i + 2
            score = 0.0
            if tab.ratio[e] < 0.0:
                missing, value = unwritten(tab, d, i)
                z = value if missing == e - 2 else current(tab, tab.where[e - 2])
                p = value if missing == e - 1 else current(tab, tab.where[e - 1])
                distance = min(z, p)
                score = -tab.ratio[e] * max(distance, 0.0)
            score += 1e-9 * min(-node.lower[i], node.upper[i])
            if net.first[i] == 0:
                score *= weight
            if score > best:
                choice, best = i, score
    return choice


@compiled
def climb(
    net: Compact, n: int, d: int, node: Node, tab: Tableau, rows: int, columns: int, search: Search, best: float
) -> float:
    """From the program's point to the best of its linear region, and on over kinks that pay; uses up the tableau."""
    for step in range(8):
        if step == 0:
            for i in range(n):
                z = d + 3 * i
                if node.lower[i] < 0.0 and node.upper[i] > 0.0:
                    if search.pre[i] > 0.0:
                        tab.variable_high[z + 1] = 0.0
                    else:
                        tab.variable_high[z] = 0.0
        else:
            chosen, gain = -1, 1e-12
            for c in range(1, columns):
                v = tab.nonbasic[c]
                if v >= d and (v - d) % 3 < 2 and tab.matrix[rows, c] > gain and tab.variable_high[v] == 0.0:
                    partner = v + 1 if (v - d) % 3 == 0 else v - 1
                    for other in range(1, columns):
                        if tab.nonbasic[other] == partner and tab.nonbasic_value[other] == 0.0:
                            chosen, gain = v, tab.matrix[rows, c]
            if chosen < 0:
                break
            i = (chosen - d) // 3
            if (chosen - d) % 3 == 0:
                tab.variable_high[chosen] = node.upper[i]
                tab.variable_high[chosen + 1] = 0.0
            else:
                tab.variable_high[chosen] = -node.lower[i]
                tab.variable_high[chosen - 1] = 0.0
        status, rows, _, _, _ = dual_simplex(tab, d, n, rows, columns, best, 4 * (d + n) + 20)
        if status != OPTIMAL:
            break
        read_point(d, tab, rows, columns, search.point)
        value = offer(net, n, d, search, best)
        if not value > best:
            break
        best = value
    return best


@compiled
def allowed(value: float, limits: Limits) -> float:
    """The largest upper bound that counts as proved; a hair less than the tolerance, for rounding's sake."""
    return value + 0.9999 * max(limits.absolute, limits.relative * abs(value))


@compiled
def begin(stack: Stack, state: int, low: Floats, high: Floats, action: Floats, room: Room) -> tuple[int, float]:
    """Presolve a state into the room's root node: (unstable neurons, value of the warm start)."""
    net, node, scratch, _, affine, planes, search = room
    d = low.size
    for k in range(d):
        search.best[k] = high[k] - low[k]
    n = presolve(stack, state, low, search.best, net, node, affine, planes)
    for k in range(d):
        span = high[k] - low[k]
        search.point[k] = min(max((action[k] - low[k]) / span, 0.0), 1.0) if span > 0.0 else 0.0
        node.basis[n + k] = 0
    best = offer(net, n, d, search, -np.inf)
    backward_multipliers(net, n, d, node, scratch)
    for i in range(n):
        scratch.binding[i] = 0
        slope = node.multiplier[i]
        node.basis[i] = E if slope > 0.0 else (P if slope < 0.0 else Z)
    return n, best


class Verdict(NamedTuple):
    """What is known after a node: the neuron to split, or -1 when the node is closed, and the updated bounds."""

    branch: int
    bound: float
    best: float
    proved: float
    pivots: int
    sound: bool


@compiled
def become_child(n: int, d: int, room: Room, branch: int, active: bool) -> float:
    """Turn the node just evaluated into one of its two children; returns what the parent's multipliers prove of it."""
    node, search = room.node, room.search
    for i in range(n):
        node.multiplier[i] = search.saved[i]
    node.lower[branch] = 0.0 if active else search.split[0]
    node.upper[branch] = search.split[1] if active else 0.0
    bound = dual_bound(room.net, n, d, node, room.scratch, True)
    return bound if np.isfinite(bound) else np.inf


@compiled
def evaluate(
    n: int, d: int, room: Room, limits: Limits, count: int, bound: float, best: float, proved: float
) -> Verdict:
    """Bound the room's node (the `count`-th), look for a better action, and find the neuron to split.

    `bound` is what its parent proved; `proved` grows by whatever is closed or cut away here.
    """
    net, node, scratch, tab, _, planes, search = room
    cutoff = allowed(best, limits)
    if count > 1 and not tighten(net, n, d, node, scratch, planes):
        return Verdict(-1, -np.inf, best, proved, 0, True)
    here = dual_bound(net, n, d, node, scratch, True)
    if not np.isfinite(here):
        return Verdict(-1, bound, best, proved, 0, False)
    bound = min(bound, here)
    if count == 1:
        for k in range(d):
            search.point[k] = 1.0 if scratch.row[k] > 0.0 else 0.0
        best = offer(net, n, d, search, best)
        cutoff = allowed(best, limits)
    if bound <= cutoff:
        return Verdict(-1, bound, best, max(proved, bound), 0, True)
    if cut_by_value(n, d, node, scratch, here - cutoff):
        proved = max(proved, cutoff)
    rows, columns = write_down(net, n, d, node, scratch, tab)
    outcome, rows, ray, step, pivots = dual_simplex(tab, d, n, rows, columns, cutoff, 20 * (d + n) + 100)
    read_multipliers(net, n, d, node, scratch, tab, rows, columns, ray, step)
    here = dual_bound(net, n, d, node, scratch, False)
    if not np.isfinite(here):  # a breakdown of the tableau: any other multipliers are as valid
        backward_multipliers(net, n, d, node, scratch)
        here = dual_bound(net, n, d, node, scratch, False)
    bound = min(bound, here)
    if bound <= cutoff:
        return Verdict(-1, bound, best, max(proved, bound), pivots, True)
    branch = -1
    read_point(d, tab, rows, columns, search.point)
    incumbent = best
    best = offer(net, n, d, search, best)
    if bound <= allowed(best, limits):
        return Verdict(-1, bound, best, max(proved, bound), pivots, True)
    if outcome != INFEASIBLE:
        branch = costliest_envelope(net, n, d, node, tab)
        # Elsewhere the climb seldom pays.
        if best > incumbent or count == 1 or (count >= 16 and count & (count - 1) == 0):
            best = climb(net, n, d, node, tab, rows, columns, search, best)
    cutoff = allowed(best, limits)
    if bound <= cutoff:
        return Verdict(-1, bound, best, max(proved, bound), pivots, True)
    if cut_by_value(n, d, node, scratch, here - cutoff):
        proved = max(proved, cutoff)
    if branch < 0 or node.lower[branch] >= 0.0 or node.upper[branch] <= 0.0:
        branch = -1
        widest = 0.0
        for i in range(n):
            left = min(-node.lower[i], node.upper[i])
            if left > widest:
                branch, widest = i, left
    if branch < 0:  # every phase is fixed, so the relaxation was exact
        proved = max(proved, bound)
    for i in range(n):
        search.saved[i] = node.multiplier[i]
    search.split[0], search.split[1] = node.lower[branch], node.upper[branch]
    return Verdict(branch, bound, best, proved, pivots, True)
