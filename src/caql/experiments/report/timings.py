"""The report's sections about time: latency of the solvers, and where the time of a run goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from caql.experiments import paper
from caql.experiments.paper import Benchmark
from caql.experiments.report.document import Block, Drawing, Folded, Heading, Part, Table, Text
from caql.experiments.report.document import Cell as Entry
from caql.experiments.report.figures import Line, Panel, duration, panels, shares
from caql.experiments.report.results import Run
from caql.experiments.report.tables import variant
from caql.experiments.specs import SPECS

SOLVER_COLOURS = {"exact": 0, "ga": 1, "cem": 2, "mip": 7}
PARTS = {"physics": 0, "acting": 1, "max_q": 5, "updating": 2, "evaluating": 3}
NOTHING = "\N{EM DASH}"


def title(task: Benchmark) -> str:
    """As the paper writes it: `Hopper [-0.25, 0.25]`; a task with its own actions by its name."""
    return task[0] if task[1] is None else f"{task[0]} [-{task[1]:g}, {task[1]:g}]"


def _ms(value: float) -> str:
    """Three digits, and never an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def latency(runs: Sequence[Run]) -> list[Block]:
    """The latency table and figure, from the runs that were probed."""
    found: dict[tuple[Benchmark, str], list[Run]] = defaultdict(list)
    for run in runs:
        if run.latency and isinstance(run.config.action_range, float | int):
            found[(run.config.task, float(run.config.action_range)), variant(run.config)].append(run)
    if not found:
        return []
    body: list[list[Entry]] = []
    drawn = []
    for (task, method), probed in found.items():
        times: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for run in probed:
            for row in run.latency:
                for solver, value in row.get("milliseconds", {}).items():
                    times[solver].append((row["train_step"], value))
        theirs = paper.LATENCY.get(task, {})
        line: list[Entry] = [title(task), method]
        for solver in SOLVER_COLOURS:
            values = [value for _, value in times.get(solver, [])]
            ours = f"{_ms(float(np.median(values)))} ± {_ms(float(np.std(values)))}" if values else NOTHING
            known = theirs.get(solver)
            line.append((Part(ours), Part(f"{_ms(known.median)} ± {_ms(known.std)}" if known else "", "faint")))
        body.append([*line, str(len(probed))])
        lines = []
        for solver in (name for name in SOLVER_COLOURS if name in times):
            points = times[solver]
            steps = sorted({step for step, _ in points})
            means = [float(np.mean([value for at, value in points if at == step])) for step in steps]
            lines.append(Line(solver, SOLVER_COLOURS[solver], np.asarray(steps), np.asarray(means)))
        drawn.append(Panel(f"{title(task)}, {method}", lines, logarithmic=True))
    return [
        Heading(SPECS["latency"].title),
        Table(
            ["", "trained with", *SOLVER_COLOURS, "runs"],
            body,
            "Milliseconds for one max-Q problem, median ± standard deviation over training; below it the paper's. "
            "Ours: a minibatch of 64 in one thread (mip: 4 problems one by one), all solvers on the same networks.",
        ),
        Drawing("latency", panels(drawn, "Latency over training"), "Milliseconds for one max-Q problem over training."),
    ]


def latency_in_runs(runs: Sequence[Run]) -> list[Block]:
    """The time of a max-Q problem over training, as each finished run of CAQL measured it with its own solver.

    Runs are told apart by all that makes their method, so that a constant and a dynamic tolerance are two lines.
    """
    found: dict[Benchmark, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        size = run.config.action_range
        if run.state == "finished" and run.milliseconds and (size is None or isinstance(size, float | int)):
            task = run.config.task, None if size is None else float(size)
            found[task][variant(run.config).removeprefix("caql-")].append(run)
    if not found:
        return []
    drawn, body = [], []
    for task, methods in found.items():
        lines = []
        for index, (method, members) in enumerate(methods.items()):
            points: dict[int, list[float]] = defaultdict(list)
            for run in members:
                for step, value in run.milliseconds:
                    points[step].append(value)
            steps = sorted(points)
            means = np.asarray([np.mean(points[step]) for step in steps])
            lines.append(Line(method, SOLVER_COLOURS.get(method, (3 + index) % 8), np.asarray(steps), means))
            body.append([title(task), method, *_solving(members)])
        drawn.append(Panel(title(task), lines, logarithmic=True))
    header = ["", "method", "median ms", "deviation", "work", "saved", "dropped", "runs"]
    caption = (
        "Milliseconds for one max-Q problem, median and standard deviation over training; iterations or nodes; share "
        "of the problems that filter and clusters took away; share that the solver gave no answer to, where recorded."
    )
    return [
        Heading("Max-Q over training"),
        Drawing(
            "max-q",
            panels(drawn, "Max-Q over training"),
            "Milliseconds for one max-Q problem over training, as the runs measured it, each with its own solver.",
        ),
        Folded("The same as numbers", [Table(header, body, caption)]),
    ]


def _solving(members: Sequence[Run]) -> list[str]:
    times = [value for run in members for _, value in run.milliseconds]

    def mean(values: Sequence[float | None], form: str) -> str:
        known = [value for value in values if value is not None]
        return form.format(float(np.mean(known))) if known else NOTHING

    return [
        _ms(float(np.median(times))),
        _ms(float(np.std(times))),
        mean([run.work for run in members], "{:.1f}"),
        mean([run.saved for run in members], "{:.1f} %"),
        mean([run.dropped for run in members], "{:.2g} %"),
        str(len(members)),
    ]


def time_split(runs: Sequence[Run]) -> list[Block]:
    """Where the time of a run goes, by task and method."""
    grouped: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        if run.state == "finished" and run.seconds and not run.latency:
            size = run.config.action_range
            shown = f" {size:g}" if isinstance(size, float | int) else ""
            grouped[f"{run.config.task}{shown}", variant(run.config)].append(run)
    if not grouped:
        return []
    bars, body = [], []
    for (task, method), members in grouped.items():
        mean = {part: float(np.mean([run.seconds.get(part, 0.0) for run in members])) for part in PARTS}
        whole = sum(mean.values())
        bars.append((f"{task}, {method}", mean))
        split = [f"{100 * mean[part] / whole:.0f} %" if whole else NOTHING for part in PARTS]
        steps = float(np.mean([run.train_step for run in members]))
        rate = f"{steps / whole:.0f}" if whole else NOTHING
        body.append([task, method, *split, duration(whole), rate, str(len(members))])
    each = [
        [run.folder.name, *(f"{run.seconds.get(part, 0.0):.0f}" for part in PARTS), f"{sum(run.seconds.values()):.0f}"]
        for members in grouped.values()
        for run in members
    ]
    colours = {part: colour for part, colour in PARTS.items() if any(mean.get(part) for _, mean in bars)}
    return [
        Heading("Where the time goes"),
        Text(
            "Mean share of a run's time. `updating` is without `max_q`, the time in max-Q solvers; where these are "
            "part of a compiled update (ga, cem) their share is estimated from solves timed at each evaluation."
        ),
        Drawing("time", shares(bars, colours, "Where the time goes"), ""),
        Folded(
            "The same as numbers, and every run in seconds",
            [
                Table(["", "method", *PARTS, "whole", "steps/s", "runs"], body),
                Table(["run", *PARTS, "whole"], each),
            ],
        ),
    ]
