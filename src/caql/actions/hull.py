"""The box around a set, tightened by its rows.

A row  row_low <= sum_i r_i x_i <= row_high  bounds each of its variables by what the others can reach:

    r_j x_j <= row_high - sum_{i != j} min(r_i low_i, r_i high_i),

and the same from below.  A few passes over all rows at once give a box that still holds the whole set: sums are
widened by their rounding error, so that nothing admissible is cut off.  The functions use only what JAX and NumPy
share, so they serve bounds inside `jit` in float32 and solvers on the host in float64.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from caql.actions.set import ActionSet

PASSES = 4
"""Rounds of propagation.  A budget is done after one; each further round passes a bound on through one more row."""
WHOLE = 1e-5
"""A bound this close to a whole number is that number."""


def namespace(action_set: ActionSet) -> Any:
    """jax.numpy if any array of the set is JAX's, else NumPy."""
    return jnp if any(isinstance(array, jax.Array) for array in jax.tree.leaves(action_set)) else np


def tightened(action_set: ActionSet) -> ActionSet:
    """The set with its bounds, those of the auxiliary variables included, tightened by the rows."""
    if action_set.is_box:
        return action_set
    d = action_set.size
    low, high = variable_bounds(action_set)
    sides = action_set.rows, action_set.row_low, action_set.row_high
    low, high = propagated(low, high, *sides, action_set.integer)
    return replace(
        action_set,
        low=low[..., :d],
        high=high[..., :d],
        auxiliary_low=low[..., d:],
        auxiliary_high=high[..., d:],
    )


def propagated(
    low: Any, high: Any, rows: Any, row_low: Any, row_high: Any, integer: tuple[int, ...] = ()
) -> tuple[Any, Any]:
    """Bounds of all variables, (..., n) each, tightened by rows; as they were where they contradict the rows."""
    xp: Any = jnp if any(isinstance(array, jax.Array) for array in (low, high, rows, row_low, row_high)) else np
    first = low, high
    whole = np.zeros(low.shape[-1], np.bool_)
    whole[list(integer)] = True
    for _ in range(PASSES):
        if rows.shape[-2]:
            low, high = _one_pass(xp, low, high, rows, row_low, row_high)
        if integer:
            low = xp.where(whole, xp.ceil(low - WHOLE), low)
            high = xp.where(whole, xp.floor(high + WHOLE), high)
    crossed = xp.any(low > high, axis=-1, keepdims=True)
    return xp.where(crossed, first[0], low), xp.where(crossed, first[1], high)


def variable_bounds(action_set: ActionSet) -> tuple[Any, Any]:
    """Bounds of actions and auxiliary variables in one array each, (..., d + k)."""
    xp = namespace(action_set)
    pairs = ((action_set.low, action_set.auxiliary_low), (action_set.high, action_set.auxiliary_high))
    leading = np.broadcast_shapes(*(side.shape[:-1] for pair in pairs for side in pair))
    low, high = (
        xp.concatenate([xp.broadcast_to(side, (*leading, side.shape[-1])) for side in pair], axis=-1) for pair in pairs
    )
    return low, high


def _one_pass(xp: Any, low: Any, high: Any, rows: Any, row_low: Any, row_high: Any) -> tuple[Any, Any]:
    """Each variable's bounds against every row, given the bounds of the others."""
    rising, used = rows > 0, rows != 0
    least, most = (xp.where(rising, a[..., None, :], b[..., None, :]) for a, b in ((low, high), (high, low)))
    divisor = xp.where(used, rows, 1)
    epsilon = 4 * rows.shape[-1] * float(np.finfo(rows.dtype).eps)

    def furthest(side: Any, ends: Any, sign: float) -> Any:
        """What `rows * x` of each single variable may reach at most (sign 1) or at least (sign -1)."""
        endless = used & xp.isinf(ends)
        parts = xp.where(used & ~endless, rows * xp.where(endless, 0, ends), 0)
        others_endless = xp.sum(endless, axis=-1, keepdims=True) - endless > 0
        rest = xp.sum(parts, axis=-1, keepdims=True) - parts
        bounded = xp.isfinite(side)[..., None]
        side = xp.where(bounded, side[..., None], 0)
        slack = epsilon * (xp.sum(xp.abs(parts), axis=-1, keepdims=True) + xp.abs(side))
        return xp.where(used & bounded & ~others_endless, side - rest + sign * slack, sign * xp.inf)

    above = furthest(row_high, least, 1.0) / divisor
    below = furthest(row_low, most, -1.0) / divisor
    new_high = xp.min(xp.where(used, xp.where(rising, above, below), xp.inf), axis=-2)
    new_low = xp.max(xp.where(used, xp.where(rising, below, above), -xp.inf), axis=-2)
    return xp.maximum(low, new_low), xp.minimum(high, new_high)
