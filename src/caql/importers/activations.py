"""Activations by the names that libraries have for them."""

from __future__ import annotations

from collections.abc import Callable

from caql.errors import CaqlError, nearest
from caql.graphs.activations import Abs, Clip, Gelu, GeluTanh, LeakyRelu, Relu, Sigmoid, Silu, Softplus, Tanh
from caql.graphs.builder import Builder
from caql.graphs.operations import Operation

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
}
ELU = {"elu": (1.0, 1.0), "selu": (1.67326324235437728481, 1.05070098735548049342)}
"""alpha, and what the whole is multiplied by."""
LINEAR = ("identity", "linear", "<lambda>")


def activation(name: str) -> Callable[[Builder, int], int]:
    """The activation of that name, as what it makes of a value; `CaqlError` for an unknown one."""
    called = name.lower()
    if called in LINEAR:
        return _unchanged
    if called in ELU:
        alpha, scale = ELU[called]
        return lambda builder, value: _scaled(builder, builder.elu(value, alpha), scale)
    if called not in SIMPLE:
        raise CaqlError(f"activation = {name!r} is not known; {nearest(called, [*SIMPLE, *ELU, 'identity'])}")
    return lambda builder, value: builder.add(SIMPLE[called], value)


def _unchanged(builder: Builder, value: int) -> int:
    del builder
    return value


def _scaled(builder: Builder, value: int, scale: float) -> int:
    return value if scale == 1.0 else builder.scale(value, scale)
