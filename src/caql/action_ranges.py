"""The range of the actions: an environment's own bounds, narrowed, and rounded so that nothing leaves them.

A bound has three forms: the exact one in float64; what the environment's action type can hold of it; and the float32
numbers that agents compute with.  float32(0.1) is larger than 0.1, so the way from one to another matters.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from caql.errors import CaqlError

Array = np.ndarray[Any, np.dtype[Any]]
ActionRange = float | tuple[tuple[float, ...], tuple[float, ...]] | None
"""None: the environment's own; r: [-r, r] in every dimension; (low, high): one number per dimension each."""


def restrict(box: gym.spaces.Box, action_range: ActionRange) -> tuple[Array, Array]:
    """The space's own bounds narrowed to `action_range`: two float64 vectors, low and high."""
    low, high = (np.asarray(bound, np.float64).reshape(-1) for bound in (box.low, box.high))
    if action_range is None:
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise CaqlError(
                f"the environment's actions have infinite bounds (low {low.tolist()}, high {high.tolist()}); "
                "give action_range: a number r for [-r, r], or (low, high) with one number per dimension"
            )
        return low, high
    if isinstance(action_range, int | float):
        if not (np.isfinite(action_range) and action_range > 0):
            raise CaqlError(f"action_range = {action_range} must be a positive finite number")
        wanted = np.full_like(low, -action_range), np.full_like(high, action_range)
    else:
        try:
            lower, upper = action_range
            wanted = np.asarray(lower, np.float64).reshape(-1), np.asarray(upper, np.float64).reshape(-1)
        except (TypeError, ValueError) as problem:
            raise CaqlError(
                f"action_range = {action_range!r} must be a number r, or a pair (low, high) of vectors"
            ) from problem
        if wanted[0].shape != low.shape or wanted[1].shape != low.shape:
            raise CaqlError(
                f"action_range has {len(wanted[0])} low and {len(wanted[1])} high numbers; "
                f"the task has {len(low)} action dimensions"
            )
    if not (np.isfinite(wanted[0]).all() and np.isfinite(wanted[1]).all()):
        raise CaqlError(f"action_range = {action_range} must be finite in every dimension")
    if (wanted[0] >= wanted[1]).any():
        raise CaqlError(
            f"action_range = {action_range} is empty or reversed: low must be below high in every dimension"
        )
    # A bound in the space's own type may be the rounded one of what the user has in mind.
    share = float(np.finfo(box.dtype).eps) if np.issubdtype(box.dtype, np.floating) else 0.0
    spare = 1e-6 + share * np.maximum(np.abs(low), np.abs(high))
    if (wanted[0] < low - spare).any() or (wanted[1] > high + spare).any():
        raise CaqlError(
            f"action_range = {action_range} is wider than the environment's own actions, "
            f"low {low.tolist()} and high {high.tolist()}"
        )
    return np.maximum(wanted[0], low), np.minimum(wanted[1], high)


def round_inward(low: Array, high: Array, dtype: Any) -> tuple[Array, Array]:
    """The smallest number >= low and the largest <= high that `dtype` holds, in float64.

    What is clipped to them stays inside after a cast to `dtype`.  A side without any such number has low > high.
    """
    dtype = np.dtype(dtype)
    if dtype.kind in "iub":
        lower, upper = np.ceil(low), np.floor(high)
        # Beyond 2^53 a float64 bound may itself have been rounded outwards.
        lower = np.where(np.abs(lower) >= 2.0**53, np.nextafter(lower, np.inf), lower)
        return lower, np.where(np.abs(upper) >= 2.0**53, np.nextafter(upper, -np.inf), upper)
    with np.errstate(over="ignore"):
        lower, upper = low.astype(dtype), high.astype(dtype)
    lower = np.where(lower < low, np.nextafter(lower, dtype.type(np.inf)), lower)
    upper = np.where(upper > high, np.nextafter(upper, dtype.type(-np.inf)), upper)
    return lower.astype(np.float64), upper.astype(np.float64)
