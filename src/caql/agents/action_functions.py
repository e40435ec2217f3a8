"""The action function (Section 3.2): a network that imitates the maximiser, for quick acting and warm starts.

Three kinds, chosen by CAQL's setting `action_function`:

* `Deterministic`, the paper's: pi(x) trained so that Q(x', pi(x')) approaches the max-Q label.
* `Stochastic`, after actor-expert: a Gaussian fitted to the maximisers by maximum likelihood; it explores by
  sampling from itself.
* `Absent`, after QT-Opt: none; the solver starts from the centre of the set and acts as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from caql.actions import squash
from caql.agents.agent import Array, DeterministicPolicy, Policy, Spec
from caql.losses import action_function_loss
from caql.networks import FoldedNetwork, folded_value, forward
from caql.optimisers import FlatNetwork
from caql.targets.speedups import Answer

LOG_SPREAD = (-5.0, 0.5)
"""Limits of a stochastic action function's log standard deviation, in half-widths of the range."""


class ActionFunction(Protocol):
    """What CAQL needs of it; parameters are one flat vector."""

    def init(self, key: jax.Array) -> jax.Array: ...

    def guess(self, vector: jax.Array, states: jax.Array) -> jax.Array:
        """Warm starts: (B, n) states -> (B, d) admissible actions."""
        ...

    def loss(self, vector: jax.Array, states: jax.Array, network: FoldedNetwork, answer: Answer) -> jax.Array:
        """How far it is from the maximiser, per row; `network` is Q folded over `states`."""
        ...

    def policy(self, vector: Any, sigma: Array) -> Policy:
        """The policy on the host; `sigma` is the exploration noise where the kind has none of its own."""
        ...


class Deterministic:
    """pi(x): squashed into the range so that its gradient cannot die at the edge; `clip` is the paper's."""

    def __init__(self, hidden: tuple[int, ...], spec: Spec, how: str) -> None:
        self.spec, self.how = spec, how
        self.network = FlatNetwork((spec.observation_size, *hidden, spec.action_size))

    def init(self, key: jax.Array) -> jax.Array:
        return self.network.init(key)

    def guess(self, vector: jax.Array, states: jax.Array) -> jax.Array:
        raw = forward(self.network.layers(vector), states)
        if self.how == "tanh":
            return squash(self.spec.action_set, raw)
        inside = self.spec.action_set.clip(raw)
        return raw + jax.lax.stop_gradient(inside - raw) if self.how == "straight_through" else inside

    def loss(self, vector: jax.Array, states: jax.Array, network: FoldedNetwork, answer: Answer) -> jax.Array:
        return action_function_loss(folded_value(network, self.guess(vector, states)), answer.best)

    def policy(self, vector: Any, sigma: Array) -> Policy:
        return DeterministicPolicy(self.network.layers(np.asarray(vector)), self.spec.action_set, sigma, self.how)


class Stochastic:
    """N(mu(x), s(x)^2) with mu squashed into the range and s in units of its half-width."""

    def __init__(self, hidden: tuple[int, ...], spec: Spec) -> None:
        self.spec = spec
        self.network = FlatNetwork((spec.observation_size, *hidden, 2 * spec.action_size))

    def init(self, key: jax.Array) -> jax.Array:
        return self.network.init(key)

    def _heads(self, vector: jax.Array, states: jax.Array) -> tuple[jax.Array, jax.Array]:
        raw, log_spread = jnp.split(forward(self.network.layers(vector), states), 2, axis=-1)
        return jnp.tanh(raw), jnp.clip(log_spread, *LOG_SPREAD)

    def guess(self, vector: jax.Array, states: jax.Array) -> jax.Array:
        unit, _ = self._heads(vector, states)
        return self.spec.action_set.centre + self.spec.action_set.radius * unit

    def loss(self, vector: jax.Array, states: jax.Array, network: FoldedNetwork, answer: Answer) -> jax.Array:
        del network
        box = self.spec.action_set
        unit, log_spread = self._heads(vector, states)
        # A side without width has one action and nothing to fit.
        target = jnp.where(box.radius > 0, (answer.actions - box.centre) / jnp.where(box.radius > 0, box.radius, 1), 0)
        deviation = (jax.lax.stop_gradient(target) - unit) * jnp.exp(-log_spread)
        return jnp.sum(0.5 * deviation**2 + log_spread, axis=-1)

    def policy(self, vector: Any, sigma: Array) -> Policy:
        del sigma
        return _StochasticPolicy(self.network.layers(np.asarray(vector)), self.spec)


class _StochasticPolicy(DeterministicPolicy):
    def __init__(self, layers: Any, spec: Spec) -> None:
        *hidden, (weights, bias) = layers
        size = spec.action_size
        super().__init__((*hidden, (weights[:, :size], bias[:size])), spec.action_set, np.zeros(size, np.float32))
        self.spread_weights, self.spread_bias = weights[:, size:], bias[size:]

    def explore(self, state: Array, noise: Array) -> Array:
        features = np.asarray(state, np.float32)
        for weights, bias in self.hidden:
            features = np.maximum(features.dot(weights) + bias, 0)
        log_spread = np.clip(features.dot(self.spread_weights) + self.spread_bias, *LOG_SPREAD)
        action = self.act(state) + self.radius * np.exp(log_spread) * noise
        inside: Array = np.minimum(np.maximum(action, self.low), self.high).astype(np.float32)
        return inside


class SolverPolicy:
    """Acts with the max-Q solver: slower than an action function, and as good as the Q-network allows."""

    def __init__(self, maximisers: Callable[[Array], Array], spec: Spec, sigma: Array) -> None:
        self.maximisers, self.sigma = maximisers, sigma
        self.low, self.high = np.asarray(spec.action_set.low), np.asarray(spec.action_set.high)

    def act(self, state: Array) -> Array:
        actions = self.maximisers(np.atleast_2d(np.asarray(state, np.float32)))
        inside: Array = np.minimum(np.maximum(actions, self.low), self.high)
        return inside if np.ndim(state) > 1 else inside[0]

    def explore(self, state: Array, noise: Array) -> Array:
        inside: Array = np.minimum(np.maximum(self.act(state) + self.sigma * noise, self.low), self.high)
        return inside


class Absent:
    """No action function: the solver starts at the centre and acts."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def init(self, key: jax.Array) -> jax.Array:
        del key
        return jnp.zeros(1)

    def guess(self, vector: jax.Array, states: jax.Array) -> jax.Array:
        del vector
        return jnp.broadcast_to(self.spec.action_set.centre, (states.shape[0], self.spec.action_size))

    def loss(self, vector: jax.Array, states: jax.Array, network: FoldedNetwork, answer: Answer) -> jax.Array:
        del states, network
        return jnp.zeros_like(answer.best) * vector[0]

    def policy(self, vector: Any, sigma: Array) -> Policy:
        del vector, sigma
        raise AssertionError("without an action function CAQL acts with its solver")
