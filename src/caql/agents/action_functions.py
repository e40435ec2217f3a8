"""The action function (Section 3.2): a network that imitates the maximiser, for quick acting and warm starts.

Three kinds, chosen by CAQL's setting `action_function`:

* `Deterministic`, the paper's: pi(x) trained so that Q(x', pi(x')) approaches the max-Q label.
* `Stochastic`, after actor-expert: a Gaussian fitted to the maximisers by maximum likelihood; it explores by
  sampling from itself.
* `Absent`, after QT-Opt: none; the solver starts from the centre of the set and acts as well.
"""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from caql.action_sets import Columns
from caql.actions import squash
from caql.agents.agent import Array, Policy, Spec
from caql.agents.policies import DeterministicPolicy, GaussianPolicy, RadialPolicy
from caql.agents.radial import radial, require_radial
from caql.losses import l1_loss, l2_loss, saturation
from caql.networks import FoldedNetwork, folded_value, forward
from caql.optimisers import FlatNetwork
from caql.replay import Batch
from caql.targets.context import BOUNDED, Answer

LOG_SPREAD = (-5.0, 0.5)
"""Limits of a stochastic action function's log standard deviation, in half-widths of the range."""


class ActionFunction(Protocol):
    """What CAQL needs of it; parameters are one flat vector."""

    def init(self, key: jax.Array) -> jax.Array: ...

    def guess(self, vector: jax.Array, states: jax.Array, sets: Columns | None = None) -> jax.Array:
        """Warm starts: (B, n) states, and what varies of their action sets -> (B, d) actions, whole numbers relaxed."""
        ...

    def loss(self, vector: jax.Array, batch: Batch, network: FoldedNetwork, answer: Answer) -> jax.Array:
        """How far it is from the maximiser at the next states of `batch`, per row; `network` is Q folded over them."""
        ...

    def saturation(self, vector: jax.Array, states: jax.Array) -> jax.Array:
        """How far outputs at (B, n) states are out on tanh's flat ends, squared, per row."""
        ...

    def policy(self, vector: Any, sigma: Array) -> Policy:
        """The policy on the host; `sigma` is the exploration noise where the kind has none of its own."""
        ...


class Deterministic:
    """pi(x), brought into the range by `squashing`: `tanh`, whose gradient fades towards the edge unless a penalty
    holds the output back, the paper's `clip`, whose gradient ends there, or `straight_through`, a clip with the
    gradient of no clip.

    Where the admissible actions are more than a box, each of them goes on to the closest admissible action with the
    gradient of no projection (`Spec.inside`); `radial` is a squashing onto the set itself (`radial.py`).
    """

    def __init__(self, hidden: tuple[int, ...], spec: Spec, squashing: str, loss: str = "l2") -> None:
        self.spec, self.squashing = spec, squashing
        self.distance = l2_loss if loss == "l2" else l1_loss
        if squashing == "radial":
            require_radial(spec.action_set if spec.sets is None else spec.sets.template)
        self.network = FlatNetwork((spec.observation_size, *hidden, spec.action_size))

    def init(self, key: jax.Array) -> jax.Array:
        return self.network.init(key)

    def guess(self, vector: jax.Array, states: jax.Array, sets: Columns | None = None) -> jax.Array:
        raw = forward(self.network.layers(vector), states)
        if self.squashing == "radial":
            return radial(self.spec.set_of(sets), self.spec.action_set, raw)
        if self.squashing == "tanh":
            return self.spec.inside(squash(self.spec.action_set, raw), sets)
        inside = self.spec.action_set.clip(raw)
        if self.squashing == "straight_through":
            inside = raw + jax.lax.stop_gradient(inside - raw)
        return self.spec.inside(inside, sets)

    def loss(self, vector: jax.Array, batch: Batch, network: FoldedNetwork, answer: Answer) -> jax.Array:
        guess = self.guess(vector, batch.next_states, batch.next_sets)
        return self.distance(folded_value(network, guess), answer.best)

    def saturation(self, vector: jax.Array, states: jax.Array) -> jax.Array:
        return saturation(forward(self.network.layers(vector), states))

    def policy(self, vector: Any, sigma: Array) -> Policy:
        layers = self.network.layers(np.asarray(vector))
        if self.squashing == "radial":
            return RadialPolicy(layers, self.spec, sigma)
        return DeterministicPolicy(layers, self.spec.action_set, sigma, self.squashing)


class Stochastic:
    """N(mu(x), s(x)^2) with mu squashed into the range and s in units of its half-width.

    Fitted to the maximisers by maximum likelihood: per dimension the loss is (u* - mu)^2 / (2 s^2) + log s, with u* the
    maximiser in the same units.  A row that the dual bound took away has no maximiser and weighs nothing.
    """

    def __init__(self, hidden: tuple[int, ...], spec: Spec) -> None:
        self.spec = spec
        self.network = FlatNetwork((spec.observation_size, *hidden, 2 * spec.action_size))

    def init(self, key: jax.Array) -> jax.Array:
        return self.network.init(key)

    def _heads(self, vector: jax.Array, states: jax.Array) -> tuple[jax.Array, jax.Array]:
        raw, log_spread = jnp.split(forward(self.network.layers(vector), states), 2, axis=-1)
        return raw, jnp.clip(log_spread, *LOG_SPREAD)

    def guess(self, vector: jax.Array, states: jax.Array, sets: Columns | None = None) -> jax.Array:
        raw, _ = self._heads(vector, states)
        return self.spec.inside(squash(self.spec.action_set, raw), sets)

    def loss(self, vector: jax.Array, batch: Batch, network: FoldedNetwork, answer: Answer) -> jax.Array:
        del network
        box = self.spec.action_set
        raw, log_spread = self._heads(vector, batch.next_states)
        # A side without width has one action and nothing to fit.
        target = jnp.where(box.radius > 0, (answer.actions - box.centre) / jnp.where(box.radius > 0, box.radius, 1), 0)
        deviation = (jax.lax.stop_gradient(target) - jnp.tanh(raw)) * jnp.exp(-log_spread)
        likelihood = jnp.sum(0.5 * deviation**2 + log_spread, axis=-1)
        return jnp.where(answer.provenance == BOUNDED, 0.0, likelihood)

    def saturation(self, vector: jax.Array, states: jax.Array) -> jax.Array:
        raw, _ = self._heads(vector, states)
        return saturation(raw)

    def policy(self, vector: Any, sigma: Array) -> Policy:
        del sigma
        return GaussianPolicy(self.network.layers(np.asarray(vector)), self.spec.action_set, LOG_SPREAD)


class Absent:
    """No action function: the solver starts at the centre and acts."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def init(self, key: jax.Array) -> jax.Array:
        del key
        return jnp.zeros(1)

    def guess(self, vector: jax.Array, states: jax.Array, sets: Columns | None = None) -> jax.Array:
        del vector
        centre = jnp.broadcast_to(self.spec.action_set.centre, (states.shape[0], self.spec.action_size))
        return self.spec.inside(centre, sets)

    def loss(self, vector: jax.Array, batch: Batch, network: FoldedNetwork, answer: Answer) -> jax.Array:
        del batch, network
        return jnp.zeros_like(answer.best) * vector[0]

    def saturation(self, vector: jax.Array, states: jax.Array) -> jax.Array:
        del vector
        return jnp.zeros(states.shape[0])

    def policy(self, vector: Any, sigma: Array) -> Policy:
        del vector, sigma
        raise AssertionError("without an action function CAQL acts with its solver")


def make_action_function(
    kind: str, hidden: tuple[int, ...], spec: Spec, squashing: str, loss: str = "l2"
) -> ActionFunction:
    """The action function that CAQL's setting `action_function` names."""
    if kind == "deterministic":
        return Deterministic(hidden, spec, squashing, loss)
    return Stochastic(hidden, spec) if kind == "stochastic" else Absent(spec)
