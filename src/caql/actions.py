"""The admissible action set: what an action may be, and how to bring one back inside.

`Box` is a pytree, so that it travels through `jit` like any array.  Its bounds are one vector for all
states, shape (d,), or one row per state, shape (B, d).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from caql.errors import CaqlError


class Box(NamedTuple):
    """low <= a <= high, component by component."""

    low: jax.Array
    high: jax.Array

    @property
    def centre(self) -> jax.Array:
        return (self.low + self.high) / 2

    @property
    def radius(self) -> jax.Array:
        """Half the width of each side."""
        return (self.high - self.low) / 2

    def contains(self, actions: jax.Array) -> jax.Array:
        """Whether each of (..., d) actions is admissible -> (...)."""
        return jnp.all((actions >= self.low) & (actions <= self.high), axis=-1)

    def clip(self, actions: jax.Array) -> jax.Array:
        """The nearest admissible action."""
        return jnp.clip(actions, self.low, self.high)

    def sample(self, key: jax.Array, count: int) -> jax.Array:
        """`count` uniform actions, shape (count, ..., d)."""
        unit = jax.random.uniform(key, (count, *jnp.shape(self.low)))
        return self.low + unit * (self.high - self.low)


def squash(box: Box, raw: jax.Array) -> jax.Array:
    """Any real vector brought smoothly into the box: centre + radius * tanh(raw)."""
    return box.centre + box.radius * jnp.tanh(raw)


def make_box(low: object, high: object) -> Box:
    """A checked box of float32 bounds; degenerate sides (low = high) are allowed."""
    lower = np.asarray(low, dtype=np.float32)
    upper = np.asarray(high, dtype=np.float32)
    if lower.shape != upper.shape or lower.ndim == 0:
        raise CaqlError(
            f"low and high must be vectors of one length, one entry per action dimension; "
            f"got shapes {lower.shape} and {upper.shape}"
        )
    for name, bound in (("low", lower), ("high", upper)):
        if not np.isfinite(bound).all():
            raise CaqlError(f"{name} = {bound.tolist()} must be finite in every action dimension")
    if (lower > upper).any():
        raise CaqlError(f"low = {lower.tolist()} must not exceed high = {upper.tolist()} in any action dimension")
    return Box(jnp.asarray(lower), jnp.asarray(upper))
