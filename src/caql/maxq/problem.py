"""The contract of the plug-in solvers: one batched question, max over a of Q(x, a), and its answer.

A solver is a frozen dataclass whose fields are its settings.  `traceable` solvers are pure JAX; the others run on the
host with NumPy arrays, and may have a way into `jit` besides (`solvers.inside_jit`).  Either way the question is a
`Problem` and the answer a `Solution`; stopping is per state, never by the batch's mean.

A solver never raises for a row that it cannot solve: it flags it.  A number that is not finite in one state's bias,
action set, warm start or tolerance is such a row; one in the weights that all states share makes every row one.
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp

from caql.actions import ActionSet
from caql.errors import CaqlError
from caql.networks import FoldedNetwork

Array = Any
"""A JAX array inside jit, a NumPy array on the host."""


class Status(enum.IntEnum):
    """Why a solver stopped on a state."""

    OPTIMAL = 0
    """Proved: upper - value is within the tolerance."""
    CONVERGED = 1
    """The search came to rest within its tolerance; nothing is proved."""
    LIMIT = 2
    """Iterations, nodes or time ran out; value and upper are the best known."""
    FAILED = 3
    """It could not be solved: not a finite number somewhere, or the backend broke down.  The action is inside its
    bounds, the value is Q there or NaN, and nothing is proved: upper is +inf."""
    SKIPPED = 4
    """Not asked for: the row was masked out by a speed-up."""
    INFEASIBLE = 5
    """The action set is empty at this state: value and upper are -inf, and the action means nothing."""


class Problem(NamedTuple):
    """max over a in `action_set` of Q(x, a), for each of B states at once.

    network: Q with the states folded away (B rows).
    action_set: the admissible actions, shared or one set per state.
    warm_start: (B, d) first guesses, or None for the set's centre.
    tolerance: () or (B,) absolute gap (exact solvers) or change in value (ascent) at which to stop.
    relative_tolerance: () or (B,) the same as a fraction of |value|; the larger of the two counts.
    mask: (B,) bool, the rows that are wanted, or None for all of them.
    """

    network: FoldedNetwork
    action_set: ActionSet
    warm_start: Array | None = None
    tolerance: Array | float = 1e-6
    relative_tolerance: Array | float = 0.0
    mask: Array | None = None


def refused_rows(problem: Problem, xp: Any) -> Array:
    """(B,) the status of the rows that no solver can solve, FAILED or INFEASIBLE, and 0 for all others.

    `xp` is the arrays' namespace, jax.numpy or numpy.
    """
    network, box = problem.network, problem.action_set
    shared = [network.action_weights, *(part for layer in network.later for part in layer)]
    sound = xp.all(xp.isfinite(network.first_bias), axis=-1)
    for part in shared:
        sound = sound & xp.all(xp.isfinite(part))
    for part in (box.low, box.high, *(() if problem.warm_start is None else (problem.warm_start,))):
        sound = sound & xp.all(xp.isfinite(part), axis=-1)
    sound = sound & xp.isfinite(problem.tolerance) & xp.isfinite(problem.relative_tolerance)
    sound = sound & xp.all(xp.isfinite(box.rows), axis=(-2, -1))
    empty = xp.any(box.low > box.high, axis=-1)
    for bottom, top in ((box.row_low, box.row_high), (box.auxiliary_low, box.auxiliary_high)):
        # Either may be infinite, but neither NaN nor infinite the wrong way.
        sound = sound & xp.all((bottom < xp.inf) & (top > -xp.inf), axis=-1)
        empty = empty | xp.any(bottom > top, axis=-1)
    return xp.where(sound, xp.where(empty, int(Status.INFEASIBLE), 0), int(Status.FAILED))


def spread_out(problem: Problem) -> tuple[ActionSet, Array, Array]:
    """The box, the start in it and whether it is wanted, spelt out for each state."""
    shape = (problem.network.first_bias.shape[0], problem.network.action_weights.shape[0])
    low, high = (jnp.broadcast_to(side, shape) for side in (problem.action_set.low, problem.action_set.high))
    every = ActionSet.box(low, high)
    start = every.centre if problem.warm_start is None else every.clip(problem.warm_start)
    return every, start, jnp.ones(shape[0], bool) if problem.mask is None else problem.mask


def row_by_row(problem: Problem) -> tuple[ActionSet, Array, Array]:
    """As `spread_out`, for traceable solvers; of a row that cannot be solved the box is a point, and it is not wanted.

    `searched` then flags it.
    """
    box, start, wanted = spread_out(problem)
    sound = refused_rows(problem, jnp) == 0
    start = jnp.where(jnp.isfinite(start), start, box.centre)
    start = jnp.where(jnp.isfinite(start), start, 0.0)
    point = sound[:, None]
    return ActionSet.box(jnp.where(point, box.low, start), jnp.where(point, box.high, start)), start, wanted & sound


def searched(problem: Problem, actions: Array, values: Array, moving: Array, work: Array) -> Solution:
    """For traceable solvers: the solution of a search that proves nothing; `moving`: (B,) which rows had to stop."""
    status = jnp.where(moving, Status.LIMIT, Status.CONVERGED)
    status = jnp.where(jnp.isfinite(values), status, Status.FAILED)
    refused = refused_rows(problem, jnp)
    status = jnp.where(refused == 0, status, refused)
    if problem.mask is not None:
        status = jnp.where(problem.mask, status, Status.SKIPPED)
    empty = status == Status.INFEASIBLE
    upper = jnp.where(empty, -jnp.inf, jnp.full_like(values, jnp.inf))
    return Solution(actions, jnp.where(empty, -jnp.inf, values), upper, status.astype(jnp.int8), work)


MOST_THREADS = 1024
"""More of them than any machine has processors for; memory is set aside for each."""


def require_threads(threads: Any) -> None:
    """Raise `CaqlError` unless `threads` is a number of threads that a machine can have."""
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= MOST_THREADS:
        raise CaqlError(f"threads = {threads!r} must be a whole number, at least 1 and at most {MOST_THREADS}")


def require_support(solver: Any, action_set: ActionSet) -> None:
    """Raise `CaqlError` unless the solver takes such an action set; each solver's `solve` begins with this."""
    if action_set.rows.shape[-2] and not solver.accepts_rows:
        raise CaqlError(
            f"solver {solver.name!r} does not take rows or equalities, only bounds on the actions; mip, ga and cem do"
        )
    if action_set.integer and not solver.accepts_integers:
        raise CaqlError(f"solver {solver.name!r} does not take whole-numbered actions, only continuous ones; mip does")


class Solution(NamedTuple):
    """One row per state.  `upper - values` is the proof; +inf where nothing is proved.

    actions (B, d), values (B,) = Q at those actions, upper (B,), status (B,) of `Status`,
    work (B,) iterations or nodes spent.
    """

    actions: Array
    values: Array
    upper: Array
    status: Array
    work: Array


class Minimum(NamedTuple):
    """A solution of a minimisation: as `Solution`, but `values - lower` is the proof; -inf where nothing is proved."""

    actions: Array
    values: Array
    lower: Array
    status: Array
    work: Array

    @classmethod
    def of_negative(cls, solution: Solution) -> Minimum:
        """The minimum of f from the maximum of -f."""
        return cls(solution.actions, -solution.values, -solution.upper, solution.status, solution.work)


@runtime_checkable
class Solver(Protocol):
    """What an agent needs of a solver; `name` is what the user types.

    `accepts_rows` and `accepts_integers` say which action sets it takes besides boxes.
    """

    name: ClassVar[str]
    traceable: ClassVar[bool]
    accepts_rows: ClassVar[bool]
    accepts_integers: ClassVar[bool]

    def solve(self, problem: Problem, key: Any) -> Solution:
        """Answer for every row of the batch; `key` is a JAX PRNG key (unused by exact solvers)."""
        ...


def without_empty(solution: Solution, empty: Array) -> Solution:
    """For traceable solvers: the solution with the rows flagged whose set is proved to be empty, (B,) bool."""
    empty = empty & (solution.status != Status.SKIPPED)
    status = jnp.where(empty, jnp.int8(Status.INFEASIBLE), solution.status)
    values, upper = (jnp.where(empty, -jnp.inf, numbers) for numbers in (solution.values, solution.upper))
    return solution._replace(values=values, upper=upper, status=status)
