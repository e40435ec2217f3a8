"""From a point to a better one: Q at a point, and the climb to a local maximum of the network.

The linear region of the relaxation's point is maximised by fixing every phase in the tableau at hand, and the climb
goes on over the kinks that pay.
"""

from __future__ import annotations

from caql.maxq.exact.compilation import NATURAL, compiled
from caql.maxq.exact.pivoting import Shape, Tableau
from caql.maxq.exact.relaxation import Compact, Node
from caql.maxq.exact.simplex import OPTIMAL, dual_simplex
from caql.maxq.exact.tableau import read_point
from caql.maxq.exact.workspace import Search, Workspace


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
def fix_phases(n: int, d: int, node: Node, tab: Tableau, search: Search) -> None:
    """Confine the tableau to the linear region of the point that `value_at` has just evaluated."""
    for i in range(n):
        z = d + 3 * i
        if node.lower[i] < 0.0 and node.upper[i] > 0.0:
            if search.pre[i] > 0.0:
                tab.variable_high[z + 1] = 0.0
            else:
                tab.variable_high[z] = 0.0


@compiled
def cross_kink(d: int, node: Node, tab: Tableau, shape: Shape) -> bool:
    """Cross the kink at the point beyond which Q grows most: change that neuron's phase; False if there is none."""
    chosen, gain = -1, 1e-12
    for c in range(1, shape.columns):
        v = tab.nonbasic[c]
        if v >= d and (v - d) % 3 < 2 and tab.matrix[shape.rows, c] > gain and tab.variable_high[v] == 0.0:
            partner = v + 1 if (v - d) % 3 == 0 else v - 1
            for other in range(1, shape.columns):
                if tab.nonbasic[other] == partner and tab.nonbasic_value[other] == 0.0:
                    chosen, gain = v, tab.matrix[shape.rows, c]
    if chosen < 0:
        return False
    i = (chosen - d) // 3
    if (chosen - d) % 3 == 0:
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
    for step in range(8):
        if step == 0:
            fix_phases(n, d, node, tab, search)
        elif not cross_kink(d, node, tab, shape):
            break
        outcome = dual_simplex(tab, n, d, shape, best, 4 * (d + n) + 20)
        if outcome.status != OPTIMAL:
            break
        shape = Shape(outcome.rows, shape.columns)
        read_point(tab, d, shape, search.point)
        value = offer(space.net, n, d, search, best)
        if not value > best:
            break
        best = value
    return best
