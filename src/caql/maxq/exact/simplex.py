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

from caql.maxq.exact.compilation import NATURAL, compiled
from caql.maxq.exact.relaxation import Floats, Integers

FEASIBLE = 1e-9
PIVOT = 1e-8
"""Entries of a row that are no larger are not pivoted on."""
SPARSE = 3
"""A row with fewer than one in so many entries is added entry by entry."""
OPTIMAL, INFEASIBLE, BELOW_CUTOFF, STALLED = 0, 1, 2, 3


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
    touched: Integers
    """The incoming row, and its columns that are not zero."""
    reach: Floats
    """Minus the lower bound of each free neuron."""
    slope: Floats
    """Of each free neuron's envelope; 0 for the others."""
    planes: Floats
    """The first layer's z, a column each, and the order of its free neurons, also while writing down."""
    bent: Integers
    where: Integers
    """By variable: r + 1 in row r, -c in column c, 0 for a free neuron's third variable while it has no row."""
    stop: Integers
    """Pivoting ends soon after its only entry becomes non-zero."""


class Shape(NamedTuple):
    """How much of a tableau is in use; the row after the last is Q."""

    rows: int
    columns: int


class Outcome(NamedTuple):
    """How the simplex ended: a status, the rows by then, the number of pivots, and a proof of infeasibility.

    When infeasible, adding `step` times row `ray` to the last row proves Q to be below the cutoff; otherwise
    `ray` is -1.
    """

    status: int
    rows: int
    pivots: int
    ray: int
    step: float


@compiled
def pivot(tab: Tableau, rows: int, columns: int, r: int, q: int) -> None:
    """Exchange basic variable r with nonbasic variable q; values are left alone."""
    matrix, incoming = tab.matrix, tab.incoming
    padded = (columns + 3) & NATURAL & ~3  # whole vectors; the padding is kept at zero
    inverse = 1.0 / matrix[r, q]
    for c in range(padded):
        incoming[c] = matrix[r, c] * -inverse
        matrix[r, c] = 0.0
    incoming[q] = inverse
    matrix[r, q] = 1.0
    touched, count = tab.touched, 0
    for c in range(columns):
        touched[count] = c
        count += incoming[c] != 0.0
    if SPARSE * count < padded:
        for i in range(rows + 1):
            factor = matrix[i, q]
            if factor != 0.0:
                matrix[i, q] = 0.0
                for c in range(count):
                    matrix[i, touched[c]] += factor * incoming[touched[c]]
    else:
        for i in range(0, rows, 2):
            factor, other = matrix[i, q], matrix[i + 1, q]
            matrix[i, q] = matrix[i + 1, q] = 0.0
            for c in range(padded):
                matrix[i, c] += factor * incoming[c]
                matrix[i + 1, c] += other * incoming[c]
        if rows % 2 == 0:
            factor = matrix[rows, q]
            matrix[rows, q] = 0.0
            for c in range(padded):
                matrix[rows, c] += factor * incoming[c]
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
def write_violated(tab: Tableau, n: int, d: int, rows: int, columns: int) -> int:
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
def worst_violation(tab: Tableau, rows: int) -> tuple[int, float, float]:
    """The basic variable farthest outside its bounds: (its row or -1, by how much, 1 when below and -1 when above)."""
    r, worst, sign = np.int64(-1), FEASIBLE, 1.0
    for i in range(rows):
        below = tab.basic_low[i] - tab.basic_value[i]
        above = tab.basic_value[i] - tab.basic_high[i]
        if below > worst:
            r, worst, sign = i, below, 1.0
        elif above > worst:
            r, worst, sign = i, above, -1.0
    return r, worst, sign


@compiled
def rate(tab: Tableau, shape: Shape, r: int, sign: float) -> int:
    """The ratio of every column that can mend row r, infinity elsewhere; returns the best column, or -1."""
    matrix, ratio = tab.matrix, tab.ratio
    q, best, size = np.int64(-1), np.inf, 0.0
    for c in range(1, shape.columns):
        ratio[c] = np.inf
        slope = sign * matrix[r, c]
        if abs(slope) <= PIVOT:
            continue
        variable = tab.nonbasic[c]
        least = tab.variable_low[variable]
        if tab.variable_high[variable] > least and (slope < 0.0) == (tab.nonbasic_value[c] > least):
            ratio[c] = max(0.0, -matrix[shape.rows, c] / slope)
            if ratio[c] < best or (ratio[c] == best and abs(slope) > size):
                q, best, size = c, ratio[c], abs(slope)
    return q


@compiled
def negligible(tab: Tableau, columns: int, r: int) -> float:
    """A violation of row r that proves nothing: columns too small to pivot on might mend it."""
    total = 0.0
    for c in range(1, columns):
        if abs(tab.matrix[r, c]) <= PIVOT:
            variable = tab.nonbasic[c]
            total += abs(tab.matrix[r, c]) * (tab.variable_high[variable] - tab.variable_low[variable])
    return FEASIBLE + 2.0 * total


@compiled
def next_column(tab: Tableau, columns: int, r: int, passed: int) -> int:
    """The column with the smallest ratio but for `passed`, whose ratio becomes infinite; -1 when there is none."""
    ratio, matrix = tab.ratio, tab.matrix
    ratio[passed] = np.inf
    q, best, size = np.int64(-1), np.inf, 0.0
    for c in range(1, columns):
        if ratio[c] < best or (ratio[c] == best and best < np.inf and abs(matrix[r, c]) > size):
            q, best, size = c, ratio[c], abs(matrix[r, c])
    return q


@compiled
def flip(tab: Tableau, rows: int, q: int) -> None:
    """Move nonbasic variable q to its other bound."""
    variable = tab.nonbasic[q]
    width = tab.variable_high[variable] - tab.variable_low[variable]
    at_upper = tab.nonbasic_value[q] > tab.variable_low[variable]
    move = -width if at_upper else width
    tab.nonbasic_value[q] = tab.variable_low[variable] if at_upper else tab.variable_high[variable]
    for i in range(rows):
        tab.basic_value[i] += tab.matrix[i, q] * move


@compiled
def exchange(tab: Tableau, shape: Shape, r: int, q: int, sign: float) -> None:
    """Bring basic variable r to the bound it violates by moving nonbasic variable q, and pivot."""
    rows = shape.rows
    target = tab.basic_low[r] if sign > 0.0 else tab.basic_high[r]
    move = (target - tab.basic_value[r]) / tab.matrix[r, q]
    for i in range(rows):
        tab.basic_value[i] += tab.matrix[i, q] * move
    tab.basic_value[r] = tab.nonbasic_value[q] + move
    tab.nonbasic_value[q] = target
    pivot(tab, rows, shape.columns, r, q)
    tab.basic_low[r] = tab.variable_low[tab.basic[r]]
    tab.basic_high[r] = tab.variable_high[tab.basic[r]]


class Choice(NamedTuple):
    """The column to exchange a row with, or -1; the objective and the ratio there; the violation that would be left."""

    column: int
    value: float
    ratio: float
    rest: float


@compiled
def choose_column(tab: Tableau, shape: Shape, r: int, sign: float, worst: float, value: float) -> Choice:
    """The long step: flip the columns on the way as long as the dual objective improves.

    Without a column, a `rest` of 0 stands for a violation too small to prove anything by.
    """
    q, rest, passed = rate(tab, shape, r, sign), worst, 0.0
    while q >= 0:
        value -= rest * (tab.ratio[q] - passed)
        passed = tab.ratio[q]
        variable = tab.nonbasic[q]
        rest -= abs(tab.matrix[r, q]) * (tab.variable_high[variable] - tab.variable_low[variable])
        if rest <= 0.0:
            return Choice(q, value, passed, 0.0)
        following = next_column(tab, shape.columns, r, q)
        if following < 0 and rest <= negligible(tab, shape.columns, r):
            return Choice(q, value, passed, 0.0)  # it mends the row but for a trifle
        flip(tab, shape.rows, q)
        q = following
    return Choice(q, value, passed, rest if rest > negligible(tab, shape.columns, r) else 0.0)


@compiled
def dual_simplex(tab: Tableau, n: int, d: int, shape: Shape, cutoff: float, limit: int) -> Outcome:
    """Pivot to the optimum, or until Q is known to be at most `cutoff`, at most `limit` times."""
    rows, columns = shape
    settle(tab, rows, columns)
    fetch_bounds(tab, rows)
    value = objective(tab, rows, columns)
    for pivots in range(limit):
        if value <= cutoff:
            return Outcome(BELOW_CUTOFF, rows, pivots, -1, 0.0)
        if tab.stop[0] != 0:
            return Outcome(STALLED, rows, pivots, -1, 0.0)
        r, worst, sign = worst_violation(tab, rows)
        if r < 0:
            known = rows
            rows = write_violated(tab, n, d, rows, columns)
            if rows == known:
                return Outcome(OPTIMAL, rows, pivots, -1, 0.0)
            continue
        shape = Shape(rows, columns)
        choice = choose_column(tab, shape, r, sign, worst, value)
        value = choice.value
        if choice.column >= 0:
            exchange(tab, shape, r, choice.column, sign)
        elif choice.rest > 0.0:
            step = sign * (choice.ratio + 1.1 * max(value - cutoff, 0.0) / choice.rest)
            return Outcome(INFEASIBLE, rows, pivots, r, step)
        else:
            tab.basic_low[r] = min(tab.basic_low[r], tab.basic_value[r])
            tab.basic_high[r] = max(tab.basic_high[r], tab.basic_value[r])
    return Outcome(STALLED, rows, limit, -1, 0.0)
