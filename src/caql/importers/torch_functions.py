"""torch's functions and methods, by name, as operations; a value is the number of its node in the builder.

In the traced graph a plain number and the number of a node would look alike, so nodes come wrapped in `Value`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from caql.errors import CaqlError
from caql.graphs.activations import Abs, Clip, Gelu, GeluTanh, LeakyRelu, Relu, Sigmoid, Silu, Softplus, Tanh
from caql.graphs.builder import Builder
from caql.graphs.operations import Add, Divide, MatMul, Multiply, Operation
from caql.importers.torch_layers import flatten as flattened
from caql.importers.torch_reductions import REDUCTIONS, attribute, same, size
from caql.importers.torch_shaping import AS_FUNCTIONS, SHAPING, Value

Function = Callable[..., Any]


def _node(builder: Builder, given: Any) -> int:
    """An operand: a value, or a number."""
    if isinstance(given, Value):
        return given.node
    if isinstance(given, int | float):
        return builder.constant(float(given))
    raise CaqlError(f"{builder.label}: an operand of type {type(given).__name__} cannot be read")


def _two(operation: Operation) -> Function:
    return lambda builder, x, y: builder.add(operation, _node(builder, x), _node(builder, y))


def _one(operation: Operation) -> Function:
    def applied(builder: Builder, x: Any, inplace: bool = False) -> int:
        del inplace
        return builder.add(operation, _node(builder, x))

    return applied


def _subtract(builder: Builder, x: Any, y: Any) -> int:
    return builder.subtract(_node(builder, x), _node(builder, y))


def _negative(builder: Builder, x: Any) -> int:
    return builder.scale(_node(builder, x), -1.0)


def _concat(builder: Builder, values: list[Any], dim: int = 0, axis: int | None = None) -> int:
    return builder.concat([_node(builder, each) for each in values], dim if axis is None else axis)


def _leaky(builder: Builder, x: Any, negative_slope: float = 0.01, inplace: bool = False) -> int:
    del inplace
    return builder.add(LeakyRelu(float(negative_slope)), _node(builder, x))


def _clamp(builder: Builder, x: Any, min: float | None = None, max: float | None = None) -> int:
    sides = -math.inf if min is None else float(min), math.inf if max is None else float(max)
    return builder.add(Clip(*sides), _node(builder, x))


def _hardtanh(builder: Builder, x: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> int:
    del inplace
    return builder.add(Clip(float(min_val), float(max_val)), _node(builder, x))


def _elu(builder: Builder, x: Any, alpha: float = 1.0, inplace: bool = False) -> int:
    del inplace
    return builder.elu(_node(builder, x), float(alpha))


def _gelu(builder: Builder, x: Any, approximate: str = "none") -> int:
    return builder.add(GeluTanh() if approximate == "tanh" else Gelu(), _node(builder, x))


def _largest(builder: Builder, x: Any, y: Any) -> int:
    return builder.maximum([_node(builder, x), _node(builder, y)])


def _smallest(builder: Builder, x: Any, y: Any) -> int:
    return builder.minimum([_node(builder, x), _node(builder, y)])


def _flatten(builder: Builder, x: Any, start_dim: int = 0, end_dim: int = -1) -> int:
    return flattened(builder, _node(builder, x), start_dim, end_dim)


def _reshape(builder: Builder, x: Any, *shape: Any) -> int:
    sides = list(shape[0]) if len(shape) == 1 and isinstance(shape[0], list | tuple) else list(shape)
    size = math.prod(builder.shape(_node(builder, x)))
    if not all(isinstance(side, int) for side in sides):
        raise CaqlError(f"{builder.label}: its shape is computed; right would be numbers, with -1 for one of them")
    known = math.prod(side for side in sides if side != -1)
    filled = tuple(size // max(known, 1) if side == -1 else side for side in sides)
    return builder.reshape(_node(builder, x), filled)


def _squeeze(builder: Builder, x: Any, dim: int | None = None) -> int:
    shape = builder.shape(_node(builder, x))
    gone = range(len(shape)) if dim is None else [dim % len(shape)]
    return builder.reshape(_node(builder, x), tuple(side for k, side in enumerate(shape) if side != 1 or k not in gone))


def _unsqueeze(builder: Builder, x: Any, dim: int) -> int:
    shape = list(builder.shape(_node(builder, x)))
    shape.insert(dim % (len(shape) + 1), 1)
    return builder.reshape(_node(builder, x), tuple(shape))


_ACTIVATIONS: dict[str, Function] = {
    "relu": _one(Relu()),
    "tanh": _one(Tanh()),
    "sigmoid": _one(Sigmoid()),
    "silu": _one(Silu()),
    "softplus": _one(Softplus()),
    "abs": _one(Abs()),
    "leaky_relu": _leaky,
    "relu6": _one(Clip(0.0, 6.0)),
    "hardtanh": _hardtanh,
    "hardsigmoid": lambda builder, x, inplace=False: builder.hard_sigmoid(_node(builder, x), 1.0 / 6.0, 0.5),  # noqa: ARG005
    "elu": _elu,
    "gelu": _gelu,
    "clamp": _clamp,
    "clip": _clamp,
}
_SHARED: dict[str, Function] = {
    **_ACTIVATIONS,
    "add": _two(Add()),
    "sub": _subtract,
    "mul": _two(Multiply()),
    "div": _two(Divide()),
    "matmul": _two(MatMul()),
    "neg": _negative,
    "maximum": _largest,
    "minimum": _smallest,
    "flatten": _flatten,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "unsqueeze": _unsqueeze,
    **SHAPING,
    **REDUCTIONS,
}
FUNCTIONS: dict[str, Function] = {
    **_SHARED,
    **AS_FUNCTIONS,
    "truediv": _two(Divide()),
    "cat": _concat,
    "concat": _concat,
    "getattr": attribute,
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d"), same),
}
METHODS: dict[str, Function] = {**_SHARED, "view": _reshape, "size": size}
