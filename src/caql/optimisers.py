"""A network's parameters as one flat vector, and Adam on it.

At the paper's sizes (32 x 16 units, 64 transitions) a gradient step is some fifty tiny kernels, and what it
costs is their number rather than their arithmetic.  Kept as one vector, all the weights of a network take
one fused kernel for Adam and one for the soft update of the target; a pair of twin networks is the same
vector with a leading axis of two, under `vmap`.

    network = FlatNetwork((inputs, 32, 16, outputs))
    vector = network.init(key)                     # (network.size,)
    layers = network.layers(vector)                # slices, as `networks.forward` and `q_value` take them

Optimisers are optax's own: to optax one vector is a pytree like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from caql.networks import Layers, init_layers


@dataclass(frozen=True)
class FlatNetwork:
    """The shape of a network whose parameters live in one vector: layer by layer, weights then bias."""

    sizes: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many parameters the network has."""
        return sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise(self.sizes))

    def init(self, key: jax.Array) -> jax.Array:
        """A fresh vector, (size,), with initial weights of `init_layers`."""
        return self.flatten(init_layers(key, self.sizes))

    def flatten(self, layers: Layers) -> jax.Array:
        """Undo `layers`."""
        return jnp.concatenate([jnp.ravel(part) for layer in layers for part in layer])

    def layers(self, vector: Any) -> Layers:
        """The layers inside a (size,) vector of JAX or of NumPy: nothing but slices of it."""
        layers, start = [], 0
        for fan_in, fan_out in pairwise(self.sizes):
            end = start + fan_in * fan_out
            layers.append((vector[start:end].reshape(fan_in, fan_out), vector[end : end + fan_out]))
            start = end + fan_out
        return tuple(layers)


class Learned(NamedTuple):
    """Parameters and their optimiser's state, which change together."""

    vector: jax.Array
    optimiser: Any


def adam(learning_rate: float) -> optax.GradientTransformation:
    """The paper's optimiser, with the usual decay rates (0.9, 0.999)."""
    return optax.adam(learning_rate)


def begin(optimiser: optax.GradientTransformation, vector: jax.Array) -> Learned:
    """Parameters before their first step."""
    return Learned(vector, optimiser.init(vector))


def descend(
    optimiser: optax.GradientTransformation,
    learned: Learned,
    loss: Callable[[jax.Array], tuple[jax.Array, Any]],
    share: jax.Array | None = None,
) -> tuple[Learned, jax.Array, Any]:
    """One step down `loss`, a function of the vector -> (scalar, anything else); returns those two as well.

    share: () of the step that is made, if not all of it.
    """
    (value, extra), gradient = jax.value_and_grad(loss, has_aux=True)(learned.vector)
    change, state = optimiser.update(gradient, learned.optimiser, learned.vector)
    return Learned(learned.vector + (change if share is None else share * change), state), value, extra


def soft_update(target: jax.Array, vector: jax.Array, rate: float | jax.Array) -> jax.Array:
    """The target network moved by the fraction `rate` (the paper's tau) towards `vector`, both (...) of one shape.

    Written as a step, so that a target that has arrived stays where it is; optax's `incremental_update` is the
    weighted mean of the two, whose rounding moves it.
    """
    return target + rate * (vector - target)
