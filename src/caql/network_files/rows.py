"""Rows of an action set from an .npz file, as `caql.maximize` takes them.

    C a <= d,   E a = f,   a[integer] whole numbers

Each array may have a leading axis of states.  Shapes and numbers are checked where the number of states and of actions
is known (`maxq/arguments.py`); here only what a file can get wrong by itself.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from caql.errors import CaqlError
from caql.network_files.arrays import Archive, Array, reading

NAMES = ("C", "d", "E", "f", "integer")


class RowsFile(NamedTuple):
    """What a file says of the actions, by the names of `caql.maximize`'s arguments; what it does not hold is None."""

    rows: tuple[Array, Array] | None
    equalities: tuple[Array, Array] | None
    integer: Any = ()


def rows_of_npz(path: Path) -> RowsFile:
    """The rows, equalities and whole numbers in an .npz file."""
    with reading("rows", path, "is not an .npz of plain arrays"), zipfile.ZipFile(path) as opened:
        archive = Archive(opened)
        _check_names(archive.members)
        held = {name: archive.read(name) for name in archive.members}
        rows, equalities = ((held[a], held[b]) if a in held else None for a, b in (("C", "d"), ("E", "f")))
        return RowsFile(rows, equalities, held.get("integer", ()))


def _check_names(members: Iterable[str]) -> None:
    held = list(members)
    unknown = [name for name in held if name not in NAMES]
    if unknown or not held:
        listed = ", ".join(name[:20] for name in held[:10]) or "nothing"
        raise CaqlError(f"it holds {listed}; right would be C and d, E and f, integer, or some of these")
    for matrix, side in (("C", "d"), ("E", "f")):
        if (matrix in held) != (side in held):
            there, missing = (matrix, side) if matrix in held else (side, matrix)
            raise CaqlError(f"it holds {there} without {missing}; a matrix and its right-hand side belong together")
