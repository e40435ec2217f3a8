"""The admissible action set: what an action may be, as data.

    A = { a : low <= a <= high,  row_low <= R (a, h) <= row_high for some h,  some entries whole numbers }

h are auxiliary variables, bounded like actions but unseen by Q: with them |a|, "at most k of n" or "off, or between
2 and 5" are linear.  An inequality has one infinite side, an equality two equal ones.  The set is a pytree, so it
travels through `jit` like any array, and each of its arrays is either shared by all states or has a leading axis of
them.  The box is the set without rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from caql.errors import CaqlError

Array = Any
"""A JAX array inside jit, a NumPy array on the host."""

_DATA = ("low", "high", "rows", "row_low", "row_high", "auxiliary_low", "auxiliary_high")


@partial(jax.tree_util.register_dataclass, data_fields=_DATA, meta_fields=("integer",))
@dataclass(frozen=True)
class ActionSet:
    """The actions of d numbers that are admissible, for all states or, with a leading axis B, one set a state.

    low, high: (d,) or (B, d), the box around the set.
    rows: (m, d + k) or (B, m, d + k), over the actions and k auxiliary variables.
    row_low, row_high: (m,) or (B, m), the two sides of each row, one of them perhaps infinite.
    auxiliary_low, auxiliary_high: (k,) or (B, k).
    integer: which of the d + k variables are whole numbers.
    """

    low: Array
    high: Array
    rows: Array
    row_low: Array
    row_high: Array
    auxiliary_low: Array
    auxiliary_high: Array
    integer: tuple[int, ...] = ()

    @classmethod
    def box(cls, low: Array, high: Array) -> ActionSet:
        """low <= a <= high and nothing else, from arrays of one shape, (d,) or (B, d)."""
        nothing = low[..., :0]
        return cls(low, high, nothing[..., None] * low[..., None, :], nothing, nothing, nothing, nothing)

    @property
    def size(self) -> int:
        """d, the length of an action."""
        return int(self.low.shape[-1])

    @property
    def is_box(self) -> bool:
        """Whether the bounds say everything."""
        return self.rows.shape[-2] == 0 and not self.integer

    @property
    def centre(self) -> Array:
        """The middle of the box."""
        return (self.low + self.high) / 2

    @property
    def radius(self) -> Array:
        """Half the width of each side of the box."""
        return (self.high - self.low) / 2

    def map(self, change: Any) -> ActionSet:
        """The set with every array changed alike."""
        return replace(self, **{name: change(getattr(self, name)) for name in _DATA})

    def contains(self, actions: Array) -> Array:
        """Whether each of (..., d) actions lies in the box -> (...)."""
        return jnp.all((actions >= self.low) & (actions <= self.high), axis=-1)

    def clip(self, actions: Array) -> Array:
        """The nearest actions of the box."""
        return jnp.clip(actions, self.low, self.high)

    def sample(self, key: jax.Array, count: int) -> jax.Array:
        """`count` uniform actions of the box, shape (count, ..., d)."""
        unit = jax.random.uniform(key, (count, *jnp.shape(self.low)))
        return self.low + unit * (self.high - self.low)


def squash(action_set: ActionSet, raw: jax.Array) -> jax.Array:
    """Any real vector brought smoothly into the box: centre + radius * tanh(raw)."""
    return action_set.centre + action_set.radius * jnp.tanh(raw)


def make_box(low: object, high: object) -> ActionSet:
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
    return ActionSet.box(jnp.asarray(lower), jnp.asarray(upper))
