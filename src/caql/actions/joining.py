"""The intersection of two sets, `first & second`: rows one below the other, auxiliary variables side by side.

A box joined with a set, as happens at every step of an episode, only narrows its bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from caql.errors import CaqlError

if TYPE_CHECKING:
    from caql.actions.set import ActionSet


def stacked(xp: Any, arrays: Sequence[Any], axis: int) -> Any:
    """Arrays joined along an axis, their leading axes broadcast."""
    shapes = {array.shape[:axis] for array in arrays}
    if len(shapes) == 1:
        return xp.concatenate(arrays, axis=axis)
    leading = np.broadcast_shapes(*shapes)
    if xp is not np:
        return xp.concatenate([xp.broadcast_to(array, (*leading, *array.shape[axis:])) for array in arrays], axis=axis)
    # NumPy's `broadcast_to` takes longer than the rest of a small set.
    after = arrays[0].shape[axis:][1:]
    made, done = np.empty((*leading, sum(array.shape[axis] for array in arrays), *after)), 0
    for array in arrays:
        end = done + array.shape[axis]
        place: Any = (..., slice(done, end), *[slice(None)] * len(after))
        made[place] = array
        done = end
    return made


def join(first: ActionSet, second: ActionSet) -> ActionSet:
    """The intersection: variables are the actions, the first set's auxiliary ones, the second's."""
    if first.size != second.size:
        raise CaqlError(
            f"two sets joined with & are over {first.size} and {second.size} actions; the numbers must agree"
        )
    if len({first.states, second.states} - {None}) > 1:
        raise CaqlError(
            f"two sets joined with & are for {first.states} and {second.states} states; the numbers must agree"
        )
    traced = any(isinstance(array, jax.core.Tracer) for each in (first, second) for array in vars(each).values())
    xp: Any = jnp if traced else np
    if not traced:
        first, second = first.on_host(), second.on_host()
        if second.is_box and not second.auxiliary_low.size:  # as an action space is, at every step of an episode
            bounds = np.maximum(first.low, second.low), np.minimum(first.high, second.high)
            sides = first.row_low, first.row_high, first.auxiliary_low, first.auxiliary_high
            return type(first)(*bounds, first.rows, *sides, first.integer)
    d, here, there = first.size, first.auxiliary_low.shape[-1], second.auxiliary_low.shape[-1]
    rows, zeros = second.rows, [xp.zeros((*s.rows.shape[:-1], n)) for s, n in ((first, there), (second, here))]
    above = _side_by_side(xp, first.rows, zeros[0])
    below = _side_by_side(xp, rows[..., :d], zeros[1], rows[..., d:])
    whole = {*first.integer, *(i if i < d else i + here for i in second.integer)}
    return type(first)(
        xp.maximum(first.low, second.low),
        xp.minimum(first.high, second.high),
        stacked(xp, [above, below], -2),
        stacked(xp, [first.row_low, second.row_low], -1),
        stacked(xp, [first.row_high, second.row_high], -1),
        stacked(xp, [first.auxiliary_low, second.auxiliary_low], -1),
        stacked(xp, [first.auxiliary_high, second.auxiliary_high], -1),
        tuple(sorted(whole)),
    )


def _side_by_side(xp: Any, *arrays: Any) -> Any:
    return xp.concatenate(arrays, axis=-1)
