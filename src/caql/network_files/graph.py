"""ONNX graphs: each node becomes operations of a `graphs.Builder`, with all shapes known before anything is computed.

The first side of an input is the batch's: where it has only a name, or none, one sample is meant.  Every other side
must be a number, or follow from the first matrix that the input is multiplied by.

A graph with one input takes the state followed by the action; of several inputs the one called `action` (or whatever
the caller says) is the action, and the others, in their order, are the state.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from caql.errors import CaqlError
from caql.graphs import Network
from caql.graphs.builder import Builder
from caql.graphs.graph import Port
from caql.network_files.arrays import NetworkFile, check_size, reading
from caql.network_files.operator_table import OPERATORS
from caql.network_files.operators import Call
from caql.network_files.state_functions import quotient
from caql.network_files.tensors import Constants, load_model

OLDEST, NEWEST = 7, 10**6
"""Versions of ONNX's operators that can be read; before 7 they broadcast along an axis that they name."""
WHOLE = (2, 3, 4, 5, 6, 7, 12, 13)
"""ONNX's numbers of the types of whole numbers."""
ACTION_NAMES = ("action", "actions", "act", "a", "u", "control", "controls")


def network_of_onnx(path: Path, action: str | None = None) -> NetworkFile:
    """The network in an .onnx file; `action` names the input that is the action, if there are several."""
    # What overflows becomes infinite here and is named where the network is used.
    with reading("file", path, "is not an ONNX model"), np.errstate(all="ignore"):
        model = load_model(path)
        graph = model.graph
        reader = _Reader(graph, Constants(graph, path.parent), _version(model))
        for number, node in enumerate(graph.node):
            reader.read(node, number)
        return NetworkFile(reader.network(action))


def _version(model: Any) -> int:
    """The version of ONNX's operators that the file is written in, the newest if it does not say."""
    found = max((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), default=NEWEST)
    if found < OLDEST:
        raise CaqlError(
            f"it is written in version {found} of ONNX's operators, which broadcast in another way; right would be "
            f"{OLDEST} or later: export it again, or convert it with onnx.version_converter"
        )
    return int(found)


class _Reader:
    """The graph read so far: which node of the builder each ONNX value is."""

    def __init__(self, graph: Any, constants: Constants, opset: int) -> None:
        self.graph, self.constants, self.opset, self.builder = graph, constants, opset, Builder()
        self.values: dict[str, int] = {}
        self.whole: set[str] = set()
        """Values of a type of whole numbers."""
        self.inputs = [value for value in graph.input if value.name not in constants]
        if not self.inputs or not graph.output:
            raise CaqlError(
                f"it has {len(self.inputs)} inputs and {len(graph.output)} outputs; right would be at least one of each"
            )
        for value in self.inputs:
            if value.name in self.values:
                raise CaqlError(f"two inputs are called {value.name!r}; each name may occur once")
            self.values[value.name] = self.builder.input(self._shape(value), f"input {value.name!r}")
            if value.type.tensor_type.elem_type in WHOLE:
                self.whole.add(value.name)

    def _shape(self, value: Any) -> tuple[int, ...]:
        """The shape of an input for one sample."""
        tensor, what = value.type.tensor_type, f"the ONNX graph's input {value.name!r}"
        shape = [side.dim_value for side in tensor.shape.dim] if tensor.HasField("shape") else [0, 0]
        check_size(what, tuple(max(side, 1) if side >= 0 else side for side in shape))
        if shape and shape[0] == 0:
            shape[0] = 1
        if shape and shape[-1] == 0:
            shape[-1] = self._multiplied_width(value.name)
        if 0 in shape:
            raise CaqlError(
                f"{what} has a side without a fixed length ({shape}, 0 where it is open); only the first may be open: "
                "export the network with fixed sizes"
            )
        return tuple(shape)

    def _multiplied_width(self, name: str) -> int:
        """The length of an open last side, from the matrix that the input is multiplied by; 0 if there is none."""
        for node in self.graph.node:
            if node.op_type in ("MatMul", "Gemm") and len(node.input) > 1 and node.input[0] == name:
                dims = list(self.constants.tensors[node.input[1]].dims) if node.input[1] in self.constants else []
                flipped = any(each.name == "transB" and each.i for each in node.attribute)
                return int(dims[1 if flipped else 0]) if len(dims) == 2 else 0
        return 0

    def read(self, node: Any, number: int) -> None:
        """One node."""
        if not node.output or not node.output[0]:
            raise CaqlError(f"ONNX node {number} ({node.op_type or 'without an operator'}) has no output")
        name = f"{node.op_type} {node.name or node.output[0]!r}"
        if node.domain not in ("", "ai.onnx"):
            raise CaqlError(f"ONNX node {name} is of the domain {node.domain!r}; only ONNX's own operators can be read")
        for made in node.output:
            if made in self.values or made in self.constants:
                raise CaqlError(f"ONNX node {name} computes {made!r}, which is already there")
        if node.op_type == "Constant":
            self.constants.define(node, name)
            return
        if node.op_type not in OPERATORS:
            raise CaqlError(
                f"ONNX node {name}: the operator {node.op_type} is not supported; a network may hold "
                f"{', '.join(sorted(OPERATORS))}"
            )
        operator, least, most = OPERATORS[node.op_type]
        # Names at the end that are empty stand for inputs that are left out.
        given = list(node.input)
        while given and not given[-1]:
            given.pop()
        if not least <= len(given) <= most:
            raise CaqlError(
                f"ONNX node {name} has {len(given)} inputs; {node.op_type} takes {least}"
                + (f" to {most}" if most < math.inf and most > least else " or more" if most > least else "")
            )
        self.builder.label = f"ONNX node {name}"
        operands = [self._operand(each, name) if each else None for each in given]
        attributes = {attribute.name: attribute for attribute in node.attribute}
        call = Call(self.builder, operands, attributes, len(node.output), self.opset)
        made_values = operator(call)
        if self._is_whole(node, call):
            made_values = [quotient(self.builder, each) if node.op_type == "Div" else each for each in made_values]
            self.whole.update(node.output)
        for output, value in zip(node.output, made_values, strict=False):
            if output:
                self.values[output] = value
        if sum(map(bool, node.output)) > len(made_values):
            raise CaqlError(f"ONNX node {name} has {len(node.output)} outputs; only {len(made_values)} can be read")

    def _is_whole(self, node: Any, call: Call) -> bool:
        """Whether a node computes whole numbers, as those do that are given whole numbers."""
        if node.op_type == "Cast":
            return call.whole("to", 1) in WHOLE
        return node.op_type == "Shape" or node.input[0] in self.whole

    def _operand(self, name: str, node: str) -> int:
        if name not in self.values:
            if name not in self.constants:
                raise CaqlError(f"ONNX node {node} reads {name!r}, which no node before it computes")
            self.values[name] = self.builder.constant(self.constants[name])
            if self.constants.whole(name):
                self.whole.add(name)
        return self.values[name]

    def network(self, action: str | None) -> Network:
        """The whole, with its inputs and outputs."""
        outputs = []
        for value in self.graph.output:
            if value.name not in self.values and value.name not in self.constants:
                raise CaqlError(f"no node computes its output {value.name!r}")
            outputs.append(Port(value.name, self._operand(value.name, "output")))
        inputs = tuple(Port(value.name, self.values[value.name]) for value in self.inputs)
        names = [port.name for port in inputs]
        if action is not None and action not in names:
            raise CaqlError(f"action = {action!r} is not an input; its inputs are {', '.join(names)}")
        if action is None and len(names) > 1:
            known = [name for name in names if name.lower() in ACTION_NAMES or "action" in name.lower()]
            if len(known) != 1:
                raise CaqlError(
                    f"it has the inputs {', '.join(names)}, and it is not clear which is the action; name one of them "
                    "'action', or say which (action='NAME', on the command line --action-input NAME)"
                )
            action = known[0]
        position = names.index(action) if action is not None and len(names) > 1 else None
        return Network(self.builder, inputs, tuple(outputs), position)
