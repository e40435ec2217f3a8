"""The contract of the plug-in room: one batched question, max over a of Q(x, a), and its answer.

A solver is a frozen dataclass whose fields are its settings.  `traceable` solvers are pure JAX; the others run on the
host with NumPy arrays, and may have a way into `jit` besides (`solvers.inside_jit`).  Either way the question is a
`Problem` and the answer a `Solution`; stopping is per state, never by the batch's mean.
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp

from caql.actions import ActionSet
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
    """The backend broke down; the action is admissible, its value true, nothing more."""
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


def row_by_row(problem: Problem) -> tuple[ActionSet, Array, Array]:
    """For traceable solvers: the box, an admissible start and whether it is wanted, spelt out for each state."""
    shape = (problem.network.first_bias.shape[0], problem.network.action_weights.shape[0])
    low, high = (jnp.broadcast_to(side, shape) for side in (problem.action_set.low, problem.action_set.high))
    every = ActionSet.box(low, high)
    start = every.centre if problem.warm_start is None else every.clip(problem.warm_start)
    return every, start, jnp.ones(shape[0], bool) if problem.mask is None else problem.mask


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


@runtime_checkable
class Solver(Protocol):
    """What an agent needs of a solver; `name` is what the user types."""

    name: ClassVar[str]
    traceable: ClassVar[bool]

    def solve(self, problem: Problem, key: Any) -> Solution:
        """Answer for every row of the batch; `key` is a JAX PRNG key (unused by exact solvers)."""
        ...
