"""Arrays and JSON in one safetensors file, written so that a kill at any instant loses nothing.

A file is written under another name, flushed to the disk, and renamed: it is there whole or not at all.
Its header carries the JSON and a digest of everything, so a damaged file is found out when it is read, and equal
contents are equal bytes.  A run keeps its two latest checkpoints; the older one is used when the latest is damaged,
which is then set aside under another name, so that it does not count as one of the two.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, deserialize, safe_open
from safetensors.numpy import save as save_bytes
from safetensors.numpy import save_file

from caql.errors import CaqlError
from caql.whole_files import write_atomically

Arrays = dict[str, np.ndarray]
KEEP = 2
HEADER = "caql"
"""The one entry of a file's header: safetensors writes several of them in any order."""


def write_json(path: Path, values: Any) -> None:
    """Write JSON atomically."""
    write_atomically(path, lambda file: file.write_text(json.dumps(values, indent=2) + "\n"))


def _digest(arrays: Arrays, meta: str) -> str:
    digest = hashlib.sha256(meta.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes() if array.ndim == 0 else array.data if array.size else b"")
    return digest.hexdigest()


def save(path: Path, arrays: Arrays, meta: dict[str, Any]) -> None:
    """One file with the arrays and the JSON values of `meta`."""
    whole, header = _sealed(arrays, meta)
    try:
        write_atomically(path, lambda file: save_file(whole, file, metadata=header))
    except (SafetensorError, OSError) as problem:
        raise CaqlError(f"{path} could not be written: {problem}; what was there before is intact") from problem


def _sealed(arrays: Arrays, meta: dict[str, Any]) -> tuple[Arrays, dict[str, str]]:
    """The arrays as they are written, and the header with the JSON values and a digest of everything."""
    whole = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    text = json.dumps(meta)
    return whole, {HEADER: json.dumps({"sha256": _digest(whole, text), "meta": text})}


def to_bytes(arrays: Arrays, meta: dict[str, Any]) -> bytes:
    """What `save` would write."""
    whole, header = _sealed(arrays, meta)
    data: bytes = save_bytes(whole, metadata=header)
    return data


def from_bytes(data: bytes) -> tuple[Arrays, dict[str, Any]]:
    """Undo `to_bytes`; `CaqlError` if anything has changed."""
    try:
        tensors = deserialize(data)  # type: ignore[no-untyped-call]
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length]).get("__metadata__") or {}
        arrays = {
            name: np.frombuffer(each["data"], checked_type(each["dtype"])).reshape(each["shape"])
            for name, each in tensors
        }
    except (SafetensorError, ValueError, TypeError, KeyError, AttributeError) as problem:
        raise CaqlError(f"the pickled model is damaged: {problem}") from problem
    return _opened(Path("the pickled model"), arrays, header)


def checked_type(name: str) -> np.dtype[Any]:
    """The type that safetensors writes under this name."""
    return np.dtype({"F32": "f4", "F64": "f8", "I32": "i4", "I64": "i8", "U32": "u4", "BOOL": "?"}[name])


def is_saved(path: Path) -> bool:
    """Whether `save` wrote this file: its header says so, whatever else is in it."""
    try:
        with safe_open(path, framework="numpy") as file:
            return HEADER in (file.metadata() or {})
    except (SafetensorError, OSError, ValueError, TypeError):
        return False


def load(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Undo `save`; a damaged or foreign file is named."""
    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except FileNotFoundError as problem:
        raise CaqlError(f"{path} does not exist") from problem
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError) as problem:
        raise CaqlError(f"{path} is damaged: {problem}") from problem
    return _opened(path, arrays, header)


def _opened(path: Path, arrays: Arrays, header: dict[str, str]) -> tuple[Arrays, dict[str, Any]]:
    """Arrays and JSON values, if the header's digest is theirs."""
    text, digest = _header(path, header)
    if _digest(arrays, text) != digest:
        raise CaqlError(f"{path} is damaged: its contents do not match its digest")
    meta = _json(path, text)
    if not isinstance(meta, dict):
        raise CaqlError(f"{path} is damaged: its header holds no named values")
    return arrays, meta


def _header(path: Path, header: dict[str, str]) -> tuple[str, str]:
    """The JSON text and the digest; files of the first version hold them as two entries."""
    both = _json(path, header[HEADER]) if HEADER in header else header
    if not (isinstance(both, dict) and all(isinstance(both.get(name), str) for name in ("meta", "sha256"))):
        raise CaqlError(f"{path} was not written by caql: its header has no digest")
    return both["meta"], both["sha256"]


def _json(path: Path, text: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as problem:
        raise CaqlError(f"{path} is damaged: its header is not JSON: {problem}") from problem


def check_meta(meta: dict[str, Any], **types: Any) -> None:
    """Whether a file's JSON holds each of these, of its type, and whole numbers not below 0; else `CaqlError`."""
    for name, kind in types.items():
        value = meta.get(name)
        if not isinstance(value, kind) or isinstance(value, bool) or (isinstance(value, int) and value < 0):
            raise CaqlError(f"the saved state does not fit: {name} = {str(value)[:80]!r} must be a {kind.__name__}")


def check_entries(name: str, values: Iterable[Any], kind: Any) -> None:
    """Whether each value of a list or dictionary that was saved as `name` is of this type; else `CaqlError`."""
    for value in values:
        if not isinstance(value, kind) or isinstance(value, bool):
            raise CaqlError(f"the saved state does not fit: {name} holds {str(value)[:80]!r}")


def check_array(arrays: Arrays, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """The named array, if it has this shape and type and holds only finite numbers; else `CaqlError`."""
    if name not in arrays or arrays[name].shape != shape:
        held = arrays[name].shape if name in arrays else "nothing"
        raise CaqlError(f"the saved state does not fit: {name} should be {shape} and is {held}")
    array = arrays[name]
    if array.dtype != dtype:
        raise CaqlError(f"the saved state does not fit: {name} should be {dtype} and is {array.dtype}")
    if not np.isfinite(array).all():
        raise CaqlError(f"the saved state is of no use: {name} holds numbers that are not finite")
    return array


def flatten(tree: Any, prefix: str) -> Arrays:
    """A pytree of arrays as named arrays, `prefix.path.to.leaf`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {prefix + jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def unflatten(template: Any, arrays: Arrays, prefix: str) -> Any:
    """The pytree shaped like `template` whose leaves are the named arrays."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    found = []
    for path, leaf in leaves:
        name = prefix + jax.tree_util.keystr(path)
        found.append(jax.numpy.asarray(check_array(arrays, name, np.shape(leaf), leaf.dtype)))
    return jax.tree_util.tree_unflatten(structure, found)


def checkpoint_files(folder: Path) -> list[Path]:
    """A run's checkpoints, oldest first."""
    named = re.compile(r"step-(\d+)\.safetensors")
    found = [path for path in (folder / "checkpoints").glob("step-*.safetensors") if named.fullmatch(path.name)]
    return sorted(found)


def save_checkpoint(folder: Path, step: int, arrays: Arrays, meta: dict[str, Any]) -> Path:
    """A run's checkpoint after `step` gradient steps; all but the latest two are removed."""
    path = folder / "checkpoints" / f"step-{step:010d}.safetensors"
    save(path, arrays, meta)
    for old in checkpoint_files(folder)[:-KEEP]:
        old.unlink(missing_ok=True)
    return path


def latest_checkpoint(folder: Path, warn: Callable[[str], None]) -> tuple[Arrays, dict[str, Any]]:
    """The newest checkpoint that is whole, for reading; `warn` is told of each damaged one."""
    files = checkpoint_files(folder)
    if not files:
        raise CaqlError(f"{folder} holds no checkpoint")
    found = _newest_sound(files, lambda _, problem: warn(problem))
    if found is None:
        raise CaqlError(f"every checkpoint in {folder / 'checkpoints'} is damaged: {', '.join(p.name for p in files)}")
    return found[1:]


def resume_from(folder: Path, say: Callable[[str], None]) -> tuple[Path, Arrays, dict[str, Any]] | None:
    """The newest checkpoint that is whole, for going on: damaged ones on the way to it are set aside.

    Returns its file, arrays and values, or None if there is none.
    """

    def set_aside(path: Path, problem: str) -> None:
        aside = path.with_suffix(".damaged")
        path.replace(aside)
        say(f"{problem}; it is set aside as {aside.name}")

    return _newest_sound(checkpoint_files(folder), set_aside)


def _newest_sound(
    files: list[Path], damaged: Callable[[Path, str], None]
) -> tuple[Path, Arrays, dict[str, Any]] | None:
    for path in reversed(files):
        try:
            return (path, *load(path))
        except CaqlError as problem:
            damaged(path, str(problem))
    return None
