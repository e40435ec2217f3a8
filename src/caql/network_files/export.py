"""Networks as ONNX files, for whoever runs them elsewhere: each operation of the graph is a node or a few.

Values get the batch as their first side, of any length; a first side of length one, which networks from files and from
other libraries have in its place, gives way to it.  Numbers are float32, as everybody's runtime expects.  A dense layer
is a `Gemm` with all its attributes spelt out, and every node has a name: readers that are less than a whole runtime,
such as those of MIP libraries, insist on that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from caql.errors import CaqlError
from caql.extras import needed_for
from caql.graphs import Network
from caql.graphs.graph import Port
from caql.graphs.operations import Shape
from caql.network_files.dense_runs import Dense, dense_runs
from caql.network_files.exported_operations import WRITERS, without_batch
from caql.whole_files import write_atomically

OPSET = 20
"""The first that has GELU."""


def write_onnx(network: Network, path: Path | str) -> None:
    """Write the network; `CaqlError` for an operation that ONNX has no like of, or a name that does not fit."""
    path = Path(path)
    if path.suffix.lower() != ".onnx":
        raise CaqlError(f"path = {str(path)!r} ends in {path.suffix!r}; right would be .onnx")
    with needed_for(f"writing {path}"):
        content = Writer(network).model().SerializeToString()
    write_atomically(path, lambda file: file.write_bytes(content))


class Writer:
    """The nodes and constants written so far, under names that no input or output has."""

    def __init__(self, network: Network) -> None:
        self.network, self.graph = network, network.graph
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.names: dict[int, str] = {port.node: port.name for port in network.inputs}
        self.outputs = self._output_names()
        self.taken = {*self.names.values(), *self.outputs}
        self.made: set[str] = set()
        """What nodes compute and no output is called by yet."""
        self.dense, self.inside = dense_runs(network)

    def model(self) -> Any:
        from onnx import TensorProto, helper

        network = self.network
        for index in self.graph.reached([port.node for port in network.outputs]):
            if index not in self.names and index not in self.inside:
                self.names[index] = self._gemm(self.dense[index]) if index in self.dense else self._write(index)
        for name, port in zip(self.outputs, network.outputs, strict=True):
            self._name_output(name, port.node)
        used = {name for node in self.nodes for name in node.input}

        def described(name: str, port: Port) -> Any:
            shape = ["N", *without_batch(self.graph.shape(port.node))]
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

        graph = helper.make_graph(
            self.nodes,
            "network",
            [described(port.name, port) for port in network.inputs],
            [described(name, port) for name, port in zip(self.outputs, network.outputs, strict=True)],
            [constant for constant in self.constants if constant.name in used],
        )
        opset = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, producer_name="caql", opset_imports=opset, ir_version=10)

    def node(self, kind: str, inputs: list[str], output: str | None = None, **options: Any) -> str:
        """One node of the file; returns the name of what it computes."""
        from onnx import helper

        if output is None:
            output = self._fresh("v", len(self.nodes))
            self.made.add(output)
        self.nodes.append(helper.make_node(kind, inputs, [output], name=f"{kind}_{len(self.nodes)}", **options))
        return output

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        """A constant of the file."""
        from onnx import numpy_helper

        name = self._fresh("c", len(self.constants))
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def shaped(self, name: str, shape: Shape) -> str:
        """A value in another shape, the batch's side in front."""
        if 0 in shape:
            raise CaqlError(f"a value of shape {shape} holds no numbers and cannot be exported; leave it out")
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

    def _output_names(self) -> list[str]:
        """The outputs' names, each made longer until no input and no output before it has it."""
        names: list[str] = []
        for port in self.network.outputs:
            name = port.name
            while name in names or name in self.names.values():
                name += "_"
            names.append(name)
        return names

    def _fresh(self, letter: str, number: int) -> str:
        """A name that nobody has: the letter and the number, or longer."""
        name = f"{letter}{number}"
        while name in self.taken:
            name = f"{letter}{name}"
        self.taken.add(name)
        return name

    def _name_output(self, called: str, index: int) -> None:
        """Call what a node computes by the output's name; a copy is written only where it has a name already."""
        constant = self.is_constant(index)
        name = self.repeated(index, self.network.inputs[0].node) if constant else self.names[index]
        if name not in self.made:
            self.node("Identity", [name], called)
            return
        self.made.remove(name)
        for node in self.nodes:
            for names in (node.input, node.output):
                names[:] = [called if each == name else each for each in names]
        # Reshaping to what a value is in the file already is no node: several values may have the one name.
        self.names = {each: called if has == name else has for each, has in self.names.items()}

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
            raise CaqlError(
                f"{node.label or kind}: {node.operation.name} cannot be exported; right would be one of "
                f"{', '.join(WRITERS)}"
            )
        return WRITERS[kind](self, node)
