"""A results folder read back: every run in it, and a plain word about whatever else is there."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from caql.config import RunConfig, from_json
from caql.errors import CaqlError
from caql.experiments.report.statistics import best_return, last_return
from caql.experiments.sweep.sweep import method_name

Row = dict[str, Any]


class Problem(NamedTuple):
    """Something in the results folder that could not be used."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Run:
    """One run's folder."""

    folder: Path
    config: RunConfig
    rows: tuple[Row, ...]
    """One per evaluation."""
    finished: Row | None
    failure: str | None
    latency: tuple[Row, ...] = ()

    @property
    def state(self) -> str:
        """finished, failed or unfinished."""
        return "finished" if self.finished is not None else "failed" if self.failure is not None else "unfinished"

    @property
    def train_step(self) -> int:
        """Where its last evaluation was."""
        return int(self.rows[-1]["train_step"]) if self.rows else 0

    @property
    def method(self) -> str:
        """`caql-exact`, `sac`."""
        return method_name(self.config)

    @cached_property
    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Training steps and returns."""
        return np.asarray([r["train_step"] for r in self.rows]), np.asarray([r["return"] for r in self.rows], float)

    @cached_property
    def best(self) -> float:
        """The 95th percentile of the smoothed curve."""
        return best_return(self.curve[1])

    @cached_property
    def last(self) -> float:
        """The mean of the last window."""
        return last_return(self.curve[1])

    @property
    def seconds(self) -> dict[str, float]:
        """Time by part of the loop; the parts do not overlap."""
        spent = self.rows[-1].get("seconds", {}) if self.rows else {}
        # Max-Q's share of a compiled update is an estimate, which can be a little more than there was to share.
        return {part: max(0.0, seconds) for part, seconds in spent.items()}

    @property
    def saved(self) -> float | None:
        """% of the max-Q problems that filter and clusters took away."""
        shares = [row["filtered"] + row["clustered"] for row in self.rows if "filtered" in row and "clustered" in row]
        return 100.0 * float(np.mean(shares)) if shares else None

    @property
    def work(self) -> float | None:
        """Mean iterations or nodes of a max-Q problem."""
        found = [row["work"] for row in self.rows if "work" in row]
        return float(np.mean(found)) if found else None

    @cached_property
    def milliseconds(self) -> list[tuple[int, float]]:
        """Training steps and the time of a max-Q problem there; empty if the run did not measure it."""
        return [(row["train_step"], row["solve_ms"]) for row in self.rows if row.get("solve_ms")]


class Results(NamedTuple):
    """All that a results folder holds."""

    runs: list[Run]
    problems: list[Problem]


def read_results(folder: Path) -> Results:
    """Read every run; what is foreign, truncated or doubled is named and skipped."""
    if not folder.is_dir():
        raise CaqlError(f"results = {folder} is not a folder")
    runs: dict[tuple[str, bool], Run] = {}
    problems: list[Problem] = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        try:
            run = _read_run(path, problems)
        except (CaqlError, OSError) as problem:
            problems.append(Problem(path, str(problem)))
            continue
        key = run.config.id, bool(run.latency)
        other = runs.get(key)
        if other is None or (other.finished is None and run.finished is not None):
            runs[key] = run
        if other is not None:
            loser = path if runs[key] is other else other.folder
            problems.append(Problem(loser, f"the same run as {runs[key].folder.name}"))
    return Results(list(runs.values()), problems)


def _read_run(path: Path, problems: list[Problem]) -> Run:
    if not path.is_dir():
        raise CaqlError("not a run: a file")
    if not (path / "config.json").exists():
        raise CaqlError("not a run: no config.json")
    values = _read_json(path / "config.json")
    try:
        config = from_json(values)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as problem:
        raise CaqlError(f"config.json is not a configuration: {problem}") from problem
    rows = tuple(_read_rows(path / "metrics.jsonl", ("train_step", "return"), problems))
    latency = tuple(_read_rows(path / "latency.jsonl", ("train_step",), problems))
    finished, failure = None, None
    if (path / "finished.json").exists():
        finished = _read_json(path / "finished.json")
        if not rows:
            raise CaqlError("finished, but without a single evaluation")
    elif (path / "failed.json").exists():
        failure = str(_read_json(path / "failed.json").get("message", "no reason given"))
    return Run(path, config, rows, finished, failure, latency)


def _read_json(path: Path) -> Row:
    try:
        values = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise CaqlError(f"{path.name} is damaged: {problem}") from problem
    if not isinstance(values, dict):
        raise CaqlError(f"{path.name} is damaged: not an object")
    return values


def _read_rows(path: Path, needed: tuple[str, ...], problems: list[Problem]) -> Iterator[Row]:
    if not path.exists():
        return
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            row = json.loads(line)
            whole = all(math.isfinite(row[name]) for name in needed)
        except (ValueError, KeyError, TypeError, RecursionError):
            whole = False
        if whole:
            yield row
        else:
            problems.append(Problem(path, f"line {number} is damaged and left out"))
