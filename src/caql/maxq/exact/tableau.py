"""From a node to its tableau and back: the first basis is written down, the last one read off as multipliers.

Every free neuron starts with one nonbasic variable, its key, and one row.  A node's stored basis says which key;
actions that were basic, and neurons at a corner of their triangle, are restored by a pivot each.
"""

# mypy: disable-error-code="arg-type,return-value,assignment,no-any-return"
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from caql.maxq.exact.compilation import NATURAL, compiled
from caql.maxq.exact.pivoting import Shape, Tableau, pivot
from caql.maxq.exact.relaxation import Compact, Floats, Node
from caql.maxq.exact.simplex import Outcome
from caql.maxq.exact.workspace import Workspace

Z, P, E = 1, 2, 4
"""Bits of `Node.basis`; variable ids are d + 3 i, + 1, + 2."""


class Cursor(NamedTuple):
    """Where the next neuron is written: its row and column; and how many of the first layer have a column so far."""

    row: int
    column: int
    bent: int


class Layout(NamedTuple):
    """Actions, neurons of the first layer, columns in use, and columns with the padding that is kept at zero."""

    d: int
    deep: int
    columns: int
    padded: int


@compiled
def write_affine(net: Compact, node: Node, tab: Tableau, layout: Layout, i: int, at: Cursor) -> None:
    """Pre-activation i (or Q) in terms of the nonbasic variables, in the cursor's row."""
    matrix, planes, y = tab.matrix, tab.planes, at.row
    d, deep = layout.d & NATURAL, layout.deep & NATURAL
    for c in range(1 + d, layout.padded):
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
        for f in range(at.bent):
            matrix[y, 1 + d + f] = tab.ratio[f] * net.rows[i, d + tab.bent[f]]
    for j in range(deep, net.first[i]):
        weight = net.rows[i, d + j]
        if weight == 0.0 or node.upper[j] <= 0.0 > node.lower[j]:
            continue
        for c in range(tab.column[j]):
            matrix[y, c] += weight * tab.activation[j, c]


@compiled
def write_fixed(net: Compact, node: Node, tab: Tableau, layout: Layout, i: int, at: Cursor, binding: bool) -> Cursor:
    """A neuron of known phase: z is its row or nothing, and the phase is a row of its own where it is not implied."""
    matrix, planes, d = tab.matrix, tab.planes, layout.d & NATURAL
    low, up = node.lower[i], node.upper[i]
    z = d + 3 * i
    active = low >= 0.0
    if net.first[i] == 0:
        for c in range(1 + d):
            planes[c, i] = matrix[at.row, c] if active else 0.0
    elif active:
        for c in range(at.column):
            tab.activation[i, c] = matrix[at.row, c]
    if not binding:
        return at
    if active:
        tab.basic[at.row] = z
        tab.variable_low[z], tab.variable_high[z] = low, up
    else:
        tab.basic[at.row] = z + 1
        tab.variable_low[z + 1], tab.variable_high[z + 1] = -up, -low
        for c in range(layout.columns):
            matrix[at.row, c] = -matrix[at.row, c]
    return Cursor(at.row + 1, at.column, at.bent)


class Line(NamedTuple):
    """A variable as times y + plus + own x, with x the neuron's nonbasic variable."""

    times: float
    plus: float
    own: float


@compiled
def write_line(net: Compact, tab: Tableau, layout: Layout, i: int, at: Cursor, stored: Line, z: Line) -> Cursor:
    """The free neuron's basic variable in place of y, and its activation, both lines over y."""
    matrix, planes, y = tab.matrix, tab.planes, at.row
    bent = at.bent
    if net.first[i] == 0:
        for c in range(1 + (layout.d & NATURAL)):
            planes[c, i] = z.times * matrix[y, c]
            matrix[y, c] *= stored.times
        planes[0, i] += z.plus
        tab.bent[bent] = i
        tab.ratio[bent] = z.own
        bent += 1
    else:
        for c in range(at.column):
            value = matrix[y, c]
            tab.activation[i, c] = z.times * value
            matrix[y, c] = stored.times * value
        tab.activation[i, 0] += z.plus
        tab.activation[i, at.column] = z.own
    matrix[y, 0] += stored.plus
    matrix[y, at.column] = stored.own
    return Cursor(y + 1, at.column + 1, bent)


@compiled
def write_free(net: Compact, node: Node, tab: Tableau, layout: Layout, i: int, at: Cursor) -> Cursor:
    """A neuron of unknown phase: a column for its key, a row for the variable the node's basis pairs with it."""
    low, up = node.lower[i], node.upper[i]
    z = layout.d + 3 * i
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
        line, activation = Line(slope - 1.0 if held & P else slope, offset, -1.0), Line(slope, offset, -1.0)
    elif held & P:
        key, stored = z + 1, z
        line, activation = Line(1.0, 0.0, 1.0), Line(1.0, 0.0, 1.0)
    else:
        key, stored = z, z + 1
        line, activation = Line(-1.0, 0.0, 1.0), Line(0.0, 0.0, 1.0)
    tab.nonbasic[at.column] = key
    tab.where[key] = -at.column
    tab.basic[at.row] = stored
    tab.where[stored] = at.row + 1
    return write_line(net, tab, layout, i, at, line, activation)


@compiled
def write_down(space: Workspace, n: int, d: int) -> Shape:
    """The node's tableau in the node's basis, or as near to it as pivots allow."""
    net, node, tab = space.net, space.node, space.tab
    n, d = n & NATURAL, d & NATURAL
    free, deep = 0, np.int64(0)
    for i in range(n):
        deep += net.first[i] == 0
        free += node.lower[i] < 0.0 and node.upper[i] > 0.0
    columns = 1 + d + free
    layout = Layout(d, deep, columns, (columns + 3) & NATURAL & ~3)
    for k in range(d):
        tab.nonbasic[1 + k] = k
        tab.variable_low[k] = node.low[k]
        tab.variable_high[k] = node.high[k]
    at = Cursor(np.int64(0), 1 + d, np.int64(0))
    for i in range(n):
        binding = space.scratch.binding[i] != 0
        tab.slope[i] = 0.0
        if node.lower[i] >= 0.0 or node.upper[i] > 0.0 or binding:
            # The row of y is written where the neuron's first basic variable will stand.
            write_affine(net, node, tab, layout, i, at)
        if node.lower[i] < 0.0 < node.upper[i]:
            at = write_free(net, node, tab, layout, i, at)
        else:
            at = write_fixed(net, node, tab, layout, i, at, binding)
        tab.column[i] = at.column
    write_affine(net, node, tab, layout, n, at)
    shape = Shape(at.row, columns)
    restore(tab, node, n, d, shape)
    return shape


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
def restore(tab: Tableau, node: Node, n: int, d: int, shape: Shape) -> None:
    """Pivot from the written basis to the stored one; what cannot be restored safely is left as it is."""
    rows, columns = shape
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
def read_basis(space: Workspace, n: int, d: int, shape: Shape, outcome: Outcome) -> None:
    """The node's basis, and in `tab.ratio` the reduced costs: of the last row plus `step` times row `ray`."""
    tab, basis, ray = space.tab, space.node.basis, outcome.ray
    cost = tab.ratio
    for k in range(d + 3 * n):
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
            basis[(variable - d) // 3] |= 1 << ((variable - d) % 3)
    if ray >= 0:
        cost[tab.basic[ray]] = -outcome.step


@compiled
def read_multipliers(space: Workspace, n: int, d: int) -> None:
    """The node's multipliers from the reduced costs that `read_basis` leaves."""
    net, node, cost = space.net, space.node, space.tab.ratio
    n, d = n & NATURAL, d & NATURAL
    row = space.scratch.row
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
def read_point(tab: Tableau, d: int, shape: Shape, point: Floats) -> None:
    """The actions of the tableau's current point, clipped into the scaled box."""
    for r in range(shape.rows):
        if tab.basic[r] < d:
            point[tab.basic[r]] = min(max(tab.basic_value[r], 0.0), 1.0)
    for c in range(1, shape.columns):
        if tab.nonbasic[c] < d:
            point[tab.nonbasic[c]] = min(max(tab.nonbasic_value[c], 0.0), 1.0)
