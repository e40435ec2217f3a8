"""A boxed dual simplex on a dense tableau, laid out for the triangle relaxation.

Every unstable neuron i has three variables, all zero or more: its activation z, the slack p = z - y to the line
z >= y, and the slack e = s (y - lower) - z to the envelope.  Any one of them may be the nonbasic one: choosing
e, p or z is choosing the upper, the unit or the zero slope, so a backward-linear bound *is* a basis and
the first tableau is written down, not pivoted to.  All variables are boxed, so every basis is dual feasible once
each nonbasic variable sits at the bound its reduced cost prefers, and a ratio test may step over (flip)
variables as long as the dual objective improves.

Further rows over the actions would join as further basic variables with bounds of their own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from caql.maxq.exact.compilation import compiled
from caql.maxq.exact.pivoting import (
    FEASIBLE,
    Shape,
    Tableau,
    choose_column,
    exchange,
    fetch_bounds,
    objective,
    settle,
)

OPTIMAL, INFEASIBLE, BELOW_CUTOFF, STALLED = 0, 1, 2, 3


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
