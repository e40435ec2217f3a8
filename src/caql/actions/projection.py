"""Sets on the host, in float64: the closest point, membership, what an environment may be given, why a set is empty.

The closest point of a continuous set is a quadratic program over the actions and the auxiliary variables,

    min ||a - p||^2   with   low <= (a, h) <= high,   row_low <= R (a, h) <= row_high,

solved by DAQP (Arnstrom et al. 2022), an active-set method for programs of this size.  Whole numbers are found by
branch and bound on it, the distance of the relaxation being the bound.  This is the only file that knows DAQP.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import daqp
import numpy as np
from numpy.typing import NDArray

from caql.actions import hull
from caql.errors import CaqlError

if TYPE_CHECKING:
    from caql.actions.set import ActionSet

Array = NDArray[np.float64]

TOLERANCE = 1e-10
"""DAQP's feasibility tolerance, a distance."""
THIN = 1e-9
"""Rows of unit length are relaxed by this where DAQP finds no point at first: a set may be thinner than its tolerance,
as with equalities that repeat each other up to rounding."""
ROUNDING = 1e-12
"""What equalities may be off by in float64, as a fraction of their terms: what DAQP's own rounding leaves."""
INFINITE = 1e30
"""What DAQP takes for no bound."""


@dataclass(frozen=True, eq=False)
class System:
    """One state's set over n = d + k variables, NumPy float64: bounds, rows and d, the number of actions."""

    low: Array
    high: Array
    rows: Array
    row_low: Array
    row_high: Array
    size: int
    integer: tuple[int, ...] = ()

    @cached_property
    def insets(self) -> dict[Any, Any]:
        """The set pulled in by the rounding, by dtype."""
        return {}

    @cached_property
    def hints(self) -> list[Array]:
        """Auxiliary variables, (k,), that were found for the last action brought into the set."""
        return []

    @cached_property
    def sides(self) -> dict[Any, Any]:
        """The actions' bounds rounded inwards, by dtype."""
        return {}

    @property
    def middle(self) -> Array:
        """A point to start from: the middle of the box's finite part -> (d,)."""
        low, high = (np.clip(side[: self.size], -1e6, 1e6) for side in (self.low, self.high))
        return (low + high) / 2

    @cached_property
    def program(self) -> _Program | None:
        """The quadratic program without its target; None if bounds or an empty row already rule out every point."""
        if (self.low > self.high).any():
            return None
        free = self.low < self.high
        rows, row_low, row_high, slack = self.rows, self.row_low, self.row_high, np.zeros(len(self.rows))
        if not free.all():
            # Left as bounds without width, fixed variables could make rows look dependent that are not.
            parts = rows * np.where(free, 0.0, self.low)
            moved, slack = parts.sum(axis=1), THIN * np.abs(parts).sum(axis=1)
            rows, row_low, row_high = rows[:, free], row_low - moved, row_high - moved
        used = rows.any(axis=1)
        if not used.all():
            # DAQP wants no rows of zeros.
            if ((row_low > slack) | (row_high < -slack))[~used].any():
                return None
            rows, row_low, row_high = rows[used], row_low[used], row_high[used]
        # DAQP's tolerance is absolute: rows of unit length make it a distance.
        size = np.sqrt((rows * rows).sum(axis=1))
        rows, row_low, row_high = rows / size[:, None], row_low / size, row_high / size
        upper, lower = np.concatenate([self.high[free], row_high]), np.concatenate([self.low[free], row_low])
        if (lower > upper).any():
            return None
        np.minimum(upper, INFINITE, out=upper)
        np.maximum(lower, -INFINITE, out=lower)
        cost, kinds = _constants(rows.shape[1], int(free[: self.size].sum()), len(upper))
        return _Program(cost, rows, upper, lower, kinds, None if free.all() else np.flatnonzero(free))


class _Program(NamedTuple):
    """DAQP's arguments; `free`: which variables are left in it, None for all."""

    cost: Array
    rows: Array
    upper: Array
    lower: Array
    kinds: NDArray[np.int32]
    free: NDArray[np.intp] | None


@lru_cache(maxsize=256)
def _constants(n: int, d: int, sides: int) -> tuple[Array, NDArray[np.int32]]:
    """The cost of the distance in the first d of n variables, and the kind of every side: an inequality."""
    cost = np.zeros((n, n))
    cost[:d, :d] = np.eye(d)
    return cost, np.zeros(sides, np.int32)


def system(one: ActionSet) -> System:
    """A set without a leading axis, NumPy float64, with its bounds in one piece."""
    if not one.auxiliary_low.shape[-1]:
        low, high = one.low, one.high
    else:
        low, high = (np.concatenate(side) for side in ((one.low, one.auxiliary_low), (one.high, one.auxiliary_high)))
    return System(low, high, one.rows, one.row_low, one.row_high, len(one.low), one.integer)


def require_finite(action_set: ActionSet) -> None:
    """Raise for an action without bounds."""
    endless = ~(np.isfinite(action_set.low) & np.isfinite(action_set.high))
    if endless.any():
        where = int(np.argwhere(endless)[0][-1])
        raise CaqlError(
            f"the set has no bounds on action {where}; join it with finite ones, ActionSet.bounds(low, high)"
        )


def closest(one: System, target: Array, *, thin: bool = True) -> Array | None:
    """The admissible point closest to a target action, (d,) -> (d + k,) with auxiliary variables; None if empty.

    thin: whether a set without a point may be one that is only thinner than the tolerance.
    """
    if one.integer:
        return _closest_whole(one, target)
    if not len(one.rows):
        inside = np.minimum(np.maximum(np.resize(target, len(one.low)), one.low), one.high)
        return inside if (one.low <= one.high).all() else None
    program = one.program
    if program is None:
        return None
    linear = -target
    if len(one.low) > one.size:
        linear = np.concatenate([linear, np.zeros(len(one.low) - one.size)])
    if program.free is None:
        point = _solved(program, linear, thin)
    else:
        point = one.low.copy()
        if len(program.free):
            found = _solved(program, linear[program.free], thin)
            if found is None:
                return None
            point[program.free] = found
    return None if point is None else np.minimum(np.maximum(point, one.low), one.high)


def _solved(program: _Program, linear: Array, thin: bool) -> Array | None:
    """DAQP's answer, if need be with rows relaxed by a hair; None if there is none."""
    cost, rows, upper, lower, kinds, _ = program
    if not len(rows):
        return np.where(cost.diagonal() > 0, np.minimum(np.maximum(-linear, lower), upper), np.clip(0.0, lower, upper))
    point, _, flag, _ = daqp.solve(cost, linear, rows, upper, lower, kinds, primal_tol=TOLERANCE, eta_prox=TOLERANCE)
    if flag != 1 and thin:
        # Only rows: a bound stays where it is.
        slack = np.zeros(len(upper))
        slack[-len(rows) :] = THIN
        point, _, flag, _ = daqp.solve(
            cost, linear, rows, upper + slack, lower - slack, kinds, primal_tol=TOLERANCE, eta_prox=TOLERANCE
        )
    return point if flag == 1 else None


def _closest_whole(one: System, target: Array) -> Array | None:
    """Branch and bound on the whole numbers, the closest relaxation first."""
    whole = list(one.integer)
    low, high = one.low.copy(), one.high.copy()
    low[whole], high[whole] = np.ceil(low[whole] - hull.WHOLE), np.floor(high[whole] + hull.WHOLE)
    if not (np.isfinite(low[whole]).all() and np.isfinite(high[whole]).all()):
        where = next(i for i in whole if not np.isfinite([low[i], high[i]]).all())
        raise CaqlError(f"variable {where} is a whole number without bounds; join the set with finite ones")
    best, shortest, order = None, np.inf, itertools.count()
    relaxed = replace(one, low=low, high=high, integer=())
    open_nodes: list[tuple[float, int, System, Array]] = []

    def consider(node: System) -> None:
        point = closest(node, target)
        if point is not None:
            away = float(np.sum((point[: one.size] - target) ** 2))
            if away < shortest:
                heapq.heappush(open_nodes, (away, next(order), node, point))

    consider(relaxed)
    while open_nodes and open_nodes[0][0] < shortest:
        bound, _, node, point = heapq.heappop(open_nodes)
        values = np.round(point[whole])
        apart = np.abs(point[whole] - values)
        if (apart <= hull.WHOLE).all():
            fixed = _with_whole(node, whole, values)
            found = closest(fixed, target)
            if found is not None:
                away = float(np.sum((found[: one.size] - target) ** 2))
                if away < shortest:
                    best, shortest = found, away
                # A switch of 1e-7 looks like zero and may still let its action through: then it is split as well.
                if np.sqrt(away) <= np.sqrt(bound) + 10 * THIN:
                    continue
            if (node.low[whole] == node.high[whole]).all():
                continue
        # Where every number looks whole and still no point as close is found, the widest choice is split.
        pick = whole[int(np.argmax(np.where(node.low[whole] < node.high[whole], apart, -1.0)))]
        split = min(max(np.floor(point[pick]), node.low[pick]), node.high[pick] - 1)
        below, above = node.high.copy(), node.low.copy()
        below[pick], above[pick] = split, split + 1
        consider(replace(node, high=below))
        consider(replace(node, low=above))
    return best


def _with_whole(one: System, whole: list[int], values: Array) -> System:
    low, high = one.low.copy(), one.high.copy()
    low[whole] = high[whole] = values
    return replace(one, low=low, high=high)


def contains(one: System, action: Any, dtype: Any) -> bool:
    """Whether an action of `dtype` is admissible; see `ActionSet.contains`."""
    d = one.size
    action = np.asarray(action, np.float64)
    epsilon = max(np.finfo(dtype).eps if np.issubdtype(dtype, np.floating) else 0.0, ROUNDING)
    low, high = one.low[:d], one.high[:d]
    if not ((action >= low) & (action <= high)).all():
        # A bound without width is an equality.
        away = np.abs(action - low) <= epsilon * np.abs(np.where(low == high, low, 0.0))
        if not (((action >= low) & (action <= high)) | ((low == high) & away)).all():
            return False
    if any(action[i] != np.round(action[i]) for i in one.integer if i < d):
        return False
    if not len(one.rows):
        return True
    seen = one.rows[:, :d]
    heights = seen @ action
    if len(one.low) == d and ((heights >= one.row_low) & (heights <= one.row_high)).all():
        return True
    rounding, reach = 4 * d * epsilon, np.abs(seen) @ np.abs(action)
    equal = one.row_low == one.row_high
    slack = np.where(equal, rounding * (reach + np.abs(np.where(equal, one.row_low, 0.0))), 0.0)
    if len(one.low) == d:
        return bool(((heights >= one.row_low - slack) & (heights <= one.row_high + slack)).all())
    if any(_satisfies(one, heights, hint, slack) for hint in one.hints):
        return True
    slack = slack + THIN * (reach + np.abs(one.rows).max(axis=1, initial=0.0))
    return witness(one, action, slack) is not None


def _satisfies(one: System, heights: Array, auxiliary: Array, slack: Array) -> bool:
    """Whether rows, of which the actions' part is given, bounds and whole numbers hold with these variables."""
    d = one.size
    if not ((auxiliary >= one.low[d:]) & (auxiliary <= one.high[d:])).all():
        return False
    if any(auxiliary[i - d] != np.round(auxiliary[i - d]) for i in one.integer if i >= d):
        return False
    heights = heights + one.rows[:, d:] @ auxiliary
    return bool(((heights >= one.row_low - slack) & (heights <= one.row_high + slack)).all())


def witness(one: System, action: Array, slack: Any = 0.0) -> Array | None:
    """Auxiliary variables, (k,), with which an action satisfies every row to within `slack`; None if there are none."""
    d = one.size
    heights = one.rows[:, :d] @ action
    inner = System(
        one.low[d:],
        one.high[d:],
        one.rows[:, d:],
        one.row_low - heights - slack,
        one.row_high - heights + slack,
        len(one.low) - d,
        tuple(i - d for i in one.integer if i >= d),
    )
    return closest(inner, inner.middle)


def why_empty(one: System, where: str = "") -> str:
    """The sentence for an empty set: the bounds or the rows that conflict, none of which could be left out."""
    crossed = np.flatnonzero(one.low > one.high)
    if len(crossed):
        i = int(crossed[0])
        return f"the action set is empty{where}: {_name(one, i)} has bounds from {one.low[i]:g} to {one.high[i]:g}"
    kept = list(range(len(one.rows)))
    for row in range(len(one.rows)):
        fewer = [k for k in kept if k != row]
        if closest(_with_rows(one, fewer), one.middle) is None:
            kept = fewer
    if not kept:
        return f"the action set is empty{where}: no whole numbers lie within the bounds"
    said = "; ".join(f"row {k}: {_algebra(one, k)}" for k in kept)
    return f"the action set is empty{where}: within the bounds these rows conflict, {said}"


def _with_rows(one: System, kept: list[int]) -> System:
    return replace(one, rows=one.rows[kept], row_low=one.row_low[kept], row_high=one.row_high[kept])


def _name(one: System, variable: int) -> str:
    return f"a{variable}" if variable < one.size else f"h{variable - one.size}"


def _algebra(one: System, row: int) -> str:
    terms = [f"{weight:+g} {_name(one, i)}" for i, weight in enumerate(one.rows[row]) if weight]
    middle = " ".join(terms).removeprefix("+") or "0"
    low, high = one.row_low[row], one.row_high[row]
    if low == high:
        return f"{middle} = {low:g}"
    left = f"{low:g} <= " if np.isfinite(low) else ""
    return f"{left}{middle}" + (f" <= {high:g}" if np.isfinite(high) else "")
