"""Networks from files: .npz, .safetensors or .onnx, as a list of layers `(W, b)`.

Array files name their layers W0, b0, W1, b1, ... or weights_0, bias_0, ..., W input-major, and may also hold
`low`, `high` and `states`.  Nothing is ever unpickled.  An ONNX graph must be a chain of Gemm, MatMul, Add,
Relu, Flatten and Identity from one input to one output.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from caql.errors import CaqlError

Array = NDArray[Any]


class NetworkFile(NamedTuple):
    """What a file holds: the layers, and the action box and states if they are there."""

    layers: list[tuple[Array, Array]]
    low: Array | None = None
    high: Array | None = None
    states: Array | None = None


def read_network(path: Path | str) -> NetworkFile:
    """The network in a file."""
    path = Path(path)
    if not path.is_file():
        raise CaqlError(f"file = {str(path)!r} does not exist; right would be an .npz, .safetensors or .onnx file")
    readers = {".npz": _read_npz, ".safetensors": _read_safetensors, ".onnx": _read_onnx}
    if path.suffix.lower() not in readers:
        raise CaqlError(f"file = {str(path)!r} ends in {path.suffix!r}; right would be {', '.join(readers)}")
    return readers[path.suffix.lower()](path)


def read_states(path: Path | str) -> Array:
    """States, one row each, from an .npy file, an .npz with one array or one named `states`, or a .csv of numbers."""
    path = Path(path)
    if not path.is_file():
        raise CaqlError(f"states = {str(path)!r} does not exist; right would be an .npy, .npz or .csv file")
    try:
        if path.suffix == ".csv":
            return np.loadtxt(path, delimiter=",", ndmin=2)
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            names = [name for name in loaded.files if name == "states"] or loaded.files
            if len(names) != 1:
                raise CaqlError(f"states = {str(path)!r} holds {', '.join(names)}; name one of them 'states'")
            found: Array = loaded[names[0]]
            return found
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        if isinstance(error, CaqlError):
            raise
        raise CaqlError(f"states = {str(path)!r} cannot be read: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__


def _read_npz(path: Path) -> NetworkFile:
    try:
        with np.load(path, allow_pickle=False) as loaded:
            return _named_layers(path, {name: loaded[name] for name in loaded.files})
    except (OSError, ValueError, zipfile.BadZipFile, EOFError, AttributeError, TypeError) as error:
        if isinstance(error, CaqlError):
            raise
        raise CaqlError(f"file = {str(path)!r} is not an .npz of plain arrays: {_first_line(error)}") from None


def _read_safetensors(path: Path) -> NetworkFile:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        tensors = load_file(path)
    except (OSError, SafetensorError, KeyError) as error:
        raise CaqlError(f"file = {str(path)!r} is not a safetensors file: {_first_line(error)}") from None
    return _named_layers(path, tensors)


def _named_layers(path: Path, arrays: dict[str, Array]) -> NetworkFile:
    weights: dict[int, Array] = {}
    biases: dict[int, Array] = {}
    others: dict[str, Array] = {}
    for name, array in arrays.items():
        found = re.fullmatch(r"(W|weights_|b|bias_)(\d+)", name)
        if found:
            (weights if found[1] in ("W", "weights_") else biases)[int(found[2])] = array
        else:
            others[name] = array
    count = len(weights)
    if not count or set(weights) != set(range(count)) or set(biases) != set(weights):
        raise CaqlError(
            f"file = {str(path)!r} holds {', '.join(sorted(arrays)) or 'nothing'}; "
            f"right would be W0, b0, W1, b1, ... (or weights_0, bias_0, ...), one pair per layer"
        )
    layers = [(weights[k], biases[k]) for k in range(count)]
    return NetworkFile(layers, others.get("low"), others.get("high"), others.get("states"))


class _Chain:
    """The layers read so far, and the affine map since the last ReLU: None stands for the identity."""

    def __init__(self, width: int | None) -> None:
        self.layers: list[tuple[Array, Array]] = []
        self.width = width
        self.weights: Array | None = None
        self.bias: Array | None = None

    def multiply(self, matrix: Array, node: str) -> None:
        if matrix.ndim != 2 or (self.width is not None and matrix.shape[0] != self.width):
            raise CaqlError(f"ONNX node {node} multiplies {self.width} values by a matrix of shape {matrix.shape}")
        self.weights = matrix if self.weights is None else self.weights @ matrix
        self.bias = None if self.bias is None else self.bias @ matrix
        self.width = matrix.shape[1]

    def add(self, constant: Array, node: str) -> None:
        if self.width is None or constant.size not in (1, self.width):
            raise CaqlError(f"ONNX node {node} adds a constant of shape {constant.shape} to {self.width} values")
        added = np.broadcast_to(constant.ravel(), (self.width,))
        self.bias = added if self.bias is None else self.bias + added

    def close(self) -> None:
        """End the layer: at a ReLU, or at the output."""
        if self.width is None:
            raise CaqlError("the ONNX graph's input has no fixed width before its first ReLU")
        weights = np.eye(self.width, dtype=np.float32) if self.weights is None else self.weights
        bias = np.zeros(self.width, weights.dtype) if self.bias is None else self.bias
        self.layers.append((weights, bias))
        self.weights = self.bias = None


def _read_onnx(path: Path) -> NetworkFile:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        graph = onnx.load(path).graph
    except (DecodeError, OSError, ValueError, onnx.checker.ValidationError) as error:
        raise CaqlError(f"file = {str(path)!r} is not an ONNX model: {_first_line(error)}") from None
    constants: dict[str, Array] = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    if len(inputs) != 1 or len(graph.output) != 1:
        raise CaqlError(
            f"file = {str(path)!r} has {len(inputs)} inputs and {len(graph.output)} outputs; "
            f"right would be one of each, the input holding state and action in one vector"
        )
    sizes = [size.dim_value for size in inputs[0].type.tensor_type.shape.dim if size.dim_value > 1]
    chain = _Chain(sizes[0] if len(sizes) == 1 else None)
    current = inputs[0].name
    for node in graph.node:
        if node.op_type == "Constant":
            constants[node.output[0]] = _constant(node)
            continue
        _apply(chain, node, current, constants)
        current = node.output[0]
    if current != graph.output[0].name:
        raise CaqlError(f"file = {str(path)!r} does not end in its output {graph.output[0].name!r}")
    chain.close()
    return NetworkFile(chain.layers)


def _constant(node: Any) -> Array:
    import onnx

    for attribute in node.attribute:
        if attribute.name == "value":
            found: Array = onnx.numpy_helper.to_array(attribute.t)
            return found
    raise CaqlError(f"ONNX node {node.name or node.output[0]!r}: only a Constant with a tensor value can be read")


def _apply(chain: _Chain, node: Any, current: str, constants: dict[str, Array]) -> None:
    """Fold one node into the chain."""
    name = f"{node.op_type} {node.name or node.output[0]!r}"
    known = ("Gemm", "MatMul", "Add", "Relu", "Flatten", "Identity")
    if node.op_type not in known:
        raise CaqlError(f"ONNX operator {node.op_type} is not supported; a network may hold {', '.join(known)}")
    operands = [None if operand == current else constants.get(operand) for operand in node.input]
    if list(node.input).count(current) != 1 or sum(operand is None for operand in operands) != 1:
        raise CaqlError(f"ONNX node {name} joins several computed values; the graph must be a single chain")
    if node.op_type in ("Flatten", "Identity"):
        return
    if node.op_type == "Relu":
        chain.close()
        return
    first = operands[0] is None
    other = operands[1] if first else operands[0]
    if node.op_type == "Add":
        assert other is not None
        chain.add(other, name)
        return
    options = {attribute.name: attribute for attribute in node.attribute}
    if len(operands) > 2 and operands[2] is None:
        raise CaqlError(f"ONNX node {name} adds a computed value; the graph must be a single chain")
    assert other is not None
    transposed = (
        bool(options["transB" if first else "transA"].i) if ("transB" if first else "transA") in options else False
    )
    matrix = other.T if transposed else other
    # With the values on the right the product is A x: input-major that is A transposed.
    matrix = matrix if first else matrix.T
    alpha = options["alpha"].f if "alpha" in options else 1.0
    chain.multiply(matrix * np.asarray(alpha, matrix.dtype), name)
    if len(operands) > 2:
        addend = operands[2]
        assert addend is not None
        beta = options["beta"].f if "beta" in options else 1.0
        chain.add(addend * np.asarray(beta, addend.dtype), name)
