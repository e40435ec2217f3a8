"""What every solver on the host needs: float64 arrays, first guesses, and the final verdict.

Solvers outside `jit` compute in NumPy float64 whatever the network's precision, so that their proofs do not
depend on float32 rounding, and report Q as `networks.folded_value` has it, never as a solver's own model sees it.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from caql.actions import ActionSet
from caql.maxq.problem import Problem, Solution, Status, refused_rows
from caql.networks import FoldedNetwork

Array = NDArray[np.float64]


def as_float64(network: FoldedNetwork, action_set: ActionSet) -> tuple[FoldedNetwork, ActionSet]:
    """The same network and action set as NumPy float64 arrays."""

    def convert(array: Any) -> Any:
        return np.asarray(array, np.float64)

    later = tuple((convert(weights), convert(bias)) for weights, bias in network.later)
    folded = FoldedNetwork(convert(network.first_bias), convert(network.action_weights), later)
    return folded, action_set.map(convert)


def first_guess(problem: Problem, box: ActionSet, rows: int) -> Array:
    """The warm start brought into the box, or the box's centre -> (B, d)."""
    guess: Any = box.centre if problem.warm_start is None else np.asarray(problem.warm_start, np.float64)
    # A diverged action function must not carry NaN into the set.
    guess = np.where(np.isfinite(guess), guess, box.centre)
    return np.array(np.broadcast_to(np.clip(guess, box.low, box.high), (rows, box.low.shape[-1])))


def brought_inside(action_set: ActionSet, actions: Array) -> tuple[NDArray[np.bool_], Array]:
    """Guesses in the box brought into the set, in place -> where it is empty (B,), and auxiliary variables (B, k)."""
    empty = np.zeros(len(actions), np.bool_)
    auxiliary = np.zeros((len(actions), action_set.auxiliary_low.shape[-1]))
    if action_set.is_box:
        return empty, auxiliary
    for row in range(len(actions)):
        point = action_set[row].closest(actions[row])
        if point is None:
            empty[row] = True
        else:
            actions[row] = action_set[row].admissible(point[: action_set.size], np.float64)
            auxiliary[row] = point[action_set.size :]
    return empty, auxiliary


def allowed_gap(problem: Problem, values: Array) -> Array:
    """The gap at which a value counts as proved optimal: the larger of the absolute and the relative one."""
    absolute = np.asarray(problem.tolerance, np.float64)
    relative = np.asarray(problem.relative_tolerance, np.float64)
    with np.errstate(invalid="ignore"):
        return np.broadcast_to(np.maximum(absolute, relative * np.abs(values)), values.shape)


def refused_on_host(problem: Problem) -> NDArray[Any]:
    """(B,) `refused_rows` of a problem of any arrays: the rows that must not reach a backend."""
    arrays: Problem = jax.tree.map(np.asarray, problem)
    return np.broadcast_to(refused_rows(arrays, np), len(arrays.network.first_bias))


def is_proved(problem: Problem, values: Array, upper: Array) -> NDArray[np.bool_]:
    """(B,) where the upper bound is within the tolerance of the value, in these very numbers."""
    with np.errstate(invalid="ignore"):
        return upper - values <= allowed_gap(problem, values)


def conclude(
    problem: Problem, actions: Array, values: Array, upper: Array, stopped: NDArray[Any], work: NDArray[Any]
) -> Solution:
    """The solution with its status: optimal where the gap is closed, else the reason in `stopped`."""
    upper = np.maximum(upper, values)
    status = np.where(is_proved(problem, values, upper), int(Status.OPTIMAL), stopped)
    refused = refused_on_host(problem)
    status = np.where(refused == 0, status, refused)
    actions = np.where(np.isfinite(actions), actions, 0.0)
    upper = np.where(status == int(Status.FAILED), np.inf, upper)
    empty = status == int(Status.INFEASIBLE)
    values, upper = (np.where(empty, -np.inf, numbers) for numbers in (values, upper))
    if problem.mask is not None:
        status = np.where(np.asarray(problem.mask), status, int(Status.SKIPPED))
    fields: list[Any] = [actions, values, upper, status.astype(np.int32), work]
    return Solution(*fields)
