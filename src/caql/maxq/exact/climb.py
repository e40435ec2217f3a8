"""From a point to a better one: Q at a point, and the climb to a local maximum of the network.

The linear region of the relaxation's point is maximised in a tableau of its own, and the climb goes on over the kinks
that pay.  Before that, whole numbers are fixed one after the other, those first that are nearly whole, with a new
optimum of the relaxation each time (a dive).  The tableaus have the rows of the action set, so all of these points
satisfy them.
"""

from __future__ import annotations

import numpy as np

from caql.maxq.exact.compilation import NATURAL, compiled
from caql.maxq.exact.pivoting import KINDS, Shape, Tableau
from caql.maxq.exact.relaxation import Compact, Node
from caql.maxq.exact.rows import Scaling, admits, round_point
from caql.maxq.exact.simplex import OPTIMAL, dual_simplex
from caql.maxq.exact.tableau import read_point, write_down
from caql.maxq.exact.workspace import Search, Workspace

WHOLE = 1e-6
"""A variable so close to a whole number is one."""


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
def offer(net: Compact, n: int, d: int, scaling: Scaling, search: Search, best: float) -> float:
    """The better of the best value so far and the value at `search.point`, whose whole numbers are rounded."""
    round_point(scaling, search.point)
    value = value_at(net, n, d, search)
    if value > best and admits(scaling, search.pre):
        for k in range(d):
            search.best[k] = search.point[k]
        return value
    return best


@compiled
def fractional(scaling: Scaling, search: Search, node: Node) -> tuple[int, int]:
    """The whole numbers that are farthest from being whole at `search.point`, and nearest to it; -1 when all are."""
    farthest, nearest, most, least = -1, -1, WHOLE, 1.0
    if scaling.count[1] > 0:
        for k in range(scaling.low.size):
            if scaling.whole[k] != 0.0 and node.low[k] < node.high[k]:
                value = search.point[k] * scaling.unit[k]
                distance = abs(value - np.floor(value + 0.5))
                if distance > most:
                    farthest, most = k, distance
                if WHOLE < distance < least:
                    nearest, least = k, distance
    return farthest, nearest


@compiled
def fix_whole(scaling: Scaling, tab: Tableau, search: Search, also: int, other: bool) -> None:
    """Fix in the tableau the variables that are whole at the point, and variable `also`, rounded, or the other way."""
    for k in range(scaling.low.size):
        if scaling.whole[k] != 0.0:
            value = search.point[k] * scaling.unit[k]
            rounded = np.floor(value + 0.5)
            if k == also and other:
                rounded += 1.0 if rounded < value else -1.0
            if k == also or abs(value - rounded) <= WHOLE:
                tab.variable_low[k] = tab.variable_high[k] = rounded / scaling.unit[k]


@compiled
def dive(space: Workspace, n: int, d: int, shape: Shape, best: float) -> tuple[Shape, float]:
    """From the program's point to one whose whole numbers are whole, if it is quickly found; uses up the tableau."""
    node, tab, search, scaling = space.node, space.tab, space.search, space.scaling
    for _ in range(scaling.count[1]):
        read_point(tab, d, shape, search.point)
        chosen = fractional(scaling, search, node)[1]
        if chosen < 0:
            break
        low, high = tab.variable_low[chosen], tab.variable_high[chosen]
        fix_whole(scaling, tab, search, chosen, False)
        outcome = dual_simplex(space, n, d, shape, best, 4 * (d + n) + 20, False)
        shape = Shape(outcome.rows, shape.columns)
        if outcome.status != OPTIMAL:
            tab.variable_low[chosen], tab.variable_high[chosen] = low, high
            fix_whole(scaling, tab, search, chosen, True)
            if not low <= tab.variable_low[chosen] <= high:
                return shape, best
            outcome = dual_simplex(space, n, d, shape, best, 4 * (d + n) + 20, False)
            shape = Shape(outcome.rows, shape.columns)
            if outcome.status != OPTIMAL:
                return shape, best
    read_point(tab, d, shape, search.point)
    best = offer(space.net, n, d, scaling, search, best)
    fix_whole(scaling, tab, search, -1, False)
    return shape, best


@compiled
def cross_kink(d: int, node: Node, tab: Tableau, shape: Shape) -> bool:
    """Cross the kink at the point beyond which Q grows most: change that neuron's phase; False if there is none."""
    chosen, gain = -1, 1e-12
    for c in range(1, shape.columns):
        v = tab.nonbasic[c]
        if v >= d and (v - d) % KINDS < 2 and tab.matrix[shape.rows, c] > gain and tab.variable_high[v] == 0.0:
            partner = v + 1 if (v - d) % KINDS == 0 else v - 1
            for other in range(1, shape.columns):
                if tab.nonbasic[other] == partner and tab.nonbasic_value[other] == 0.0:
                    chosen, gain = v, tab.matrix[shape.rows, c]
    if chosen < 0:
        return False
    i = (chosen - d) // KINDS
    if (chosen - d) % KINDS == 0:
        tab.variable_high[chosen] = node.upper[i]
        tab.variable_high[chosen + 1] = 0.0
    else:
        tab.variable_high[chosen] = -node.lower[i]
        tab.variable_high[chosen - 1] = 0.0
    return True


@compiled
def climb(space: Workspace, n: int, d: int, shape: Shape, best: float) -> float:
    """From the program's point to the best of its linear region, and on over kinks that pay; uses up the tableau."""
    node, tab, search = space.node, space.tab, space.search
    if space.scaling.count[1] > 0:
        shape, best = dive(space, n, d, shape, best)
    for step in range(8):
        if step == 0:
            shape = write_down(space, n, d, True)
        elif not cross_kink(d, node, tab, shape):
            break
        outcome = dual_simplex(space, n, d, shape, best, 4 * (d + n) + 20, False)
        if outcome.status != OPTIMAL:
            break
        shape = Shape(outcome.rows, shape.columns)
        read_point(tab, d, shape, search.point)
        value = offer(space.net, n, d, space.scaling, search, best)
        if not value > best:
            break
        best = value
    return best
