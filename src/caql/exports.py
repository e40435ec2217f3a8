"""A trained model's networks as graphs, to be written as ONNX files: the greedy policy, and Q(x, a).

The policy is the network that acts, with the squashing into the action box behind it:

    a = clip(centre + radius tanh(network(x)))      or      a = clip(network(x)).

Behind an encoder both are networks of its features, and the encoder is written in front of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from caql.agents.policies import (
    AveragedPolicy,
    DeterministicPolicy,
    EncodedPolicy,
    EpsilonGreedy,
    GaussianPolicy,
    HostNetwork,
    RadialPolicy,
    SquashedGaussianPolicy,
)
from caql.errors import CaqlError
from caql.exported_encoders import Encoding
from caql.graphs import Network
from caql.graphs.activations import Relu, Tanh
from caql.graphs.builder import Builder
from caql.graphs.chain import dense_chain
from caql.graphs.graph import Port
from caql.graphs.operations import Add, Array, Multiply


def _observed(builder: Builder, size: int, encoding: Encoding | None) -> tuple[int, int]:
    """The input `observation`, and what the layers see of it: itself, or an encoder's features."""
    if encoding is not None:
        return encoding.features(builder, "observation")
    state = builder.input((size,), "observation")
    return state, state


def q_graph(layers: Sequence[tuple[Any, Any]], observation_size: int, encoding: Encoding | None = None) -> Network:
    """Q of two inputs, `observation` and `action`, from layers of features (or observations) and actions together."""
    exact = [(np.asarray(weights, np.float64), np.asarray(bias, np.float64)) for weights, bias in layers]
    builder = Builder()
    state, seen = _observed(builder, observation_size, encoding)
    action = builder.input((len(exact[0][0]) - builder.shape(seen)[0],), "action")
    value = dense_chain(builder, builder.concat([seen, action], 0), exact, Relu())
    return Network(builder, (Port("observation", state), Port("action", action)), (Port("q", value),), 1)


def policy_graph(policy: Any, encoding: Encoding | None = None) -> Network:
    """The greedy policy as a network of the observation; `CaqlError` for one that is not a network."""
    while isinstance(policy, EpsilonGreedy | EncodedPolicy):
        policy = policy.policy
    policy = policy.greedy if isinstance(policy, AveragedPolicy) else policy
    squash = True
    if isinstance(policy, GaussianPolicy):
        layers = _layers(policy.mean)
    elif isinstance(policy, SquashedGaussianPolicy):
        *hidden, (weights, bias) = _layers(policy.network)
        layers = [*hidden, (weights[:, : len(policy.low)], bias[: len(policy.low)])]
    elif isinstance(policy, DeterministicPolicy) and not isinstance(policy, RadialPolicy):
        layers = _layers(policy.network)
        squash = policy.into_box == policy.squash
    else:
        raise CaqlError(
            f"a {type(policy).__name__} is not a network alone and cannot be exported; export what='q', or train with "
            "an action function and squash = 'tanh' or 'clip'"
        )
    builder = Builder()
    state, seen = _observed(builder, len(layers[0][0]), encoding)
    value = dense_chain(builder, seen, layers, Relu())
    if squash:
        scaled = builder.add(Multiply(), builder.add(Tanh(), value), builder.constant(policy.radius))
        value = builder.add(Add(), scaled, builder.constant(policy.centre))
    low, high = (builder.constant(np.asarray(side, np.float64)) for side in (policy.low, policy.high))
    value = builder.minimum([builder.maximum([value, low]), high])
    return Network(builder, (Port("observation", state),), (Port("action", value),))


def _layers(network: HostNetwork) -> list[tuple[Array, Array]]:
    pairs = [*network.hidden, (network.last_weights, network.last_bias)]
    return [(weights.astype(np.float64), bias.astype(np.float64)) for weights, bias in pairs]
