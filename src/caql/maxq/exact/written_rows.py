"""Rows of the tableau that are written only once they are needed.

A linear program of n neurons has up to 3 n variables, but the dual simplex meets few of them: it needs the row of a
variable only when that is violated.  So the first basis is no matrix at all, only a line for every neuron,

    z_i = times_i y_i + plus_i + own_i x_i,        y_i its row of the network,

with x_i its nonbasic variable, its key.  All pre-activations at a point are one pass through the network, and any row
in terms of the keys and the actions is one pass back.  Keys that have left their columns since then are replaced
by their own rows, which a pivot has written.
"""

from __future__ import annotations

import numpy as np

from caql.maxq.exact.compilation import NATURAL, compiled
from caql.maxq.exact.facets import heights, sort_ends, write_facets
from caql.maxq.exact.pivoting import FEASIBLE, KINDS, Shape, Tableau
from caql.maxq.exact.relaxation import Compact
from caql.maxq.exact.workspace import Workspace

WRITTEN, WORTH_A_ROW = 1e-6, 0.1
"""A facet becomes a row where the neuron is so far above it, and it promises so much of the gap."""


@compiled
def current(tab: Tableau, place: int) -> float:
    """The value of the variable at a place of `where`."""
    return tab.basic_value[place - 1] if place > 0 else tab.nonbasic_value[-place]


@compiled
def pass_forward(space: Workspace, n: int, d: int) -> None:
    """The pre-activations (`pre`) and activations (`actual[d:]`) at the tableau's current point.

    Those of inactive neurons that no row of the program asks for are not computed.
    """
    net, node, tab = space.net, space.node, space.tab
    n, d = n & NATURAL, d & NATURAL
    actual = tab.actual
    for k in range(d):
        actual[k] = current(tab, tab.where[k])
    count = net.count[1] & NATURAL
    for i in range(count):
        tab.pre[i] = net.constant[i]
        actual[d + i] = tab.planes[0, i]
    for k in range(d):
        a = actual[k]
        for i in range(count):
            tab.pre[i] += net.columns[k, i] * a
            actual[d + i] += tab.planes[1 + k, i] * a
    for f in range(tab.count[0]):
        i = tab.bent[f]
        actual[d + i] += tab.own[i] * current(tab, tab.where[tab.key[i]])
    for i in range(count, n):
        if tab.slope[i] <= 0.0 and node.lower[i] < 0.0 and space.scratch.binding[i] == 0:
            actual[d + i] = 0.0
            continue
        y = net.constant[i]
        for k in range(d + net.first[i]):
            y += net.rows[i, k] * actual[k]
        tab.pre[i] = y
        if tab.slope[i] > 0.0:
            actual[d + i] = tab.times[i] * y + tab.plus[i] + tab.own[i] * current(tab, tab.where[tab.key[i]])
        else:
            actual[d + i] = y if node.lower[i] >= 0.0 else 0.0


@compiled
def pass_back(net: Compact, tab: Tableau, d: int, i: int, padded: int) -> None:
    """Pre-activation i, or Q, in terms of the actions and the keys: into `fresh`, by the columns of the first basis."""
    d, deep, reads = d & NATURAL, net.count[1] & NATURAL, net.first[i] & NATURAL
    row, fresh, planes = tab.traced, tab.fresh, tab.planes
    for c in range(padded):
        fresh[c] = 0.0
    for k in range(d + reads):
        row[k] = net.rows[i, k]
    constant = net.constant[i]
    for j in range(reads - 1, deep - 1, -1):
        weight = row[d + j]
        if weight == 0.0:
            continue
        if tab.column[j] > 0:
            fresh[tab.column[j]] = weight * tab.own[j]
            constant += weight * tab.plus[j]
        weight *= tab.times[j]
        if weight != 0.0:
            constant += weight * net.constant[j]
            for k in range(d + net.first[j]):
                row[k] += weight * net.rows[j, k]
    if reads == 0:
        for k in range(d):
            fresh[1 + k] = row[k]
    else:
        for c in range(1 + d):
            total = constant if c == 0 else row[c - 1]
            for j in range(deep):
                total += row[d + j] * planes[c, j]
            fresh[c] = total
        constant = fresh[0]
        for f in range(tab.count[0]):
            j = tab.bent[f]
            fresh[1 + d + f] = tab.own[j] * row[d + j]
    fresh[0] = constant


@compiled
def fresh_row(space: Workspace, d: int, i: int, kind: int, padded: int) -> None:
    """A variable of a neuron that reads others, but for its key, in terms of the first basis: into `fresh`."""
    tab = space.tab
    pass_back(space.net, tab, d, i, padded)
    times, plus = tab.times[i], tab.plus[i]
    if kind == 1:
        times -= 1.0
    elif kind == 2:
        times, plus = tab.slope[i] - times, tab.slope[i] * tab.reach[i] - plus
    for c in range(padded):
        tab.fresh[c] *= times
    tab.fresh[0] += plus


@compiled
def fresh_plane(space: Workspace, d: int, i: int, kind: int) -> None:
    """The same of a neuron that reads the actions alone."""
    net, tab, fresh = space.net, space.tab, space.tab.fresh
    for c in range(1 + d):
        fresh[c] = tab.planes[c, i] if kind < 2 else -tab.planes[c, i]
    if kind == 1:
        fresh[0] -= net.constant[i]
        for k in range(d):
            fresh[1 + k] -= net.rows[i, k]
    elif kind == 2:
        for c in range(1 + d):
            fresh[c] += space.node.cap[c, i]
    elif kind == 3:
        for c in range(1 + d):
            fresh[c] += space.facets.planes[c, i]


@compiled
def add_column(tab: Tableau, r: int, c: int, weight: float, padded: int) -> None:
    """Add so much of column c of the first basis to row r, or of the row that its variable has now."""
    matrix, place = tab.matrix, tab.where[tab.original[c]]
    if place < 0:
        matrix[r, -place] += weight
    else:
        for k in range(padded):
            matrix[r, k] += weight * matrix[place - 1, k]


@compiled
def write_row(space: Workspace, d: int, shape: Shape, variable: int) -> Shape:
    """Give the variable of a neuron a row, above that of Q."""
    net, tab = space.net, space.tab
    matrix, fresh, r = tab.matrix, tab.fresh, shape.rows
    padded = (shape.columns + 3) & NATURAL & ~3
    i, kind = (variable - d) // KINDS, (variable - d) % KINDS
    if i < net.count[1]:
        fresh_plane(space, d, i, kind)
    else:
        fresh_row(space, d, i, kind, padded)
    for c in range(padded):
        matrix[r + 1, c] = matrix[r, c]
        matrix[r, c] = 0.0
    matrix[r, 0] = fresh[0]
    own = tab.own[i] if kind < 2 else -tab.own[i]
    if i < net.count[1]:
        for c in range(1, 1 + d):
            add_column(tab, r, c, fresh[c], padded)
        if tab.column[i] > 0:
            add_column(tab, r, tab.column[i], own, padded)
    else:
        if tab.column[i] > 0:
            fresh[tab.column[i]] += own
        for c in range(1, shape.columns):
            if fresh[c] != 0.0:
                add_column(tab, r, c, fresh[c], padded)
    value = 0.0
    for c in range(shape.columns):
        value += matrix[r, c] * tab.nonbasic_value[c]
    tab.basic[r] = variable
    tab.where[variable] = r + 1
    tab.basic_value[r] = value
    tab.basic_low[r] = tab.variable_low[variable]
    tab.basic_high[r] = tab.variable_high[variable]
    return Shape(r + 1, shape.columns)


@compiled
def is_violated(tab: Tableau, variable: int, value: float) -> bool:
    """Whether a variable that has neither a row nor a column is outside its bounds."""
    if tab.where[variable] != 0:
        return False
    return value < tab.variable_low[variable] - FEASIBLE or value > tab.variable_high[variable] + FEASIBLE


@compiled
def write_cuts(space: Workspace, d: int, shape: Shape, gap: float) -> Shape:
    """Give a row to each facet that, at the point that `pass_forward` has just seen, promises a share of the gap.

    A facet takes off the bound what the neuron is above it there, times the reduced cost of its cap's slack.
    """
    net, node, tab, facets = space.net, space.node, space.tab, space.facets
    sort_ends(d, node, tab.actual, facets)
    write_facets(net, d, node, facets, facets.planes)
    heights(net, d, facets.planes, tab.actual, facets.height)
    for f in range(tab.count[0]):
        i = tab.bent[f]
        variable = np.int64(d + KINDS * i + 3)
        column = -tab.where[variable - 1]
        if column <= 0:
            continue
        above = tab.actual[d + i] - facets.height[i]
        if above > WRITTEN and -tab.matrix[shape.rows, column] * above > WORTH_A_ROW * gap:
            tab.variable_high[variable] = facets.level[i]
            shape = write_row(space, d, shape, variable)
    return shape


@compiled
def measure_slack(space: Workspace, n: int, d: int) -> None:
    """How high the envelopes are at the point that `pass_forward` has just seen, and how far inside of them it is.

    Below a cap or envelope, above 0 and y, and within the bounds of the neuron; for those that are free.
    """
    node, tab, height, slack = space.node, space.tab, space.facets.height, space.facets.slack
    n, d, flat = n & NATURAL, d & NATURAL, space.net.count[1] & NATURAL
    heights(space.net, d, node.cap, tab.actual, height)
    for i in range(flat, n):
        height[i] = tab.slope[i] * (tab.pre[i] + tab.reach[i])
    for i in range(n):
        z = tab.actual[d + i]
        p = z - tab.pre[i]
        inside = min(min(z, node.upper[i] - z), min(p, -node.lower[i] - p))
        slack[i] = min(inside, height[i] - z)


@compiled
def write_violated(space: Workspace, n: int, d: int, shape: Shape) -> Shape:
    """Give a row to every violated variable that has none."""
    node, tab = space.node, space.tab
    pass_forward(space, n, d)
    measure_slack(space, n, d)
    height, slack = space.facets.height, space.facets.slack
    for i in range(n):
        z = np.int64(d + KINDS * i)
        y, value = tab.pre[i], tab.actual[d + i]
        if tab.slope[i] > 0.0:
            if slack[i] >= -FEASIBLE:
                continue
            if is_violated(tab, z, value):
                shape = write_row(space, d, shape, z)
            if is_violated(tab, z + 1, value - y):
                shape = write_row(space, d, shape, z + 1)
            if is_violated(tab, z + 2, height[i] - value):
                shape = write_row(space, d, shape, z + 2)
        elif space.scratch.binding[i] != 0:
            active = node.lower[i] >= 0.0
            if is_violated(tab, z if active else z + 1, y if active else -y):
                shape = write_row(space, d, shape, z if active else z + 1)
    return shape
