"""From a node to its tableau and back: the first basis is written down, the last one read off as multipliers.

Every free neuron starts with one nonbasic variable, its key, and one row.  A node's stored basis says which key;
actions that were basic, and neurons at a corner of their triangle, are restored by a pivot each.
"""

# mypy: disable-error-code="arg-type,return-value,assignment,no-any-return"
from __future__ import annotations

import numpy as np

from caql.maxq.exact.compilation import NATURAL, compiled
from caql.maxq.exact.relaxation import Compact, Floats, Node, Scratch
from caql.maxq.exact.simplex import Tableau, pivot

Z, P, E = 1, 2, 4
"""Bits of `Node.basis`; variable ids are d + 3 i, + 1, + 2."""


@compiled
def write_down(net: Compact, n: int, d: int, node: Node, scratch: Scratch, tab: Tableau) -> tuple[int, int]:
    """The node's tableau in the node's basis, or as near to it as pivots allow: (rows, columns)."""
    matrix, activation = tab.matrix, tab.activation
    n, d = n & NATURAL, d & NATURAL
    free, deep = 0, np.int64(0)
    for i in range(n):
        deep += net.first[i] == 0
        free += node.lower[i] < 0.0 and node.upper[i] > 0.0
    columns = 1 + d + free
    padded = (columns + 3) & NATURAL & ~3
    for k in range(d):
        tab.nonbasic[1 + k] = k
        tab.variable_low[k] = node.low[k]
        tab.variable_high[k] = node.high[k]
    rows, column = np.int64(0), 1 + d
    planes, bent = tab.planes, np.int64(0)
    for i in range(n + 1):
        if i < n and node.upper[i] <= 0.0 > node.lower[i] and not scratch.binding[i]:
            tab.column[i] = column
            tab.slope[i] = 0.0
            if net.first[i] == 0:
                for c in range(1 + d):
                    planes[c, i] = 0.0
            continue
        y = rows  # the row of y is written where the neuron's first basic variable will stand
        for c in range(1 + d, padded):
            matrix[y, c] = 0.0
        if net.first[i] == 0:
            matrix[y, 0] = net.constant[i]
            for k in range(d):
                matrix[y, 1 + k] = net.rows[i, k]
        else:  # the first layer's activations are planes plus at most a variable of their own
            for c in range(1 + d):
                value = net.constant[i] if c == 0 else net.rows[i, c - 1]
                for j in range(deep):
                    value += net.rows[i, d + j] * planes[c, j]
                matrix[y, c] = value
            for f in range(bent):
                matrix[y, 1 + d + f] = tab.ratio[f] * net.rows[i, d + tab.bent[f]]
        for j in range(deep, net.first[i]):
            weight = net.rows[i, d + j]
            if weight == 0.0 or node.upper[j] <= 0.0 > node.lower[j]:
                continue
            for c in range(tab.column[j]):
                matrix[y, c] += weight * activation[j, c]
        if i == n:
            break
        low, up = node.lower[i], node.upper[i]
        z = d + 3 * i
        tab.column[i] = column
        tab.slope[i] = 0.0
        if low >= 0.0:
            if net.first[i] == 0:
                for c in range(1 + d):
                    planes[c, i] = matrix[y, c]
            else:
                for c in range(column):
                    activation[i, c] = matrix[y, c]
            tab.variable_low[z] = low
            tab.variable_high[z] = up
            if scratch.binding[i]:
                tab.basic[rows] = z
                rows += 1
            continue
        if up <= 0.0:
            tab.variable_low[z + 1] = -up
            tab.variable_high[z + 1] = -low
            for c in range(columns):
                matrix[y, c] = -matrix[y, c]
            tab.basic[rows] = z + 1
            rows += 1
            if net.first[i] == 0:
                for c in range(1 + d):
                    planes[c, i] = 0.0
            continue
        slope = up / (up - low)
        offset = -slope * low
        tab.slope[i] = slope
        tab.reach[i] = -low
        for variable in range(3):
            tab.variable_low[z + variable] = 0.0
            tab.where[z + variable] = 0
        tab.variable_high[z] = up
        tab.variable_high[z + 1] = -low
        tab.variable_high[z + 2] = offset
        held = node.basis[i]
        if held & E or not held & (Z | P):
            key, stored = z + 2, (z + 1 if held & P else z)
            times, plus, own = (slope - 1.0 if held & P else slope), offset, -1.0
            steep, raised, mine = slope, offset, -1.0
        elif held & P:
            key, stored = z + 1, z
            times, plus, own = 1.0, 0.0, 1.0
            steep, raised, mine = 1.0, 0.0, 1.0
        else:
            key, stored = z, z + 1
            times, plus, own = -1.0, 0.0, 1.0
            steep, raised, mine = 0.0, 0.0, 1.0
        tab.nonbasic[column] = key
        tab.where[key] = -column
        tab.basic[y] = stored
        tab.where[stored] = y + 1
        if net.first[i] == 0:
            for c in range(1 + d):
                planes[c, i] = steep * matrix[y, c]
                matrix[y, c] *= times
            planes[0, i] += raised
            tab.bent[bent] = i
            tab.ratio[bent] = mine
            bent += 1
        else:
            for c in range(column):
                value = matrix[y, c]
                activation[i, c] = steep * value
                matrix[y, c] = times * value
            activation[i, 0] += raised
            activation[i, column] = mine
        matrix[y, 0] += plus
        matrix[y, column] = own
        rows += 1
        column += 1
        tab.column[i] = column
    restore(n, d, node, tab, rows, columns)
    return rows, columns


@compiled
def wanted(variable: int, d: int, n: int, node: Node) -> bool:
    """Whether the node's basis has this variable nonbasic."""
    if variable < d:
        return node.basis[n + variable] == 0
    i = (variable - d) // 3
    held = node.basis[i]
    if node.lower[i] >= 0.0 or node.upper[i] <= 0.0:
        return held in (Z | P, Z | E, P | E)
    return (held >> ((variable - d) % 3)) & 1 == 1


@compiled
def restore(n: int, d: int, node: Node, tab: Tableau, rows: int, columns: int) -> None:
    """Pivot from the written basis to the stored one; what cannot be restored safely is left as it is."""
    for r in range(rows):
        if not wanted(tab.basic[r], d, n, node):
            continue
        q, size = np.int64(-1), 1e-3
        for c in range(1, columns):
            if abs(tab.matrix[r, c]) > size and not wanted(tab.nonbasic[c], d, n, node):
                q, size = c, abs(tab.matrix[r, c])
        if q >= 0:
            pivot(tab, rows, columns, r, q)


@compiled
def read_multipliers(
    net: Compact,
    n: int,
    d: int,
    node: Node,
    scratch: Scratch,
    tab: Tableau,
    rows: int,
    columns: int,
    ray: int,
    step: float,
) -> None:
    """The node's multipliers and basis from the reduced costs (the last row plus `step` times row `ray`)."""
    cost = tab.ratio
    n, d = n & NATURAL, d & NATURAL
    row = scratch.row
    for k in range(d + 3 * n):
        cost[k] = 0.0
    for i in range(n):
        node.basis[i] = 0
    for k in range(d):
        node.basis[n + k] = 1
    for c in range(1, columns):
        variable = tab.nonbasic[c]
        cost[variable] = tab.matrix[rows, c] if ray < 0 else tab.matrix[rows, c] + step * tab.matrix[ray, c]
        if variable < d:
            node.basis[n + variable] = 0
        else:
            node.basis[(variable - d) // 3] |= 1 << ((variable - d) % 3)
    if ray >= 0:
        cost[tab.basic[ray]] = -step
    for k in range(d + n):
        row[k] = net.rows[n, k]
    for i in range(n - 1, -1, -1):
        z = d + 3 * i
        low, up = node.lower[i], node.upper[i]
        if (low >= 0.0 or up <= 0.0) and node.basis[i] != 0:
            node.basis[i] = Z | P
        if low >= 0.0:
            t = row[d + i] - cost[z]
        elif up <= 0.0:
            t = cost[z + 1]
        else:
            t = cost[z + 1] - up / (up - low) * cost[z + 2]
        node.multiplier[i] = t
        if t != 0.0:
            for k in range(d + net.first[i]):
                row[k] += t * net.rows[i, k]


@compiled
def read_point(d: int, tab: Tableau, rows: int, columns: int, point: Floats) -> None:
    """The actions of the tableau's current point, clipped into the scaled box."""
    for r in range(rows):
        if tab.basic[r] < d:
            point[tab.basic[r]] = min(max(tab.basic_value[r], 0.0), 1.0)
    for c in range(1, columns):
        if tab.nonbasic[c] < d:
            point[tab.nonbasic[c]] = min(max(tab.nonbasic_value[c], 0.0), 1.0)
