"""torch's functions and methods, by name, as operations: arithmetic and activations, and the tables of all of them."""

from __future__ import annotations

import math
from typing import Any

from caql.errors import CaqlError
from caql.graphs.activations import (
    Abs,
    Clip,
    Cos,
    Erf,
    Gelu,
    GeluTanh,
    LeakyRelu,
    Mish,
    Relu,
    Sigmoid,
    Silu,
    Sin,
    Softsign,
    Tanh,
)
from caql.graphs.builder import Builder
from caql.graphs.opaque import OPAQUE, normalised
from caql.graphs.operations import Add, Divide, MatMul, Multiply, Opaque, Operation
from caql.importers.activations import activation
from caql.importers.torch_layers import prelu, softplus, threshold
from caql.importers.torch_reductions import REDUCTIONS
from caql.importers.torch_shaping import AS_FUNCTIONS, AS_METHODS, SHAPING
from caql.importers.torch_values import Function, Value, constant_of, node_of, number_of, shape_of, side_of
from caql.importers.torch_windows import WINDOWS


def _two(operation: Operation) -> Function:
    return lambda builder, x, y: builder.add(operation, node_of(builder, x), node_of(builder, y))


def _one(operation: Operation) -> Function:
    def applied(builder: Builder, x: Any, inplace: bool = False) -> int:
        del inplace  # whoever else uses the operand has been looked for
        return builder.add(operation, node_of(builder, x))

    return applied


def _named(name: str) -> Function:
    """An activation that is composed of several operations."""

    def applied(builder: Builder, x: Any, inplace: bool = False) -> int:
        del inplace
        return activation(name)(builder, node_of(builder, x))

    return applied


def _add(builder: Builder, x: Any, y: Any, alpha: float = 1.0) -> int:
    other = node_of(builder, y)
    return builder.add(Add(), node_of(builder, x), other if alpha == 1 else builder.scale(other, float(alpha)))


def _subtract(builder: Builder, x: Any, y: Any, alpha: float = 1.0) -> int:
    return _add(builder, x, y, -float(alpha))


def _from(builder: Builder, x: Any, y: Any, alpha: float = 1.0) -> int:
    return _subtract(builder, y, x, alpha)


def _negative(builder: Builder, x: Any) -> int:
    return builder.scale(node_of(builder, x), -1.0)


def _same(builder: Builder, x: Any) -> int:
    return node_of(builder, x)


def _leaky(builder: Builder, x: Any, negative_slope: float = 0.01, inplace: bool = False) -> int:
    del inplace
    return builder.add(LeakyRelu(float(negative_slope)), node_of(builder, x))


def _clamp(builder: Builder, x: Any, min: Any = None, max: Any = None) -> int:
    low = -math.inf if min is None else number_of(builder, min, "min")
    return builder.add(Clip(low, math.inf if max is None else number_of(builder, max, "max")), node_of(builder, x))


def _at_most(builder: Builder, x: Any, max: Any) -> int:
    return _clamp(builder, x, None, max)


def _hardtanh(builder: Builder, x: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> int:
    del inplace
    return builder.add(Clip(float(min_val), float(max_val)), node_of(builder, x))


def _elu(builder: Builder, x: Any, alpha: float = 1.0, inplace: bool = False) -> int:
    del inplace
    return builder.elu(node_of(builder, x), float(alpha))


def _celu(builder: Builder, x: Any, alpha: float = 1.0, inplace: bool = False) -> int:
    del inplace
    return builder.celu(node_of(builder, x), float(alpha))


def _gelu(builder: Builder, x: Any, approximate: str = "none") -> int:
    return builder.add(GeluTanh() if approximate == "tanh" else Gelu(), node_of(builder, x))


def _softplus(builder: Builder, x: Any, beta: float = 1.0, threshold: float = 20.0) -> int:
    return softplus(builder, node_of(builder, x), float(beta), float(threshold))


def _softshrink(builder: Builder, x: Any, lambd: float = 0.5) -> int:
    return builder.soft_shrink(node_of(builder, x), float(lambd))


def _threshold(builder: Builder, x: Any, limit: float, value: float, inplace: bool = False) -> int:
    del inplace
    return threshold(builder, node_of(builder, x), float(limit), float(value))


def _rrelu(
    builder: Builder,
    x: Any,
    lower: float = 1.0 / 8.0,
    upper: float = 1.0 / 3.0,
    training: bool = False,
    inplace: bool = False,
) -> int:
    del inplace
    _at_inference(builder, training)
    return builder.add(LeakyRelu(0.5 * (lower + upper)), node_of(builder, x))


def _prelu(builder: Builder, x: Any, weight: Any) -> int:
    return prelu(builder, node_of(builder, x), constant_of(builder, weight, "weight"))


def _dropout(builder: Builder, x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> int:
    del p, inplace
    _at_inference(builder, training)
    return node_of(builder, x)


def _at_inference(builder: Builder, training: bool) -> None:
    if training:
        raise CaqlError(f"{builder.label}: it is random, also at inference; right would be training=self.training")


def _largest(builder: Builder, x: Any, y: Any) -> int:
    return builder.maximum([node_of(builder, x), node_of(builder, y)])


def _smallest(builder: Builder, x: Any, y: Any) -> int:
    return builder.minimum([node_of(builder, x), node_of(builder, y)])


def _linear(builder: Builder, x: Any, weight: Any, bias: Any = None) -> int:
    parts = constant_of(builder, weight, "weight").T, None if bias is None else constant_of(builder, bias, "bias")
    return builder.dense(node_of(builder, x), *parts)


def _plus_product(builder: Builder, x: Any, left: Any, right: Any) -> int:
    return _add(builder, x, Value(builder.add(MatMul(), node_of(builder, left), node_of(builder, right))))


def _softmax(builder: Builder, x: Any, dim: int, _stacklevel: int = 3, dtype: None = None) -> int:
    del _stacklevel
    if dtype is not None:
        raise CaqlError(f"{builder.label}: dtype = {dtype} cannot be read; leave it out")
    side = side_of(builder, dim, len(shape_of(builder, x)))
    return builder.add(Opaque("Softmax", normalised(side + 1), lambda shape: shape), node_of(builder, x))


def _opaque(name: str) -> Function:
    """A function that may be of the state alone."""
    function, shape = OPAQUE[name]
    return lambda builder, *given: builder.add(Opaque(name, function, shape), *(node_of(builder, k) for k in given))


def _power(builder: Builder, x: Any, exponent: Any) -> int:
    return int(_opaque("Pow")(builder, x, exponent))


_ACTIVATIONS: dict[str, Function] = {
    **{
        name: _one(each)
        for name, each in {
            "relu": Relu(),
            "relu6": Clip(0.0, 6.0),
            "tanh": Tanh(),
            "sigmoid": Sigmoid(),
            "silu": Silu(),
            "mish": Mish(),
            "softsign": Softsign(),
            "abs": Abs(),
            "absolute": Abs(),
            "sin": Sin(),
            "cos": Cos(),
            "erf": Erf(),
        }.items()
    },
    "selu": _named("selu"),
    "hardsigmoid": _named("hard_sigmoid"),
    "hardswish": _named("hard_swish"),
    **dict.fromkeys(("logsigmoid", "log_sigmoid"), _named("log_sigmoid")),
    "tanhshrink": _named("tanh_shrink"),
    "leaky_relu": _leaky,
    "prelu": _prelu,
    "rrelu": _rrelu,
    "hardtanh": _hardtanh,
    "elu": _elu,
    "celu": _celu,
    "gelu": _gelu,
    "softplus": _softplus,
    "softshrink": _softshrink,
    **dict.fromkeys(("threshold", "_threshold"), _threshold),
    "clamp": _clamp,
    "clip": _clamp,
    "clamp_min": _clamp,
    "clamp_max": _at_most,
    "softmax": _softmax,
    "pow": _power,
    **{name.lower(): _opaque(name) for name in OPAQUE if name != "Pow"},
}
_ARITHMETIC: dict[str, Function] = {
    "add": _add,
    "sub": _subtract,
    "subtract": _subtract,
    "rsub": _from,
    **dict.fromkeys(("mul", "multiply"), _two(Multiply())),
    **dict.fromkeys(("div", "divide", "true_divide"), _two(Divide())),
    **dict.fromkeys(("matmul", "mm", "bmm"), _two(MatMul())),
    **dict.fromkeys(("neg", "negative"), _negative),
    "addmm": _plus_product,
    "maximum": _largest,
    "minimum": _smallest,
}
_SHARED: dict[str, Function] = {**_ACTIVATIONS, **_ARITHMETIC, **SHAPING, **REDUCTIONS}
IN_PLACE: dict[str, str] = {
    **{f"{name}_": name for name in ("add", "sub", "mul", "div", "relu", "tanh", "sigmoid", "abs", "neg", "clamp")},
    **{f"{name}_": name for name in ("leaky_relu", "elu", "selu", "celu", "hardtanh", "threshold")},
    "iadd": "add",
    "isub": "sub",
    "imul": "mul",
    "itruediv": "div",
}
"""What changes its first operand, and what it does to it."""
FUNCTIONS: dict[str, Function] = {
    **_SHARED,
    **AS_FUNCTIONS,
    **WINDOWS,
    "truediv": _two(Divide()),
    "pos": _same,
    "linear": _linear,
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout"), _dropout),
}
METHODS: dict[str, Function] = {**_SHARED, **AS_METHODS}
for _table in (FUNCTIONS, METHODS):
    _table.update({name: _table[of] for name, of in IN_PLACE.items()})
