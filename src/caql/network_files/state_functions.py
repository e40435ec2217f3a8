"""ONNX operators that may be of the state alone, where any function may: what they compute is a constant there."""

from __future__ import annotations

from typing import Any

import numpy as np

from caql.errors import CaqlError
from caql.graphs.builder import Builder
from caql.graphs.opaque import OPAQUE, normalised, standardised
from caql.graphs.operations import Add, Multiply, Opaque
from caql.network_files.operators import Call, Operator


def softmax(call: Call) -> list[int]:
    """Softmax, of the state alone; before version 13 it goes over all axes from `axis` on."""
    rank, old = len(call.shape()), call.opset < 13
    first = call.axis(call.whole("axis", 1 if old else -1), max(rank, 1))
    axes = tuple(range(first + 1, rank + 1)) if old else (first + 1,)
    return [call.builder.add(Opaque("Softmax", normalised(*axes), lambda shape: shape), call.operand(0))]


def layer_norm(call: Call) -> list[int]:
    """LayerNormalization, of the state alone, over all axes from `axis` on."""
    axis, builder = call.axis(call.whole("axis", -1)), call.builder
    norm = standardised(len(call.shape()) - axis, call.number("epsilon", 1e-5))
    value = builder.add(Opaque("LayerNormalization", norm, lambda shape: shape), call.operand(0))
    value = builder.add(Multiply(), value, call.operand(1))
    return [value if len(call.operands) < 3 else builder.add(Add(), value, call.operand(2))]


def opaque(name: str) -> Operator:
    """A function that may be of the state alone."""
    function, shape = OPAQUE[name]
    return lambda call: [call.builder.add(Opaque(name, function, shape), *call.values)]


FLOATS = (1, 11)
ROUNDED: dict[int, Any] = {10: np.float16, 6: np.int32, 7: np.int64, 9: np.bool_}
"""Types by ONNX's numbers: float32 and float64, in which everything is computed here; and those that round."""


def cast(call: Call) -> list[int]:
    """Cast: nothing between floats, and rounding, of the state alone, to what has fewer numbers."""
    to = call.whole("to", 1)
    if to in FLOATS:
        return [call.operand(0)]
    if to not in ROUNDED:
        raise CaqlError(f"{call.builder.label}: a cast to ONNX's type {to} cannot be read; right would be 1 (float)")
    rounded = Opaque("Cast", lambda x: x.astype(ROUNDED[to]).astype(np.float64), lambda shape: shape)
    return [call.builder.add(rounded, call.operand(0))]


def quotient(builder: Builder, x: int) -> int:
    """A quotient of whole numbers, which ONNX rounds towards zero: known, or of the state alone."""
    return builder.add(Opaque("Div of whole numbers", np.trunc, lambda shape: shape), x)
