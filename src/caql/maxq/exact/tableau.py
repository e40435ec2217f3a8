"""From a node to its tableau and back: the first basis is written down, the last one read off as multipliers.

Every free neuron starts with one nonbasic variable, its key, and no row.  A node's stored basis says which key;
actions that were basic, and neurons at a corner of their triangle, are restored by a row and a pivot each.
"""

# mypy: disable-error-code="arg-type,return-value,assignment,no-any-return"
from __future__ import annotations

import numpy as np

from caql.maxq.exact.compilation import NATURAL, compiled
from caql.maxq.exact.pivoting import KINDS, Shape, Tableau, pivot
from caql.maxq.exact.relaxation import Compact, Floats, Node
from caql.maxq.exact.simplex import Outcome
from caql.maxq.exact.workspace import Workspace
from caql.maxq.exact.written_rows import pass_back, write_row

Z, P, E, F = 1, 2, 4, 8
"""Bits of `Node.basis`; variable ids are d + 4 i, + 1, + 2, + 3."""


@compiled
def write_line(net: Compact, node: Node, tab: Tableau, top: Floats, i: int, held: int, column: int) -> int:
    """The neuron's line in the first basis; a free one takes a column for its key.  Returns the next column.

    held: bits of a stored basis, which say what the key is.  top: the largest slack of each cap.
    """
    d = node.low.size
    low, up = node.lower[i], node.upper[i]
    z = d + KINDS * i
    for variable in range(z, z + KINDS):
        tab.where[variable] = 0
    tab.column[i] = 0
    tab.slope[i] = tab.plus[i] = tab.own[i] = tab.capped[i] = 0.0
    tab.times[i] = 1.0 if low >= 0.0 else 0.0
    if low >= 0.0:
        tab.variable_low[z], tab.variable_high[z] = low, up
        return column
    if up <= 0.0:
        tab.variable_low[z + 1], tab.variable_high[z + 1] = -up, -low
        return column
    slope = up / (up - low)
    offset = -slope * low
    tab.slope[i], tab.reach[i] = slope, -low
    flat = net.first[i] == 0
    for variable in range(z, z + KINDS):
        tab.variable_low[variable] = 0.0
    tab.variable_high[z], tab.variable_high[z + 1], tab.variable_high[z + 2] = up, -low, top[i] if flat else offset
    if held & E or not held & (Z | P):
        key, tab.own[i] = z + 2, -1.0
        if flat:
            tab.capped[i] = 1.0
        else:
            tab.times[i], tab.plus[i] = slope, offset
    elif held & P:
        key, tab.times[i], tab.own[i] = z + 1, 1.0, 1.0
    else:
        key, tab.own[i] = z, 1.0
    tab.key[i], tab.column[i] = key, column
    tab.nonbasic[column] = tab.original[column] = key
    tab.where[key] = -column
    if flat:
        tab.bent[tab.count[0]] = i
        tab.count[0] += 1
    return column + 1


@compiled
def write_planes(net: Compact, node: Node, tab: Tableau, d: int) -> None:
    """The lines of the neurons that read the actions alone, in terms of these."""
    planes, times, capped, count = tab.planes, tab.times, tab.capped, net.count[1] & NATURAL
    for i in range(count):
        planes[0, i] = times[i] * net.constant[i] + capped[i] * node.cap[0, i]
    for k in range(d):
        for i in range(count):
            planes[1 + k, i] = times[i] * net.columns[k, i] + capped[i] * node.cap[1 + k, i]


@compiled
def write_down(space: Workspace, n: int, d: int, region: bool) -> Shape:
    """The node's tableau in the node's basis, or as near to it as pivots allow.

    With `region` it is confined to the linear region of the point that `value_at` has just evaluated: every key is the
    variable that is 0 there, and the bounds of the actions stay as they are.
    """
    net, node, tab = space.net, space.node, space.tab
    n, d = n & NATURAL, d & NATURAL
    for k in range(d):
        tab.nonbasic[1 + k] = tab.original[1 + k] = k
        tab.where[k] = -1 - k
        if not region:
            tab.variable_low[k], tab.variable_high[k] = node.low[k], node.high[k]
    columns = np.int64(1 + d)
    tab.count[0] = 0
    for i in range(n):
        held = np.int64(node.basis[i])
        if region:
            held = P if space.search.pre[i] > 0.0 else Z
        columns = write_line(net, node, tab, space.facets.top, i, held, columns)
        if region and tab.column[i] > 0:
            tab.variable_high[tab.key[i]] = 0.0
    write_planes(net, node, tab, d)
    padded = (columns + 3) & NATURAL & ~3
    pass_back(net, tab, d, n, padded)
    for c in range(padded):
        tab.matrix[0, c] = tab.fresh[c]
    for c in range(columns):
        tab.nonbasic_value[c] = 0.0
    shape = Shape(np.int64(0), columns)
    return shape if region else restore(space, n, d, shape)


@compiled
def wanted(variable: int, d: int, n: int, node: Node) -> bool:
    """Whether the node's basis has this variable nonbasic."""
    if variable < d:
        return node.basis[n + variable] == 0
    i = (variable - d) // KINDS
    held = node.basis[i]
    if node.lower[i] >= 0.0 or node.upper[i] <= 0.0:
        return held in (Z | P, Z | E, P | E)
    return (held >> ((variable - d) % KINDS)) & 1 == 1


@compiled
def restore(space: Workspace, n: int, d: int, shape: Shape) -> Shape:
    """Pivot from the written basis to the stored one; what cannot be restored safely is left as it is."""
    node, tab = space.node, space.tab
    for i in range(n):
        z, held = np.int64(d + KINDS * i), node.basis[i]
        if tab.slope[i] > 0.0:
            for kind in range(3):
                if (held >> kind) & 1 == 1 and tab.where[z + kind] == 0:
                    shape = write_row(space, d, shape, z + kind)
        elif space.scratch.binding[i] != 0 and held in (Z | P, Z | E, P | E):
            shape = write_row(space, d, shape, z if node.lower[i] >= 0.0 else z + 1)
    rows, columns = shape
    for r in range(rows):
        q, size = np.int64(-1), 1e-3
        for c in range(1, columns):
            if abs(tab.matrix[r, c]) > size and not wanted(tab.nonbasic[c], d, n, node):
                q, size = c, abs(tab.matrix[r, c])
        if q >= 0:
            pivot(tab, rows, columns, r, q)
    return shape


@compiled
def read_basis(space: Workspace, n: int, d: int, shape: Shape, outcome: Outcome) -> None:
    """The node's basis, and in `tab.ratio` the reduced costs: of the last row plus `step` times row `ray`."""
    tab, basis, ray = space.tab, space.node.basis, outcome.ray
    cost = tab.ratio
    for k in range(d + KINDS * n):
        cost[k] = 0.0
    for i in range(n):
        basis[i] = 0
    for k in range(d):
        basis[n + k] = 1
    for c in range(1, shape.columns):
        variable = tab.nonbasic[c]
        cost[variable] = tab.matrix[shape.rows, c]
        if ray >= 0:
            cost[variable] += outcome.step * tab.matrix[ray, c]
        if variable < d:
            basis[n + variable] = 0
        else:
            basis[(variable - d) // KINDS] |= 1 << ((variable - d) % KINDS)
    if ray >= 0:
        cost[tab.basic[ray]] = -outcome.step


@compiled
def mix_facets(node: Node, planes: Floats, d: int, i: int, share: float) -> None:
    """Make neuron i's cap the mixture of it and its other facet, which has the multiplier `share`."""
    total = node.share[i] + share
    if total > 0.0:
        weight = share / total
        for k in range(d + 1):
            node.cap[k, i] += weight * (planes[k, i] - node.cap[k, i])
        node.share[i] = total


@compiled
def read_multipliers(space: Workspace, n: int, d: int) -> None:
    """The node's multipliers from the reduced costs that `read_basis` leaves.

    Where both a cap and another facet have one, their mixture becomes the cap, which is where the children begin.
    """
    net, node, cost = space.net, space.node, space.tab.ratio
    n, d, flat = n & NATURAL, d & NATURAL, net.count[1] & NATURAL
    row = space.scratch.row
    for k in range(d + n):
        row[k] = net.rows[n, k]
    for i in range(n - 1, -1, -1):
        z = d + KINDS * i
        low, up = node.lower[i], node.upper[i]
        if (low >= 0.0 or up <= 0.0) and node.basis[i] != 0:
            node.basis[i] = Z | P
        if low >= 0.0:
            t = row[d + i] - cost[z]
        elif up <= 0.0:
            t = cost[z + 1]
        elif i < flat:
            t, node.share[i] = cost[z + 1] - up / (up - low) * max(cost[z + 2], 0.0), max(-cost[z + 2], 0.0)
            if node.basis[i] & F:
                node.basis[i] = (node.basis[i] & ~F) | E
                mix_facets(node, space.facets.planes, d, i, max(-cost[z + 3], 0.0))
        else:
            t = cost[z + 1] - up / (up - low) * cost[z + 2]
        node.multiplier[i] = t
        if i >= flat and t != 0.0:
            for k in range(d + net.first[i]):
                row[k] += t * net.rows[i, k]


@compiled
def read_point(tab: Tableau, d: int, shape: Shape, point: Floats) -> None:
    """The actions of the tableau's current point, clipped into the scaled box."""
    for r in range(shape.rows):
        if tab.basic[r] < d:
            point[tab.basic[r]] = min(max(tab.basic_value[r], 0.0), 1.0)
    for c in range(1, shape.columns):
        if tab.nonbasic[c] < d:
            point[tab.nonbasic[c]] = min(max(tab.nonbasic_value[c], 0.0), 1.0)
