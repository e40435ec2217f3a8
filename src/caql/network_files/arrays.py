"""Named arrays: .npz, .npy, .safetensors and .csv.

Every array is looked at twice: first its header (type and shape, against the bytes that are really there and
against `LARGEST`), then its numbers.  Only numbers pass: a complex weight or a date has no place in a network.
"""

from __future__ import annotations

import contextlib
import math
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from caql.errors import CaqlError
from caql.graphs import Network
from caql.graphs.chain import layers_of_network

Array = NDArray[Any]

LARGEST = 2**28
"""Numbers that a file may hold in all: two gigabytes of float64, a thousand times any network that can be solved."""

NUMBERS = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


class NetworkFile(NamedTuple):
    """What a file holds: the network, as layers or as a graph, and the action box and states if they are there."""

    network: list[tuple[Array, Array]] | Network
    low: Array | None = None
    high: Array | None = None
    states: Array | None = None

    @property
    def layers(self) -> list[tuple[Array, Array]]:
        """The layers `(W, b)`, if the network is a plain chain with ReLU between them; else `CaqlError`."""
        return layers_of_network(self.network) if isinstance(self.network, Network) else self.network


@contextlib.contextmanager
def reading(argument: str, path: Path, otherwise: str) -> Iterator[None]:
    """Make every error met in a file one sentence about the file, with the library's own as its cause.

    The libraries behind raise whatever their parsers happen upon (EOFError, IndexError, struct.error, ...), so no
    list of their exceptions would be complete.
    """
    try:
        yield
    except CaqlError as error:
        raise CaqlError(f"{argument} = {str(path)!r}: {error}") from error
    except Exception as error:
        lines = str(error).strip().splitlines()
        reason = lines[0][:200] if lines else type(error).__name__
        raise CaqlError(f"{argument} = {str(path)!r} {otherwise}: {reason}") from error


def check_size(what: str, shape: tuple[int, ...]) -> int:
    """The number of entries of an array that is about to be made; a shape beyond `LARGEST` is refused."""
    if any(side < 0 for side in shape):
        raise CaqlError(f"{what} has shape {shape}; no side can be negative")
    entries = math.prod(shape)
    if entries > LARGEST:
        raise CaqlError(f"{what} has shape {shape}; at most {LARGEST} numbers can be read")
    return entries


def _check_type(what: str, dtype: str) -> None:
    if dtype not in NUMBERS:
        raise CaqlError(f"{what} holds {dtype}; right would be real numbers, one of {', '.join(NUMBERS)}")


class Archive:
    """The arrays of an .npz by name, each read only when it is asked for and known to be sound."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        self.members: dict[str, zipfile.ZipInfo] = {}
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if name in self.members:
                raise CaqlError(f"two arrays are called {name}; each name may occur once")
            self.members[name] = member
        self.entries = 0

    def read(self, name: str) -> Array:
        member = self.members[name]
        with self.archive.open(member) as stream:
            array, entries = _read_npy(name, stream, member.file_size, LARGEST - self.entries)
        self.entries += entries
        return array


def _read_npy(name: str, stream: IO[bytes], size: int, left: int) -> tuple[Array, int]:
    """The array in a stream of `size` bytes, and its number of entries; `left` is how many may still be read."""
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise CaqlError(f"{name} has version {version} of NumPy's format; known are 1.0, 2.0 and 3.0")
    # Versions 2 and 3 are written alike; NumPy's reader of version 2 decodes latin1, and only struct names differ.
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Python 2 wrote this file
        shape, fortran, dtype = header(stream)
    if dtype.hasobject:
        raise CaqlError(f"{name} is pickled: Object arrays cannot be loaded, for unpickling runs code")
    _check_type(name, str(dtype.newbyteorder("=")))
    entries = check_size(name, shape)
    if entries > left:
        raise CaqlError(f"{name} has shape {shape}, which brings the file beyond {LARGEST} numbers")
    there = size - stream.tell()
    if entries * dtype.itemsize != there:
        raise CaqlError(f"{name} claims shape {shape}, which needs {entries * dtype.itemsize} bytes; it has {there}")
    flat = np.frombuffer(stream.read(there), dtype=dtype)
    return flat.reshape(shape, order="F" if fortran else "C").astype(dtype.newbyteorder("=")), entries


def network_of_npz(path: Path) -> NetworkFile:
    """The network in an .npz file."""
    with reading("file", path, "is not an .npz of plain arrays"), zipfile.ZipFile(path) as opened:
        archive = Archive(opened)
        return _named_layers(archive.members, archive.read)


def network_of_safetensors(path: Path) -> NetworkFile:
    """The network in a .safetensors file."""
    from safetensors import safe_open

    with reading("file", path, "is not a safetensors file"), safe_open(path, framework="numpy") as file:

        def read(name: str) -> Array:
            part = file.get_slice(name)
            kind = str(part.get_dtype())
            known = {"F": "float", "I": "int", "U": "uint"}.get(kind[:1], "") + kind[1:]
            _check_type(name, known if known in NUMBERS else kind)
            check_size(name, tuple(part.get_shape()))
            found: Array = file.get_tensor(name)
            return found

        return _named_layers(dict.fromkeys(file.keys()), read)


def _named_layers(names: Mapping[str, object], read: Callable[[str], Array]) -> NetworkFile:
    weights: dict[int, str] = {}
    biases: dict[int, str] = {}
    for name in names:
        found = re.fullmatch(r"(W|weights_|b|bias_)([0-9]{1,6})", name)
        if found:
            kind = weights if found[1] in ("W", "weights_") else biases
            other = kind.setdefault(int(found[2]), name)
            if other != name:
                raise CaqlError(f"{other} and {name} are the same part of layer {int(found[2])}; leave one of them out")
    count = len(weights)
    if not count or set(weights) != set(range(count)) or set(biases) != set(weights):
        held = ", ".join(sorted(names)[:20]) or "nothing"
        raise CaqlError(
            f"it holds {held}; right would be W0, b0, W1, b1, ... (or weights_0, bias_0, ...), one pair per layer"
        )
    layers = [(read(weights[k]), read(biases[k])) for k in range(count)]
    low, high, states = (read(name) if name in names else None for name in ("low", "high", "states"))
    return NetworkFile(layers, low, high, None if states is None else _checked_states(states))


def states_of_file(path: Path) -> Array:
    """The states in an .npy, .npz or .csv file."""
    with reading("states", path, "cannot be read"):
        return _checked_states(_read_states(path))


def _read_states(path: Path) -> Array:
    if path.suffix.lower() == ".csv":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an empty file, which is named below
            return np.loadtxt(path, delimiter=",", ndmin=2)
    if not zipfile.is_zipfile(path):
        with path.open("rb") as stream:
            return _read_npy("the array", stream, path.stat().st_size, LARGEST)[0]
    with zipfile.ZipFile(path) as opened:
        archive = Archive(opened)
        names = [name for name in archive.members if name == "states"] or list(archive.members)
        if len(names) != 1:
            raise CaqlError(f"it holds {', '.join(names[:20]) or 'nothing'}; name one of them 'states'")
        return archive.read(names[0])


def _checked_states(states: Array) -> Array:
    if states.ndim not in (1, 2) or not states.size:
        raise CaqlError(f"states has shape {states.shape}; right would be (n,) or (states, n), none of them 0")
    return states
