"""Networks as ONNX files, for whoever runs them elsewhere: each operation of the graph is a node or a few.

Values get the batch as their first side, of any length; a first side of length one, which networks from files and from
other libraries have in its place, gives way to it.  Numbers are float32, as everybody's runtime expects.  A dense layer
is a `Gemm` with all its attributes spelt out, and every node has a name: readers that are less than a whole runtime,
such as those of MIP libraries, insist on that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from caql.errors import CaqlError
from caql.extras import needed_for
from caql.graphs import Network
from caql.graphs import activations as act
from caql.graphs import operations as op
from caql.graphs.graph import Node, Port
from caql.graphs.operations import Shape
from caql.network_files.dense_runs import Dense, dense_runs
from caql.whole_files import write_atomically

OPSET = 20
"""The first that has GELU."""


def write_onnx(network: Network, path: Path | str) -> None:
    """Write the network; `CaqlError` for an operation that ONNX has no like of, or a name that does not fit."""
    path = Path(path)
    if path.suffix.lower() != ".onnx":
        raise CaqlError(f"path = {str(path)!r} ends in {path.suffix!r}; right would be .onnx")
    with needed_for(f"writing {path}"):
        content = _Writer(network).model().SerializeToString()
    write_atomically(path, lambda file: file.write_bytes(content))


class _Writer:
    """The nodes and constants written so far."""

    def __init__(self, network: Network) -> None:
        self.network, self.graph = network, network.graph
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.names: dict[int, str] = {port.node: port.name for port in network.inputs}
        self.dense, self.inside = dense_runs(network)

    def model(self) -> Any:
        from onnx import TensorProto, helper

        network = self.network
        for index in self.graph.reached([port.node for port in network.outputs]):
            if index not in self.names and index not in self.inside:
                self.names[index] = self._gemm(self.dense[index]) if index in self.dense else self._write(index)
        for port in network.outputs:
            self._name_output(port)
        used = {name for node in self.nodes for name in node.input}

        def described(port: Any) -> Any:
            shape = ["N", *without_batch(self.graph.shape(port.node))]
            return helper.make_tensor_value_info(port.name, TensorProto.FLOAT, shape)

        graph = helper.make_graph(
            self.nodes,
            "network",
            [described(port) for port in network.inputs],
            [described(port) for port in network.outputs],
            [constant for constant in self.constants if constant.name in used],
        )
        opset = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, producer_name="caql", opset_imports=opset, ir_version=10)

    def node(self, kind: str, inputs: list[str], output: str | None = None, **options: Any) -> str:
        """One node of the file; returns the name of what it computes."""
        from onnx import helper

        output = output or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], name=f"{kind}_{len(self.nodes)}", **options))
        return output

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        """A constant of the file."""
        from onnx import numpy_helper

        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def shaped(self, name: str, shape: Shape) -> str:
        """A value in another shape, the batch's side in front."""
        return self.node("Reshape", [name, self.constant([-1, *shape], np.int64)])

    def value(self, index: int, shape: Shape | None = None) -> str:
        """A value that is no constant, in the shape that it has in the file or in another, behind the batch's side."""
        own = without_batch(self.graph.shape(index))
        return self.names[index] if shape in (None, own) else self.shaped(self.names[index], shape or ())

    def is_constant(self, index: int) -> bool:
        return self.graph.nodes[index].constant is not None

    def _gemm(self, dense: Dense) -> str:
        weights, bias = self.constant(dense.weights), self.constant(dense.bias)
        return self.node("Gemm", [self.value(dense.source), weights, bias], alpha=1.0, beta=1.0, transB=0)

    def _name_output(self, port: Port) -> None:
        """Call what a node computes by the output's name; a copy is written only where it has a name already."""
        constant = self.is_constant(port.node)
        name = self.repeated(port.node, self.network.inputs[0].node) if constant else self.names[port.node]
        maker = next((node for node in self.nodes if name in node.output and name.startswith("v")), None)
        if maker is None or any(name == other.name for other in self.network.outputs):
            self.node("Identity", [name], port.name)
            return
        for node in self.nodes:
            for names in (node.input, node.output):
                names[:] = [port.name if each == name else each for each in names]
        self.names[port.node] = port.name

    def repeated(self, index: int, like: int) -> str:
        """A constant, once for each sample of another value."""
        constant = self.graph.nodes[index].constant
        assert constant is not None
        shape = without_batch(constant.shape)
        samples = self.node("Shape", [self.names[like]], start=0, end=1)
        target = self.node("Concat", [samples, self.constant(shape, np.int64)], axis=0)
        return self.node("Expand", [self.constant(constant.reshape(1, *shape)), target])

    def _write(self, index: int) -> str:
        node = self.graph.nodes[index]
        if node.constant is not None:
            return self.constant(node.constant)
        kind = type(node.operation).__name__
        if kind not in WRITERS:
            assert node.operation is not None
            raise CaqlError(f"{node.label or kind}: {node.operation.name} cannot be exported")
        return WRITERS[kind](self, node)


def without_batch(shape: Shape) -> Shape:
    """A value's shape in a file, behind the batch's side, to which a first side of one gives way."""
    return shape[1:] if len(shape) > 1 and shape[0] == 1 else shape


def _simple(kind: str, **options: Any) -> Callable[[_Writer, Node], str]:
    return lambda writer, node: writer.node(kind, [writer.value(node.operands[0])], **options)


def _together(kind: str) -> Callable[[_Writer, Node], str]:
    """An operation on two values that are broadcast against each other: here, all of one rank."""

    def write(writer: _Writer, node: Node) -> str:
        rank, thin = len(node.shape), without_batch(node.shape) != node.shape
        names = []
        for each in node.operands:
            shape = writer.graph.shape(each)
            full = ((1,) * (rank - len(shape)) + shape)[1 if thin else 0 :]
            constant = writer.graph.nodes[each].constant
            names.append(writer.value(each, full) if constant is None else writer.constant(constant.reshape(full)))
        return writer.node(kind, names)

    return write


def _product(writer: _Writer, node: Node) -> str:
    """A vector of one sample is a row with the batch's side in front: on the left, ONNX's product means the same."""
    left, right = node.operands
    shapes = writer.graph.shape(left), writer.graph.shape(right)
    if len(shapes[1]) < 2 or (len(shapes[0]) == 1 and len(shapes[1]) > 2):
        raise CaqlError(f"a product of shapes {shapes[0]} and {shapes[1]} cannot be exported")
    if len(shapes[1]) == 2 and writer.is_constant(right) and not writer.is_constant(left):
        return writer.node("MatMul", [writer.value(left), writer.names[right]])
    full = [writer.names[k] if writer.is_constant(k) else writer.value(k, writer.graph.shape(k)) for k in node.operands]
    product = writer.node("MatMul", full)
    return product if without_batch(node.shape) == node.shape else writer.shaped(product, without_batch(node.shape))


def _concat(writer: _Writer, node: Node) -> str:
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


def _take(writer: _Writer, node: Node) -> str:
    indices = node.operation.indices  # type: ignore[union-attr]
    flat = writer.value(node.operands[0], (math.prod(writer.graph.shape(node.operands[0])),))
    chosen = writer.node("Gather", [flat, writer.constant(indices.ravel(), np.int64)], axis=1)
    shape = without_batch(indices.shape)
    return chosen if len(shape) == 1 else writer.shaped(chosen, shape)


def _sum_last(writer: _Writer, node: Node) -> str:
    full = writer.value(node.operands[0], writer.graph.shape(node.operands[0]))
    total = writer.node("ReduceSum", [full, writer.constant([-1], np.int64)], keepdims=0)
    return total if without_batch(node.shape) == node.shape else writer.shaped(total, without_batch(node.shape))


def _clip(writer: _Writer, node: Node) -> str:
    operation: Any = node.operation
    sides = ["" if math.isinf(side) else writer.constant(side) for side in (operation.low, operation.high)]
    return writer.node("Clip", [writer.value(node.operands[0]), *sides])


def _leaky(writer: _Writer, node: Node) -> str:
    slope = np.asarray(node.operation.alpha, np.float64)  # type: ignore[union-attr]
    if slope.size == 1:
        return writer.node("LeakyRelu", [writer.value(node.operands[0])], alpha=float(slope.reshape(())))
    slopes = np.broadcast_to(slope, (1, *node.shape)).reshape(1, *without_batch(node.shape))
    return writer.node("PRelu", [writer.value(node.operands[0]), writer.constant(slopes)])


def _silu(writer: _Writer, node: Node) -> str:
    value = writer.value(node.operands[0])
    return writer.node("Mul", [value, writer.node("Sigmoid", [value])])


WRITERS: dict[str, Callable[[_Writer, Node], str]] = {
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
}
