"""A results folder read back: every run in it or in its subfolders, and a word about whatever else is there."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from caql.config import RunConfig, from_json
from caql.errors import CaqlError
from caql.experiments.report.regret import last_window_regret, regret
from caql.experiments.report.statistics import best_return, fall_back, kept, last_return, second_half_return
from caql.experiments.sweep.sweep import method_name

Row = dict[str, Any]
Names = tuple[tuple[str, ...], tuple[str, ...]]
EVALUATION = (
    ("train_step", "return"),
    ("filtered", "clustered", "dropped", "work", "solve_ms", "environment_steps", "actions", "violations"),
)
"""The numbers that a row of metrics must have, and those that it may have."""
LATENCY = (("train_step",), ())


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

    @cached_property
    def second_half(self) -> float:
        """The mean of the second half of training."""
        return second_half_return(self.curve[1])

    @cached_property
    def fall(self) -> float:
        """How far the last window lies below the best one."""
        return fall_back(self.curve[1])

    @cached_property
    def regret(self) -> float | None:
        """How much more the optimal policy scores than the last window; None where that is not known."""
        return last_window_regret(self.config, self.curve[1]) if self.rows else None

    @cached_property
    def _kept(self) -> np.ndarray | None:
        """At each evaluation, the number of the one at which the kept weights were evaluated."""
        scores = [row.get("training_return") for row in self.rows]
        if all(score is None for score in scores):
            return None
        return kept([-math.inf if score is None else score for score in scores])

    @property
    def kept(self) -> float | None:
        """What the weights that the run kept scored in their evaluation; None where exploring was not recorded."""
        return None if self._kept is None else float(self.curve[1][self._kept[-1]])

    @property
    def kept_fall(self) -> float | None:
        """How far they lie below the best window of all that were kept."""
        return None if self._kept is None else fall_back(self.curve[1][self._kept])

    @property
    def kept_regret(self) -> float | None:
        """How much more the optimal policy scores from the same starts; None where that is not known."""
        return None if self._kept is None else regret(self.config, self.curve[1], self._kept[-1:])

    @cached_property
    def lag(self) -> float | None:
        """How far the action function's values lie from their labels, in units of Q's mean temporal difference.

        The root mean square over the second half of training.  None where there is no action function, where it learns
        by another loss, or where nothing was recorded.
        """
        agent: Any = self.config.agent
        if getattr(agent, "action_function", None) != "deterministic" or agent.action_loss != "l2":
            return None
        half = self.rows[len(self.rows) // 2 :]
        found = [(row["action_loss"], row["td_error"]) for row in half if "action_loss" in row and "td_error" in row]
        squares, errors = np.mean(found, axis=0) if found else (0.0, 0.0)
        return float(squares**0.5 / errors) if errors > 0 else None

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
    def dropped(self) -> float | None:
        """% of the max-Q problems that a solver was asked and gave no answer to, if the run recorded it."""
        shares = [row["dropped"] for row in self.rows if "dropped" in row]
        return 100.0 * float(np.mean(shares)) if shares else None

    @property
    def counted(self) -> tuple[int, int] | None:
        """Actions that the environment was given, exploring and greedy, and how many were not admissible.

        None where actions are a box, which is not counted.
        """
        rows = [row for row in self.rows if "actions" in row and "violations" in row]
        return (sum(row["actions"] for row in rows), sum(row["violations"] for row in rows)) if rows else None

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


def is_run(path: Path) -> bool:
    """Whether a folder is a run's own, and not one that holds runs."""
    return (path / "config.json").exists()


def read_paths(paths: Sequence[Path]) -> Results:
    """Read every run of several folders, each a run's own or one that holds some; no run twice."""
    runs: dict[tuple[str, bool], Run] = {}
    problems: list[Problem] = []
    for path in paths:
        found = _read_own(path) if is_run(path) else read_results(path)
        for run in found.runs:
            runs.setdefault((run.config.id, bool(run.latency)), run)
        problems += found.problems
    return Results(list(runs.values()), problems)


def _read_own(folder: Path) -> Results:
    """The run of a run's own folder, or why it cannot be read."""
    problems: list[Problem] = []
    try:
        return Results([_read_run(folder, problems)], problems)
    except CaqlError as problem:
        return Results([], [Problem(folder, str(problem))])


def other_axes(runs: Sequence[Run], steps: np.ndarray) -> dict[str, np.ndarray]:
    """What the runs' curves can be drawn over besides gradient steps: the runs' means at those steps.

    An axis that some row does not have is left out.
    """
    found: dict[str, np.ndarray] = {}
    for name, number in AXES.items():
        columns = [{row["train_step"]: number(row) for row in run.rows} for run in runs]
        rows = [[column[step] for step in steps.tolist()] for column in columns]
        if all(value is not None for row in rows for value in row):
            found[name] = np.asarray(rows, float).mean(axis=0)
    return found


def _seconds(row: Row) -> float | None:
    return sum(row["seconds"].values()) if "seconds" in row else None


AXES: dict[str, Callable[[Row], float | None]] = {
    "environment steps": lambda row: row.get("environment_steps"),
    "seconds": _seconds,
}


def read_results(folder: Path) -> Results:
    """Read every run; what is foreign, truncated or doubled is named and skipped.

    Raises `CaqlError` if `folder` is not a folder that can be listed.
    """
    if not folder.is_dir():
        raise CaqlError(f"results = {folder} is not a folder")
    runs: dict[tuple[str, bool], Run] = {}
    problems: list[Problem] = []
    for path in _candidates(folder):
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
            problems.append(Problem(loser, f"the same run as {runs[key].folder.relative_to(folder)}"))
    return Results(list(runs.values()), problems)


def _candidates(folder: Path) -> Iterator[Path]:
    """What lies in the folder: runs, things that are none, and the same of the subfolders that hold runs."""
    try:
        children = sorted(folder.iterdir())
    except OSError as problem:
        raise CaqlError(f"results = {folder} cannot be read: {problem.strerror}") from problem
    for path in children:
        if path.name.startswith("."):
            continue
        if path.is_dir() and not (path / "config.json").exists() and any(path.glob("**/config.json")):
            yield from _candidates(path)
        else:
            yield path


def _read_run(path: Path, problems: list[Problem]) -> Run:
    if not path.is_dir():
        raise CaqlError("not a run: a file")
    if not (path / "config.json").exists():
        raise CaqlError("not a run: no config.json")
    try:
        config = from_json(_read_json(path / "config.json"))
    except CaqlError as problem:
        raise CaqlError(f"config.json is not a configuration: {problem}") from problem
    rows = tuple(_read_rows(path / "metrics.jsonl", EVALUATION, problems))
    latency = tuple(_read_rows(path / "latency.jsonl", LATENCY, problems))
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


def _read_rows(path: Path, names: Names, problems: list[Problem]) -> Iterator[Row]:
    if not path.exists():
        return
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            row = json.loads(line)
            whole = _is_whole(row, names)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            whole = False
        if whole:
            yield row
        else:
            problems.append(Problem(path, f"line {number} is damaged and left out"))


def _is_whole(row: Row, names: Names) -> bool:
    """Whether a row's numbers are numbers; raises for what is not even of the right kind."""
    needed, possible = names
    numbers = [row[name] for name in needed] + [row[name] for name in possible if name in row]
    score = row.get("training_return")
    numbers += [] if score is None else [score]
    numbers += [value for name in ("seconds", "milliseconds") for value in row.get(name, {}).values()]
    return all(math.isfinite(value) for value in numbers)
