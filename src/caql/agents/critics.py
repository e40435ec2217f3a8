"""CAQL's Q-function: one network, or an ensemble of them whose combination is one network again.

    labels    r + gamma * continues * Q'(x', argmax_a Q(x', a))        Q, Q' the combinations (`ensembles.py`)
    loss      the sum over the critics of the Bellman loss of each against the same label

With an encoder (`encoders.py`) the networks are heads, Q_i(x, a) = head_i(phi(x), a), and phi learns with them from the
Bellman loss; a target network has an encoder of its own.  All parameters are one flat vector: the encoder's, then one
critic after the other; with one critic alone it is that network's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from caql.agents.agent import Spec
from caql.agents.caql_settings import CAQLConfig
from caql.encoders import FlatEncoder
from caql.ensembles import Combine, combined
from caql.errors import CaqlError
from caql.networks import Layers, q_value
from caql.optimisers import FlatNetwork


def encoder_for(config: CAQLConfig, spec: Spec) -> tuple[FlatEncoder | None, Spec]:
    """The encoder that a configuration names, and the task as the networks behind it see it: features for states."""
    if config.encoder is None:
        return None, spec
    if config.squash == "radial" and spec.sets is not None:
        raise CaqlError("squash = 'radial' cannot see through an encoder which set a state has; take squash = 'tanh'")
    encoder = FlatEncoder(config.encoder, spec.observation_shape, spec.observation_dtype)
    return encoder, spec._replace(observation_size=encoder.features)


@dataclass(frozen=True)
class Critics:
    """`count` networks of one shape, how they are combined, and the encoder in front of them, if there is one."""

    network: FlatNetwork
    count: int = 1
    combine: Combine = "min"
    encoder: FlatEncoder | None = None

    def init(self, key: jax.Array) -> jax.Array:
        """Fresh parameters: the encoder's, and critics each with weights of its own."""
        if self.encoder is not None:
            encoder_key, key = jax.random.split(key)
            return jnp.concatenate([self.encoder.init(encoder_key), self._init_critics(key)])
        return self._init_critics(key)

    def _init_critics(self, key: jax.Array) -> jax.Array:
        if self.count == 1:
            return self.network.init(key)
        return jax.vmap(self.network.init)(jax.random.split(key, self.count)).reshape(-1)

    def _critics(self, vector: Any) -> Any:
        """The critics' part of a vector."""
        return vector if self.encoder is None else vector[self.encoder.size :]

    def features(self, vector: Any, states: Any) -> Any:
        """What the networks see of (B, n) states: phi(x), (B, k), or the states themselves."""
        return states if self.encoder is None else self.encoder.apply(vector[: self.encoder.size], states)

    def layers(self, vector: Any) -> Layers:
        """The combination of the critics in a vector of JAX or NumPy: what is maximised, and what labels are worth.

        Its inputs are features and actions.
        """
        vector = self._critics(vector)
        if self.count == 1:
            return self.network.layers(vector)
        rows = vector.reshape(self.count, -1)
        return combined([self.network.layers(rows[row]) for row in range(self.count)], self.combine)

    def values(self, vector: jax.Array, states: jax.Array, actions: jax.Array) -> jax.Array:
        """Every critic's Q(x, a) of (B, n) states and (B, d) actions -> (count, B)."""
        seen, vector = self.features(vector, states), self._critics(vector)
        if self.count == 1:
            return q_value(self.network.layers(vector), seen, actions)[None]
        rows = vector.reshape(self.count, -1)
        return jax.vmap(lambda row: q_value(self.network.layers(row), seen, actions))(rows)

    def combined(self, values: jax.Array) -> jax.Array:
        """The combination's values from those of the critics, (count, B) -> (B,)."""
        return jnp.min(values, axis=0) if self.combine == "min" else jnp.mean(values, axis=0)

    def side_by_side(self, vectors: Sequence[jax.Array], states: jax.Array) -> tuple[jax.Array, list[Layers]]:
        """Several parameter vectors' combinations as networks of the same inputs -> those inputs at (B, n) states, and
        the networks' layers.

        Without an encoder the inputs are the states.  With one, each vector has features of its own: the inputs are all
        of them, those of the first vector first, and each network has zero weights for those of the others.
        """
        layers = [self.layers(vector) for vector in vectors]
        if self.encoder is None:
            return states, layers
        seen = jnp.concatenate([self.features(vector, states) for vector in vectors], axis=-1)
        size, networks = self.encoder.features, []
        for place, ((weights, bias), *later) in enumerate(layers):
            parts = [jnp.zeros_like(weights[:size])] * len(vectors)
            parts[place] = weights[:size]
            networks.append(((jnp.concatenate([*parts, weights[size:]]), bias), *later))
        return seen, networks
