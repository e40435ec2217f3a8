"""What `maximize` is given, checked once and made float64: the solvers behind trust their problem.

Everything a user can get wrong is one sentence, a `CaqlError`, that names the argument and what would be right.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caql.actions import ActionSet
from caql.errors import CaqlError
from caql.maxq.host import Array
from caql.maxq.problem import Solver, require_threads
from caql.maxq.solvers import SOLVERS, make_solver
from caql.networks import FoldedNetwork, fold_state


def chosen_solver(solver: str | Solver, settings: dict[str, Any]) -> Solver:
    """The solver, with those of the settings that are not None."""
    threads = settings["threads"]
    if threads is not None:
        require_threads(threads)
    if isinstance(solver, str):
        chosen = make_solver(solver)
    elif isinstance(solver, Solver):
        chosen = solver
    else:
        raise CaqlError(f"solver = {solver!r} must be a solver object or one of: {', '.join(SOLVERS)}")
    given = {name: value for name, value in settings.items() if value is not None}
    if not given:
        return chosen
    known: list[str] = [field.name for field in dataclasses.fields(chosen)] if dataclasses.is_dataclass(chosen) else []
    for name, value in given.items():
        if name not in known:
            called = solver if isinstance(solver, str) else chosen.name
            raise CaqlError(f"{name} = {value!r} has no meaning for solver {called!r}; leave it out")
        if not isinstance(value, int | float):
            raise CaqlError(f"{name} = {value!r} must be a number")
    changed: Solver = dataclasses.replace(chosen, **given)  # type: ignore[type-var]
    return changed


def _numbers(name: str, value: Any) -> Array:
    """The argument as finite float64 numbers."""
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise CaqlError(f"{name} must be an array of numbers; got {type(value).__name__}") from None
    if not np.isfinite(array).all():
        where = tuple(int(k) for k in np.argwhere(~np.isfinite(array))[0])
        at = f" at index {where}" if where else ""
        raise CaqlError(f"{name} holds {array[where]}{at}; every entry must be finite")
    return array


def checked_layers(layers: Any) -> list[tuple[Array, Array]]:
    """The layers in float64, each of which fits the one before it."""
    checked: list[tuple[Array, Array]] = []
    try:
        pairs = [(weights, bias) for weights, bias in layers]
    except (TypeError, ValueError):
        raise CaqlError(
            "layers must be a list of (W, b) pairs, input-major, from the first layer to the last, or a network: "
            "caql.network(...) makes one of a torch, Keras, scikit-learn or Stable-Baselines3 model"
        ) from None
    if not pairs:
        raise CaqlError("layers is empty; it must hold at least one (W, b) pair")
    for k, (raw_weights, raw_bias) in enumerate(pairs):
        weights, bias = _numbers(f"layers[{k}] weights", raw_weights), _numbers(f"layers[{k}] bias", raw_bias)
        if weights.ndim != 2 or 0 in weights.shape or bias.shape != weights.shape[1:]:
            raise CaqlError(
                f"layers[{k}] has weights of shape {weights.shape} and a bias of shape {bias.shape}; "
                f"right would be (inputs, outputs) and (outputs,)"
            )
        if checked and checked[-1][0].shape[1] != weights.shape[0]:
            raise CaqlError(
                f"layers[{k}] takes {weights.shape[0]} inputs but layers[{k - 1}] has {checked[-1][0].shape[1]} "
                f"outputs; the two must be equal"
            )
        checked.append((weights, bias))
    return checked


def checked_states(states: Any) -> Array:
    """The states, (B, n); one row of nothing if there are none."""
    batch = np.zeros((1, 0)) if states is None else _numbers("states", states)
    if batch.ndim not in (1, 2):
        raise CaqlError(f"states has shape {batch.shape}; right would be (n,) or (states, n)")
    return np.atleast_2d(batch)


def checked_network(layers: Any, states: Any) -> FoldedNetwork:
    """The layers as a folded network, all in float64."""
    checked = checked_layers(layers)
    if checked[-1][0].shape[1] != 1:
        raise CaqlError(
            f"layers ends in {checked[-1][0].shape[1]} outputs; the last layer must have exactly one, unless output=k "
            "or weights say what is meant"
        )
    inputs, batch = len(checked[0][0]), checked_states(states)
    split = batch.shape[1]
    if split >= inputs:
        raise CaqlError(
            f"states has {split} columns but the network only {inputs} inputs; no input is left to act with"
        )
    both: list[Any] = [tuple(checked), batch]
    return fold_state(*both)


def one_row_each(name: str, value: Any, rows: int, d: int) -> Array:
    """The argument as one row of d numbers per state."""
    array = _numbers(name, value)
    if array.shape not in ((d,), (rows, d)):
        raise CaqlError(
            f"{name} has shape {array.shape}; with {rows} state(s) and {d} action dimension(s) "
            f"right would be ({d},) or ({rows}, {d})"
        )
    return np.broadcast_to(array, (rows, d))


def checked_box(low: Any, high: Any, rows: int, d: int) -> ActionSet:
    """The box of the two bounds: shared by all states, or one row for each."""
    sides: list[Any] = []
    for name, side in (("low", low), ("high", high)):
        array = _numbers(name, side)
        array = np.full(d, array) if array.ndim == 0 else array
        # One box for all states stays one: solvers then share what depends on it alone.
        sides.append(array if array.shape == (d,) else one_row_each(name, array, rows, d))
    crossed = np.argwhere(np.greater(*np.broadcast_arrays(*sides)))
    if len(crossed):
        at = tuple(int(k) for k in crossed[0])
        lower, upper = (side[at] for side in np.broadcast_arrays(*sides))
        raise CaqlError(f"low = {lower} exceeds high = {upper} at index {at}; low must not be larger anywhere")
    if sides[0].shape != sides[1].shape:
        sides = [np.broadcast_to(side, (rows, d)) for side in sides]
    return ActionSet.box(*sides)


def checked_rows(action_set: ActionSet, rows: Any, equalities: Any, integer: Any, count: int) -> ActionSet:
    """The set joined with rows, equalities and whole numbers; as it is where there are none."""
    d = action_set.size
    for name, given in (("rows", rows), ("equalities", equalities)):
        if given is None:
            continue
        try:
            matrix, side = given
        except (TypeError, ValueError):
            raise CaqlError(f"{name} must be a pair: a matrix (m, {d}) and its right-hand side (m,)") from None
        matrix, side = _numbers(f"{name}[0]", matrix), _numbers(f"{name}[1]", side)
        fits = matrix.ndim in (2, 3) and matrix.shape[-1] == d and side.ndim in (1, 2)
        fits = fits and matrix.shape[-2] == side.shape[-1]
        fits = fits and all(array.shape[0] == count for array, plain in ((matrix, 2), (side, 1)) if array.ndim > plain)
        if not fits:
            raise CaqlError(
                f"{name} has a matrix of shape {matrix.shape} and a right-hand side of shape {side.shape}; with {count}"
                f" state(s) and {d} action dimension(s) right would be (m, {d}) or ({count}, m, {d}),"
                f" and (m,) or ({count}, m)"
            )
        action_set = action_set & ActionSet.linear(matrix, side if name == "equalities" else None, side)
    whole = _checked_indices(integer, d, count)
    return action_set & ActionSet.whole(d, whole) if whole else action_set


def _checked_indices(integer: Any, d: int, count: int) -> list[int]:
    """The indices of the whole numbers; with an axis of states they must be the same at all of them."""
    right = f"integer must be a list of action indices, whole numbers from 0 to {d - 1}"
    try:
        array = np.asarray(integer)
    except ValueError:
        raise CaqlError(f"{right}; got lists of different lengths") from None
    if array.size == 0:
        return []
    if array.ndim not in (1, 2) or (array.ndim == 2 and len(array) != count):
        raise CaqlError(f"{right}; got shape {array.shape}")
    if not np.issubdtype(array.dtype, np.integer):
        raise CaqlError(f"{right}; got {array.flat[0]}")
    beyond = (array < 0) | (array >= d)
    if beyond.any():
        raise CaqlError(f"{right}; got {array[beyond].flat[0]}")
    each = [sorted({int(k) for k in row}) for row in np.atleast_2d(array)]
    for state, indices in enumerate(each):
        if indices != each[0]:
            raise CaqlError(
                f"integer is {indices} at state {state} and {each[0]} at state 0; which actions are whole "
                "numbers must be the same at every state"
            )
    return each[0]


def checked_tolerance(name: str, value: Any, rows: int) -> float | NDArray[np.float64]:
    """One number, or one per state, none of them negative."""
    array = _numbers(name, value)
    if array.shape not in ((), (rows,)):
        raise CaqlError(f"{name} has shape {array.shape}; right would be one number or ({rows},), one per state")
    if (array < 0).any():
        raise CaqlError(f"{name} = {array.min()} is negative; it must be at least 0")
    return float(array) if array.ndim == 0 else array
