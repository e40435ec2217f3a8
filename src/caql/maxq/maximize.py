"""The engine on its own: the maximum of any ReLU network of one output over a set of actions, by any of the solvers.

    solution = maximize([(W0, b0), (W1, b1), (W2, b2)], low=-1, high=1, states=x)

Everything a user can get wrong is checked here, once: the solvers behind trust their problem.
"""

from __future__ import annotations

import dataclasses
import functools
import time
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from caql.actions import ActionSet
from caql.errors import CaqlError, CaqlWarning
from caql.maxq.exact.solver import Exact
from caql.maxq.host import Array, is_proved
from caql.maxq.interrupts import Interrupted
from caql.maxq.problem import Problem, Solution, Solver, Status, require_threads
from caql.maxq.solvers import SOLVERS, make_solver
from caql.networks import FoldedNetwork, fold_state, folded_value

Rows = tuple[ArrayLike, ArrayLike]
"""A matrix and its right-hand side."""


def maximize(
    layers: Sequence[tuple[ArrayLike, ArrayLike]],
    low: ArrayLike,
    high: ArrayLike,
    states: ArrayLike | None = None,
    solver: str | Solver = "exact",
    tolerance: ArrayLike = 1e-4,
    warm_start: ArrayLike | None = None,
    threads: int | None = None,
    relative_tolerance: ArrayLike = 0.0,
    *,
    time_limit: float | None = None,
    node_limit: int | None = None,
    rows: Rows | None = None,
    equalities: Rows | None = None,
    integer: Sequence[int] = (),
) -> Solution:
    """max over the admissible actions of the network's output, for every state at once.

    The actions a are those with low <= a <= high, C a <= d for rows = (C, d), E a = f for equalities = (E, f), and
    whole numbers at the indices `integer`.

    layers: `(W, b)` pairs, W of shape (inputs, outputs), ReLU between, a linear output of one unit.
    low, high: the bounds of the actions: one number, one per dimension, or one row per state.
    states: (n,) or (B, n); they are the network's first n inputs and the action the rest.  Without states
        the action is all of the input and the solution has one row.
    solver: the name of a solver (exact, scip, highs, gurobi, cplex, mip, ga, cem), or a solver object.
    tolerance: absolute gap between value and upper bound at which a state is solved (exact solvers), or
        change in value at which ga and cem come to rest; `relative_tolerance` is the same as a fraction
        of |value|, and the larger of the two counts.  One number, or one per state.
    warm_start: (d,) or (B, d) actions to start from.
    threads: for `exact` the threads over the batch's states, for the MIP solvers those within one state.
    time_limit, node_limit: seconds and nodes for one state, where the solver has such a limit.
    rows, equalities: matrices (m, d) or (B, m, d) with right-hand sides (m,) or (B, m).
    integer: indices of the actions that are whole numbers.

    Returns a `Solution` of float64 NumPy arrays, one row per state; nothing is computed in float32 but by ga and cem.
    A solver that proves, but had to stop at a limit or failed at some states, warns once (`CaqlWarning`).
    Bad input raises `CaqlError`.  Ctrl-C raises `caql.Interrupted`, a `KeyboardInterrupt` whose
    `solution` is the best known so far, within about a second.
    """
    chosen = chosen_solver(solver, {"threads": threads, "time_limit": time_limit, "node_limit": node_limit})
    network = checked_network(layers, states)
    count, d = len(network.first_bias), len(network.action_weights)
    action_set = _checked_rows(_checked_box(low, high, count, d), rows, equalities, integer, count)
    return maximize_over(network, action_set, chosen, tolerance, warm_start, relative_tolerance)


def maximize_over(
    network: FoldedNetwork,
    action_set: ActionSet,
    chosen: Solver,
    tolerance: ArrayLike,
    warm_start: ArrayLike | None = None,
    relative_tolerance: ArrayLike = 0.0,
) -> Solution:
    """`maximize` for a folded network in float64 and an action set, with a solver object."""
    count, d = len(network.first_bias), len(network.action_weights)
    guesses = None if warm_start is None else _rows("warm_start", warm_start, count, d)
    gaps = [
        _checked_tolerance(name, gap, count)
        for name, gap in (("tolerance", tolerance), ("relative_tolerance", relative_tolerance))
    ]
    if isinstance(chosen, Exact):
        chosen.compile()  # so that the time below is the search's
    began = time.perf_counter()
    solution = _answer(chosen, Problem(network, action_set, guesses, *gaps))
    _warn_of_limits(chosen, solution, time.perf_counter() - began)
    return solution


def _answer(solver: Solver, problem: Problem) -> Solution:
    """The solver's answer as NumPy arrays, in float64 whatever it computes in."""
    if not solver.traceable:
        try:
            arrays: list[Any] = [np.asarray(field) for field in solver.solve(problem, None)]
        except Interrupted as interruption:
            interruption.solution = Solution(*(np.asarray(field) for field in interruption.solution))
            raise
        return Solution(*arrays)
    single = jax.tree.map(lambda array: np.asarray(array, np.float32), problem)
    found: Solution = jax.device_get(_run_traceable(solver, single, jax.random.key(0)))
    # float32 may have rounded the action across the box's edge, and its value with it.
    actions: Any = np.clip(np.asarray(found.actions, np.float64), problem.action_set.low, problem.action_set.high)
    values: Any = folded_value(problem.network, actions)
    upper: Any = np.where(np.isfinite(found.upper), np.maximum(found.upper, values), found.upper)
    broken = (found.status == Status.OPTIMAL) & ~is_proved(problem, values, upper)
    status: Any = np.where(broken, int(Status.LIMIT), found.status)
    values = np.where(status == Status.INFEASIBLE, -np.inf, values)
    return found._replace(actions=actions, values=values, upper=upper, status=status)


@functools.partial(jax.jit, static_argnums=0)
def _run_traceable(solver: Solver, problem: Problem, key: jax.Array) -> Solution:
    return solver.solve(problem, key)


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


def _warn_of_limits(solver: Solver, solution: Solution, seconds: float) -> None:
    """Say once how many rows are not proved although the solver could, and what would help."""
    status, work = np.asarray(solution.status), np.asarray(solution.work)
    limited, failed = status == Status.LIMIT, int(np.sum((status == Status.FAILED) | (status == Status.INFEASIBLE)))
    if solver.traceable or not (limited.any() or failed):
        return
    most, longest = getattr(solver, "node_limit", np.inf), getattr(solver, "time_limit", np.inf)
    nodes = int(np.sum(limited & (work >= most)))
    slow = int(np.sum(limited)) - nodes if seconds >= longest else 0
    close = int(np.sum(limited)) - nodes - slow
    parts = []
    if nodes:
        parts.append(f"{nodes} stopped at node_limit = {most} (raise it)")
    if slow:
        parts.append(f"{slow} stopped at time_limit = {longest:g} s (raise it)")
    if close:
        parts.append(f"{close} could not be proved to this tolerance in float64 (ask for a larger one)")
    if failed:
        parts.append(f"{failed} failed or have no admissible action")
    warnings.warn(f"of {len(status)} states, {'; '.join(parts)}: see the solution's status", CaqlWarning, stacklevel=3)


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


def checked_network(layers: Any, states: Any) -> FoldedNetwork:
    """The layers as a folded network, all in float64."""
    checked: list[tuple[Array, Array]] = []
    try:
        pairs = [(weights, bias) for weights, bias in layers]
    except (TypeError, ValueError):
        raise CaqlError(
            "layers must be a list of (W, b) pairs, input-major, from the first layer to the last"
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
    if checked[-1][0].shape[1] != 1:
        raise CaqlError(f"layers ends in {checked[-1][0].shape[1]} outputs; the last layer must have exactly one")
    inputs = len(checked[0][0])
    batch = np.zeros((1, 0)) if states is None else _numbers("states", states)
    if batch.ndim not in (1, 2):
        raise CaqlError(f"states has shape {batch.shape}; right would be (n,) or (states, n)")
    batch = np.atleast_2d(batch)
    split = batch.shape[1]
    if split >= inputs:
        raise CaqlError(
            f"states has {split} columns but the network only {inputs} inputs; no input is left to act with"
        )
    both: list[Any] = [tuple(checked), batch]
    return fold_state(*both)


def _rows(name: str, value: Any, rows: int, d: int) -> Array:
    """The argument as one row of d numbers per state."""
    array = _numbers(name, value)
    if array.shape not in ((d,), (rows, d)):
        raise CaqlError(
            f"{name} has shape {array.shape}; with {rows} state(s) and {d} action dimension(s) "
            f"right would be ({d},) or ({rows}, {d})"
        )
    return np.broadcast_to(array, (rows, d))


def _checked_box(low: Any, high: Any, rows: int, d: int) -> ActionSet:
    sides: list[Any] = []
    for name, side in (("low", low), ("high", high)):
        array = _numbers(name, side)
        array = np.full(d, array) if array.ndim == 0 else array
        # One box for all states stays one: solvers then share what depends on it alone.
        sides.append(array if array.shape == (d,) else _rows(name, array, rows, d))
    crossed = np.argwhere(np.greater(*np.broadcast_arrays(*sides)))
    if len(crossed):
        at = tuple(int(k) for k in crossed[0])
        lower, upper = (side[at] for side in np.broadcast_arrays(*sides))
        raise CaqlError(f"low = {lower} exceeds high = {upper} at index {at}; low must not be larger anywhere")
    if sides[0].shape != sides[1].shape:
        sides = [np.broadcast_to(side, (rows, d)) for side in sides]
    return ActionSet.box(*sides)


def _checked_rows(box: ActionSet, rows: Any, equalities: Any, integer: Any, count: int) -> ActionSet:
    """The box with rows, equalities and whole numbers; as the box where there are none."""
    d = box.size
    matrices, below, above = [], [], []
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
        matrices.append(matrix)
        below.append(np.full_like(side, -np.inf) if name == "rows" else side)
        above.append(side)
    whole = _checked_indices(integer, d)
    if not matrices:
        return dataclasses.replace(box, integer=whole) if whole else box
    arrays: dict[str, Any] = {
        "rows": _stack(matrices, 2),
        "row_low": _stack(below, 1),
        "row_high": _stack(above, 1),
        "auxiliary_low": np.zeros(0),
        "auxiliary_high": np.zeros(0),
    }
    return dataclasses.replace(box, integer=whole, **arrays)


def _stack(parts: list[Array], plain: int) -> Array:
    """Rows below each other; with an axis of states if any part has more than `plain` axes."""
    count = max(part.shape[0] if part.ndim > plain else 0 for part in parts)
    if count == 0 and all(part.ndim == plain for part in parts):
        return np.concatenate(parts)
    return np.concatenate([np.broadcast_to(part, (count, *part.shape[-plain:])) for part in parts], axis=1)


def _checked_indices(integer: Any, d: int) -> tuple[int, ...]:
    array = np.asarray(integer)
    if array.size == 0:
        return ()
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer) or (array < 0).any() or (array >= d).any():
        raise CaqlError(f"integer = {integer!r} must be a list of action indices from 0 to {d - 1}")
    return tuple(sorted({int(k) for k in array}))


def _checked_tolerance(name: str, value: Any, rows: int) -> float | NDArray[np.float64]:
    array = _numbers(name, value)
    if array.shape not in ((), (rows,)):
        raise CaqlError(f"{name} has shape {array.shape}; right would be one number or ({rows},), one per state")
    if (array < 0).any():
        raise CaqlError(f"{name} = {array.min()} is negative; it must be at least 0")
    return float(array) if array.ndim == 0 else array
