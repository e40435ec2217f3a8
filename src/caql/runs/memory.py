"""What a run will keep in memory, counted before any of it is taken.

A hidden layer of 10^9 units, or a buffer of 10^12 transitions, is a slip of the hand or a hostile file; either
way a sentence is better than a machine that stands still.
"""

from __future__ import annotations

import math
import os
from typing import Any

import jax
import numpy as np

from caql.errors import CaqlError


def state_shapes(agent: Any) -> Any:
    """The agent's state with shapes and types in place of arrays; nothing is computed."""
    try:
        return jax.eval_shape(agent.init, jax.random.key(0))
    except (TypeError, ValueError, OverflowError) as problem:
        reason = str(problem).strip().split("\n")[0]
        raise CaqlError(f"the agent's networks cannot be built: {reason}") from problem


def check_memory(agent: Any, replay_size: int, observation_size: int) -> None:
    """Refuse a run whose networks or replay buffer exceed this machine's memory; a number has four bytes."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    state = 4 * sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(state_shapes(agent)))
    row = 2 * observation_size * np.dtype(agent.stored_dtype).itemsize + 4 * (agent.spec.action_size + 2)
    for name, value, needed in (
        ("hidden", agent.config.hidden, state),
        ("replay_size", replay_size, replay_size * row),
    ):
        if needed > memory:
            raise CaqlError(
                f"{name} = {value} needs {needed / 1e9:.3g} GB of memory; this machine has {memory / 1e9:.3g} GB"
            )
