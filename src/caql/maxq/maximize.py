"""The engine on its own: the maximum of a network over a set of actions, by any of the solvers.

    solution = maximize([(W0, b0), (W1, b1), (W2, b2)], low=-1, high=1, states=x)

Layers `(W, b)` with ReLU between go to the solver as they are, also if they come as a graph (`graphs.Network`) that is
such a chain; any other graph is lowered to such layers first (`objectives`).

Everything a user can get wrong is checked first, once (`arguments`): the solvers behind trust their problem.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, overload

import jax
import numpy as np
from numpy.typing import ArrayLike

from caql.actions import ActionSet
from caql.errors import CaqlError, CaqlWarning
from caql.graphs import Network
from caql.graphs.chain import network_of_layers
from caql.graphs.objective import Objective
from caql.maxq.arguments import (
    checked_box,
    checked_layers,
    checked_network,
    checked_rows,
    checked_states,
    checked_tolerance,
    chosen_solver,
    one_row_each,
)
from caql.maxq.exact.solver import Exact
from caql.maxq.host import brought_inside, is_proved
from caql.maxq.interrupts import Interrupted
from caql.maxq.objectives import AtStates, Question, solve_objective
from caql.maxq.problem import Minimum, Problem, Solution, Solver, Status
from caql.networks import FoldedNetwork, fold_state, folded_value

Rows = tuple[ArrayLike, ArrayLike]
"""A matrix and its right-hand side."""


@overload
def maximize(*arguments: Any, minimize: Literal[True], **settings: Any) -> Minimum: ...


@overload
def maximize(
    layers: Sequence[tuple[ArrayLike, ArrayLike]] | Network,
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
    integer: ArrayLike = (),
    output: int | str | ArrayLike | None = None,
    minimize: Literal[False] = False,
) -> Solution: ...


def maximize(  # type: ignore[misc]
    layers: Sequence[tuple[ArrayLike, ArrayLike]] | Network,
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
    integer: ArrayLike = (),
    output: int | str | ArrayLike | None = None,
    minimize: bool = False,
) -> Solution | Minimum:
    """max over the admissible actions of the network's output, for every state at once.

    The actions a are those with low <= a <= high, C a <= d for rows = (C, d), E a = f for equalities = (E, f), and
    whole numbers at the indices `integer`.

    layers: `(W, b)` pairs, W of shape (inputs, outputs), ReLU between, a linear output; or a network, as
        `caql.network` and `caql.network_files.read_network` make them.
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
    integer: indices of the actions that are whole numbers, at every state the same.
    output: which output is meant, if there are several: its index, its name, or weights over all of them.
    minimize: seek the least output instead; the answer is then a `Minimum`, whose proof is `values - lower`.

    Returns a `Solution` of float64 NumPy arrays, one row per state; nothing is computed in float32 but by ga and cem.
    Its actions are admissible wherever some action is; where none is, the status is `Status.INFEASIBLE`.
    `CaqlWarning` says, once, at how many states no action is admissible (and why, for the first of them), and at how
    many a solver that proves had to stop at a limit or failed.
    Bad input raises `CaqlError`.  Ctrl-C raises `caql.Interrupted`, a `KeyboardInterrupt` whose
    `solution` is the best known so far, within about a second.
    """
    chosen = chosen_solver(solver, {"threads": threads, "time_limit": time_limit, "node_limit": node_limit})
    network = posed(layers, states, output, minimize)
    count, d = network.shape
    action_set = checked_rows(checked_box(low, high, count, d), rows, equalities, integer, count)
    solution = maximize_over(network.question, action_set, chosen, tolerance, warm_start, relative_tolerance)
    return Minimum.of_negative(solution) if minimize else solution


class Posed(NamedTuple):
    """What is maximised, and the number of states and of action dimensions."""

    question: FoldedNetwork | AtStates
    shape: tuple[int, int]


def posed(layers: Any, states: Any, output: Any = None, minimize: bool = False) -> Posed:
    """The layers with the states folded in, or the objective of any other network at the states; all checked."""
    if not isinstance(layers, Network) and output is None and not minimize:
        folded = checked_network(layers, states)
        return Posed(folded, (len(folded.first_bias), len(folded.action_weights)))
    network = layers if isinstance(layers, Network) else network_of_layers(checked_layers(layers))
    batch = checked_states(states)
    d = network.sizes(batch.shape[1])[1]
    plain = _plain(network, output, minimize)
    if plain is not None:
        both: list[Any] = [plain, batch]
        return Posed(fold_state(*both), (len(batch), d))
    return Posed(AtStates(Objective.of(network, output, minimize), batch), (len(batch), d))


def _plain(network: Network, output: Any, minimize: bool) -> list[tuple[Any, Any]] | None:
    """A network's layers with the one output that is meant, if it is plain (`graphs.plain`) and one output is meant."""
    weights = network.weights(output) * (-1.0 if minimize else 1.0)
    (used,) = np.nonzero(weights)
    if network.layers is None or len(used) != 1 or abs(weights[used[0]]) != 1.0:
        return None
    *hidden, (last, bias) = network.layers
    sign = weights[used[0]]
    return [*hidden, (last[:, used] if sign > 0 else -last[:, used], sign * bias[used])]


def maximize_over(
    network: FoldedNetwork | AtStates,
    action_set: ActionSet,
    chosen: Solver,
    tolerance: ArrayLike,
    warm_start: ArrayLike | None = None,
    relative_tolerance: ArrayLike = 0.0,
) -> Solution:
    """`maximize` for a folded network in float64, or an objective at its states, with a solver object."""
    count, d = len(network.states if isinstance(network, AtStates) else network.first_bias), action_set.size
    guesses = None if warm_start is None else one_row_each("warm_start", warm_start, count, d)
    gaps = [
        checked_tolerance(name, gap, count)
        for name, gap in (("tolerance", tolerance), ("relative_tolerance", relative_tolerance))
    ]
    if isinstance(chosen, Exact):
        chosen.compile()  # so that the time below is the search's
    began = time.perf_counter()
    if isinstance(network, AtStates):
        question = Question(*network, action_set, guesses, *gaps)
        solution = solve_objective(question, _answer, chosen)
    else:
        solution = _answer(chosen, Problem(network, action_set, guesses, *gaps))
    _warn(chosen, action_set, solution, time.perf_counter() - began)
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
    try:
        found: Solution = jax.device_get(_run_traceable(solver, single, jax.random.key(0)))
    except CaqlError as refusal:
        raise CaqlError(str(refusal)) from None  # without JAX's remarks on its own frames
    # float32 may have rounded the action across the set's edge, and its value with it.
    actions: Any = np.nan_to_num(np.asarray(found.actions, np.float64))
    actions = np.clip(actions, problem.action_set.low, problem.action_set.high)
    empty, _ = brought_inside(problem.action_set, actions)
    values: Any = folded_value(problem.network, actions)
    upper: Any = np.where(np.isfinite(found.upper), np.maximum(found.upper, values), found.upper)
    broken = (found.status == Status.OPTIMAL) & ~is_proved(problem, values, upper)
    status: Any = np.where(broken, int(Status.LIMIT), found.status)
    # Inside jit a set is called empty only where interval arithmetic shows it.
    status = np.where(empty, int(Status.INFEASIBLE), status)
    values, upper = (np.where(status == Status.INFEASIBLE, -np.inf, numbers) for numbers in (values, upper))
    return found._replace(actions=actions, values=values, upper=upper, status=status)


@functools.partial(jax.jit, static_argnums=0)
def _run_traceable(solver: Solver, problem: Problem, key: jax.Array) -> Solution:
    return solver.solve(problem, key)


def _warn(solver: Solver, action_set: ActionSet, solution: Solution, seconds: float) -> None:
    """Say once how many rows have no action, or are not proved although the solver could, and what would help."""
    status, work = np.asarray(solution.status), np.asarray(solution.work)
    limited, empty = status == Status.LIMIT, np.flatnonzero(status == Status.INFEASIBLE)
    failed = int(np.sum(status == Status.FAILED))
    parts = []
    if not solver.traceable:
        most, longest = getattr(solver, "node_limit", np.inf), getattr(solver, "time_limit", np.inf)
        nodes = int(np.sum(limited & (work >= most)))
        slow = int(np.sum(limited)) - nodes if seconds >= longest else 0
        close = int(np.sum(limited)) - nodes - slow
        if nodes:
            parts.append(f"{nodes} stopped at node_limit = {most} (raise it)")
        if slow:
            parts.append(f"{slow} stopped at time_limit = {longest:g} s (raise it)")
        if close:
            parts.append(f"{close} could not be proved to this tolerance in float64 (ask for a larger one)")
        if failed:
            parts.append(f"{failed} failed")
    if len(empty):
        why = action_set[int(empty[0])].conflict()
        first = f"the first of them state {empty[0]}" + (f" ({why})" if why else "")
        parts.append(f"{len(empty)} without an admissible action, {first}")
    if parts:
        said = f"of {len(status)} states, {'; '.join(parts)}: see the solution's status"
        warnings.warn(said, CaqlWarning, stacklevel=3)
