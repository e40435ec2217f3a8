"""ReLU networks as plain pytrees: the Q-network, the action function, and `fold_state` (Eq. 3).

A network is a tuple of layers `(W, b)` with `W` input-major, shape (inputs, outputs): ReLU between
layers, a linear output.  The Q-network's inputs are the state followed by the action.

For a fixed state the state's part of the first layer is a constant, so what remains is a small
network of the action alone.  `fold_state` makes that network; every bound and every solver starts
from it and never sees a state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

Layer = tuple[jax.Array, jax.Array]
Layers = tuple[Layer, ...]


class FoldedNetwork(NamedTuple):
    """Q(x, .) for a batch of B states: the action columns and later layers are shared.

    first_bias: (B, h1) bias of the first layer with each state's contribution added.
    action_weights: (d, h1) the first layer's action columns.
    later: the layers after the first, `(W, b)` each; empty for a network without hidden layers.
    """

    first_bias: jax.Array
    action_weights: jax.Array
    later: Layers


def init_layers(key: jax.Array, sizes: Sequence[int]) -> Layers:
    """Layers for `sizes` = (inputs, hidden..., outputs): uniform in +-1/sqrt(fan in), as the papers of DDPG on."""
    layers = []
    for fan_in, fan_out, layer_key in zip(sizes[:-1], sizes[1:], jax.random.split(key, len(sizes) - 1), strict=True):
        weight_key, bias_key = jax.random.split(layer_key)
        bound = 1.0 / np.sqrt(fan_in)
        weights = jax.random.uniform(weight_key, (fan_in, fan_out), minval=-bound, maxval=bound)
        layers.append((weights, jax.random.uniform(bias_key, (fan_out,), minval=-bound, maxval=bound)))
    return tuple(layers)


def forward(layers: Layers, inputs: jax.Array) -> jax.Array:
    """The network's output, (..., inputs) -> (..., outputs)."""
    for weights, bias in layers[:-1]:
        inputs = jax.nn.relu(inputs @ weights + bias)
    weights, bias = layers[-1]
    return inputs @ weights + bias


def q_value(layers: Layers, states: jax.Array, actions: jax.Array) -> jax.Array:
    """Q(x, a) for (..., n) states and (..., d) actions -> (...)."""
    (first, bias), *later = layers
    hidden = states @ first[: states.shape[-1]] + actions @ first[states.shape[-1] :] + bias
    for weights, bias in later:
        hidden = jax.nn.relu(hidden) @ weights + bias
    return hidden[..., 0]


def fold_state(layers: Layers, states: jax.Array) -> FoldedNetwork:
    """The network of the action alone for each of (B, n) states (Eq. 3 with x fixed)."""
    (weights, bias), *later = layers
    split = states.shape[-1]
    return FoldedNetwork(states @ weights[:split] + bias, weights[split:], tuple(later))


def folded_value(network: FoldedNetwork, actions: Any) -> Any:
    """Q of (..., B, d) actions, one row per state, for any leading axes -> (..., B).

    JAX arrays give a JAX array; NumPy arrays, whatever their precision, a NumPy array of that precision.
    """
    hidden = actions @ network.action_weights + network.first_bias
    for weights, bias in network.later:
        # NumPy's own where it can be: a few dozen numbers are not worth a trip through JAX.
        positive = np.maximum(hidden, 0) if isinstance(hidden, np.ndarray) else jax.nn.relu(hidden)
        hidden = positive @ weights + bias
    return hidden[..., 0]
