"""Activations by the names that libraries have for them.

A name is not enough where the function itself is at hand: libraries differ in what they call gelu or leaky_relu, and a
lambda has no name.  So a function is asked for its values, and what its name stands for must have them too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from caql.errors import CaqlError, nearest
from caql.graphs import Network
from caql.graphs.activations import (
    Abs,
    Clip,
    Cos,
    Gelu,
    GeluTanh,
    LeakyRelu,
    Mish,
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
from caql.graphs.operations import Operation

Activation = Callable[[Builder, int], int]
POINTS = np.concatenate([np.linspace(-8.0, 8.0, 97), [-300.0, -40.0, -1e-3, 1e-3, 40.0, 300.0]])
"""Where a function is compared with what its name stands for."""
SIMPLE: dict[str, Operation] = {
    "relu": Relu(),
    "relu6": Clip(0.0, 6.0),
    "leaky_relu": LeakyRelu(0.01),
    "abs": Abs(),
    "hardtanh": Clip(-1.0, 1.0),
    "hard_tanh": Clip(-1.0, 1.0),
    "tanh": Tanh(),
    "sigmoid": Sigmoid(),
    "logistic": Sigmoid(),
    "softplus": Softplus(),
    "gelu": Gelu(),
    "gelu_tanh": GeluTanh(),
    "silu": Silu(),
    "swish": Silu(),
    "mish": Mish(),
    "softsign": Softsign(),
    "soft_sign": Softsign(),
    "sin": Sin(),
    "cos": Cos(),
}
ELU = {"elu": (1.0, 1.0), "selu": (1.67326324235437728481, 1.05070098735548049342)}
"""alpha, and what the whole is multiplied by."""
COMPOSED: dict[str, Activation] = {
    "hard_sigmoid": lambda builder, x: builder.hard_sigmoid(x, 1.0 / 6.0, 0.5),
    "hard_swish": Builder.hard_swish,
    "hard_silu": Builder.hard_swish,
    "celu": lambda builder, x: builder.celu(x, 1.0),
    "log_sigmoid": Builder.log_sigmoid,
    "soft_shrink": lambda builder, x: builder.soft_shrink(x, 0.5),
    "tanh_shrink": lambda builder, x: builder.subtract(x, builder.add(Tanh(), x)),
}
"""Those that are made of several operations."""
LINEAR = ("identity", "linear", "<lambda>")
KNOWN = [*SIMPLE, *ELU, *COMPOSED, "identity"]


def activation(name: str) -> Activation:
    """The activation of that name, as what it makes of a value; `CaqlError` for an unknown one."""
    called = name.lower()
    if called in LINEAR:
        return _unchanged
    if called in ELU:
        alpha, scale = ELU[called]
        return lambda builder, value: _scaled(builder, builder.elu(value, alpha), scale)
    if called in COMPOSED:
        return COMPOSED[called]
    if called not in SIMPLE:
        raise CaqlError(f"activation = {name!r} is not known; {nearest(called, KNOWN)}")
    return lambda builder, value: builder.add(SIMPLE[called], value)


def activation_of(function: Any, name: str) -> Activation:
    """What a library's function of that name computes; `CaqlError` if that is nothing that is known here."""
    try:
        wanted = np.asarray(function(POINTS.astype(np.float32)), np.float64)
    except Exception as problem:
        reason = (str(problem).strip().splitlines() or [type(problem).__name__])[0][:160]
        raise CaqlError(f"activation = {name!r} cannot be evaluated ({reason})") from problem
    for candidate in _candidates(name, wanted):
        if wanted.shape == POINTS.shape and np.allclose(_values(candidate), wanted, rtol=1e-5, atol=1e-5):
            return candidate
    raise CaqlError(
        f"activation = {name!r} is a function that does not compute any of {', '.join(KNOWN)}; "
        "take one of these, or export the network to ONNX and read that"
    )


def _candidates(name: str, values: np.ndarray) -> Iterator[Activation]:
    """What a function may be by its name; libraries have several gelus, and slopes of leaky_relu."""
    called = name.lower()
    if called == "leaky_relu":
        slope = LeakyRelu(float(-values[np.flatnonzero(POINTS == -1.0)[0]]))
        yield lambda builder, value: builder.add(slope, value)
    elif called == "gelu":
        yield from map(activation, ("gelu", "gelu_tanh"))
    elif called in itertools.chain(LINEAR, SIMPLE, ELU, COMPOSED):
        yield activation(called)


def _values(candidate: Activation) -> np.ndarray:
    builder = Builder()
    value = builder.input((1,), "input")
    network = Network(builder, (Port("input", value),), (Port("output", candidate(builder, value)),))
    return np.asarray(network.evaluate(np.zeros((len(POINTS), 0)), POINTS[:, None])[:, 0])


def _unchanged(builder: Builder, value: int) -> int:
    del builder
    return value


def _scaled(builder: Builder, value: int, scale: float) -> int:
    return value if scale == 1.0 else builder.scale(value, scale)
