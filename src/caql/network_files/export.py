"""Networks as ONNX files, for whoever runs them elsewhere: each operation of the graph is a node or a few.

Values get the batch as their first side, of any length; numbers are float32, as everybody's runtime expects.
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
from caql.graphs.graph import Port
from caql.graphs.operations import Array, Shape

OPSET = 20
"""The first that has GELU."""


def write_onnx(network: Network, path: Path | str) -> None:
    """Write the network; `CaqlError` for an operation that ONNX has no like of, or a name that does not fit."""
    path = Path(path)
    if path.suffix.lower() != ".onnx":
        raise CaqlError(f"path = {str(path)!r} ends in {path.suffix!r}; right would be .onnx")
    with needed_for(f"writing {path}"):
        import onnx

        onnx.save(_Writer(network).model(), path)


class _Writer:
    """The nodes and constants written so far."""

    def __init__(self, network: Network) -> None:
        self.network, self.graph = network, network.graph
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.names: dict[int, str] = {port.node: port.name for port in network.inputs}

    def model(self) -> Any:
        from onnx import TensorProto, helper

        network = self.network
        for index in self.graph.reached([port.node for port in network.outputs]):
            if index not in self.names:
                self.names[index] = self._write(index)
        for port in network.outputs:
            self._name_output(port)

        def described(port: Any) -> Any:
            return helper.make_tensor_value_info(port.name, TensorProto.FLOAT, ["N", *self.graph.shape(port.node)])

        graph = helper.make_graph(
            self.nodes,
            "network",
            [described(port) for port in network.inputs],
            [described(port) for port in network.outputs],
            self.constants,
        )
        opset = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, producer_name="caql", opset_imports=opset, ir_version=10)

    def node(self, kind: str, inputs: list[str], output: str | None = None, **options: Any) -> str:
        """One node of the file; returns the name of what it computes."""
        from onnx import helper

        output = output or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], **options))
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

    def _batched(self, index: int) -> str:
        """A value that has the batch's side, also if it is a constant."""
        node = self.graph.nodes[index]
        return self.constant(node.constant[None]) if node.constant is not None else self.names[index]

    def _name_output(self, port: Port) -> None:
        """Call what a node computes by the output's name; a copy is written only where it has a name already."""
        name = self._batched(port.node)
        maker = next((node for node in self.nodes if name in node.output and name.startswith("v")), None)
        if maker is None or any(name == other.name for other in self.network.outputs):
            self.node("Identity", [name], port.name)
            return
        for node in self.nodes:
            for names in (node.input, node.output):
                names[:] = [port.name if each == name else each for each in names]
        self.names[port.node] = port.name

    def _repeated(self, index: int, like: int) -> str:
        """A constant, once for each sample of another value."""
        samples = self.node("Shape", [self.names[like]], start=0, end=1)
        target = self.node("Concat", [samples, self.constant(self.graph.shape(index), np.int64)], axis=0)
        return self.node("Expand", [self._batched(index), target])

    def _write(self, index: int) -> str:
        node = self.graph.nodes[index]
        if node.constant is not None:
            return self.constant(node.constant)
        assert node.operation is not None
        kind = type(node.operation).__name__
        if kind not in WRITERS:
            raise CaqlError(f"{node.label or kind}: {node.operation.name} cannot be exported")
        rank = max((len(self.graph.shape(each)) for each in node.operands), default=0)
        operands = []
        for each in node.operands:
            shape, name = self.graph.shape(each), self.names[each]
            if isinstance(node.operation, op.Concat) and self.graph.nodes[each].constant is not None:
                name = self._repeated(each, next(k for k in node.operands if self.graph.nodes[k].constant is None))
            elif (
                self.graph.nodes[each].constant is None and len(shape) < rank and kind in ("Add", "Multiply", "Divide")
            ):
                name = self.shaped(name, (1,) * (rank - len(shape)) + shape)
            operands.append(name)
        return WRITERS[kind](self, node.operation, operands, [self.graph.shape(each) for each in node.operands])


def _simple(kind: str) -> Callable[..., str]:
    return lambda writer, operation, operands, shapes: writer.node(kind, operands)  # noqa: ARG005


def _product(writer: _Writer, operation: Any, operands: list[str], shapes: list[Shape]) -> str:
    """A vector of one sample is a row with the batch's side in front: on the left, ONNX's product means the same."""
    del operation
    if len(shapes[1]) < 2 or (len(shapes[0]) == 1 and len(shapes[1]) > 2):
        raise CaqlError(f"a product of shapes {shapes[0]} and {shapes[1]} cannot be exported")
    return writer.node("MatMul", operands)


def _concat(writer: _Writer, operation: Any, operands: list[str], shapes: list[Shape]) -> str:
    del shapes
    return writer.node("Concat", operands, axis=operation.axis + 1)


def _take(writer: _Writer, operation: Any, operands: list[str], shapes: list[Shape]) -> str:
    flat = writer.shaped(operands[0], (math.prod(shapes[0]),))
    chosen = writer.node("Gather", [flat, writer.constant(operation.indices.ravel(), np.int64)], axis=1)
    return writer.shaped(chosen, operation.indices.shape)


def _clip(writer: _Writer, operation: Any, operands: list[str], shapes: list[Shape]) -> str:
    del shapes
    sides = ["" if math.isinf(side) else writer.constant(side) for side in (operation.low, operation.high)]
    return writer.node("Clip", [*operands, *sides])


def _leaky(writer: _Writer, operation: Any, operands: list[str], shapes: list[Shape]) -> str:
    slope: Array = np.asarray(operation.alpha)
    return writer.node("PRelu", [*operands, writer.constant(np.broadcast_to(slope, (1, *shapes[0])))])


def _silu(writer: _Writer, operation: Any, operands: list[str], shapes: list[Shape]) -> str:
    del operation, shapes
    return writer.node("Mul", [operands[0], writer.node("Sigmoid", operands)])


WRITERS: dict[str, Callable[..., str]] = {
    op.Add.__name__: _simple("Add"),
    op.Multiply.__name__: _simple("Mul"),
    op.Divide.__name__: _simple("Div"),
    op.MatMul.__name__: _product,
    op.Concat.__name__: _concat,
    op.Reshape.__name__: lambda writer, operation, operands, _: writer.shaped(operands[0], operation.target),
    op.Take.__name__: _take,
    op.SumLast.__name__: lambda writer, _, operands, __: writer.node(
        "ReduceSum", [operands[0], writer.constant([-1], np.int64)], keepdims=0
    ),
    op.Maximum.__name__: _simple("Max"),
    act.Relu.__name__: _simple("Relu"),
    act.LeakyRelu.__name__: _leaky,
    act.Abs.__name__: _simple("Abs"),
    act.Clip.__name__: _clip,
    act.Tanh.__name__: _simple("Tanh"),
    act.Sigmoid.__name__: _simple("Sigmoid"),
    act.Softplus.__name__: _simple("Softplus"),
    act.Elu.__name__: _simple("Elu"),
    act.Gelu.__name__: _simple("Gelu"),
    act.GeluTanh.__name__: lambda writer, _, operands, __: writer.node("Gelu", operands, approximate="tanh"),
    act.Silu.__name__: _silu,
}
