"""What each ONNX operator is in the operations of a graph.

An operator is a function of a `Call`, the node with its operands, and returns the values that it computes.  Options may
be attributes or, since later versions of ONNX, constant operands; both are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from caql.errors import CaqlError
from caql.graphs.activations import Clip, Erf, Gelu, GeluTanh, LeakyRelu, Sigmoid, Silu
from caql.graphs.builder import Builder
from caql.graphs.operations import Add, Array, Divide, MatMul, Multiply, Operation


class Call(NamedTuple):
    """A node: its operands as nodes of the builder, None where one is left out, its attributes, and ONNX's version."""

    builder: Builder
    operands: list[int | None]
    attributes: dict[str, Any]
    outputs: int
    opset: int

    def operand(self, position: int) -> int:
        """An operand that must be there."""
        found = self.operands[position] if position < len(self.operands) else None
        if found is None:
            raise CaqlError(f"{self.builder.label}: its input {position} is missing")
        return found

    @property
    def values(self) -> list[int]:
        return [self.operand(position) for position in range(len(self.operands))]

    def shape(self, position: int = 0) -> tuple[int, ...]:
        return self.builder.shape(self.operand(position))

    def constant(self, position: int, what: str) -> Array | None:
        """An operand that must be a constant; None if it is left out."""
        if position >= len(self.operands) or self.operands[position] is None:
            return None
        found = self.builder.nodes[self.operand(position)].constant
        if found is None:
            raise CaqlError(f"{self.builder.label}: its {what} is computed; right would be a constant")
        return found

    def needed(self, position: int, what: str) -> Array:
        found = self.constant(position, what)
        if found is None:
            raise CaqlError(f"{self.builder.label}: its {what} is missing")
        return found

    def number(self, name: str, default: float) -> float:
        attribute = self.attributes.get(name)
        return default if attribute is None else float(attribute.f)

    def whole(self, name: str, default: int) -> int:
        attribute = self.attributes.get(name)
        return default if attribute is None else int(attribute.i)

    def text(self, name: str, default: str) -> str:
        attribute = self.attributes.get(name)
        return default if attribute is None else bytes(attribute.s).decode(errors="replace")

    def wholes(self, name: str, position: int | None = None) -> list[int] | None:
        """Whole numbers from an attribute, or from a constant operand; None if there are none."""
        if name in self.attributes:
            return [int(each) for each in self.attributes[name].ints]
        found = None if position is None else self.constant(position, name)
        if found is None:
            return None
        if not np.isfinite(found).all() or np.abs(found).max(initial=0) > 2.0**62:
            raise CaqlError(f"{self.builder.label}: its {name} must be whole numbers")
        return [int(each) for each in np.ravel(found)]

    def axis(self, given: int, rank: int | None = None) -> int:
        """An axis counted from the front."""
        rank = len(self.shape()) if rank is None else rank
        if not -rank <= given < rank:
            raise CaqlError(f"{self.builder.label}: axis {given} does not exist in values of {rank} axes")
        return given % rank

    def axes(self, given: list[int], rank: int | None = None) -> list[int]:
        found = [self.axis(each, rank) for each in given]
        if len(set(found)) != len(found):
            raise CaqlError(f"{self.builder.label}: axes {given} name one axis twice")
        return found


Operator = Callable[[Call], list[int]]


def simple(operation: Operation) -> Operator:
    """An operator that is one operation."""
    return lambda call: [call.builder.add(operation, *call.values)]


def gemm(call: Call) -> list[int]:
    """alpha A B + beta C, A and B perhaps transposed."""
    builder = call.builder
    a, b = call.operand(0), call.operand(1)
    if len(call.shape(0)) != 2 or len(call.shape(1)) != 2:
        raise CaqlError(f"{builder.label}: Gemm takes matrices, not shapes {call.shape(0)} and {call.shape(1)}")
    a = builder.transpose(a) if call.whole("transA", 0) else a
    b = builder.transpose(b) if call.whole("transB", 0) else b
    alpha, beta = call.number("alpha", 1.0), call.number("beta", 1.0)
    product = builder.add(MatMul(), a, b)
    product = product if alpha == 1.0 else builder.scale(product, alpha)
    if len(call.operands) < 3 or call.operands[2] is None:
        return [product]
    c = call.operand(2) if beta == 1.0 else builder.scale(call.operand(2), beta)
    added = builder.add(Add(), product, c)
    if builder.shape(added) != builder.shape(product):
        raise CaqlError(f"{builder.label}: C of shape {call.shape(2)} does not fit A B, {builder.shape(product)}")
    return [added]


def multiply(call: Call) -> list[int]:
    """x y; x sigmoid(x) and x (1 + erf(x / sqrt 2)), as exporters write SiLU and GELU, are known by their shape."""
    builder = call.builder
    for x, y in (call.values, call.values[::-1]):
        node = builder.nodes[y]
        if builder.shape(x) != node.shape:
            continue
        if isinstance(node.operation, Sigmoid) and node.operands == (x,):
            return [builder.add(Silu(), x)]
        if isinstance(node.operation, Add) and _is_erf_of(builder, node.operands, x):
            return [builder.scale(builder.add(Gelu(), x), 2.0)]
        if isinstance(node.operation, Multiply) and builder.nodes[node.operands[1]].constant is not None:
            # 0.5 (1 + erf(x / sqrt 2)), multiplied by x afterwards
            inner, half = builder.nodes[node.operands[0]], builder.nodes[node.operands[1]].constant
            alike = inner.shape == node.shape and half is not None
            if alike and isinstance(inner.operation, Add) and _is_erf_of(builder, inner.operands, x):
                return [builder.add(Multiply(), builder.scale(builder.add(Gelu(), x), 2.0), node.operands[1])]
    return [builder.add(Multiply(), *call.values)]


def _is_erf_of(builder: Builder, operands: tuple[int, ...], x: int) -> bool:
    """Whether two operands are the constant 1 and erf(x / sqrt 2)."""
    for one, other in (operands, operands[::-1]):
        known, erf = builder.nodes[one].constant, builder.nodes[other]
        if known is None or known.size != 1 or known.item() != 1.0:
            continue
        if not isinstance(erf.operation, Erf):
            continue
        inner = builder.nodes[erf.operands[0]]
        if not isinstance(inner.operation, Multiply | Divide):
            continue
        factor = builder.nodes[inner.operands[-1]].constant if inner.operands else None
        if inner.operands[:1] != (x,) or factor is None or factor.size != 1:
            continue
        scale = 1.0 / factor.item() if isinstance(inner.operation, Divide) else factor.item()
        if abs(scale - math.sqrt(0.5)) < 1e-6:
            return True
    return False


def clip(call: Call) -> list[int]:
    """min and max, as attributes or operands."""
    sides = []
    for position, name, default in ((1, "min", -math.inf), (2, "max", math.inf)):
        found = call.constant(position, name)
        if found is not None and found.size != 1:
            raise CaqlError(f"{call.builder.label}: its {name} has shape {found.shape}; right would be one number")
        sides.append(call.number(name, default) if found is None else float(found.item()))
    return [call.builder.add(Clip(*sides), call.operand(0))]


def prelu(call: Call) -> list[int]:
    """A ReLU with a slope for each entry below zero."""
    slope = call.needed(1, "slope")
    shape = call.shape()
    try:
        # torch gives one slope per channel of (N, C, ...) as (C, 1, ...); NumPy's broadcasting is ONNX's.
        spread = np.broadcast_to(slope, shape)
    except ValueError:
        raise CaqlError(
            f"{call.builder.label}: a slope of shape {slope.shape} does not fit values of shape {shape}"
        ) from None
    return [call.builder.add(LeakyRelu(spread), call.operand(0))]


def leaky(call: Call) -> list[int]:
    """LeakyRelu."""
    return [call.builder.add(LeakyRelu(call.number("alpha", 0.01)), call.operand(0))]


def elu(call: Call) -> list[int]:
    """Elu with any alpha."""
    return [call.builder.elu(call.operand(0), call.number("alpha", 1.0))]


def selu(call: Call) -> list[int]:
    """gamma elu(x), with a fixed alpha."""
    alpha, scale = call.number("alpha", 1.67326319217681884765625), call.number("gamma", 1.05070102214813232421875)
    return [call.builder.scale(call.builder.elu(call.operand(0), alpha), scale)]


def celu(call: Call) -> list[int]:
    """Celu."""
    return [call.builder.celu(call.operand(0), call.number("alpha", 1.0))]


def swish(call: Call) -> list[int]:
    """x sigmoid(alpha x)."""
    alpha, builder = call.number("alpha", 1.0), call.builder
    if alpha == 1.0 or alpha == 0.0:
        return [builder.add(Silu(), call.operand(0)) if alpha else builder.scale(call.operand(0), 0.5)]
    return [builder.scale(builder.add(Silu(), builder.scale(call.operand(0), alpha)), 1.0 / alpha)]


def hard_swish(call: Call) -> list[int]:
    """HardSwish."""
    return [call.builder.hard_swish(call.operand(0))]


def hard_sigmoid(call: Call) -> list[int]:
    """HardSigmoid."""
    return [call.builder.hard_sigmoid(call.operand(0), call.number("alpha", 0.2), call.number("beta", 0.5))]


def gelu(call: Call) -> list[int]:
    """Gelu, exact or by tanh."""
    kind = call.text("approximate", "none")
    return [call.builder.add(GeluTanh() if kind == "tanh" else Gelu(), call.operand(0))]


def subtract(call: Call) -> list[int]:
    """x - y."""
    return [call.builder.subtract(call.operand(0), call.operand(1))]


def negative(call: Call) -> list[int]:
    """-x."""
    return [call.builder.scale(call.operand(0), -1.0)]


def batch_norm(call: Call) -> list[int]:
    """Normalisation by stored statistics."""
    if call.whole("training_mode", 0):
        raise CaqlError(
            f"{call.builder.label}: it is in training mode; export the network for inference (model.eval())"
        )
    names = ("scale", "bias", "mean", "variance")
    parts = [call.needed(position, name) for position, name in enumerate(names, 1)]
    return [call.builder.batch_norm(call.operand(0), parts, call.number("epsilon", 1e-5))]


def first(call: Call) -> list[int]:
    """Identity."""
    return [call.operand(0)]


def dropout(call: Call) -> list[int]:
    """Dropout at inference: nothing."""
    training = call.constant(2, "training_mode")
    if training is not None and training.any():
        raise CaqlError(
            f"{call.builder.label}: it is in training mode; export the network for inference (model.eval())"
        )
    return [call.operand(0)]


def total(call: Call) -> list[int]:
    """The sum of several values."""
    return [call.builder.total(call.values)]


def largest(call: Call) -> list[int]:
    """The maximum of several values, entry by entry."""
    return [call.builder.maximum(call.values)]


def smallest(call: Call) -> list[int]:
    """The minimum of several values, entry by entry."""
    return [call.builder.minimum(call.values)]
