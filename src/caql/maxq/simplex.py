"""A boxed dual simplex on a dense tableau, laid out for the triangle relaxation.

Every unstable neuron i has three variables, all zero or more: its activation z, the slack p = z - y to the line
z >= y, and the slack e = s (y - lower) - z to the envelope.  Any one of them may be the nonbasic one: choosing
e, p or z is choosing the upper, the unit or the zero slope, so a backward-linear bound *is* a basis and
the first tableau is written down, not pivoted to.  All variables are boxed, so every basis is dual feasible once
each nonbasic variable sits at the bound its reduced cost prefers, and a ratio test may step over (flip)
variables as long as the dual objective improves.

A tableau row reads x_basic = T[r, 0] + sum over columns c of T[r, c] x_nonbasic(c); the last row is Q.
Further rows over the actions would join as further basic variables with bounds of their own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from caql.maxq.compilation import compiled
from caql.maxq.relaxation import Compact, Floats, Integers, Node, Scratch

FEASIBLE = 1e-9
PIVOT = 1e-8
FORGIVEN = 1e-6
OPTIMAL, INFEASIBLE, BELOW_CUTOFF, STALLED = 0, 1, 2, 3
Z, P, E = 1, 2, 4
"""Bits of `Node.basis`; variable ids are d + 3 i, + 1, + 2."""


class Tableau(NamedTuple):
    """Dense tableau, variable bounds by id, and the current point."""

    matrix: Floats
    basic: Integers
    nonbasic: Integers
    basic_value: Floats
    nonbasic_value: Floats
    variable_low: Floats
    variable_high: Floats
    basic_low: Floats
    basic_high: Floats
    ratio: Floats
    activation: Floats
    """Rows of z per neuron while the tableau is being written down."""
    column: Integers
    incoming: Floats
    reach: Floats
    """Minus the lower bound of each free neuron."""
    slope: Floats
    """Of each free neuron's envelope; 0 for the others."""
    where: Integers
    """By variable: r + 1 in row r, -c in column c, 0 for a free neuron's third variable while it has no row."""


@compiled
def pivot(tab: Tableau, rows: int, columns: int, r: int, q: int) -> None:
    """Exchange basic variable r with nonbasic variable q; values are left alone."""
    matrix, incoming = tab.matrix, tab.incoming
    padded = (columns + 3) // 4 * 4  # whole vectors; the padding is kept at zero
    inverse = 1.0 / matrix[r, q]
    for c in range(padded):
        incoming[c] = matrix[r, c] * -inverse
        matrix[r, c] = 0.0
    incoming[q] = inverse
    matrix[r, q] = 1.0
    for i in range(rows + 1):
        factor = matrix[i, q]
        if factor != 0.0:
            matrix[i, q] = 0.0
            for c in range(padded):
                matrix[i, c] += factor * incoming[c]
    tab.basic[r], tab.nonbasic[q] = tab.nonbasic[q], tab.basic[r]
    tab.where[tab.basic[r]] = r + 1
    tab.where[tab.nonbasic[q]] = -q


@compiled
def settle(tab: Tableau, rows: int, columns: int) -> None:
    """Put every nonbasic variable at the bound its reduced cost prefers and recompute the basic ones."""
    matrix = tab.matrix
    tab.nonbasic_value[0] = 1.0
    for c in range(1, columns):
        variable = tab.nonbasic[c]
        upper = matrix[rows, c] > 0.0
        tab.nonbasic_value[c] = tab.variable_high[variable] if upper else tab.variable_low[variable]
    for r in range(rows):
        value = 0.0
        for c in range(columns):
            value += matrix[r, c] * tab.nonbasic_value[c]
        tab.basic_value[r] = value


@compiled
def fetch_bounds(tab: Tableau, rows: int) -> None:
    """Lay the basic variables' bounds beside their values."""
    for r in range(rows):
        tab.basic_low[r] = tab.variable_low[tab.basic[r]]
        tab.basic_high[r] = tab.variable_high[tab.basic[r]]


@compiled
def objective(tab: Tableau, rows: int, columns: int) -> float:
    """The tableau's value of Q, an upper bound up to rounding."""
    value = 0.0
    for c in range(columns):
        value += tab.matrix[rows, c] * tab.nonbasic_value[c]
    return value


@compiled
def current(tab: Tableau, place: int) -> float:
    """The value of the variable at a place of `where`."""
    return tab.basic_value[place - 1] if place > 0 else tab.nonbasic_value[-place]


@compiled
def unwritten(tab: Tableau, d: int, i: int) -> tuple[int, float]:
    """The variable of free neuron i that has no row, and its value; -1 when all three are in the tableau.

    The three are tied by e + (1 - s) z + s p = -s lower, so a row is needed only once it would be violated.
    """
    z = d + 3 * i
    at_z, at_p, at_e = tab.where[z], tab.where[z + 1], tab.where[z + 2]
    slope = tab.slope[i]
    if at_e == 0:
        return z + 2, slope * tab.reach[i] - (1.0 - slope) * current(tab, at_z) - slope * current(tab, at_p)
    if at_p == 0:
        return z + 1, tab.reach[i] - ((1.0 - slope) * current(tab, at_z) + current(tab, at_e)) / slope
    if at_z == 0:
        return z, (slope * (tab.reach[i] - current(tab, at_p)) - current(tab, at_e)) / (1.0 - slope)
    return np.int64(-1), 0.0


@compiled
def write_violated(tab: Tableau, d: int, n: int, rows: int, columns: int) -> int:
    """Give a row to every violated variable that has none; returns the new number of rows."""
    matrix = tab.matrix
    for i in range(n):
        slope = tab.slope[i]
        if slope <= 0.0:
            continue
        missing, value = unwritten(tab, d, i)
        if missing < 0 or tab.variable_low[missing] - FEASIBLE <= value <= tab.variable_high[missing] + FEASIBLE:
            continue
        z = d + 3 * i
        scale = -1.0 / (1.0 - slope if missing == z else (slope if missing == z + 1 else 1.0))
        for c in range((columns + 3) // 4 * 4):
            matrix[rows + 1, c] = matrix[rows, c]
            matrix[rows, c] = 0.0
        matrix[rows, 0] = -scale * slope * tab.reach[i]
        for v in range(z, z + 3):
            if v == missing:
                continue
            weight = scale * (1.0 - slope if v == z else (slope if v == z + 1 else 1.0))
            place = tab.where[v]
            if place > 0:
                for c in range(columns):
                    matrix[rows, c] += weight * matrix[place - 1, c]
            else:
                matrix[rows, -place] += weight
        tab.basic[rows] = missing
        tab.where[missing] = rows + 1
        tab.basic_value[rows] = value
        tab.basic_low[rows] = tab.variable_low[missing]
        tab.basic_high[rows] = tab.variable_high[missing]
        rows += 1
    return rows


@compiled
def dual_simplex(
    tab: Tableau, d: int, n: int, rows: int, columns: int, cutoff: float, limit: int
) -> tuple[int, int, int, float, int]:
    """Pivot to the optimum, or until Q is known to be at most `cutoff`: (status, rows, row, step, pivots).

    When infeasible, adding `step` times `row` to the last row proves Q to be below the cutoff.
    """
    matrix, ratio = tab.matrix, tab.ratio
    settle(tab, rows, columns)
    fetch_bounds(tab, rows)
    value = objective(tab, rows, columns)
    for pivots in range(limit):
        if value <= cutoff:
            return BELOW_CUTOFF, rows, -1, 0.0, pivots
        r, worst, sign = np.int64(-1), FEASIBLE, 1.0
        for i in range(rows):
            below = tab.basic_low[i] - tab.basic_value[i]
            above = tab.basic_value[i] - tab.basic_high[i]
            if below > worst:
                r, worst, sign = i, below, 1.0
            elif above > worst:
                r, worst, sign = i, above, -1.0
        if r < 0:
            known = rows
            rows = write_violated(tab, d, n, rows, columns)
            if rows == known:
                return OPTIMAL, rows, -1, 0.0, pivots
            continue
        for c in range(1, columns):
            slope = sign * matrix[r, c]
            variable = tab.nonbasic[c]
            ratio[c] = np.inf
            if abs(slope) > PIVOT and tab.variable_high[variable] > tab.variable_low[variable]:
                at_upper = tab.nonbasic_value[c] > tab.variable_low[variable]
                if (slope < 0.0) == at_upper:
                    ratio[c] = max(0.0, -matrix[rows, c] / slope)
        rest = worst
        passed = 0.0
        while True:
            q, best, size = np.int64(-1), np.inf, 0.0
            for c in range(1, columns):
                if ratio[c] < best or (ratio[c] == best and best < np.inf and abs(matrix[r, c]) > size):
                    q, best, size = c, ratio[c], abs(matrix[r, c])
            if q < 0 and rest < FORGIVEN:
                break
            if q < 0:
                return INFEASIBLE, rows, r, sign * (passed + 1.1 * max(value - cutoff, 0.0) / rest), pivots
            value -= rest * (best - passed)
            passed = best
            variable = tab.nonbasic[q]
            width = tab.variable_high[variable] - tab.variable_low[variable]
            rest -= size * width
            if rest <= 0.0:
                break
            ratio[q] = np.inf
            at_upper = tab.nonbasic_value[q] > tab.variable_low[variable]
            move = -width if at_upper else width
            tab.nonbasic_value[q] = tab.variable_low[variable] if at_upper else tab.variable_high[variable]
            for i in range(rows):
                tab.basic_value[i] += matrix[i, q] * move
        if q < 0:  # too small a violation to prove anything by: let it be
            settle(tab, rows, columns)
            value = objective(tab, rows, columns)
            tab.basic_low[r] = min(tab.basic_low[r], tab.basic_value[r])
            tab.basic_high[r] = max(tab.basic_high[r], tab.basic_value[r])
            continue
        target = tab.basic_low[r] if sign > 0.0 else tab.basic_high[r]
        move = (target - tab.basic_value[r]) / matrix[r, q]
        for i in range(rows):
            tab.basic_value[i] += matrix[i, q] * move
        tab.basic_value[r] = tab.nonbasic_value[q] + move
        tab.nonbasic_value[q] = target
        pivot(tab, rows, columns, r, q)
        tab.basic_low[r] = tab.variable_low[tab.basic[r]]
        tab.basic_high[r] = tab.variable_high[tab.basic[r]]
    return STALLED, rows, -1, 0.0, limit


@compiled
def write_down(net: Compact, n: int, d: int, node: Node, scratch: Scratch, tab: Tableau) -> tuple[int, int]:
    """The node's tableau in the node's basis, or as near to it as pivots allow: (rows, columns)."""
    matrix, activation = tab.matrix, tab.activation
    free = 0
    for i in range(n):
        free += node.lower[i] < 0.0 and node.upper[i] > 0.0
    columns = 1 + d + free
    padded = (columns + 3) // 4 * 4
    for k in range(d):
        tab.nonbasic[1 + k] = k
        tab.variable_low[k] = node.low[k]
        tab.variable_high[k] = node.high[k]
    rows, column = np.int64(0), 1 + d
    for i in range(n + 1):
        y = rows  # the row of y is written where the neuron's first basic variable will stand
        matrix[y, 0] = net.constant[i]
        for k in range(d):
            matrix[y, 1 + k] = net.rows[i, k]
        for c in range(1 + d, padded):
            matrix[y, c] = 0.0
        for j in range(net.first[i]):
            weight = net.rows[i, d + j]
            if weight == 0.0 or node.upper[j] <= 0.0 > node.lower[j]:
                continue
            last = tab.column[j]
            if net.first[j] > 0:
                for c in range(last):
                    matrix[y, c] += weight * activation[j, c]
            else:  # the first layer's activations are planes plus at most a variable of their own
                for c in range(1 + d):
                    matrix[y, c] += weight * activation[j, c]
                if node.lower[j] < 0.0:
                    matrix[y, last - 1] += weight * activation[j, last - 1]
        if i == n:
            break
        low, up = node.lower[i], node.upper[i]
        z = d + 3 * i
        tab.column[i] = column
        tab.slope[i] = 0.0
        if low >= 0.0:
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
            if scratch.binding[i]:
                for c in range(columns):
                    matrix[y, c] = -matrix[y, c]
                tab.basic[rows] = z + 1
                rows += 1
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
