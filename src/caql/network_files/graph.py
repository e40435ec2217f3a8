"""ONNX graphs that are ReLU networks: a chain of affine maps and ReLUs from one input to one output.

Nodes are read in order and folded into one affine map, which ends in a layer at each ReLU and at the output:

    layer k:  h -> h W + b,   W = W_1 W_2 ...,   b = b_1 W_2 ... + b_2 ...

The arithmetic is float64, so folding two maps into one adds no error that the network's float32 would notice.
Values may be rows (x W, as exporters write) or columns (W x); a graph that mixes them is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from caql.errors import CaqlError
from caql.network_files.arrays import LARGEST, Array, NetworkFile, check_size, reading
from caql.network_files.tensors import Constants, load_model

INPUTS = {"Gemm": (2, 3), "MatMul": (2, 2), "Add": (2, 2), "Relu": (1, 1), "Flatten": (1, 1), "Identity": (1, 1)}
"""The operators that can be read, with the least and the largest number of their inputs."""


class Chain:
    """The layers read so far, and the affine map since the last ReLU: None stands for the identity."""

    def __init__(self, shape: list[int] | None) -> None:
        """`shape` is the input's as declared, 0 where a side has only a name; None if nothing is declared."""
        self.layers: list[tuple[Array, Array]] = []
        self.rank = 2 if shape is None else len(shape)
        self.columns: bool | None = None
        self.weights: Array | None = None
        self.bias: Array | None = None
        self.entries = 0
        wide = [side for side in shape or [] if side > 1]
        # [N, 4], [1, 4] and [4, 1] are four wide; two long sides say nothing, and [N, 1] is one wide.
        self.width = wide[0] if len(wide) == 1 else (1 if not wide and 1 in (shape or []) else None)

    def multiply(self, matrix: Array, columns: bool, node: str) -> None:
        """x M for rows; M^T x, given as `matrix` M, for columns."""
        if self.rank > 2:
            raise CaqlError(f"ONNX node {node} multiplies values of {self.rank} axes; flatten the input first")
        if matrix.ndim != 2 or (self.width is not None and matrix.shape[0] != self.width):
            raise CaqlError(f"ONNX node {node} multiplies {self.width} values by a matrix of shape {matrix.shape}")
        self.lie(columns, node)
        if self.weights is not None:
            self.take(len(self.weights), matrix.shape[1])
        self.weights = matrix if self.weights is None else self.weights @ matrix
        self.bias = None if self.bias is None else self.bias @ matrix
        self.width = matrix.shape[1]

    def lie(self, columns: bool, node: str) -> None:
        """Settle whether values are rows or columns; for a single value both are the same."""
        if self.columns is None and self.width != 1:
            self.columns = columns
        elif self.width != 1 and self.columns != columns:
            raise CaqlError(f"ONNX node {node} takes rows for columns; values must be on one side of every product")

    def add(self, constant: Array, node: str) -> None:
        shape = constant.shape
        long = [axis for axis, side in enumerate(shape) if side != 1]
        fits = self.width is not None and len(shape) <= max(self.rank, 1) and constant.size in (1, self.width)
        if fits and long and self.rank == 2:
            # Against rows [N, w] a constant must lie along the last axis, against columns [w, 1] along the one before.
            at = long[0] - len(shape)
            self.lie(at == -2, node)
        if not fits or len(long) > 1:
            raise CaqlError(f"ONNX node {node} adds a constant of shape {shape} to {self.width} values")
        assert self.width is not None
        self.take(self.width)
        added = np.broadcast_to(constant.ravel(), (self.width,))
        self.bias = added if self.bias is None else self.bias + added

    def flatten(self, axis: int, node: str) -> None:
        if self.rank < 2 or axis not in ((1, -1) if self.rank == 2 else (1,)):
            raise CaqlError(
                f"ONNX node {node} flattens {self.rank} axes at axis {axis}; right would be axis 1 of 2 or more"
            )
        self.rank = 2

    def close(self) -> None:
        """End the layer: at a ReLU, or at the output."""
        if self.width is None or self.rank > 2:
            raise CaqlError("the ONNX graph's input has no fixed width before its first ReLU")
        if self.weights is None:
            self.take(self.width, self.width)
        else:
            self.take(*self.weights.shape)
        weights = np.eye(self.width) if self.weights is None else self.weights
        bias = np.zeros(self.width) if self.bias is None else np.array(self.bias)
        self.layers.append((weights, bias))
        self.weights = self.bias = None

    def take(self, *shape: int) -> None:
        """Count numbers before they are made: a small file can name one large constant many times."""
        self.entries += check_size("the ONNX graph's affine map", shape)
        if self.entries > LARGEST:
            raise CaqlError(f"the ONNX graph's layers hold more than {LARGEST} numbers")


def network_of_onnx(path: Path) -> NetworkFile:
    """The network in an .onnx file."""
    # What overflows becomes infinite here and is named where the layers are checked.
    with reading("file", path, "is not an ONNX model"), np.errstate(over="ignore", invalid="ignore"):
        graph = load_model(path).graph
        constants = Constants(graph, path.parent)
        inputs = [value for value in graph.input if value.name not in constants]
        if len(inputs) != 1 or len(graph.output) != 1:
            raise CaqlError(
                f"it has {len(inputs)} inputs and {len(graph.output)} outputs; "
                f"right would be one of each, the input holding state and action in one vector"
            )
        chain = Chain(_declared_shape(inputs[0]))
        current = inputs[0].name
        for number, node in enumerate(graph.node):
            name = _checked(node, number)
            if node.output[0] == current or node.output[0] in constants:
                raise CaqlError(f"ONNX node {name} computes {node.output[0]!r}, which is already there")
            if node.op_type == "Constant":
                constants.define(node, name)
                continue
            _apply(chain, node, name, current, constants)
            current = node.output[0]
        if current != graph.output[0].name:
            raise CaqlError(f"it does not end in its output {graph.output[0].name!r}")
        chain.close()
        return NetworkFile(chain.layers)


def _declared_shape(value: Any) -> list[int] | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    shape = [side.dim_value for side in tensor.shape.dim]
    check_size(f"the ONNX graph's input {value.name!r}", tuple(max(side, 1) if side >= 0 else side for side in shape))
    return shape


def _checked(node: Any, number: int) -> str:
    """How errors call the node; one of another domain or with the wrong number of inputs is refused."""
    if not node.output or not node.output[0]:
        raise CaqlError(f"ONNX node {number} ({node.op_type or 'without an operator'}) has no output")
    name = f"{node.op_type} {node.name or node.output[0]!r}"
    if node.domain not in ("", "ai.onnx"):
        raise CaqlError(f"ONNX node {name} is of the domain {node.domain!r}; only ONNX's own operators can be read")
    if node.op_type == "Constant":
        return name
    if node.op_type not in INPUTS:
        raise CaqlError(f"ONNX operator {node.op_type} is not supported; a network may hold {', '.join(INPUTS)}")
    least, most = INPUTS[node.op_type]
    if not least <= len(node.input) <= most or len(node.output) != 1:
        raise CaqlError(f"ONNX node {name} has {len(node.input)} inputs and {len(node.output)} outputs")
    return name


def _apply(chain: Chain, node: Any, name: str, current: str, constants: Constants) -> None:
    """Fold one node into the chain."""
    given = list(node.input)
    if node.op_type == "Gemm" and len(given) == 3 and not given[2]:
        given.pop()  # an empty name stands for an input that is left out
    unknown = [each for each in given if each != current and each not in constants]
    if given.count(current) != 1 or unknown:
        raise CaqlError(f"ONNX node {name} joins several computed values; the graph must be a single chain")
    options = {attribute.name: attribute for attribute in node.attribute}
    if node.op_type == "Identity":
        return
    if node.op_type == "Flatten":
        chain.flatten(int(options["axis"].i) if "axis" in options else 1, name)
    elif node.op_type == "Relu":
        chain.close()
    elif node.op_type == "Add":
        chain.add(constants[given[1] if given[0] == current else given[0]], name)
    else:
        _product(chain, name, [None if each == current else constants[each] for each in given], options)


def _product(chain: Chain, name: str, operands: list[Array | None], options: dict[str, Any]) -> None:
    """MatMul, and Gemm: alpha A B + beta C, where A or B may be transposed."""
    columns = operands[0] is not None
    matrix = operands[0] if columns else operands[1]
    if matrix is None or (len(operands) > 2 and operands[2] is None):
        raise CaqlError(f"ONNX node {name} adds a computed value; the graph must be a single chain")
    mine, values = ("transA", "transB") if columns else ("transB", "transA")
    if values in options and options[values].i:
        raise CaqlError(f"ONNX node {name} transposes its values ({values} = 1); only its constant may be transposed")
    transposed = mine in options and bool(options[mine].i)
    # With the values on the right the product is A x: input-major that is A transposed.
    matrix = matrix.T if transposed != columns else matrix
    alpha = options["alpha"].f if "alpha" in options else 1.0
    if alpha != 1.0:
        chain.take(*matrix.shape)
        matrix = matrix * float(alpha)
    chain.multiply(matrix, columns, name)
    if len(operands) > 2 and operands[2] is not None:
        chain.add(operands[2] * float(options["beta"].f if "beta" in options else 1.0), name)
