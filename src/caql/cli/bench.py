"""`caql bench maxq`: the solvers side by side, in one run, as tables."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import tyro

from caql.errors import CaqlError, nearest
from caql.maxq.solvers import BACKENDS, solver_class

if TYPE_CHECKING:
    from caql.bench.maxq import Case, Measurement

BENCHES = {
    "maxq": "max over a of Q(x, a): every solver on trained and untrained networks",
    "microgrid": "agents trained on the microgrid, beside rolling-horizon control and perfect information",
}

SET_SOLVERS = ("exact", "highs", "scip")
"""The solvers that take every set and prove; all are held against the first."""


@dataclass(frozen=True)
class Arguments:
    """Measure the max-Q solvers on the networks that come with the package: trained 32 x 16, the paper's ranges.

    Run it on an idle machine; SCIP takes most of the time.
    """

    tasks: tuple[str, ...] = ("pendulum", "hopper", "halfcheetah", "ant", "humanoid")
    """Tasks, separated by spaces or commas."""
    states: int = 64
    """States of each task, 128 at most."""
    solvers: tuple[str, ...] = ("exact", "highs", "scip", "ga", "cem")
    """Solvers, by the names of `caql solve --solver`, separated by spaces or commas."""
    threads: int = 1
    """Threads of the exact and MIP solvers in the first table."""
    sets: bool = False
    """Measure action sets instead: rows, equalities, whole numbers and mixed ones, beside the box; with exact, HiGHS
    and SCIP, and the projection onto a set."""
    sizes: bool = False
    """Measure the larger trained networks instead, with those of the solvers that are no MIP solvers."""
    hard: bool = True
    """Also measure the untrained, harder networks."""
    mip_settings: bool = False
    """Also compare bounds and cuts in the MIP, with HiGHS and SCIP."""
    processes: bool = True
    """Also measure what two processes solve at once: what two threads can hope for."""
    compilation: bool = True
    """Also measure how long the exact solver takes to compile."""


def main(args: list[str]) -> None:
    """Run the command."""
    if not args or args[0] in ("-h", "--help"):
        print(
            "usage: caql bench NAME [OPTIONS]\n\n" + "\n".join(f"  {name:10} {what}" for name, what in BENCHES.items())
        )
        sys.exit(0 if args else 2)
    if args[0] not in BENCHES:
        raise CaqlError(f"bench {args[0]!r} does not exist; {nearest(args[0], BENCHES)}")
    if args[0] == "microgrid":
        from caql.cli import bench_microgrid

        bench_microgrid.main(args[1:])
        return
    options = tyro.cli(Arguments, args=args[1:], prog="caql bench maxq")
    if options.states < 1:
        raise CaqlError(f"states = {options.states} must be at least 1")
    if options.threads < 1:
        raise CaqlError(f"threads = {options.threads} must be at least 1")
    from caql.bench.maxq import SIZES, compile_times, trained_case, two_processes, untrained_case

    names = SIZES if options.sizes else _split(options.tasks)
    tasks = [trained_case(name, options.states) for name in names]
    if options.sets:
        _sets(tasks, options.states)
        return
    solvers = _split(options.solvers)
    for name in solvers:
        solver_class(name)
    clock = "processor time" if options.threads == 1 else "wall time"
    title = f"trained networks, {options.states} states, {options.threads} thread(s), {clock}"
    quick = [name for name in solvers if name not in (*BACKENDS, "mip")]
    if options.sizes:
        if not quick:
            raise CaqlError(
                f"solvers = {', '.join(solvers)} has none for large networks; right would be exact, ga or cem"
            )
        _compare(title, tasks, quick, options.threads)
        return
    _compare(title, tasks, solvers, options.threads)
    _batches(tasks, options.states)
    if options.processes:
        gain = two_processes("halfcheetah", options.states)
        print(f"two processes at once solve {gain:.2f} times as many batches (halfcheetah) as one alone")
    _bounds(tasks)
    if options.mip_settings:
        _mip_settings(tasks)
    if options.hard:
        hard = [
            untrained_case((32, 16), 6, options.states),
            untrained_case((64, 64), 3, options.states),
        ]
        _compare("untrained networks", hard, quick, options.threads)
    if options.compilation:
        cold, cached = compile_times()
        print(f"exact: first answer of a process after {cold:.1f} s compiling, {cached:.2f} s from the cache")


def _split(names: tuple[str, ...]) -> list[str]:
    """Names given with spaces or commas, each once."""
    return list(dict.fromkeys(part for name in names for part in name.split(",") if part))


def _table(title: str, headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    for k, heading in enumerate(headings):
        table.add_column(heading, justify="left" if k < 2 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _compare(title: str, tasks: list[Case], solvers: list[str], threads: int) -> None:
    from caql.bench.maxq import measure

    rows = []
    for task in tasks:
        found: list[Measurement] = []
        for name in solvers:
            print(f"measuring {name} on {task.name} ...", file=sys.stderr)
            found.append(measure(task, name, threads))
        best = np.max([each.values for each in found], axis=0)
        exact = next((each.total for each in found if each.solver == "exact"), float("nan"))
        for each in found:
            median, late, longest = np.median(each.seconds), np.percentile(each.seconds, 95), each.seconds.max()
            times = (_time(float(t)) for t in (median, late, longest, each.total))
            behind = float(np.max(best - each.values))
            ratio = "-" if np.isnan(exact) else f"{each.total / exact:.3g}"
            rows.append(
                (task.name, each.solver, *times, ratio, f"{each.work.mean():.1f}", f"{behind:.1e}", str(each.proved))
            )
    headings = ("task", "solver", "median", "p95", "max", "total", "x exact", "nodes", "below best", "proved")
    _table(f"max-Q per state, {title}, relative gap 1e-4", headings, rows)


def _batches(tasks: list[Case], states: int) -> None:
    from caql.bench.maxq import build_times, gradient_ascent_time, thread_times

    rows: list[tuple[str, ...]] = []
    for task in tasks:
        one, two = thread_times(task)
        ascent = gradient_ascent_time(task)
        build = float(np.median(build_times(task)))
        numbers = (_time(one), _time(two), f"{one / two:.2f}", _time(ascent), f"{one / ascent:.2f}", _time(build))
        rows.append((task.name, "exact", *numbers))
    headings = (
        "task",
        "solver",
        "1 thread",
        "2 threads",
        "speed-up",
        "20 steps of ga",
        "exact / ga",
        "MIP model build",
    )
    _table(f"a batch of {states} states ({os.cpu_count()} cores, load {os.getloadavg()[0]:.1f})", headings, rows)


def _bounds(tasks: list[Case]) -> None:
    from caql.bench.maxq import bound_quality
    from caql.bounds import METHODS

    rows: list[tuple[str, ...]] = []
    for task in tasks:
        found = [bound_quality(task, method) for method in METHODS]
        rows.append((task.name, "bound - max", *(f"{gap:.3g}" for gap, _ in found)))
        rows.append((task.name, "unstable neurons", *(f"{count:.1f}" for _, count in found)))
    _table("upper bounds, mean over the states", ("task", "", *METHODS), rows)


def _sets(tasks: list[Case], states: int) -> None:
    from caql.bench.sets import KINDS, SetMeasurement, compare, projection_times, ratio

    found: list[SetMeasurement] = []
    rows: list[tuple[str, ...]] = []
    for task in tasks:
        print(f"measuring the sets of {task.name} ...", file=sys.stderr)
        here = compare(task, SET_SOLVERS)
        found += here
        for kind in KINDS:
            exact, *others = (each for each in here if each.kind == kind)
            ratios = (f"{each.total / exact.total:.3g}" for each in others)
            without = f"{ratio(here, (SET_SOLVERS[0], kind), (SET_SOLVERS[0], 'box')):.2f}"
            counts = " ".join(str(each.proved) for each in (exact, *others))
            apart, outside = max(each.apart for each in others), " ".join(str(e.outside) for e in (exact, *others))
            rows.append((task.name, kind, _time(exact.total), without, *ratios, counts, f"{apart:.2f}", outside))
    headings = ("task", "set", "exact", "/ box", "HiGHS / exact", "SCIP / exact", "proved", "apart", "outside")
    _table(f"max-Q over sets, {states} states in one batch, one thread, processor time", headings, rows)
    for kind in KINDS[1:]:
        times = ratio(found, (SET_SOLVERS[0], kind), (SET_SOLVERS[0], "box"))
        bar = " (at most 3)" if kind in ("1 row", "8 rows") else ""
        print(f"exact over {kind} / exact over the box, all tasks: {times:.2f}{bar}")
    for name in SET_SOLVERS[1:]:
        print(
            f"{name} / exact, all sets and tasks: {ratio(found, (name, ''), (SET_SOLVERS[0], '')):.0f} (at least 300)"
        )
    apart = max(each.apart for each in found)
    print(f"values apart by at most {apart:.2f} of the allowed gap (at most 1)")
    for name in SET_SOLVERS:
        print(f"{name}: actions outside their set: {sum(e.outside for e in found if e.solver == name)} (none)")
    print(f"rows not proved: {sum(states - each.proved for each in found)} (none)")
    for count, seconds in projection_times().items():
        print(f"projection of 6 actions onto {count} row(s): {seconds * 1e6:.1f} us (at most 25)")


def _mip_settings(tasks: list[Case]) -> None:
    from caql.bench.maxq import MIP_SETTINGS, mip_time

    rows: list[tuple[str, ...]] = []
    for task in tasks:
        for backend in ("highs", "scip"):
            print(f"measuring settings of {backend} on {task.name} ...", file=sys.stderr)
            rows.append((task.name, backend, *(_time(mip_time(task, backend, each)) for each in MIP_SETTINGS)))
    headings = (
        "task",
        "solver",
        *(" ".join(f"{name}={value}" for name, value in each.items()) for each in MIP_SETTINGS),
    )
    _table("MIP settings, mean processor time a state", headings, rows)
