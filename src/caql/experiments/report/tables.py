"""Which runs belong to which cell of which table.

A cell is recognised by all settings that have an effect on a run, but for the hyper-parameters, which one may
search over without making it another method: the runs of a cell are grouped by these.  So a table can be
filled from any results folder, whatever was searched, and says which configuration it shows; and a setting that
is new to this list makes another cell, never a silent change of an old one.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import numpy as np

from caql.config import RunConfig, differences
from caql.experiments.paper import Benchmark, Figure
from caql.experiments.report.results import Run
from caql.experiments.report.statistics import Band, Summary, band, summarise
from caql.experiments.specs import Column, Spec, configuration
from caql.experiments.sweep.sweep import method_name

HYPER_PARAMETERS = (
    *("seed", "train_steps", "steps_per_epoch", "batch_size", "replay_*", "warm_up"),
    *("evaluate_every", "evaluation_episodes"),
    *("agent.discount", "agent.*_rate", "agent.rate_*", "agent.exploration.*", "agent.second_target_every"),
    *(
        "agent.hinge_penalty",
        "agent.huber_width",
        "agent.relative_tolerance",
        "agent.tolerance_decay",
        "agent.tolerance_maximum",
    ),
    *("agent.cluster_decay", "agent.cluster_p"),
    *("agent.temperature*", "agent.initial_temperature", "agent.target_entropy"),
    *("agent.policy_delay", "agent.smoothing_*", "agent.saturation_penalty"),
    *("agent.solver.step_size", "agent.solver.normalise", "agent.solver.line_search", "agent.solver.restarts"),
    *("agent.solver.samples", "agent.solver.elites", "agent.solver.spread"),
    *("agent.solver.node_limit", "agent.solver.time_limit", "agent.solver.threads"),
    *("agent.solver.backend", "agent.solver.bounds", "agent.solver.cut_rounds"),
)
"""Settings that do not make a run another method, as patterns."""
_BENCHMARK = ("task", "action_range", "episode_steps", "agent.name", "agent.solver.name")


def _kind(config: RunConfig) -> dict[str, Any]:
    """What makes a run's cell: its settings without the hyper-parameters."""
    return {
        path: value
        for path, value in config.distinctive.items()
        if not any(fnmatchcase(path, pattern) for pattern in HYPER_PARAMETERS)
    }


def identity(config: RunConfig) -> str:
    """The cell that a configuration belongs to, as a key."""
    return json.dumps(_kind(config))


def variant(config: RunConfig) -> str:
    """The method, and where it is not the plain one, the settings that make it another.

    `caql-exact`, `caql-exact (dynamic_tolerance 1)`.
    """
    kind = _kind(config)
    others = [
        f"{path.removeprefix('agent.')} {value if isinstance(value, str) else json.dumps(value)}"
        for path, value in kind.items()
        if path not in _BENCHMARK
    ]
    return method_name(config) + (f" ({', '.join(others)})" if others else "")


@dataclass(frozen=True)
class Cell:
    """Some runs of one configuration (or of many, in the tables over all of them)."""

    task: Benchmark
    column: Column
    runs: tuple[Run, ...]
    """Those that the numbers are of; empty if there are none."""
    configurations: int
    """How many were tried in all."""
    paper: Figure | None
    reference: RunConfig
    """The cell's configuration as the specs have it now."""

    @cached_property
    def best(self) -> Summary:
        """Of the runs' 95th percentiles."""
        return summarise([run.best for run in self.runs])

    @cached_property
    def last(self) -> Summary:
        """Of the runs' last windows."""
        return summarise([run.last for run in self.runs])

    @cached_property
    def second_half(self) -> Summary:
        """Of the runs' second halves."""
        return summarise([run.second_half for run in self.runs])

    @cached_property
    def fall(self) -> Summary:
        """Of how far the runs' last windows lie below their best ones."""
        return summarise([run.fall for run in self.runs])

    @cached_property
    def regret(self) -> Summary | None:
        """Of the runs' regrets over the last window; None where the optimum is not known."""
        return _summarised(run.regret for run in self.runs)

    @cached_property
    def kept(self) -> Summary | None:
        """Of what the runs' kept weights scored; None where that is not known."""
        return _summarised(run.kept for run in self.runs)

    @cached_property
    def kept_fall(self) -> Summary | None:
        """Of how far they fell back."""
        return _summarised(run.kept_fall for run in self.runs)

    @cached_property
    def kept_regret(self) -> Summary | None:
        """Of their regrets."""
        return _summarised(run.kept_regret for run in self.runs)

    @cached_property
    def lag(self) -> Summary | None:
        """Of how far the runs' action functions lag behind Q; None without one."""
        return _summarised(run.lag for run in self.runs)

    @property
    def train_steps(self) -> int:
        return self.runs[0].config.train_steps

    @property
    def curve(self) -> Band:
        return band([run.curve for run in self.runs])

    @property
    def settings(self) -> list[str]:
        """Where the shown configuration is not the reference: `agent.discount: 0.99 -> 0.9`."""
        return differences(self.reference, replace(self.runs[0].config, seed=self.reference.seed))

    def extra(self, kind: str) -> tuple[float, float | None] | None:
        """The third number of a cell: % saved, iterations, or the median milliseconds with their deviation."""
        if kind == "milliseconds":
            times = [time for run in self.runs for _, time in run.milliseconds]
            return (float(np.median(times)), float(np.std(times))) if times else None
        found = [run.saved if kind == "saved" else run.work for run in self.runs]
        known = [value for value in found if value is not None]
        return (float(np.mean(known)), None) if known else None

    @property
    def dropped(self) -> float | None:
        """% of the max-Q problems that stayed without an answer, where the runs recorded it."""
        known = [run.dropped for run in self.runs if run.dropped is not None]
        return float(np.mean(known)) if known else None


def _summarised(values: Iterable[float | None]) -> Summary | None:
    """Of the runs for which the number is known; None if there is none."""
    known = [value for value in values if value is not None]
    return summarise(known) if known else None


class Catalogue:
    """The finished runs, found by cell."""

    def __init__(self, runs: Iterable[Run], unfinished: bool = False) -> None:
        self.by_identity: dict[str, list[Run]] = defaultdict(list)
        self.all = list(runs)
        # Two evaluations at least: one before learning is no result.
        whole = [run for run in self.all if run.state == "finished" or (unfinished and len(run.rows) > 1)]
        plain = {run.config.id for run in whole if not run.latency}
        for run in whole:
            # A probed run learns what it would have learned without the probe; its twin, if there is one, counts.
            if not run.latency or run.config.id not in plain:
                self.by_identity[identity(run.config)].append(run)
        self.placed: dict[str, set[str]] = defaultdict(set)
        """Spec -> ids of the runs that stand in it, in the order in which the specs were asked for."""

    def groups(self, runs: Sequence[Run]) -> list[list[Run]]:
        """Runs of the same configuration but for the seed."""
        found: dict[str, list[Run]] = defaultdict(list)
        for run in runs:
            found[replace(run.config, seed=0).id].append(run)
        return list(found.values())

    def cell(self, spec: Spec, task: Benchmark, column: Column) -> Cell:
        """The runs that stand in one cell of a table."""
        reference = configuration(spec, task, column)
        runs = self.by_identity.get(identity(reference), [])
        groups = self.groups(runs)
        shown = _widest(groups) if spec.every_configuration else _most_trusted(groups, reference)
        self.placed[spec.name].update(run.config.id for run in runs)
        published = spec.paper[task][column.paper] if spec.paper and column.paper else None
        return Cell(task, column, tuple(shown), len(groups), published, reference)

    def candidates(self, cell: Cell) -> list[Run]:
        """All runs that could stand in a cell, whatever their hyper-parameters."""
        return self.by_identity.get(identity(cell.reference), [])

    def table(self, spec: Spec) -> dict[Benchmark, dict[str, Cell]]:
        """All cells of a spec; a column nobody has to run is left out where it was not run."""
        rows = {task: {c.name: self.cell(spec, task, c) for c in spec.columns} for task in spec.tasks}
        idle = {
            column.name
            for column in spec.columns
            if column.asked_for and not any(cells[column.name].runs for cells in rows.values())
        }
        return {task: {n: cell for n, cell in cells.items() if n not in idle} for task, cells in rows.items()}

    def own(self, spec: Spec) -> set[str]:
        """Ids of the runs in a spec's table that stand in no earlier one, the table it is a view of aside."""
        found = set(self.placed[spec.name])
        for name, ids in self.placed.items():
            if name == spec.name:
                break
            if name != spec.view_of:
                found -= ids
        return found

    def others(self) -> list[Run]:
        """Finished runs that no table asked for."""
        placed = set().union(*self.placed.values())
        return [run for runs in self.by_identity.values() for run in runs if run.config.id not in placed]


def _most_trusted(groups: Sequence[Sequence[Run]], reference: RunConfig) -> Sequence[Run]:
    """The configuration trained longest, then with the most seeds, then the chosen one, then the best.

    Length and seeds come first: the best of many short searches is not a result.  The best is the one with the
    highest second half, which one lucky window cannot decide.
    """

    def trust(group: Sequence[Run]) -> tuple[int, int, bool, float]:
        config = replace(group[0].config, seed=0, train_steps=reference.train_steps)
        mean = float(np.mean([run.second_half for run in group]))
        return group[0].config.train_steps, len(group), config.id == replace(reference, seed=0).id, mean

    return max(groups, key=trust, default=[])


def _widest(groups: Sequence[Sequence[Run]]) -> Sequence[Run]:
    """All runs of the training length under which the most configurations were tried."""
    by_length: dict[int, list[Sequence[Run]]] = defaultdict(list)
    for group in groups:
        by_length[group[0].config.train_steps].append(group)
    length = max(by_length, key=lambda steps: (len(by_length[steps]), steps), default=None)
    return [] if length is None else [run for group in by_length[length] for run in group]
