"""The report: each of the paper's tables with ours beside the paper's, and what is missing said plainly.

Reports read folders; they never train.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from caql.errors import CaqlError
from caql.experiments.paper import Benchmark
from caql.experiments.report.comparison import compare, others_section
from caql.experiments.report.document import (
    Bands,
    Block,
    Drawing,
    Folded,
    Heading,
    Table,
    Text,
    figure_files,
    html,
    markdown,
)
from caql.experiments.report.document import Cell as Entry
from caql.experiments.report.figures import Dots, Line, Panel, panels
from caql.experiments.report.results import Results, is_run, other_axes, read_paths
from caql.experiments.report.returns import Rows, counted, matrix, numbers, summary
from caql.experiments.report.tables import Catalogue, Cell, variant
from caql.experiments.report.timings import latency, latency_in_runs, time_split, title
from caql.experiments.specs import SPECS, Spec
from caql.runs.curves import WINDOW
from caql.whole_files import write_atomically

COLOURS = {
    name: index
    for index, name in enumerate(("caql-exact", "caql-ga", "caql-cem", "naf", "ddpg", "td3", "sac", "caql-mip"))
}


def curves(spec: Spec, rows: Rows) -> list[Block]:
    """The learning curves of a table."""
    found = []
    for task, cells in rows.items():
        lines = []
        for index, (name, cell) in enumerate(cells.items()):
            if cell.runs and len((band := cell.curve).steps):
                spread = band.std if len(cell.runs) > 1 else None
                colour, axes = COLOURS.get(name, index), other_axes(cell.runs, band.steps)
                lines.append(Line(name, colour, band.steps, band.mean, spread, axes, WINDOW))
        if lines:
            found.append(Panel(title(task), lines))
    if not found:
        return []
    name, label = f"{spec.name}-curves", f"Learning curves, {spec.title}"
    variants = {f"{name}-{each}": panels(found, label, (each,)) for each in ("half", "full")}
    caption = (
        "Return over training steps, mean over runs, window of 6 evaluations; shaded: standard deviation over runs; "
        "the bar at the end of a curve is its last window."
    )
    return [Drawing(name, panels(found, label), caption, variants, found)]


def sensitivity(spec: Spec, rows: Rows) -> list[Block]:
    """One dot per run over all configurations."""
    found = []
    for task, cells in rows.items():
        dots = [
            Dots(name, COLOURS.get(name, index), [run.second_half for run in cell.runs])
            for index, (name, cell) in enumerate(cells.items())
            if cell.configurations > 1
        ]
        if dots:
            found.append(Panel(title(task), dots=dots))
    if not found:
        return []
    caption = "Sensitivity: the second half of every run over all configurations tried; the bar is their mean."
    return [Drawing(f"{spec.name}-sensitivity", panels(found, "Sensitivity to hyper-parameters"), caption)]


def configurations_tried(catalogue: Catalogue, rows: Rows) -> Table | None:
    """Every configuration of the cells that have several, best first: the record of a search."""
    body: list[list[Entry]] = []
    for task, cells in rows.items():
        for name, cell in cells.items():
            groups = catalogue.groups(catalogue.candidates(cell))
            if len(groups) < 2:
                continue
            for group in sorted(groups, key=lambda group: -float(np.mean([run.second_half for run in group]))):
                shown = Cell(cell.task, cell.column, tuple(group), 1, None, cell.reference)
                settings = ", ".join(shown.settings) or "as chosen"
                means = [f"{each.mean:.1f}" for each in (shown.second_half, shown.last)]
                body.append([title(task), name, *means, str(len(group)), settings])
    header = ["", "method", "second half", "last window", "runs", "differs in"]
    return Table(header, body, wordy=True) if body else None


def section(spec: Spec, catalogue: Catalogue) -> list[Block]:
    """One of the paper's tables, or nothing if no run belongs to it."""
    rows = {t: cells for t, cells in catalogue.table(spec).items() if any(cell.runs for cell in cells.values())}
    if not catalogue.own(spec):
        return []
    if spec.every_configuration:
        # A cell with a single configuration says nothing about the choice of one.
        rows = {
            t: {name: cell if cell.configurations > 1 else replace(cell, runs=()) for name, cell in cells.items()}
            for t, cells in rows.items()
            if any(cell.configurations > 1 for cell in cells.values())
        }
    if not rows:
        return []
    blocks: list[Block] = [Heading(spec.title), matrix(spec, rows)]
    if not spec.of_paper:
        blocks.append(counted(rows))
    blocks += curves(spec, rows)
    blocks += [Text(f"Cannot work: {each}.") for each in spec.cannot_work]
    if spec.every_configuration:
        blocks += sensitivity(spec, rows)
        tried = configurations_tried(catalogue, rows)
        if tried:
            blocks.append(Folded("Every configuration tried", [tried]))
    return [*blocks, Folded("Every number", [numbers(rows)])]


def missing(catalogue: Catalogue, results: Results, folder: Path, shown: Sequence[str]) -> list[Block]:
    """What is not there, what failed and what could not be read."""
    blocks: list[Block] = [Heading("Missing, failed and left out")]
    for name in shown:
        rows = catalogue.table(SPECS[name])
        least = 2 if SPECS[name].every_configuration else 1
        empty: dict[Benchmark, list[str]] = defaultdict(list)
        for task, cells in rows.items():
            for column, cell in cells.items():
                if cell.configurations < least:
                    empty[task].append(column)
        count, size = sum(map(len, empty.values())), sum(map(len, rows.values()))
        what = "fewer than two configurations" if least > 1 else "no finished run"
        listed = [f"{title(t)}: {'all' if len(e) == len(rows[t]) else ', '.join(e)}" for t, e in empty.items()]
        if empty:
            blocks.append(Text(f"{SPECS[name].title}: {count} of {size} cells have {what}. {'; '.join(listed)}."))
        else:
            blocks.append(Text(f"{SPECS[name].title}: no cell is empty."))
    # A folder with nothing of the paper's is no reproduction of it that something is missing from.
    of_paper = [spec for spec in SPECS.values() if spec.of_paper and about_paper(shown, results)]
    hopeless = {each: None for spec in of_paper if spec.name not in shown for each in spec.cannot_work}
    blocks += [Text(f"Cannot work, and is not run: {each}.") for each in hopeless]
    idle = [spec.title for spec in of_paper if spec.name not in shown and not spec.latency]
    if of_paper and not any(run.latency for run in results.runs):
        idle.append(SPECS["latency"].title)
    if idle:
        blocks.append(Text(f"Not run at all: {'; '.join(idle)}."))
    for state in ("failed", "unfinished"):
        runs = [run for run in results.runs if run.state == state]
        if runs:
            body = [
                [run.folder.name, f"{run.train_step:,} of {run.config.train_steps:,}", _last_line(run.failure)]
                for run in runs
            ]
            blocks.append(Heading(f"{len(runs)} {state}", 3))
            blocks.append(Table(["run", "training step", "reason"], body, wordy=True))
    if results.problems:
        blocks.append(Heading(f"{len(results.problems)} left out", 3))
        body = [[str(problem.path.relative_to(folder)), problem.reason] for problem in results.problems]
        blocks.append(Table(["file", "reason"], body, wordy=True))
    others = catalogue.others()
    if others:
        blocks.append(Heading(f"{len(others)} finished runs that belong to no table", 3))
        body = [[run.folder.name, variant(run.config), f"{run.last:.1f}", f"{run.second_half:.1f}"] for run in others]
        blocks.append(Table(["run", "method", "last window", "second half"], body))
    return blocks


def about_paper(shown: Sequence[str], results: Results) -> bool:
    """Whether a report is about the paper's experiments: unless all that it shows is of another kind."""
    return not shown or any(SPECS[name].of_paper for name in shown) or any(run.latency for run in results.runs)


def _last_line(text: str | None) -> str:
    lines = (text or "").strip().splitlines()
    return lines[-1] if lines else ""


@dataclass(frozen=True)
class Report:
    """A page of blocks, and its shortest tables."""

    blocks: Sequence[Block]
    summary: Sequence[Table]


def build(
    paths: Path | Sequence[Path], unfinished: bool = False, frames: Callable[[Path], Sequence[str]] | None = None
) -> Report:
    """The report on a results folder or, of several folders or of a run, the comparison of the runs in them.

    frames: gives pictures of a run's policy, for a comparison.
    """
    folders = [paths] if isinstance(paths, Path) else list(paths)
    results = read_paths(folders)
    if not results.runs:
        left_out = f"; left out: {', '.join(p.path.name for p in results.problems[:5])}" if results.problems else ""
        raise CaqlError(f"results = {' '.join(map(str, folders))} holds no run{left_out}")
    if len(folders) > 1 or is_run(folders[0]):
        return Report(compare(results, frames), ())
    (folder,) = folders
    catalogue = Catalogue(results.runs, unfinished)
    states = Counter(run.state for run in results.runs)
    hours = sum(sum(run.seconds.values()) for run in results.runs) / 3600
    shown, sections = [], []
    for spec in SPECS.values():
        found = latency(results.runs) if spec.latency else section(spec, catalogue)
        sections += found
        if found and not spec.latency:
            shown.append(spec.name)
    paper = about_paper(shown, results)
    blocks: list[Block] = [
        Heading("CAQL: the paper's experiments, run again" if paper else "CAQL: constrained actions", 1),
        Text(
            f"{len(results.runs)} runs: {', '.join(f'{count} {state}' for state, count in sorted(states.items()))}; "
            f"{hours:.1f} hours of computing. A window is 6 evaluations; a run's result is the mean of its last one."
            + (" The 95th percentile of the smoothed curve stands only beside the paper's number." if paper else "")
            + (" Unfinished runs are included as they stand." if unfinished else "")
        ),
        Text("Made by `caql report`; the runs by `caql sweep`, which skips what is finished."),
        Bands(),
    ]
    blocks += sections
    blocks += others_section(catalogue.others())
    blocks += [*latency_in_runs(results.runs), *time_split(results.runs), *missing(catalogue, results, folder, shown)]
    return Report(blocks, summary(catalogue))


def write(report: Report, out: Path) -> list[Path]:
    """index.html, report.md with its figures, and summary.md; their paths."""
    texts = {out / "index.html": html(report.blocks), out / "report.md": markdown(report.blocks)}
    if report.summary:
        texts[out / "summary.md"] = markdown(report.summary)
    texts |= {out / "figures" / f"{name}.svg": svg for name, svg in figure_files(report.blocks).items()}
    try:
        for path, text in texts.items():
            write_atomically(path, partial(Path.write_text, data=text, encoding="utf-8"))
    except OSError as problem:
        raise CaqlError(f"out = {out} cannot be written: {problem.strerror}") from problem
    return list(texts)
