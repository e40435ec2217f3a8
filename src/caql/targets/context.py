"""What a speed-up sees and what it says: the context of a minibatch, the answer for each of its rows, the protocol.

A speed-up is a stage with two methods, nested like an onion.  `plan` says which rows of the batch still
need a max-Q solve; after the solve, `fill` gives the rows that it took away their value.  A new speed-up is one
file beside this one, and a line in `CAQLConfig.stages`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from caql.actions import ActionSet
from caql.bounds import dual_bound
from caql.networks import FoldedNetwork, Layers, fold_state, q_value
from caql.replay import Batch

SOLVED, BOUNDED, EXTRAPOLATED = 0, 1, 2
"""Where a row's value came from: the solver, the dual bound, a centroid's Taylor expansion."""


class Context(NamedTuple):
    """What a stage may look at.

    batch: B transitions.
    q: the Q-network's layers, whose maximiser is sought.  network: q folded over the next states.
    targets: the target networks, one or two; a value is the smallest that they give.
    action_set: of the next states.
    guess: (B, d) the action function's actions at the next states, from which the solver starts.
    discount: gamma.  q_values: (B,) Q(x, a) of the batch; of several critics the smallest, so that a row whose label
    is not above it pulls none of them up.
    epoch: epochs so far, which schedules count by.
    """

    batch: Batch
    q: Layers
    network: FoldedNetwork
    targets: tuple[Layers, ...]
    action_set: ActionSet
    guess: jax.Array
    discount: float
    q_values: jax.Array
    epoch: jax.Array


class Answer(NamedTuple):
    """One row per transition of the batch.

    values: (B,) next-state value under the targets.
    best: (B,) max-Q label under Q itself, for the action function.
    actions: (B, d) maximisers (of a row's centroid, where extrapolated); where bounded, nothing but the guess.
    provenance: (B,) SOLVED, BOUNDED or EXTRAPOLATED.
    """

    values: jax.Array
    best: jax.Array
    actions: jax.Array
    provenance: jax.Array


class Stage(Protocol):
    """A speed-up: takes rows away before the solve and gives them their value after it."""

    def plan(self, context: Context, need: jax.Array) -> tuple[jax.Array, Any]:
        """Which of the rows in `need` (B,) still need solving, and a note for `fill`."""
        ...

    def fill(self, context: Context, note: Any, answer: Answer) -> Answer:
        """The answer with this stage's rows given their value."""
        ...


def target_value(targets: tuple[Layers, ...], states: jax.Array, actions: jax.Array) -> jax.Array:
    """The smallest target network's Q(x, a) -> (B,): with two of them, clipped double Q."""
    values = [q_value(layers, states, actions) for layers in targets]
    return values[0] if len(values) == 1 else jnp.minimum(*values)


def target_bound(context: Context) -> jax.Array:
    """Dual upper bound on the targets' next-state value, (B,): the smaller bound bounds the smaller value."""
    states = context.batch.next_states
    bounds = [dual_bound(fold_state(layers, states), context.action_set) for layers in context.targets]
    return bounds[0] if len(bounds) == 1 else jnp.minimum(*bounds)
