"""Sets inside `jit`: actions brought into the set by code that JAX can trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from caql.actions.set import ActionSet


def projector(action_set: ActionSet) -> Callable[[jax.Array], jax.Array]:
    """What brings (..., d) actions into the box."""
    return lambda actions: jnp.clip(actions, action_set.low, action_set.high)
