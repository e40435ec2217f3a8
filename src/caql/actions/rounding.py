"""Actions as numbers of the environment's dtype that satisfy the rows themselves, not only before they were rounded.

Rounding moves each action by at most half a unit in its last place, eps |a_i| / 2, and a row's height by at most half
of  eps sum_i |r_i a_i|.  So the closest point is sought in the set pulled in by twice that, and by the host
solver's own tolerance; after rounding it is still inside, in whatever order a reader adds up the row.  Whole numbers
are chosen first: with them fixed, "off or between 2 and 5" is a box, and a box needs only its sides rounded inwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from caql.actions import hull
from caql.actions.projection import ROUNDING, TOLERANCE, System, closest, why_empty
from caql.errors import CaqlError

if TYPE_CHECKING:
    from caql.actions.set import ActionSet

Array = NDArray[np.float64]

SOLVER = 4 * TOLERANCE
"""How far DAQP's point may be outside a row, with something to spare: a distance."""


def inwards(low: Any, high: Any, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Bounds as float64 that are numbers of `dtype`, none of them outside; a side without such a number stays."""
    with np.errstate(over="ignore"):
        up, down = low.astype(dtype), high.astype(dtype)
    if (up == low).all() and (down == high).all():
        return low, high
    up = np.where(up < low, np.nextafter(up, dtype.type(np.inf)), up).astype(np.float64)
    down = np.where(down > high, np.nextafter(down, dtype.type(-np.inf)), down).astype(np.float64)
    crossed = up > down
    return np.where(crossed, low, up), np.where(crossed, high, down)


def margins(rows: Any, largest: Any, size: int, dtype: np.dtype[Any]) -> Any:
    """What rounding and the solver can change each row by, for variables of at most `largest` -> (..., m)."""
    sizes = np.abs(rows)
    reach = sizes * np.where(sizes > 0, largest[..., None, :], 0.0)
    return np.finfo(dtype).eps * reach[..., :size].sum(axis=-1) + SOLVER * np.sqrt((sizes * sizes).sum(axis=-1))


def inset(action_set: ActionSet, dtype: np.dtype[Any]) -> ActionSet:
    """See `ActionSet.inset`; NumPy float64."""
    low, high = inwards(action_set.low, action_set.high, dtype)
    inner = replace(action_set, low=low, high=high)
    within = inner.tightened()
    largest = np.maximum(*(np.abs(side) for side in hull.variable_bounds(within)))
    moved = margins(inner.rows, largest, inner.size, dtype)
    whole = inner.rows[..., list(inner.integer)].any(axis=-1)
    moved = np.where(whole | ~np.isfinite(moved), 0.0, moved)
    return replace(
        inner, **dict(zip(("row_low", "row_high"), _pulled(inner.row_low, inner.row_high, moved), strict=True))
    )


def _pulled(row_low: Any, row_high: Any, moved: Any) -> tuple[Any, Any]:
    """Sides of the rows moved inwards, at most to their middle."""
    with np.errstate(invalid="ignore"):
        moved = np.fmin(moved, (row_high - row_low) / 2)
    return row_low + moved, row_high - moved


def holds(one: System, action: Array, dtype: np.dtype[Any]) -> bool:
    """Whether an action satisfies all rows of a set without auxiliary variables, in whatever order they are summed."""
    if not len(one.rows) and not one.integer:
        return True
    heights, reach = one.rows @ action, np.abs(one.rows) @ np.abs(action)
    whole = list(one.integer)
    if whole and (action[whole] != np.round(action[whole])).any():
        return False
    equal = one.row_low == one.row_high
    order = (len(action) + 1) * 2.0**-52 * reach
    if not whole and not equal.any():
        return bool(((heights >= one.row_low + order) & (heights <= one.row_high - order)).all())
    if whole:
        # Sums of whole numbers are exact.
        free = np.ones(len(action), np.bool_)
        free[whole] = False
        order = np.where(one.rows[:, free].any(axis=1), order, 0.0)
    target = np.where(equal, one.row_low, 0.0)
    slack = np.where(equal, max(2 * np.finfo(dtype).eps, ROUNDING) * (reach + np.abs(target)), -order)
    return bool(((heights >= one.row_low - slack) & (heights <= one.row_high + slack)).all())


def admissible(one: System, action: Array, dtype: np.dtype[Any]) -> Any:
    """The action itself, or the closest to it, as numbers of `dtype`; see `ActionSet.admissible`."""
    d = one.size
    if not np.isfinite(action).all():
        # A diverged actor must not carry NaN into an environment.
        action = np.where(
            np.isfinite(action), action, np.where(action > 0, 1e6, np.where(action < 0, -1e6, one.middle))
        )
    inside = _rounded(one, action, dtype)
    if len(one.low) == d and (one.low <= one.high).all() and holds(one, inside.astype(np.float64), dtype):
        return inside
    near, given = None, one
    if one.integer:
        near = _required(one, action)
        one = _with_whole_fixed(one, near)
        if not len(one.rows):
            return _rounded(one, action, dtype)
    for inner in _insets(one, dtype):
        point = closest(inner, action, thin=False)
        if point is not None:
            point = _onto_equalities(inner, point)
            given.hints[:] = [point[d:]]
            return _settled(one, point[:d], dtype)
    near = _required(one, action) if near is None else near
    return _settled(one, _onto_equalities(one, near)[:d], dtype)


def _settled(one: System, action: Array, dtype: np.dtype[Any]) -> Any:
    """The action in `dtype`; on the bounds beside it where the rows hold better there, as with a budget of nothing."""
    given = _rounded(one, action, dtype)
    if len(one.low) > one.size or (over := _excess(one, given)) == 0.0:
        return given
    low, high = one.sides[dtype]
    near = 4 * (SOLVER + np.finfo(dtype).eps * np.abs(action))
    beside = np.where(action - low <= near, low, np.where(high - action <= near, high, action))
    settled = _rounded(one, beside, dtype)
    return settled if _excess(one, settled) < over else given


def _excess(one: System, action: Any) -> float:
    """How far an action is outside the rows of a set without auxiliary variables."""
    heights = one.rows @ action.astype(np.float64)
    return float(np.maximum(one.row_low - heights, heights - one.row_high).max(initial=0.0))


def _onto_equalities(one: System, point: Array) -> Array:
    """The point moved by what the host solver's tolerance left of the equalities, which float64 could tell.

    Only variables away from their bounds move, and by no more than what the inequalities were pulled in by.
    """
    equal = one.row_low == one.row_high
    if not equal.any():
        return point
    off = one.row_low[equal] - one.rows[equal] @ point
    if np.abs(off).max() == 0.0:
        return point
    free = (point - one.low > SOLVER) & (one.high - point > SOLVER)
    change = np.linalg.lstsq(one.rows[equal][:, free], off, rcond=None)[0]
    if np.abs(change).max(initial=0.0) > SOLVER:
        return point
    moved = point.copy()
    moved[free] += change
    return moved


def _required(one: System, action: Array) -> Array:
    near = closest(one, action)
    if near is None:
        raise CaqlError(why_empty(one))
    return near


def _rounded(one: System, action: Array, dtype: np.dtype[Any]) -> Any:
    """The closest numbers of `dtype` within the bounds."""
    if dtype not in one.sides:
        one.sides[dtype] = inwards(one.low[: one.size], one.high[: one.size], dtype)
    low, high = one.sides[dtype]
    return np.minimum(np.maximum(action, low), high).astype(dtype)


def _with_whole_fixed(one: System, point: Array) -> System:
    """The continuous set that is left when the whole numbers have a point's values.

    A row with one variable left becomes a bound of it, rows with none are dropped: with a switch at zero,
    0 <= a <= 0 is a bound without width, which needs no inset that would make it impossible.  Where there is width,
    such a bound is pulled in by what the division and the sum of the row may round.
    """
    whole = list(one.integer)
    low, high = one.low.copy(), one.high.copy()
    low[whole] = high[whole] = np.round(point[whole])
    fixed = low == high
    constant = one.rows @ np.where(fixed, low, 0.0)
    rows = np.where(fixed, 0.0, one.rows)
    row_low, row_high = one.row_low - constant, one.row_high - constant
    count = (rows != 0).sum(axis=1)
    reach = np.abs(one.rows) @ np.where(fixed, np.abs(low), 0.0)
    inner_low, inner_high = low.copy(), high.copy()
    for row in np.flatnonzero(count == 1):
        i = int(np.flatnonzero(rows[row])[0])
        below, above = sorted((row_low[row] / rows[row, i], row_high[row] / rows[row, i]))
        low[i], high[i] = max(low[i], below), min(high[i], above)
        spare = [ROUNDING * (reach[row] / abs(rows[row, i]) + abs(side)) for side in (below, above)]
        if math.isfinite(below):
            inner_low[i] = max(inner_low[i], below + spare[0])
        if math.isfinite(above):
            inner_high[i] = min(inner_high[i], above - spare[1])
    wide = inner_low <= inner_high
    low, high = np.where(wide, inner_low, low), np.where(wide, inner_high, high)
    # The solver's tolerance may have put the sides of a row across each other.
    crossed = low > high
    low[crossed] = high[crossed] = np.clip(point, high, low)[crossed]
    kept = count > 1
    return replace(one, low=low, high=high, rows=rows[kept], row_low=row_low[kept], row_high=row_high[kept], integer=())


def _insets(one: System, dtype: np.dtype[Any]) -> Iterator[System]:
    """The set pulled in, first by what the box shows, then by what the tightened box does, then row by row."""
    if dtype not in one.insets:
        one.insets[dtype] = _first_inset(one, dtype)
    one, inner = one.insets[dtype]
    if inner is not None:
        yield inner
    low, high = hull.propagated(one.low, one.high, one.rows, one.row_low, one.row_high)
    largest = np.maximum(np.abs(low), np.abs(high))
    if not np.isfinite(largest).all():
        largest = np.where(np.isfinite(largest), largest, 1.0 + np.abs(_required(one, one.middle)))
    yield _pulled_in(one, largest, dtype)
    # Some row has no width: every other one is pulled in as long as something is left.
    chosen = np.zeros(len(one.rows), np.bool_)
    for row in range(len(chosen)):
        chosen[row] = True
        inner = _pulled_in(one, largest, dtype, chosen)
        if closest(inner, inner.middle, thin=False) is None:
            chosen[row] = False
    yield _pulled_in(one, largest, dtype, chosen)


def _first_inset(one: System, dtype: np.dtype[Any]) -> tuple[System, System | None]:
    """The set with bounds of `dtype`, and that with its rows pulled in, if the box is finite."""
    d = one.size
    low, high = one.low.copy(), one.high.copy()
    low[:d], high[:d] = one.sides[dtype] if dtype in one.sides else inwards(one.low[:d], one.high[:d], dtype)
    one = replace(one, low=low, high=high)
    largest = np.maximum(np.abs(low), np.abs(high))
    return one, _pulled_in(one, largest, dtype) if np.isfinite(largest).all() else None


def _pulled_in(one: System, largest: Array, dtype: np.dtype[Any], chosen: Any = True) -> System:
    """The set with its inequalities, or the chosen ones, moved inwards for variables of at most `largest`."""
    moved = np.where(chosen & (one.row_low != one.row_high), margins(one.rows, largest, one.size, dtype), 0.0)
    row_low, row_high = _pulled(one.row_low, one.row_high, moved)
    return replace(one, row_low=row_low, row_high=row_high)
