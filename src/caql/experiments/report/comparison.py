"""Any runs side by side: their curves, what came of them, and the settings in which they differ.

Runs that differ in nothing but the seed are one line, their mean; every other difference makes a line of its own, and
the lines are named by what tells them apart.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from caql.errors import CaqlError
from caql.experiments.report.document import Bands, Block, Drawing, Folded, Heading, Strip, Table, Text
from caql.experiments.report.figures import COLOURS, Line, Panel, duration, panels
from caql.experiments.report.results import Results, Run, other_axes
from caql.experiments.report.returns import plus_minus
from caql.experiments.report.statistics import band, summarise
from caql.experiments.report.timings import NOTHING, time_split
from caql.runs.curves import WINDOW

MOST_LINES = 8
"""Lines of a panel that can still be told apart: as many as there are colours."""
Frames = Callable[[Path], Sequence[str]]


@dataclass(frozen=True)
class Group:
    """Runs of one configuration, whatever their seed."""

    name: str
    task: str
    runs: tuple[Run, ...]


def _task(run: Run) -> str:
    size = run.config.action_range
    return f"{run.config.task} [-{size:g}, {size:g}]" if isinstance(size, float | int) else run.config.task


def _short(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _differing(configurations: Sequence[dict[str, object]]) -> list[str]:
    """The settings that are not the same in all of them."""
    paths = sorted({path for each in configurations for path in each})
    return [path for path in paths if len({json.dumps(each.get(path)) for each in configurations}) > 1]


def groups(runs: Sequence[Run]) -> list[Group]:
    """The runs that can be shown, grouped by configuration and named by what tells the groups of one task apart."""
    found: dict[str, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        # One evaluation is a point, not a curve.
        if len(run.rows) > 1 and not run.latency:
            found[_task(run)][replace(run.config, seed=0).id].append(run)
    return [Group(name, task, tuple(members)) for task, each in found.items() for name, members in _named(each)]


def _named(members: dict[str, list[Run]]) -> list[tuple[str, list[Run]]]:
    settings = [dict(runs[0].config.distinctive) for runs in members.values()]
    told = [path for path in _differing(settings) if path not in ("seed", "agent.name", "agent.solver.name")]
    names = []
    for runs, own in zip(members.values(), settings, strict=True):
        same = [other for other in members.values() if other[0].method == runs[0].method]
        parts = [f"{path.removeprefix('agent.')} {_short(own[path])}" for path in told if path in own]
        names.append(runs[0].method + (f" ({', '.join(parts)})" if len(same) > 1 and parts else ""))
    doubled = {name for name in names if names.count(name) > 1}
    return [
        (runs[0].folder.name if name in doubled else name, runs)
        for name, runs in zip(names, members.values(), strict=True)
    ]


def curves(found: Sequence[Group]) -> list[Block]:
    """One panel per task."""
    by_task: dict[str, list[Line]] = defaultdict(list)
    # One name, one colour, in all panels.
    colours = {name: index % len(COLOURS) for index, name in enumerate(dict.fromkeys(group.name for group in found))}
    for group in found:
        lines = by_task[group.task]
        steps, mean, std = band([run.curve for run in group.runs])
        if len(steps) and len(lines) < MOST_LINES:
            spread = std if len(group.runs) > 1 else None
            axes = other_axes(group.runs, steps)
            lines.append(Line(group.name, colours[group.name], steps, mean, spread, axes, WINDOW))
    drawn = [Panel(task, lines) for task, lines in by_task.items() if lines]
    if not drawn:
        return []
    caption = (
        f"Return over training steps, window of {WINDOW} evaluations, mean over seeds; shaded: standard deviation over "
        "seeds; the bar at the end of a curve is its last window."
    )
    left_out = sum(max(0, sum(group.task == task for group in found) - MOST_LINES) for task in by_task)
    caption += f" {left_out} more are in the table only." if left_out else ""
    return [Drawing("comparison", panels(drawn, "Learning curves"), caption, panels=drawn)]


def outcomes(found: Sequence[Group]) -> Table:
    """What came of each group, the best of each task first."""
    ordered = sorted(found, key=lambda group: (group.task, -float(np.mean([run.last for run in group.runs]))))
    body = []
    for group in ordered:
        last, half = (summarise([getattr(run, name) for run in group.runs]) for name in ("last", "second_half"))
        whole = float(np.mean([sum(run.seconds.values()) for run in group.runs]))
        steps = float(np.mean([run.train_step for run in group.runs]))
        outside = [run.rows[-1].get("environment_steps") for run in group.runs]
        taken = [float(count) for count in outside if count is not None]
        unfinished = sum(run.state != "finished" for run in group.runs)
        body.append(
            [
                group.task,
                group.name,
                plus_minus(last.mean, last.std if last.runs > 1 else None),
                f"{half.mean:.1f}",
                f"{steps:,.0f}",
                f"{np.mean(taken):,.0f}" if taken else NOTHING,
                duration(whole) if whole else NOTHING,
                f"{len(group.runs)}" + (f", {unfinished} unfinished" if unfinished else ""),
            ]
        )
    header = ["", "runs", "last window", "second half", "gradient steps", "environment steps", "time", "seeds"]
    return Table(header, body, "Mean ± standard deviation over seeds; time is the sum of the parts of a run.")


def settings(found: Sequence[Group]) -> list[Block]:
    """The settings in which the groups differ, one row each."""
    own = [dict(group.runs[0].config.distinctive) for group in found]
    paths = [path for path in _differing(own) if path != "seed"]
    if not paths:
        return []
    body = [[path, *(_short(each[path]) if path in each else NOTHING for each in own)] for path in paths]
    header = ["setting", *(f"{group.name}, {group.task}" for group in found)]
    note = f"{NOTHING} where a run has the default, or its algorithm no such setting."
    return [Folded("Settings in which they differ", [Table(header, body, note, wordy=True)])]


def strips(found: Sequence[Group], frames: Frames | None) -> list[Block]:
    """A row of frames of each group's first run."""
    blocks: list[Block] = []
    for group in found if frames is not None else ():
        assert frames is not None
        run = group.runs[0]
        try:
            blocks.append(Strip(frames(run.folder), f"{group.task}, {group.name}: one greedy episode"))
        except CaqlError as problem:
            blocks.append(Text(f"No frames of {run.folder.name}: {problem}."))
    return [Heading("What the policies do", 2), *blocks] if blocks else []


def compare(results: Results, frames: Frames | None = None) -> list[Block]:
    """The whole page of a comparison."""
    found = groups(results.runs)
    if not found:
        raise CaqlError("results hold no run with two evaluations, so there is nothing to compare yet")
    count = sum(len(group.runs) for group in found)
    blocks: list[Block] = [
        Heading(f"{count} runs side by side" if count > 1 else f"{found[0].task}: {found[0].name}", 1),
        Text("Made by `caql report`, from the runs' own records."),
        Bands(),
        Heading("Learning curves"),
        *curves(found),
        Heading("Outcomes"),
        outcomes(found),
        *settings(found),
        *strips(found, frames),
        *time_split(results.runs),
    ]
    left_out = [[str(problem.path), problem.reason] for problem in results.problems]
    left_out += [[str(run.folder), "fewer than two evaluations"] for run in results.runs if len(run.rows) < 2]
    if left_out:
        blocks += [Heading("Left out"), Table(["file", "reason"], left_out, wordy=True)]
    return blocks


def others_section(runs: Sequence[Run]) -> list[Block]:
    """The finished runs that stand in no table of the paper's, side by side."""
    found = groups(runs)
    if not found:
        return []
    return [
        Heading("Other runs"),
        *curves(found),
        Folded("Their outcomes and settings", [outcomes(found), *settings(found)]),
    ]
