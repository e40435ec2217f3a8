"""Small random networks of every kind, for the tests."""

from collections.abc import Callable
from typing import Any

import numpy as np

from caql.graphs import Network
from caql.graphs.activations import (
    Abs,
    Clip,
    Cos,
    Elu,
    Erf,
    Gelu,
    GeluTanh,
    LeakyRelu,
    Mish,
    QuadraticRamp,
    Relu,
    Sigmoid,
    Silu,
    Sin,
    Softplus,
    Softsign,
    Tanh,
)
from caql.graphs.builder import Builder
from caql.graphs.graph import Port
from caql.graphs.operations import Multiply
from caql.graphs.windows import Windows, convolve, pool

STATES, ACTIONS = 3, 2
SMOOTH = {"tanh": Tanh(), "sigmoid": Sigmoid(), "softplus": Softplus(), "elu": Elu(), "gelu": Gelu()}
SMOOTH |= {"gelu_tanh": GeluTanh(), "silu": Silu()}
MORE_SMOOTH = {
    "mish": Mish(),
    "softsign": Softsign(),
    "sin": Sin(),
    "cos": Cos(),
    "erf": Erf(),
    "ramp": QuadraticRamp(),
}
"""Tried alone: for whole networks they are nothing new."""
PIECEWISE = {
    "relu": Relu(),
    "leaky": LeakyRelu(0.2),
    "steep": LeakyRelu(1.5),
    "negative": LeakyRelu(-0.5),
    "abs": Abs(),
    "hard_tanh": Clip(-1.0, 1.0),
    "relu6": Clip(0.0, 0.6),
    "below": Clip(high=0.3),
    "above": Clip(low=-0.2),
    "constant": Clip(0.4, 0.2),
}


def _dense(builder: Builder, rng: Any, x: int, units: int) -> int:
    inputs = builder.shape(x)[-1]
    return builder.dense(x, rng.normal(size=(inputs, units)) * np.sqrt(2.0 / inputs), 0.3 * rng.normal(size=units))


def _finish(builder: Builder, rng: Any, inputs: list[tuple[str, int]], x: int, outputs: int = 1) -> Network:
    value = _dense(builder, rng, x, outputs)
    ports = tuple(Port(*each) for each in inputs)
    return Network(builder, ports, (Port("q", value),), 1 if len(ports) > 1 else None)


def mlp(activation: Any, seed: int = 0, hidden: tuple[int, ...] = (7, 6), outputs: int = 1) -> Network:
    """Dense layers with an activation between them."""
    builder, rng = Builder(), np.random.default_rng(seed)
    first = value = builder.input((STATES + ACTIONS,), "x")
    for units in hidden:
        value = builder.add(activation, _dense(builder, rng, value, units))
    return _finish(builder, rng, [("x", first)], value, outputs)


def _two(builder: Builder) -> tuple[list[tuple[str, int]], int, int]:
    state, action = builder.input((STATES,), "state"), builder.input((ACTIONS,), "action")
    return [("state", state), ("action", action)], state, action


def residual(seed: int) -> Network:
    """Sums over a layer, and the action again at the head."""
    builder, rng = Builder(), np.random.default_rng(seed)
    inputs, state, action = _two(builder)
    hidden = builder.add(Relu(), _dense(builder, rng, builder.concat([state, action], 0), 6))
    hidden = builder.total([hidden, builder.add(LeakyRelu(0.1), _dense(builder, rng, hidden, 6))])
    return _finish(builder, rng, inputs, builder.concat([hidden, action], 0))


def maxout(seed: int) -> Network:
    """The largest of five affine maps of the action, then of two, and a smallest."""
    builder, rng = Builder(), np.random.default_rng(seed)
    inputs, state, action = _two(builder)
    pieces = builder.reshape(_dense(builder, rng, builder.concat([state, action], 0), 20), (4, 5))
    first = builder.maximum_last(pieces)
    second = builder.maximum([_dense(builder, rng, first, 3) for _ in range(2)])
    third = builder.minimum([second, _dense(builder, rng, first, 3), builder.constant(0.2)])
    return _finish(builder, rng, inputs, third)


def encoder(seed: int) -> Network:
    """Any function of the state, which also scales the action: every state has weights of its own."""
    builder, rng = Builder(), np.random.default_rng(seed)
    inputs, state, action = _two(builder)
    code = builder.add(Tanh(), _dense(builder, rng, state, ACTIONS))
    scaled = builder.add(Multiply(), action, code)
    hidden = builder.add(Relu(), _dense(builder, rng, builder.concat([code, scaled], 0), 7))
    hidden = builder.add(Relu(), _dense(builder, rng, builder.concat([hidden, code], 0), 5))
    return _finish(builder, rng, inputs, hidden)


def images(seed: int) -> Network:
    """A convolution and two poolings over a picture that the action is part of."""
    builder, rng = Builder(), np.random.default_rng(seed)
    inputs, state, action = _two(builder)
    spread = builder.reshape(_dense(builder, rng, builder.concat([state, action], 0), 32), (1, 2, 4, 4))
    ones = (1, 1)
    windows = Windows((3, 3), ones, ones, ((1, 1), (1, 1)))
    maps = convolve(builder, spread, rng.normal(size=(2, 2, 3, 3)) / 4, rng.normal(size=2), windows, 1)
    maps = pool(builder, builder.add(Relu(), maps), Windows((2, 2), (2, 2), ones, ((0, 0), (0, 0))), None)
    maps = pool(builder, maps, Windows((2, 1), ones, ones, ((0, 0), (0, 0))), "all")
    return _finish(builder, rng, inputs, builder.reshape(maps, (4,)))


def of_action_alone(seed: int) -> Network:
    """A smooth first layer and kinks after it."""
    builder, rng = Builder(), np.random.default_rng(seed)
    inputs, state, action = _two(builder)
    hidden = builder.add(Tanh(), _dense(builder, rng, builder.concat([state, action], 0), 4))
    hidden = builder.add(Relu(), _dense(builder, rng, hidden, 4))
    return _finish(builder, rng, inputs, builder.concat([hidden, action], 0))


def of_function(function: Callable[[Builder, int], int], seed: int = 0) -> Network:
    """A layer, a function of its values, and a layer."""
    builder, rng = Builder(), np.random.default_rng(seed)
    inputs, state, action = _two(builder)
    hidden = _dense(builder, rng, builder.concat([state, action], 0), 3)
    return _finish(builder, rng, inputs, function(builder, hidden))


KINDS: dict[str, Callable[[int], Network]] = {
    **{name: (lambda seed, each=each: mlp(each, seed)) for name, each in PIECEWISE.items()},  # type: ignore[misc]
    "residual": residual,
    "maxout": maxout,
    "encoder": encoder,
    "images": images,
}
