"""`caql sweep EXPERIMENT`: the paper's tables and figures and the constrained benchmark, run side by side."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from caql.config import SEEDS, RunConfig, from_json, to_json
from caql.errors import CaqlError
from caql.experiments.methods import Settings, grid, lay_over
from caql.experiments.specs import SPECS, choose_columns, configuration, configurations, find_spec
from caql.experiments.sweep import costs
from caql.experiments.sweep.display import counts, display_for_terminal
from caql.experiments.sweep.local import LocalWorkers
from caql.experiments.sweep.sweep import Backend, Job, Progress, make_jobs, sweep
from caql.run_ids import today
from caql.runs.folder import is_finished

HERE = "here"
MOST = 1000
"""Seeds, or workers: more is a slip of the keyboard."""


@dataclass(frozen=True)
class Sweep:
    """Run one of the paper's experiments, or the benchmark for action constraints; `--list` names them.

    Finished runs are skipped and interrupted ones go on: the same command again does what is left.
    """

    experiment: Annotated[str | None, tyro.conf.Positional] = None
    """table1 ... table5, latency, hinge, steps1000, constrained, or another that --list names."""
    list: bool = False
    """Show the experiments with the number of runs and the time they would take here, and stop."""
    tasks: str | None = None
    """Only these, separated by commas: pendulum-0.66,hopper (a name alone is all of its ranges)."""
    methods: str | None = None
    """Only these columns, separated by commas: caql-exact,sac."""
    seeds: int = 10
    """Seeds for each configuration."""
    first_seed: int = 0
    """The first of them."""
    workers: int | None = None
    """Runs side by side, one core each; by default as many as there are cores, here or in the Ray cluster."""
    out: Path = Path("results")
    """Folder for the results, one folder in it for each run."""
    train_steps: int | None = None
    """Gradient steps of each run; by default the paper's 200,000 or 500,000, and 60,000 or 10,000 of `constrained`."""
    search: int | None = None
    """Run so many points of the paper's grid instead of the chosen configuration."""
    set: str | None = None
    """Other settings for every run, separated by semicolons: "agent.exploration.decay=0.9999; episode_steps=100"."""
    ray: str | None = None
    """Run on a Ray cluster at this address; --ray alone starts Ray on this machine."""
    checkpoint_seconds: float = 60.0
    """Seconds between a run's checkpoints, or more where writing them would take a twentieth of the time."""
    dry_run: bool = False
    """Name the runs and what is left of them, and stop."""


def read_settings(text: str | None) -> Settings:
    """`a.b=1; c=[2, 3]` as settings; values are JSON, or else strings."""
    found: Settings = {}
    for part in (text or "").split(";"):
        if not part.strip():
            continue
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise CaqlError(f"--set = {part.strip()[:60]!r} must be NAME=VALUE")
        try:
            found[name.strip()] = json.loads(value)
        except (ValueError, RecursionError):
            found[name.strip()] = value.strip()
    return found


def _names(what: str, text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise CaqlError(f"{what} = {text!r} names nothing; leave it out for all of them")
    return names


def _check(options: Sweep) -> None:
    for name in ("seeds", "workers"):
        value = getattr(options, name)
        if value is not None and not 1 <= value <= MOST:
            raise CaqlError(f"{name} = {value} must be at least 1 and at most {MOST}")
    if not 0 <= options.first_seed <= SEEDS - options.seeds:
        raise CaqlError(f"first_seed = {options.first_seed} must not be negative, and every seed less than 2^31")
    if not 0 <= options.checkpoint_seconds < math.inf:
        raise CaqlError(f"checkpoint_seconds = {options.checkpoint_seconds} must be a number, and not negative")
    check_folder_name("out", options.out)


def check_folder_name(what: str, path: Path) -> None:
    """Refuse a path that no folder can have, or a file has."""
    try:
        if path.exists() and not path.is_dir():
            raise CaqlError(f"{what} = {path} is a file; give a folder")
    except OSError as problem:
        raise CaqlError(f"{what} = {str(path)[:60]!r} cannot be a folder: {problem.strerror}") from problem


def cores(options: Sweep) -> int:
    """How many runs go side by side on this machine."""
    return options.workers or os.cpu_count() or 1


def planned(options: Sweep) -> list[Job]:
    """The jobs that the options ask for."""
    _check(options)
    if options.experiment is None:
        raise CaqlError(f"which experiment? one of {', '.join(SPECS)}; caql sweep --list says what they are")
    spec = find_spec(options.experiment)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    settings = {today(path): value for path, value in read_settings(options.set).items()}
    if options.train_steps is not None:
        settings["train_steps"] = options.train_steps
    tasks, methods = _names("tasks", options.tasks), _names("methods", options.methods)
    configs = configurations(spec, tasks, methods, seeds, options.search)
    if settings:
        # What told two runs apart may be what was set.
        configs = list({changed.id: changed for changed in (_changed(each, settings) for each in configs)}.values())
    return make_jobs(configs, options.out, spec.latency, options.checkpoint_seconds)


def _changed(config: RunConfig, settings: Settings) -> RunConfig:
    return from_json(lay_over(to_json(config), settings))


def listing(options: Sweep) -> Table:
    """Every experiment with its size and an estimate of its time."""
    rates = costs.measured(options.out)
    basis = f"{len(rates)} kinds of finished runs in {options.out}" if rates else "measured constants"
    table = Table(title=f"{options.seeds} seeds on {cores(options)} cores, judged by {basis}", title_justify="left")
    for name, justify in (("experiment", "left"), ("tasks", "right"), ("methods", "right"), ("runs", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    table.add_column("time here", justify="right")
    table.add_column("what it is")
    for spec in SPECS.values():
        columns = choose_columns(spec, None)
        runs, duration = 0, 0.0
        for column in columns:
            points = len(grid(column.method, options.search)) if spec.every_configuration else 1
            times = options.seeds * points
            runs += times * len(spec.tasks)
            for task in spec.tasks:
                duration += times * costs.seconds(configuration(spec, task, column), rates)
        needed = costs.in_words(duration / cores(options))
        table.add_row(spec.name, str(len(spec.tasks)), str(len(columns)), f"{runs:,}", needed, spec.title)
    return table


def _backend(options: Sweep) -> Callable[[], Backend]:
    if options.ray is None:
        return lambda: LocalWorkers(cores(options))
    from caql.experiments.sweep.ray_workers import RayWorkers

    address = None if options.ray == HERE else options.ray
    return lambda: RayWorkers(options.workers, address)


def with_address(arguments: Sequence[str]) -> list[str]:
    """`--ray` without an address means Ray on this machine."""
    found = list(arguments)
    for index, argument in enumerate(arguments):
        if argument == "--ray":
            after = arguments[index + 1] if index + 1 < len(arguments) else "-"
            if after.startswith("-") or after in SPECS:
                found[index] = f"--ray={HERE}"
    return found


def _say(rows: Sequence[Progress], console: Console) -> None:
    console.print(counts(rows))
    for row in rows:
        if row.state == "failed":
            console.print(f"failed: {row.job.folder}\n  {row.message.strip()}", markup=False, soft_wrap=True)


def main(args: list[str]) -> None:
    """Run `caql sweep`."""
    options: Any = tyro.cli(Sweep, prog="caql sweep", args=with_address(args))
    console = Console(highlight=False)
    if options.list:
        _check(options)
        console.print(listing(options))
        return
    jobs = planned(options)
    for each in find_spec(options.experiment).cannot_work:
        console.print(f"left out, for it cannot work: {each}", soft_wrap=True)
    if options.dry_run:
        for job in jobs:
            state = "finished" if is_finished(job.folder) else "begun" if job.folder.exists() else "new"
            console.print(f"{state:8} {job.folder}", soft_wrap=True)
        left = [job.config for job in jobs if not is_finished(job.folder)]
        duration = costs.total(left, costs.measured(options.out), cores(options))
        console.print(f"{len(jobs)} runs, {len(left)} to do, about {costs.in_words(duration)}")
        return
    rows = sweep(jobs, _backend(options), display_for_terminal())
    _say(rows, console)
    if any(row.state in ("stopped", "waiting") for row in rows):
        console.print("stopped; the same command goes on from here")
        sys.exit(130)
    if any(row.state == "failed" for row in rows):
        sys.exit(1)
