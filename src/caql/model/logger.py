"""A log of numbers by name, after Stable-Baselines3's: a table on the terminal, and TensorBoard's files.

logger.record("train/loss", 0.3)        kept until the next dump, or replaced
logger.record_mean("rollout/x", 1.0)    likewise, as a mean of all that came
logger.dump(step)                       written out, and forgotten
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from caql.runs.board import Board


class Logger:
    """Numbers by name.

    folder: where TensorBoard's file goes; None for none.
    to_terminal: print a table at each `dump`.
    """

    def __init__(self, folder: Path | None = None, to_terminal: bool = False, step: int = 0) -> None:
        self.folder, self.to_terminal = folder, to_terminal
        self.board = None if folder is None else Board(folder, step)
        self.name_to_value: dict[str, Any] = {}
        self.name_to_count: dict[str, int] = {}
        self._excluded: dict[str, tuple[str, ...]] = {}

    @property
    def dir(self) -> str | None:
        """The folder of TensorBoard's file."""
        return self.get_dir()

    def get_dir(self) -> str | None:
        """The folder of TensorBoard's file."""
        return None if self.folder is None else str(self.folder)

    def record(self, key: str, value: Any, exclude: str | tuple[str, ...] | None = None) -> None:
        """Keep a value; `exclude` names outputs that it is not for: stdout, tensorboard."""
        self.name_to_value[key] = value
        self._excluded[key] = (exclude,) if isinstance(exclude, str) else tuple(exclude or ())

    def record_mean(self, key: str, value: float | None, exclude: str | tuple[str, ...] | None = None) -> None:
        """Keep the mean of the values since the last dump."""
        if value is None:
            return
        count = self.name_to_count.get(key, 0)
        before = self.name_to_value.get(key, 0.0)
        self.record(key, before * count / (count + 1) + value / (count + 1), exclude)
        self.name_to_count[key] = count + 1

    def dump(self, step: int = 0) -> None:
        """Write everything out."""
        if self.to_terminal:
            shown = self._for("stdout")
            if shown:
                print(table(shown), file=sys.stdout, flush=True)
        if self.board is not None:
            # Whatever is no number, such as a picture, has no place in the table of numbers.
            self.board.add({name: _number(value) for name, value in self._for("tensorboard").items()}, step)
        self.name_to_value, self.name_to_count, self._excluded = {}, {}, {}

    def _for(self, output: str) -> dict[str, Any]:
        return {name: value for name, value in self.name_to_value.items() if output not in self._excluded[name]}

    def log(self, *words: Any, level: int = 20) -> None:
        """Print a line, unless it is only for debugging."""
        if self.to_terminal and level >= 20:
            print(*words, flush=True)

    def debug(self, *words: Any) -> None:
        self.log(*words, level=10)

    def info(self, *words: Any) -> None:
        self.log(*words)

    def warn(self, *words: Any) -> None:
        self.log(*words, level=30)

    def error(self, *words: Any) -> None:
        self.log(*words, level=40)

    def close(self) -> None:
        """Close TensorBoard's file."""
        if self.board is not None:
            self.board.close()
            self.board = None


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic | np.ndarray) and np.size(value) == 1 else value


def table(values: dict[str, Any]) -> str:
    """Values by name in a frame, names with a common first part under it."""
    rows: list[tuple[str, str]] = []
    group = ""
    for name, value in sorted(values.items()):
        head, slash, rest = name.partition("/")
        if slash and head != group:
            group = head
            rows.append((f"{head}/", ""))
        number = _number(value)
        shown = f"{number:.3g}" if isinstance(number, float) else str(number)
        rows.append((f"   {rest}" if slash else name, shown[:36]))
    wide = [max(len(row[side]) for row in rows) for side in (0, 1)]
    line = "-" * (wide[0] + wide[1] + 7)
    body = [f"| {name:{wide[0]}} | {value:{wide[1]}} |" for name, value in rows]
    return "\n".join([line, *body, line])


def next_folder(root: Path, name: str, again: bool) -> Path:
    """`root/name_1`, `name_2`, ...: the first that is not there, or with `again` the last that is."""
    numbers = [
        int(path.name.rpartition("_")[2])
        for path in root.glob(f"{name}_*")
        if path.name.rpartition("_")[2].isdigit() and path.name.rpartition("_")[0] == name
    ]
    latest = max(numbers, default=0)
    return root / f"{name}_{latest if again and latest else latest + 1}"
