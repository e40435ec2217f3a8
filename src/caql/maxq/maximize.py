"""The engine on its own: the maximum of any ReLU network of one output over a box, by any of the solvers.

    solution = maximize([(W0, b0), (W1, b1), (W2, b2)], low=-1, high=1, states=x)

Everything a user can get wrong is checked here, once: the solvers behind trust their problem.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from caql.actions import ActionSet
from caql.errors import CaqlError, nearest
from caql.maxq.host import Array, evaluate
from caql.maxq.problem import Problem, Solution, Solver
from caql.maxq.solvers import make_solver
from caql.networks import FoldedNetwork

SOLVERS = ("exact", "scip", "highs", "gurobi", "cplex", "ga", "cem")


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
) -> Solution:
    """max over low <= a <= high of the network's output, for every state at once -> NumPy arrays, one row per state.

    layers: `(W, b)` pairs, W of shape (inputs, outputs), ReLU between, a linear output of one unit.
    low, high: the action box: one number, one per dimension, or one row per state.
    states: (n,) or (B, n); they are the network's first n inputs and the action the rest.  Without states
        the action is all of the input and the solution has one row.
    solver: exact, scip, highs, gurobi, cplex, ga, cem, or a solver object.
    tolerance: absolute gap between value and upper bound at which a state is solved (exact solvers), or
        change in value at which ga and cem come to rest; `relative_tolerance` is the same as a fraction
        of |value|, and the larger of the two counts.  One number, or one per state.
    warm_start: (d,) or (B, d) actions to start from.
    threads: for `exact` the threads over the batch's states, for the MIP solvers those within one state.
    """
    network = _checked_network(layers, states)
    rows, d = len(network.first_bias), len(network.action_weights)
    box = _checked_box(low, high, rows, d)
    guesses = None if warm_start is None else _rows("warm_start", warm_start, rows, d)
    gaps = [
        _checked_tolerance(name, gap, rows)
        for name, gap in (("tolerance", tolerance), ("relative_tolerance", relative_tolerance))
    ]
    chosen = _chosen_solver(solver, threads)
    fields: list[Any] = [network, box, guesses, *gaps]
    if not chosen.traceable:
        solution = chosen.solve(Problem(*fields), None)
        arrays: list[Any] = [np.asarray(field) for field in solution]
        return Solution(*arrays)
    single = jax.tree.map(lambda array: np.asarray(array, np.float32), Problem(*fields))
    found: Solution = jax.device_get(_run_traceable(chosen, single, jax.random.key(0)))
    # float32 may have rounded the action across the box's edge, and its value with it.
    actions: Any = np.clip(np.asarray(found.actions, np.float64), box.low, box.high)
    values: Any = evaluate(network, actions)
    upper: Any = np.where(np.isfinite(found.upper), np.maximum(found.upper, values), np.inf)
    return found._replace(actions=actions, values=values, upper=upper)


@functools.partial(jax.jit, static_argnums=0)
def _run_traceable(solver: Solver, problem: Problem, key: jax.Array) -> Solution:
    return solver.solve(problem, key)


def _chosen_solver(solver: str | Solver, threads: int | None) -> Solver:
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise CaqlError(f"threads = {threads!r} must be a whole number, at least 1")
    if not isinstance(solver, str):
        if not isinstance(solver, Solver):
            raise CaqlError(f"solver = {solver!r} must be a solver object or one of: {', '.join(SOLVERS)}")
        return solver
    if solver not in SOLVERS:
        raise CaqlError(f"solver = {solver!r} is not a solver; {nearest(solver, SOLVERS)}")
    if solver in ("ga", "cem"):
        return make_solver(solver)
    settings: dict[str, object] = {} if threads is None else {"threads": threads}
    if solver == "exact":
        return make_solver("exact", **settings)
    return make_solver("mip", backend=solver, **settings)


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


def _checked_network(layers: Any, states: Any) -> FoldedNetwork:
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
    (first, bias), later = checked[0], checked[1:]
    inputs = len(first)
    batch = np.zeros((1, 0)) if states is None else _numbers("states", states)
    if batch.ndim not in (1, 2):
        raise CaqlError(f"states has shape {batch.shape}; right would be (n,) or (states, n)")
    batch = np.atleast_2d(batch)
    split = batch.shape[1]
    if split >= inputs:
        raise CaqlError(
            f"states has {split} columns but the network only {inputs} inputs; no input is left to act with"
        )
    fields: list[Any] = [batch @ first[:split] + bias, first[split:], tuple(later)]
    return FoldedNetwork(*fields)


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


def _checked_tolerance(name: str, value: Any, rows: int) -> float | NDArray[np.float64]:
    array = _numbers(name, value)
    if array.shape not in ((), (rows,)):
        raise CaqlError(f"{name} has shape {array.shape}; right would be one number or ({rows},), one per state")
    if (array < 0).any():
        raise CaqlError(f"{name} = {array.min()} is negative; it must be at least 0")
    return float(array) if array.ndim == 0 else array
