"""Everything random in a run: streams named by (seed, purpose, index), independent of each other.

Because a stream's name says all there is to say about it, nothing about randomness has to be kept between epochs.
"""

from __future__ import annotations

from enum import IntEnum

import jax
import numpy as np


class Purpose(IntEnum):
    """What a random stream is for; part of every stream's seed, so the numbers must never change."""

    WEIGHTS = 0
    EPISODE = 1
    NOISE = 2
    MINIBATCH = 3
    UPDATE = 4
    EVALUATION = 5
    PREDICTION = 6
    KEEPING = 7


def stream(seed: int, purpose: Purpose, *index: int) -> np.random.Generator:
    """The random numbers of one purpose and index, independent of all others."""
    return np.random.default_rng(np.random.SeedSequence([seed, int(purpose), *index]))


def reset_seed(seed: int, purpose: Purpose, *index: int) -> int:
    """A seed for one environment reset."""
    return int(np.random.SeedSequence([seed, int(purpose), *index]).generate_state(1)[0])


@jax.jit
def update_key(seed: int, epoch: int) -> jax.Array:
    """The JAX key of an epoch's updates; compiled, because three eager operations cost half a millisecond."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), Purpose.UPDATE), epoch)
