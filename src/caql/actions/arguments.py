"""The arguments of the constructors: converted, and checked where they can be looked at.

Inside `jit` an argument is traced: its shape can be checked, its numbers cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from caql.errors import CaqlError


def numbers(name: str, value: Any, axes: Sequence[int], *, infinite: bool = False) -> Any:
    """The argument as float64, or as it is inside jit; checked for its number of axes and finite entries."""
    if isinstance(value, jax.core.Tracer):
        array: Any = value
    else:
        try:
            array = np.asarray(value, np.float64)
        except (TypeError, ValueError):
            raise CaqlError(f"{name} = {value!r} must be a number or an array of numbers") from None
        bad = np.isnan(array) if infinite else ~np.isfinite(array)
        if bad.any():
            raise CaqlError(f"{name} holds {array[bad].flat[0]}; every entry must be {'a' if infinite else 'a finite'} "
                            "number")  # fmt: skip
    if array.ndim not in axes:
        shapes = {0: "one number", 1: "(d,)", 2: "(observations, d)"}
        right = " or ".join(shapes[n] for n in axes)
        raise CaqlError(f"{name} has shape {tuple(array.shape)}; right would be {right}")
    return array


def limit_numbers(name: str, value: Any) -> Any:
    """One number, or one per observation."""
    array = numbers(name, value, (0, 1, 2))
    if array.ndim == 2:
        raise CaqlError(f"{name} has shape {tuple(array.shape)}; right would be one number or (observations,)")
    return array


def is_known(array: Any) -> bool:
    """Whether an array's numbers can be looked at."""
    return not isinstance(array, jax.core.Tracer)


def check(name: str, array: Any, wrong: Any, right: str) -> None:
    """Raise where an array on the host is wrong; a traced one cannot be looked at."""
    if is_known(array) and is_known(wrong) and np.any(wrong):
        value = np.broadcast_to(array, np.shape(wrong))[wrong].flat[0]
        raise CaqlError(f"{name} = {value:g} {right}")


def check_one_batch(**arrays: Any) -> None:
    """All arrays with a leading axis must have the same one; given as name=(array, axes without it)."""
    sizes = {name: array.shape[0] for name, (array, axes) in arrays.items() if array.ndim > axes}
    if len(set(sizes.values())) > 1:
        said = " and ".join(f"{name} for {size}" for name, size in sizes.items())
        raise CaqlError(f"the arguments are for different numbers of observations: {said}")


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """The argument, if it is a whole number and large enough."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise CaqlError(f"{name} = {value!r} must be a whole number, at least {least}")
    return int(value)
