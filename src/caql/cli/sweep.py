"""`caql sweep EXPERIMENT`: the paper's tables and figures, run side by side."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from caql.config import RunConfig, from_json, to_json
from caql.errors import CaqlError
from caql.experiments.specs import (
    SPECS,
    Settings,
    choose_columns,
    configuration,
    configurations,
    find_spec,
    grid,
    lay_over,
)
from caql.experiments.sweep import costs
from caql.experiments.sweep.boards import board_for_terminal, counts
from caql.experiments.sweep.local import LocalWorkers
from caql.experiments.sweep.sweep import Backend, Job, Progress, make_jobs, sweep
from caql.runs.folder import is_finished

HERE = "here"


@dataclass(frozen=True)
class Sweep:
    """Run one of the paper's experiments; `--list` names them.

    Finished runs are skipped and interrupted ones go on: the same command again does what is left.
    """

    experiment: Annotated[str | None, tyro.conf.Positional] = None
    """table1 ... table5, latency, hinge or steps1000."""
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
    """Gradient steps of each run; the paper's 200,000 or 500,000 by default."""
    search: int | None = None
    """Run so many points of the paper's grid instead of the chosen configuration."""
    set: str | None = None
    """Other settings for every run, separated by semicolons: "agent.exploration.decay=0.9999; episode_steps=100"."""
    ray: str | None = None
    """Run on a Ray cluster at this address; --ray alone starts Ray on this machine."""
    checkpoint_seconds: float = 60.0
    """Seconds between a run's checkpoints."""
    dry_run: bool = False
    """Name the runs and what is left of them, and stop."""


def read_settings(text: str | None) -> Settings:
    """`a.b=1; c=[2, 3]` as settings; values are JSON, or else strings."""
    found: Settings = {}
    for part in (text or "").split(";"):
        if not part.strip():
            continue
        name, equals, value = part.partition("=")
        if not equals:
            raise CaqlError(f"--set = {part.strip()!r} must be NAME=VALUE")
        try:
            found[name.strip()] = json.loads(value)
        except json.JSONDecodeError:
            found[name.strip()] = value.strip()
    return found


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _check(options: Sweep) -> None:
    for name in ("seeds", "workers"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise CaqlError(f"{name} = {value} must be at least 1")
    if options.first_seed < 0:
        raise CaqlError(f"first_seed = {options.first_seed} must not be negative")
    if options.checkpoint_seconds < 0:
        raise CaqlError(f"checkpoint_seconds = {options.checkpoint_seconds} must not be negative")
    if options.out.exists() and not options.out.is_dir():
        raise CaqlError(f"out = {options.out} is a file; give a folder")


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
    settings = read_settings(options.set)
    if options.train_steps is not None:
        settings["train_steps"] = options.train_steps
    configs = configurations(spec, _names(options.tasks), _names(options.methods), seeds, options.search)
    if settings:
        configs = [_changed(config, settings) for config in configs]
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
    if options.dry_run:
        for job in jobs:
            state = "finished" if is_finished(job.folder) else "begun" if job.folder.exists() else "new"
            console.print(f"{state:8} {job.folder}", soft_wrap=True)
        left = [job.config for job in jobs if not is_finished(job.folder)]
        duration = costs.total(left, costs.measured(options.out), cores(options))
        console.print(f"{len(jobs)} runs, {len(left)} to do, about {costs.in_words(duration)}")
        return
    rows = sweep(jobs, _backend(options), board_for_terminal())
    _say(rows, console)
    if any(row.state in ("stopped", "waiting") for row in rows):
        console.print("stopped; the same command goes on from here")
        sys.exit(130)
    if any(row.state == "failed" for row in rows):
        sys.exit(1)
