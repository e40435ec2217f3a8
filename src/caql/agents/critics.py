"""CAQL's Q-function: one network, or an ensemble of them whose combination is one network again.

    labels    r + gamma * continues * Q'(x', argmax_a Q(x', a))        Q, Q' the combinations (`ensembles.py`)
    loss      the sum over the critics of the Bellman loss of each against the same label

The critics' parameters are one flat vector, one critic after the other; with one critic it is that network's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from caql.ensembles import Combine, combined
from caql.networks import Layers, q_value
from caql.optimisers import FlatNetwork


@dataclass(frozen=True)
class Critics:
    """`count` networks of one shape, and how they are combined."""

    network: FlatNetwork
    count: int = 1
    combine: Combine = "min"

    def init(self, key: jax.Array) -> jax.Array:
        """Fresh critics, each with weights of its own -> (count * network.size,)."""
        if self.count == 1:
            return self.network.init(key)
        return jax.vmap(self.network.init)(jax.random.split(key, self.count)).reshape(-1)

    def layers(self, vector: Any) -> Layers:
        """The combination of the critics in a vector of JAX or NumPy: what is maximised, and what labels are worth."""
        if self.count == 1:
            return self.network.layers(vector)
        rows = vector.reshape(self.count, -1)
        return combined([self.network.layers(rows[row]) for row in range(self.count)], self.combine)

    def values(self, vector: jax.Array, states: jax.Array, actions: jax.Array) -> jax.Array:
        """Every critic's Q(x, a) of (B, n) states and (B, d) actions -> (count, B)."""
        if self.count == 1:
            return q_value(self.network.layers(vector), states, actions)[None]
        rows = vector.reshape(self.count, -1)
        return jax.vmap(lambda row: q_value(self.network.layers(row), states, actions))(rows)

    def combined(self, values: jax.Array) -> jax.Array:
        """The combination's values from those of the critics, (count, B) -> (B,)."""
        return jnp.min(values, axis=0) if self.combine == "min" else jnp.mean(values, axis=0)
