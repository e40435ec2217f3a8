"""Two critics against overestimation (Fujimoto et al., 2018), as TD3 and SAC have them.

    y = r + gamma min_i Q'_i(x', a')          the smaller of the two targets makes the label
    loss = sum_i mean (Q_i(x, a) - y)^2       and both learn it

The two are rows of one (2, size) array, evaluated together under `vmap`.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from caql.losses import l2_loss
from caql.networks import q_value
from caql.optimisers import FlatNetwork
from caql.replay import Batch


class TwinCritics:
    """A pair of Q-networks of one shape, `sizes` = (n + d, hidden..., 1)."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.network = FlatNetwork(sizes)

    def init(self, keys: Sequence[jax.Array]) -> jax.Array:
        """Fresh critics from two keys -> (2, size)."""
        return jnp.stack([self.network.init(key) for key in keys])

    def values(self, critics: jax.Array, states: jax.Array, actions: jax.Array) -> jax.Array:
        """Both critics' Q(x, a) of (B, n) states and (B, d) actions -> (2, B)."""
        return jax.vmap(lambda vector: q_value(self.network.layers(vector), states, actions))(critics)

    def smaller_value(self, critics: jax.Array, states: jax.Array, actions: jax.Array) -> jax.Array:
        """min_i Q_i(x, a) -> (B,)."""
        return jnp.min(self.values(critics, states, actions), axis=0)

    def loss(self, critics: jax.Array, batch: Batch, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The two critics' mean squared errors against (B,) labels, added; and the mean value."""
        values = self.values(critics, batch.states, batch.actions)
        return jnp.sum(jnp.mean(l2_loss(values, labels), axis=1)), jnp.mean(values)
