"""The report's tables of returns: what a user gets at the end, and what stands beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Callable

from caql.experiments.paper import Benchmark
from caql.experiments.report.document import Cell as Entry
from caql.experiments.report.document import Part, Table
from caql.experiments.report.statistics import Summary
from caql.experiments.report.tables import Catalogue, Cell
from caql.experiments.report.timings import NOTHING, title
from caql.experiments.specs import SPECS, Spec

EXTRA = {
    "saved": ("{:.1f} % saved", "max-Q problems taken away by filter and clusters"),
    "iterations": ("{:.0f} iterations", "mean iterations of a max-Q problem"),
    "milliseconds": ("{:.3g} ms", "median ± standard deviation of a max-Q problem's time over training"),
}
Rows = dict[Benchmark, dict[str, Cell]]


def plus_minus(mean: float, std: float | None, places: int = 1) -> str:
    """`-145.2 ± 3.1`."""
    return f"{mean:.{places}f} ± {std:.{places}f}" if std is not None else f"{mean:.{places}f}"


def _spread(summary: Summary) -> float | None:
    return summary.std if summary.runs > 1 else None


def _leader(cells: dict[str, Cell]) -> str | None:
    """The column whose last windows are best, if there is another to compare it with."""
    means = {name: cell.last.mean for name, cell in cells.items() if cell.runs}
    return max(means, key=lambda name: means[name]) if len(means) > 1 else None


def matrix(spec: Spec, rows: Rows) -> Table:
    """What a user gets, and below it the 95th percentile beside the paper's."""
    columns = list(next(iter(rows.values())))
    body: list[list[Entry]] = []
    for task, cells in rows.items():
        leader = _leader(cells)
        body.append([title(task), *(_entry(spec, cell, name == leader) for name, cell in cells.items())])
    beside = (
        " Beside the paper's number: p95, the 95th percentile of the smoothed curve, which picks lucky windows; ▲ "
        "where it is at least the paper's, ▼ where it is not."
    )
    return Table(
        ["", *columns],
        body,
        "Mean ± standard deviation over seeds (n runs) of the last window's return, the best of a row in bold; "
        "the mean of the second half of training; regret: how much more the optimal policy scores than the last "
        "window, where that is known; kept: what the weights after the best exploring episodes scored, which the run "
        "keeps beside the last ones."
        + (beside if spec.paper else "")
        + (f" Then {EXTRA[spec.extra][1]}, ours and (the paper's)." if spec.extra else ""),
    )


def _entry(spec: Spec, cell: Cell, leads: bool) -> tuple[Part, ...]:
    published = f"{cell.paper.mean:.1f} ± {cell.paper.std:.1f}" if cell.paper else ""
    if not cell.runs:
        return (Part(NOTHING, "faint"), Part(published and f"paper {published}", "faint"))
    last, best = cell.last, cell.best
    parts = [
        Part(plus_minus(last.mean, _spread(last)), "strong" if leads else "plain"),
        Part(f"second half {cell.second_half.mean:.1f}", "faint"),
    ]
    if cell.regret is not None:
        parts.append(Part(f"regret {cell.regret.mean:.1f}", "faint"))
    if cell.kept is not None:
        parts.append(Part(f"kept {plus_minus(cell.kept.mean, _spread(cell.kept))}", "faint"))
    if cell.paper:
        above = best.mean >= cell.paper.mean
        ours = f"{'▲' if above else '▼'} p95 {plus_minus(best.mean, _spread(best))}, paper {published}"
        parts.append(Part(ours, "better" if above else "worse"))
    if spec.extra:
        parts.append(Part(_extra(spec.extra, cell), "faint"))
    if cell.dropped is not None:
        parts.append(Part(f"{cell.dropped:.2g} % dropped", "faint"))
    steps = "" if cell.train_steps == cell.reference.train_steps else f", {cell.train_steps:,} steps"
    parts.append(Part(f"n = {last.runs}{steps}", "faint"))
    return tuple(parts)


def _extra(kind: str, cell: Cell) -> str:
    """`7 iterations (59.5)`, `0.12 ± 0.03 ms (118.5 ± 75.6)`."""
    found, form = cell.extra(kind), EXTRA[kind][0]
    if found is None:
        ours = "not measured"
    else:
        value, deviation = found
        ours = form.format(value) if deviation is None else f"{value:.3g} ± {form.format(deviation)}"
    if cell.paper is None or cell.paper.extra is None:
        return ours
    theirs = f"{cell.paper.extra:g}" + (f" ± {cell.paper.extra_std:g}" if cell.paper.extra_std is not None else "")
    return f"{ours} ({theirs})"


def counted(rows: Rows) -> Table:
    """What an engineer asks of a constrained task: the outcome, every action counted, and the time of a run."""
    body: list[list[Entry]] = []
    for task, cells in rows.items():
        for name, cell in cells.items():
            if not cell.runs:
                continue
            known = [run.counted for run in cell.runs if run.counted is not None]
            actions, broken = (sum(each[k] for each in known) for k in (0, 1))
            hours = sum(sum(run.seconds.values()) for run in cell.runs) / len(cell.runs) / 3600
            solving = cell.extra("milliseconds")
            body.append(
                [
                    title(task),
                    name,
                    plus_minus(cell.last.mean, _spread(cell.last)),
                    plus_minus(cell.second_half.mean, _spread(cell.second_half)),
                    f"{broken:,} of {actions:,}" if known else "not counted",
                    f"{60 * hours:.1f}",
                    f"{solving[0]:.3g}" if solving else NOTHING,
                    str(len(cell.runs)),
                    f"{cell.train_steps:,}",
                ]
            )
    header = ["", "method", "last window", "second half", "violations", "minutes", "max-Q ms", "runs", "steps"]
    note = (
        "Violations: of all actions that the environment was given, exploring and greedy, those that were not in the "
        "set of their state, without any tolerance. Minutes of one run on one core; milliseconds of one max-Q problem."
    )
    return Table(header, body, note)


def summary(catalogue: Catalogue) -> list[Table]:
    """Table 1 in brief, for a README: what a user gets, its regret, and the 95th percentile beside the paper's."""
    rows = catalogue.table(SPECS["table1"])
    filled = {task: cells for task, cells in rows.items() if any(cell.runs for cell in cells.values())}
    if not filled:
        return []
    columns = list(next(iter(filled.values())))

    known = {task: cells for task, cells in filled.items() if any(cell.regret for cell in cells.values())}

    def table(corner: str, rows: Rows, entry: Callable[[Cell, bool], str]) -> Table:
        body = []
        for task, cells in rows.items():
            seeds = sorted({cell.best.runs for cell in cells.values() if cell.runs})
            shown = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
            leader = _leader(cells)
            entries = (entry(cell, name == leader) if cell.runs else NOTHING for name, cell in cells.items())
            body.append([title(task), *entries, shown])
        return Table([corner, *columns, "seeds"], body)

    return [
        table("last window / second half / kept", filled, _outcome),
        *([table("regret: last window / kept", known, _regrets)] if known else []),
        table("95th percentile (the paper's)", filled, _beside_the_paper),
    ]


# Returns in brief are whole numbers: seeds differ by far more than a tenth.
def _outcome(cell: Cell, leads: bool) -> str:
    last = _bold(plus_minus(cell.last.mean, _spread(cell.last), 0), leads)
    half = f"{cell.second_half.mean:.0f}"
    if cell.regret is not None:
        # The starts decide an evaluation's return more than the policy: `_regrets` has what was kept.
        return f"{last} / {half}"
    return f"{last} / {half} / " + (NOTHING if cell.kept is None else f"{cell.kept.mean:.0f}")


def _regrets(cell: Cell, leads: bool) -> str:
    if cell.regret is None:
        return NOTHING
    kept = NOTHING if cell.kept_regret is None else f"{cell.kept_regret.mean:.1f}"
    return f"{_bold(plus_minus(cell.regret.mean, _spread(cell.regret)), leads)} / {kept}"


def _beside_the_paper(cell: Cell, _: bool) -> str:
    beside = f" ({cell.paper.mean:.0f})" if cell.paper else ""
    return plus_minus(cell.best.mean, _spread(cell.best), 0) + beside


def _bold(text: str, leads: bool) -> str:
    return f"**{text}**" if leads else text


def numbers(rows: Rows) -> Table:
    """Every statistic of every cell that has runs, one row each."""
    body: list[list[Entry]] = []
    for task, cells in rows.items():
        for name, cell in cells.items():
            if not cell.runs:
                continue
            body.append(
                [
                    title(task),
                    name,
                    *(_mean_and_middle(each) for each in (cell.last, cell.second_half)),
                    plus_minus(cell.fall.mean, _spread(cell.fall)),
                    NOTHING if cell.regret is None else plus_minus(cell.regret.mean, _spread(cell.regret)),
                    _of_kept(cell),
                    NOTHING if cell.lag is None else plus_minus(cell.lag.mean, _spread(cell.lag), 2),
                    _mean_and_middle(cell.best),
                    plus_minus(cell.paper.mean, cell.paper.std) if cell.paper else NOTHING,
                    str(cell.last.runs),
                    f"{cell.train_steps:,}",
                    str(cell.configurations),
                ]
            )
    header = [
        "",
        "method",
        "last window",
        "second half",
        "fall",
        "regret",
        "kept",
        "lag",
        "95th percentile",
        "paper",
        "runs",
        "steps",
        "tried",
    ]
    note = (
        "Below a mean: IQM, the interquartile mean, with its 95 % interval. Fall: how far the last window lies below "
        "the run's best one. Kept: what the weights after the best exploring episodes scored in their one evaluation, "
        "how far that lies below the best window of such scores, and its regret. Lag: how far the action function's "
        "values lie from their labels (root mean square), in units of Q's mean temporal difference, in the second half "
        "of training; above 1 it follows its maximiser worse than Q learns. Tried: configurations found in all."
    )
    return Table(header, body, note)


def _of_kept(cell: Cell) -> tuple[Part, ...] | str:
    if cell.kept is None or cell.kept_fall is None:
        return NOTHING
    regret = "" if cell.kept_regret is None else f", regret {cell.kept_regret.mean:.1f}"
    return (
        Part(plus_minus(cell.kept.mean, _spread(cell.kept))),
        Part(f"fall {cell.kept_fall.mean:.1f}{regret}", "faint"),
    )


def _mean_and_middle(found: Summary) -> tuple[Part, ...]:
    interval = f" [{found.low:.1f}, {found.high:.1f}]" if found.runs > 1 else ""
    return (Part(plus_minus(found.mean, _spread(found))), Part(f"IQM {found.iqm:.1f}{interval}", "faint"))
