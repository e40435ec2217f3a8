"""Networks from files: .npz, .safetensors or .onnx, as a list of layers `(W, b)`; states from .npy, .npz or .csv;
the rows of an action set from .npz.

A file may come from anywhere.  Nothing is unpickled, nothing is imported, and what a header claims is held against
the file's real size before memory is taken.  Whatever is wrong is one sentence, a `CaqlError`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from caql.errors import CaqlError
from caql.network_files.arrays import Array, NetworkFile, network_of_npz, network_of_safetensors, states_of_file
from caql.network_files.graph import network_of_onnx
from caql.network_files.rows import RowsFile, rows_of_npz

__all__ = ["Array", "NetworkFile", "RowsFile", "read_network", "read_rows", "read_states"]

READERS: dict[str, Callable[[Path], NetworkFile]] = {
    ".npz": network_of_npz,
    ".safetensors": network_of_safetensors,
    ".onnx": network_of_onnx,
}


def read_network(path: Path | str, action: str | None = None) -> NetworkFile:
    """The network in a file.

    Array files name their layers W0, b0, W1, b1, ... or weights_0, bias_0, ..., W of shape (inputs, outputs), and
    may also hold `low`, `high` and `states`.  An ONNX graph may hold the operators of `operator_table.OPERATORS`, and
    takes the state followed by the action in one input, or each in its own: `action` names the action's, unless that
    is called so.

    Raises `CaqlError` for anything else.
    """
    path = Path(path)
    _must_exist("file", path, "an .npz, .safetensors or .onnx file")
    if path.suffix.lower() not in READERS:
        raise CaqlError(f"file = {str(path)!r} ends in {path.suffix!r}; right would be {', '.join(READERS)}")
    if action is not None and path.suffix.lower() != ".onnx":
        raise CaqlError(f"action = {action!r} names an input of an ONNX file; {str(path)!r} has none")
    if path.suffix.lower() == ".onnx":
        return network_of_onnx(path, action)
    return READERS[path.suffix.lower()](path)


def read_states(path: Path | str) -> Array:
    """States, one row each, from an .npy file, an .npz with one array or one named `states`, or a .csv of numbers.

    Returns an array of shape (n,) or (states, n).  Raises `CaqlError` for anything else.
    """
    path = Path(path)
    _must_exist("states", path, "an .npy, .npz or .csv file")
    return states_of_file(path)


def read_rows(path: Path | str) -> RowsFile:
    """What an .npz file says of the actions: C and d for C a <= d, E and f for E a = f, `integer` for indices.

    Raises `CaqlError` for a file without any of them, or with anything else.
    """
    path = Path(path)
    _must_exist("rows", path, "an .npz file with C and d, E and f, or integer")
    return rows_of_npz(path)


def _must_exist(argument: str, path: Path, right: str) -> None:
    try:
        found = path.is_file()
    except (OSError, ValueError) as problem:  # a name too long for the system, or with a NUL in it
        raise CaqlError(f"{argument} = {str(path)[:80]!r} is not a usable file name: {problem}") from None
    if not found:
        raise CaqlError(f"{argument} = {str(path)!r} does not exist; right would be {right}")
