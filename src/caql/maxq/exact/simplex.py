"""A boxed dual simplex on a dense tableau, laid out for the triangle relaxation.

Every unstable neuron i has three variables, all zero or more: its activation z, the slack p = z - y to the line
z >= y, and the slack e = s (y - lower) - z to the envelope, or to its cap in place of that.  Some have a fourth, the
slack to one more facet (`facets`).  Any one of them may be the nonbasic one: choosing e, p or z is choosing the upper,
the unit or the zero slope, so a backward-linear bound *is* a basis and the first tableau is written down, not pivoted
to.  All variables are boxed, so every basis is dual feasible once each nonbasic variable sits at the bound its reduced
cost prefers, and a ratio test may step over (flip) variables as long as the dual objective improves.

A variable has a row only once it is violated (`written_rows`).
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
from caql.maxq.exact.workspace import Workspace
from caql.maxq.exact.written_rows import write_cuts, write_violated

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
def dual_simplex(space: Workspace, n: int, d: int, shape: Shape, cutoff: float, limit: int, cuts: bool) -> Outcome:
    """Pivot to the optimum, or until Q is known to be at most `cutoff`, at most `limit` times.

    With `cuts`, facets that are violated at the optimum become rows, once, and it is sought again.
    """
    tab = space.tab
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
            rows = write_violated(space, n, d, Shape(rows, columns)).rows
            if rows == known and cuts:
                cuts = False
                rows = write_cuts(space, d, Shape(rows, columns), value - cutoff).rows
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
