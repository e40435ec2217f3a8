"""The report: each of the paper's tables with ours beside the paper's, and what is missing said plainly.

Reports read folders; they never train.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from caql.errors import CaqlError
from caql.experiments.paper import Benchmark
from caql.experiments.report.document import (
    Bands,
    Block,
    Drawing,
    Folded,
    Heading,
    Part,
    Table,
    Text,
    figure_files,
    html,
    markdown,
)
from caql.experiments.report.document import Cell as Entry
from caql.experiments.report.figures import Dots, Line, Panel, panels
from caql.experiments.report.results import Results, read_results
from caql.experiments.report.statistics import Summary
from caql.experiments.report.tables import Catalogue, Cell
from caql.experiments.report.timings import NOTHING, latency, latency_in_runs, time_split, title
from caql.experiments.specs import SPECS, Spec
from caql.runs.checkpoints import write_atomically

COLOURS = {
    name: index
    for index, name in enumerate(("caql-exact", "caql-ga", "caql-cem", "naf", "ddpg", "td3", "sac", "caql-mip"))
}
EXTRA = {
    "saved": ("{:.1f} % saved", "max-Q problems taken away by filter and clusters"),
    "iterations": ("{:.0f} iterations", "mean iterations of a max-Q problem"),
    "milliseconds": ("{:.3g} ms", "median time of a max-Q problem"),
}
Rows = dict[Benchmark, dict[str, Cell]]


def plus_minus(mean: float, std: float | None) -> str:
    """`-145.2 ± 3.1`."""
    return f"{mean:.1f} ± {std:.1f}" if std is not None else f"{mean:.1f}"


def _spread(summary: Summary) -> float | None:
    return summary.std if summary.runs > 1 else None


def matrix(spec: Spec, rows: Rows) -> Table:
    """Ours, and below it the paper's."""
    columns = list(next(iter(rows.values())))
    body: list[list[Entry]] = []
    for task, cells in rows.items():
        means = {name: cell.best.mean for name, cell in cells.items() if cell.runs}
        leader = max(means, key=lambda name: means[name]) if len(means) > 1 else None
        body.append([title(task), *(_entry(spec, cell, name == leader) for name, cell in cells.items())])
    return Table(
        ["", *columns],
        body,
        "Ours: mean ± standard deviation over seeds of the 95th percentile of the smoothed curve (n runs), the "
        "best of a row in bold; below it the paper's, ▲ where ours is at least as good, ▼ where it is not."
        + (f" Third line: {EXTRA[spec.extra][1]}, ours and (the paper's)." if spec.extra else ""),
    )


def _entry(spec: Spec, cell: Cell, leads: bool) -> tuple[Part, ...]:
    published = f"{cell.paper.mean:.1f} ± {cell.paper.std:.1f}" if cell.paper else ""
    if not cell.runs:
        return (Part(NOTHING, "faint"), Part(published, "faint"))
    ours = cell.best
    parts = [Part(plus_minus(ours.mean, _spread(ours)), "strong" if leads else "plain")]
    if cell.paper:
        above = ours.mean >= cell.paper.mean
        parts.append(Part(f"{'▲' if above else '▼'} {published}", "better" if above else "worse"))
    if spec.extra:
        found, form = cell.extra(spec.extra), EXTRA[spec.extra][0]
        theirs = f" ({cell.paper.extra:g})" if cell.paper and cell.paper.extra is not None else ""
        parts.append(Part((form.format(found) if found is not None else "not measured") + theirs, "faint"))
    steps = "" if cell.train_steps == cell.reference.train_steps else f", {cell.train_steps:,} steps"
    parts.append(Part(f"n = {ours.runs}{steps}", "faint"))
    return tuple(parts)


def summary(catalogue: Catalogue) -> Table | None:
    """Table 1 in brief, for a README: ours, and the paper's in parentheses."""
    body = []
    for task, cells in catalogue.table(SPECS["table1"]).items():
        found = {
            name: plus_minus(cell.best.mean, _spread(cell.best)) + (f" ({cell.paper.mean:.1f})" if cell.paper else "")
            for name, cell in cells.items()
            if cell.runs
        }
        if found:
            seeds = sorted({cell.best.runs for cell in cells.values() if cell.runs})
            shown = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
            body.append([title(task), *(found.get(name, NOTHING) for name in cells), shown])
    if not body:
        return None
    columns = next(iter(catalogue.table(SPECS["table1"]).values()))
    return Table(["", *columns, "seeds"], body)


def numbers(rows: Rows) -> Table:
    """Every statistic of every cell that has runs, one row each."""
    body: list[list[Entry]] = []
    for task, cells in rows.items():
        for name, cell in cells.items():
            if not cell.runs:
                continue
            best, last = cell.best, cell.last
            sure = best.runs > 1
            body.append(
                [
                    title(task),
                    name,
                    plus_minus(cell.paper.mean, cell.paper.std) if cell.paper else NOTHING,
                    plus_minus(best.mean, _spread(best)),
                    f"{best.iqm:.1f}" + (f" [{best.low:.1f}, {best.high:.1f}]" if sure else ""),
                    plus_minus(last.mean, _spread(last)),
                    f"{last.iqm:.1f}" + (f" [{last.low:.1f}, {last.high:.1f}]" if sure else ""),
                    str(best.runs),
                    f"{cell.train_steps:,}",
                    str(cell.configurations),
                ]
            )
    header = ["", "method", "paper", "95th percentile", "IQM [95 % CI]", "last window", "IQM [95 % CI]", "runs"]
    return Table([*header, "steps", "tried"], body, "IQM: interquartile mean. Tried: configurations found in all.")


def curves(spec: Spec, rows: Rows) -> list[Block]:
    """The learning curves of a table."""
    found = []
    for task, cells in rows.items():
        lines = []
        for index, (name, cell) in enumerate(cells.items()):
            if cell.runs and len((band := cell.curve).steps):
                spread = band.std if len(cell.runs) > 1 else None
                lines.append(Line(name, COLOURS.get(name, index), band.steps, band.mean, spread))
        if lines:
            found.append(Panel(title(task), lines))
    if not found:
        return []
    name, label = f"{spec.name}-curves", f"Learning curves, {spec.title}"
    variants = {f"{name}-{each}": panels(found, label, (each,)) for each in ("half", "full")}
    caption = (
        "Return over training steps, mean over runs, window of 6 evaluations; shaded: standard deviation over runs."
    )
    return [Drawing(name, panels(found, label), caption, variants)]


def sensitivity(spec: Spec, rows: Rows) -> list[Block]:
    """One dot per run over all configurations."""
    found = []
    for task, cells in rows.items():
        dots = [
            Dots(name, COLOURS.get(name, index), [run.best for run in cell.runs])
            for index, (name, cell) in enumerate(cells.items())
            if cell.configurations > 1
        ]
        if dots:
            found.append(Panel(title(task), dots=dots))
    if not found:
        return []
    caption = "Sensitivity: the 95th percentile of every run over all configurations tried; the bar is their mean."
    return [Drawing(f"{spec.name}-sensitivity", panels(found, "Sensitivity to hyper-parameters"), caption)]


def configurations_tried(catalogue: Catalogue, rows: Rows) -> Table | None:
    """Every configuration of the cells that have several, best first: the record of a search."""
    body: list[list[Entry]] = []
    for task, cells in rows.items():
        for name, cell in cells.items():
            groups = catalogue.groups(catalogue.candidates(cell))
            if len(groups) < 2:
                continue
            for group in sorted(groups, key=lambda group: -float(np.mean([run.best for run in group]))):
                shown = Cell(cell.task, cell.column, tuple(group), 1, None, cell.reference)
                settings = ", ".join(shown.settings) or "as chosen"
                body.append([title(task), name, f"{shown.best.mean:.1f}", str(len(group)), settings])
    return Table(["", "method", "95th percentile", "runs", "differs in"], body, wordy=True) if body else None


def section(spec: Spec, catalogue: Catalogue) -> list[Block]:
    """One of the paper's tables, or nothing if no run belongs to it."""
    before = set(catalogue.placed)
    rows = {t: cells for t, cells in catalogue.table(spec).items() if any(cell.runs for cell in cells.values())}
    # Table 2 looks at Table 1's runs in another way; any other table needs at least one run of its own.
    if spec.name != "table2" and catalogue.placed <= before:
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
    blocks: list[Block] = [Heading(spec.title), matrix(spec, rows), *curves(spec, rows)]
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
    idle = [spec.title for spec in SPECS.values() if spec.name not in shown and not spec.latency]
    if not any(run.latency for run in results.runs):
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
        body = [[run.folder.name, run.method, f"{run.best:.1f}", f"{run.last:.1f}"] for run in others]
        blocks.append(Table(["run", "method", "95th percentile", "last window"], body))
    return blocks


def _last_line(text: str | None) -> str:
    lines = (text or "").strip().splitlines()
    return lines[-1] if lines else ""


@dataclass(frozen=True)
class Report:
    """A page of blocks, and its shortest table."""

    blocks: Sequence[Block]
    summary: Table | None


def build(folder: Path, unfinished: bool = False) -> Report:
    """The report on a results folder."""
    results = read_results(folder)
    if not results.runs:
        left_out = f"; left out: {', '.join(p.path.name for p in results.problems[:5])}" if results.problems else ""
        raise CaqlError(f"results = {folder} holds no run{left_out}")
    catalogue = Catalogue(results.runs, unfinished)
    states = Counter(run.state for run in results.runs)
    hours = sum(sum(run.seconds.values()) for run in results.runs) / 3600
    blocks: list[Block] = [
        Heading("CAQL: the paper's experiments, run again", 1),
        Text(
            f"{len(results.runs)} runs: {', '.join(f'{count} {state}' for state, count in sorted(states.items()))}; "
            f"{hours:.1f} hours of computing. Evaluations are smoothed over a window of 6. The number beside the "
            "paper's is the 95th percentile of the smoothed curve; the mean of the last window is given with it under "
            "“Every number”." + (" Unfinished runs are included as they stand." if unfinished else "")
        ),
        Text("Made by `caql report`; the runs by `caql sweep`, which skips what is finished."),
        Bands(),
    ]
    shown = []
    for spec in SPECS.values():
        found = latency(results.runs) if spec.latency else section(spec, catalogue)
        blocks += found
        if found and not spec.latency:
            shown.append(spec.name)
    blocks += [*latency_in_runs(results.runs), *time_split(results.runs), *missing(catalogue, results, folder, shown)]
    return Report(blocks, summary(catalogue))


def write(report: Report, out: Path) -> list[Path]:
    """index.html, report.md with its figures, and summary.md; their paths."""
    texts = {out / "index.html": html(report.blocks), out / "report.md": markdown(report.blocks)}
    if report.summary is not None:
        texts[out / "summary.md"] = markdown([report.summary])
    texts |= {out / "figures" / f"{name}.svg": svg for name, svg in figure_files(report.blocks).items()}
    try:
        for path, text in texts.items():
            write_atomically(path, partial(Path.write_text, data=text, encoding="utf-8"))
    except OSError as problem:
        raise CaqlError(f"out = {out} cannot be written: {problem.strerror}") from problem
    return list(texts)
