"""How each operation of a graph is written into an ONNX file: one node, or a few."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from caql.errors import CaqlError
from caql.graphs import activations as act
from caql.graphs import operations as op
from caql.graphs.graph import Node
from caql.graphs.opaque import OPAQUE
from caql.graphs.operations import Shape

if TYPE_CHECKING:
    from caql.network_files.export import Writer


def without_batch(shape: Shape) -> Shape:
    """A value's shape in a file, behind the batch's side, to which a first side of one gives way."""
    return shape[1:] if len(shape) > 1 and shape[0] == 1 else shape


def _simple(kind: str, **options: Any) -> Callable[[Writer, Node], str]:
    return lambda writer, node: writer.node(kind, [writer.value(node.operands[0])], **options)


def _together(kind: str) -> Callable[[Writer, Node], str]:
    """An operation on two values that are broadcast against each other: here, all of one rank."""

    def write(writer: Writer, node: Node) -> str:
        rank, thin = len(node.shape), without_batch(node.shape) != node.shape
        names = []
        for each in node.operands:
            shape = writer.graph.shape(each)
            full = ((1,) * (rank - len(shape)) + shape)[1 if thin else 0 :]
            constant = writer.graph.nodes[each].constant
            names.append(writer.value(each, full) if constant is None else writer.constant(constant.reshape(full)))
        return writer.node(kind, names)

    return write


def _product(writer: Writer, node: Node) -> str:
    """ONNX's product of stacks of matrices is NumPy's: only the batch's side has to stand in front of all stacks."""
    left, right = node.operands
    shapes = [writer.graph.shape(left), writer.graph.shape(right)]
    if len(shapes[1]) == 2 and writer.is_constant(right) and not writer.is_constant(left):
        # A vector of one sample is a row with the batch's side in front, which a matrix on the right takes as it is.
        return writer.node("MatMul", [writer.value(left), writer.names[right]])
    matrices = [(1, *shapes[0]) if len(shapes[0]) == 1 else shapes[0]]
    matrices.append((*shapes[1], 1) if len(shapes[1]) == 1 else shapes[1])
    rank = max(map(len, matrices))
    names = []
    for index, shape in zip(node.operands, matrices, strict=True):
        full = (1,) * (rank - len(shape)) + shape
        constant = writer.graph.nodes[index].constant
        names.append(writer.value(index, full) if constant is None else writer.constant(constant.reshape(full)))
    return writer.shaped(writer.node("MatMul", names), without_batch(node.shape))


def _concat(writer: Writer, node: Node) -> str:
    axis: int = node.operation.axis  # type: ignore[union-attr]
    moving = next(each for each in node.operands if not writer.is_constant(each))
    names = []
    for each in node.operands:
        name = writer.repeated(each, moving) if writer.is_constant(each) else writer.names[each]
        shape = writer.graph.shape(each)
        whole = axis == 0 and without_batch(shape) != shape  # along the side that would give way
        names.append(writer.shaped(name, shape) if whole else name)
    thin = without_batch(node.shape) != node.shape
    joined = writer.node("Concat", names, axis=axis if axis and thin else axis + 1)
    return writer.shaped(joined, without_batch(node.shape)) if thin and not axis else joined


def _take(writer: Writer, node: Node) -> str:
    indices = node.operation.indices  # type: ignore[union-attr]
    flat = writer.value(node.operands[0], (math.prod(writer.graph.shape(node.operands[0])),))
    chosen = writer.node("Gather", [flat, writer.constant(indices.ravel(), np.int64)], axis=1)
    shape = without_batch(indices.shape)
    return chosen if len(shape) == 1 else writer.shaped(chosen, shape)


def _sum_last(writer: Writer, node: Node) -> str:
    full = writer.value(node.operands[0], writer.graph.shape(node.operands[0]))
    total = writer.node("ReduceSum", [full, writer.constant([-1], np.int64)], keepdims=0)
    return total if without_batch(node.shape) == node.shape else writer.shaped(total, without_batch(node.shape))


def _clip(writer: Writer, node: Node) -> str:
    operation: Any = node.operation
    sides = ["" if math.isinf(side) else writer.constant(side) for side in (operation.low, operation.high)]
    return writer.node("Clip", [writer.value(node.operands[0]), *sides])


def _leaky(writer: Writer, node: Node) -> str:
    slope = np.asarray(node.operation.alpha, np.float64)  # type: ignore[union-attr]
    if slope.size == 1:
        return writer.node("LeakyRelu", [writer.value(node.operands[0])], alpha=float(slope.reshape(())))
    slopes = np.broadcast_to(slope, (1, *node.shape)).reshape(1, *without_batch(node.shape))
    return writer.node("PRelu", [writer.value(node.operands[0]), writer.constant(slopes)])


def _silu(writer: Writer, node: Node) -> str:
    value = writer.value(node.operands[0])
    return writer.node("Mul", [value, writer.node("Sigmoid", [value])])


def _ramp(writer: Writer, node: Node) -> str:
    """h (x - h / 2) with h = min(max(x, 0), 1)."""
    value = writer.value(node.operands[0])
    held = writer.node("Clip", [value, writer.constant(0.0), writer.constant(1.0)])
    rest = writer.node("Sub", [value, writer.node("Mul", [held, writer.constant(0.5)])])
    return writer.node("Mul", [held, rest])


def _opaque(writer: Writer, node: Node) -> str:
    """A function of the state, which ONNX knows by the same name, with one operand or two."""
    operation: Any = node.operation
    if operation.name not in OPAQUE:
        raise CaqlError(
            f"{node.label or operation.name}: {operation.name} cannot be exported; right would be "
            f"{', '.join(OPAQUE)}, or a network of the features that it makes"
        )
    return (_together if len(node.operands) == 2 else _simple)(operation.name)(writer, node)


WRITERS: dict[str, Callable[[Writer, Node], str]] = {
    op.Add.__name__: _together("Add"),
    op.Multiply.__name__: _together("Mul"),
    op.Divide.__name__: _together("Div"),
    op.MatMul.__name__: _product,
    op.Concat.__name__: _concat,
    op.Reshape.__name__: lambda writer, node: writer.value(node.operands[0], without_batch(node.shape)),
    op.Take.__name__: _take,
    op.SumLast.__name__: _sum_last,
    op.Maximum.__name__: _together("Max"),
    act.Relu.__name__: _simple("Relu"),
    act.LeakyRelu.__name__: _leaky,
    act.Abs.__name__: _simple("Abs"),
    act.Clip.__name__: _clip,
    act.Tanh.__name__: _simple("Tanh"),
    act.Sigmoid.__name__: _simple("Sigmoid"),
    act.Softplus.__name__: _simple("Softplus"),
    act.Elu.__name__: _simple("Elu"),
    act.Gelu.__name__: _simple("Gelu"),
    act.GeluTanh.__name__: _simple("Gelu", approximate="tanh"),
    act.Silu.__name__: _silu,
    act.Mish.__name__: _simple("Mish"),
    act.Softsign.__name__: _simple("Softsign"),
    act.Sin.__name__: _simple("Sin"),
    act.Cos.__name__: _simple("Cos"),
    act.Erf.__name__: _simple("Erf"),
    act.QuadraticRamp.__name__: _ramp,
    op.Opaque.__name__: _opaque,
}
