"""The constants of an ONNX graph: initialisers and Constant nodes, checked before they are unpacked.

A tensor's dims are the file's claim; they must agree with the bytes that it holds, whether these are in the file
or, as PyTorch writes them, in a second file beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from caql.errors import CaqlError
from caql.extras import needed_for
from caql.network_files.arrays import LARGEST, Array, check_size

TYPES = {"FLOAT": 4, "DOUBLE": 8, "FLOAT16": 2, "INT8": 1, "INT16": 2, "INT32": 4, "INT64": 8, "UINT8": 1, "BOOL": 1}
"""Element types that can be read, with their bytes."""
NUMBERS: dict[str, tuple[str, Any]] = {
    "value_float": ("f", np.float32),
    "value_floats": ("floats", np.float32),
    "value_int": ("i", np.int64),
    "value_ints": ("ints", np.int64),
}
"""Attributes of a Constant node that hold plain numbers: the field that they are in, and their type."""


def load_model(path: Path) -> Any:
    """The parsed file, without what lies in other files."""
    with needed_for("reading an .onnx file"):
        import onnx

    if path.stat().st_size > 8 * LARGEST:
        raise CaqlError(f"it is {path.stat().st_size} bytes long; at most {8 * LARGEST} can be read")
    return onnx.load(path, load_external_data=False)


class Constants:
    """Arrays of float64 by name; each is unpacked when it is first used."""

    def __init__(self, graph: Any, folder: Path) -> None:
        """`folder` is where tensors that lie in other files are looked for."""
        self.folder = folder
        self.tensors: dict[str, Any] = {}
        self.arrays: dict[str, Array] = {}
        for tensor in graph.initializer:
            if tensor.name in self.tensors:
                raise CaqlError(f"ONNX initialiser {tensor.name!r} is there twice")
            self.tensors[tensor.name] = tensor

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def __getitem__(self, name: str) -> Array:
        if name not in self.arrays:
            self.arrays[name] = _unpack(self.tensors[name], name, self.folder)
        return self.arrays[name]

    def define(self, node: Any, name: str) -> None:
        """Take in a Constant node: a tensor, or numbers as attributes."""
        from onnx import numpy_helper

        for attribute in node.attribute:
            if attribute.name == "value" and attribute.HasField("t"):
                self.tensors[node.output[0]] = attribute.t
                return
            if attribute.name in NUMBERS:
                field, kind = NUMBERS[attribute.name]
                found = getattr(attribute, field)
                self.tensors[node.output[0]] = numpy_helper.from_array(np.array(found, kind))
                return
        raise CaqlError(f"ONNX node {name}: only a Constant of numbers can be read")

    def whole(self, name: str) -> bool:
        """Whether a constant is of a type of whole numbers, whose quotients ONNX rounds towards zero."""
        import onnx

        return "INT" in onnx.TensorProto.DataType.Name(self.tensors[name].data_type)


def _unpack(tensor: Any, name: str, folder: Path) -> Array:
    import onnx

    what = f"ONNX constant {name!r}"
    known = onnx.TensorProto.DataType.items()
    kind = next((label for label, number in known if number == tensor.data_type), f"type {tensor.data_type}")
    if kind not in TYPES:
        raise CaqlError(f"{what} holds {kind}; right would be one of {', '.join(TYPES)}")
    entries = check_size(what, tuple(tensor.dims))
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        _fetch(tensor, what, entries * TYPES[kind], folder)
    if tensor.HasField("segment"):
        raise CaqlError(f"{what} is stored in segments, which cannot be read")
    there = len(tensor.raw_data) // TYPES[kind] if tensor.HasField("raw_data") else _listed(tensor, kind)
    if there != entries or (tensor.HasField("raw_data") and len(tensor.raw_data) % TYPES[kind]):
        raise CaqlError(f"{what} claims shape {tuple(tensor.dims)}, {entries} numbers; it holds {there}")
    return np.asarray(onnx.numpy_helper.to_array(tensor), np.float64)


def _listed(tensor: Any, kind: str) -> int:
    """The number of entries of a tensor that spells them out."""
    field = {"FLOAT": "float_data", "DOUBLE": "double_data", "INT64": "int64_data"}.get(kind, "int32_data")
    return len(getattr(tensor, field))


def _fetch(tensor: Any, what: str, needed: int, folder: Path) -> None:
    """Bring a tensor's bytes from the file beside the graph; ONNX itself refuses paths that lead elsewhere."""
    from onnx.external_data_helper import load_external_data_for_tensor

    entries = {entry.key: entry.value for entry in tensor.external_data}
    location, length = entries.get("location", ""), entries.get("length")
    if not location or Path(location).is_absolute() or ".." in Path(location).parts:
        raise CaqlError(f"{what} lies in {location!r}; right would be a file beside the graph")
    if not (folder / location).is_file():
        raise CaqlError(f"{what} lies in {location!r}, which is not beside the graph")
    offset = int(entries.get("offset") or 0)
    there = (folder / location).stat().st_size - offset if length is None else int(length)
    if there != needed or offset < 0:
        raise CaqlError(f"{what} claims shape {tuple(tensor.dims)}, {needed} bytes; {location!r} holds {there} for it")
    load_external_data_for_tensor(tensor, str(folder))
    tensor.data_location = 0  # the bytes are here now: nothing is left to fetch
