"""What the folders of runs say about how far they are.

Nothing is asked of the processes that train: a run records an evaluation every so many steps, with the seconds it has
taken by then, and that gives its speed.  A run whose files have not changed for much longer than an evaluation takes is
called quiet: it was stopped, or it died.
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caql.config import RunConfig
from caql.errors import CaqlError
from caql.runs.folder import is_finished, read_config, read_metrics

RECENT = 10
"""Evaluations from which the speed is taken."""
PATIENCE, LEAST_PATIENCE = 4.0, 120.0
"""A run is quiet after so many times the seconds of an evaluation's interval, and after so many seconds at least."""


@dataclass(frozen=True)
class Status:
    """One run: `state` is finished, failed, running or quiet."""

    folder: Path
    config: RunConfig
    state: str
    train_step: int
    returns: tuple[float, ...]
    """Of each evaluation."""
    spread: float
    """Standard deviation of the last evaluation's episodes."""
    rate: float | None
    """Gradient steps a second, lately."""
    seconds: float
    """That the run has taken, by its own records."""
    age: float
    """Seconds since its files changed."""
    reason: str = ""
    """Why it failed."""

    @property
    def total(self) -> int:
        return self.config.train_steps

    @property
    def left(self) -> float | None:
        """Seconds to go; None where nothing is known of the speed."""
        if self.state in ("finished", "failed"):
            return 0.0
        return None if not self.rate else (self.total - self.train_step) / self.rate


class Watch:
    """The runs in a folder, or the folder's own; what has not changed is not read again."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise CaqlError(f"folder = {folder} is not a folder")
        self.folder = folder
        self._known: dict[Path, tuple[float, Status]] = {}

    @property
    def single(self) -> bool:
        """Whether the folder is a run's own."""
        return (self.folder / "config.json").exists()

    def look(self, now: float | None = None) -> list[Status]:
        """Every run as it stands; folders that hold something else are passed over.

        now: the time, as `time.time` gives it.  Raises `CaqlError` if there is no run at all.
        """
        here = [self.folder] if self.single else sorted(path.parent for path in self.folder.rglob("config.json"))
        found = []
        for folder in here:
            with contextlib.suppress(CaqlError, OSError):
                found.append(self._status(folder, time.time() if now is None else now))
        if not found:
            raise CaqlError(f"folder = {self.folder} holds no run that can be read")
        return found

    def _status(self, folder: Path, now: float) -> Status:
        files = [
            folder / name for name in ("config.json", "metrics.jsonl", "checkpoints", "finished.json", "failed.json")
        ]
        changed = max(file.stat().st_mtime for file in files if file.exists())
        known = self._known.get(folder)
        if known is not None and known[0] == changed and known[1].state in ("finished", "failed"):
            return known[1]
        status = read_status(folder, now - changed)
        self._known[folder] = changed, status
        return status


def read_status(folder: Path, age: float) -> Status:
    """The run in `folder`, whose files changed `age` seconds ago; `CaqlError` if it cannot be read."""
    config = read_config(folder)
    rows = [row for row in read_metrics(folder) if _is_whole(row)]
    times = [sum(row.get("seconds", {}).values()) for row in rows]
    steps = [int(row["train_step"]) for row in rows]
    recent = slice(-RECENT, None)
    passed = times[recent][-1] - times[recent][0] if rows else 0.0
    rate = (steps[recent][-1] - steps[recent][0]) / passed if passed > 0 else None
    interval = passed / max(1, len(times[recent]) - 1) if rows else 0.0
    failed = folder / "failed.json"
    if is_finished(folder):
        state = "finished"
    elif failed.exists():
        state = "failed"
    else:
        state = "running" if age <= max(LEAST_PATIENCE, PATIENCE * interval) else "quiet"
    return Status(
        folder,
        config,
        state,
        steps[-1] if steps else 0,
        tuple(float(row["return"]) for row in rows),
        float(rows[-1].get("return_std") or 0.0) if rows else 0.0,
        rate,
        times[-1] if times else 0.0,
        age,
        _reason(failed) if state == "failed" else "",
    )


def _is_whole(row: Any) -> bool:
    try:
        float(row["return"]), int(row["train_step"]), sum(row.get("seconds", {}).values())
    except (TypeError, ValueError, LookupError, AttributeError):
        return False
    return True


def _reason(path: Path) -> str:
    try:
        lines = str(json.loads(path.read_text()).get("message", "")).strip().splitlines()
    except (OSError, ValueError, AttributeError):
        return ""
    return lines[-1] if lines else ""
