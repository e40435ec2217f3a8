"""Runs of any folders, those that differ in nothing but the seed together: one row of a Markdown table each.

    python benchmarks/by_setting.py results/equal-size results/paper --tasks hopper-1,walker2d-0.5 --methods td3,sac

Reads finished runs and trains nothing.  A row names the settings that another row of its task and method does not
share, as far as they are not the paper's.  Means over seeds; the last window and the fall with their standard errors.
"Fall" is how far the mean of the last six evaluations lies below the best six in a row, "kept" what the weights that a
run kept score, and "lag" how far an action function's values lie from its labels, in units of Q's own errors.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from caql.experiments.methods import task_name
from caql.experiments.report.results import Run, read_paths

Settings = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """Group runs by everything but their seeds."""

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of runs, or runs."""
    tasks: str | None = None
    """Only these, separated by commas: hopper-1,walker2d-0.5."""
    methods: str | None = None
    """Only these: caql-ga,sac."""
    seeds: str | None = None
    """Only these: 0,1,2."""


def wanted(name: object, names: str | None) -> bool:
    """Whether a list separated by commas has a name, or there is no list."""
    return names is None or str(name) in names.split(",")


def spread(values: list[float]) -> str:
    """Mean ± standard error."""
    error = f" ± {np.std(values, ddof=1) / len(values) ** 0.5:.0f}" if len(values) > 1 else ""
    return f"{np.mean(values):.0f}{error}"


def row(runs: list[Run]) -> str:
    """The numbers of one group."""
    kept = [run.kept for run in runs if run.kept is not None]
    lags = [run.lag for run in runs if run.lag is not None]
    regrets = [run.regret for run in runs if run.regret is not None]
    cells = [
        ", ".join(str(seed) for seed in sorted(run.config.seed for run in runs)),
        spread([run.last for run in runs]) + (f" (regret {np.mean(regrets):.1f})" if regrets else ""),
        f"{np.mean([run.second_half for run in runs]):.0f}",
        f"{np.mean(kept):.0f}" if kept else "—",
        spread([run.fall for run in runs]),
        f"{np.mean(lags):.2f}" if lags else "—",
    ]
    return " | ".join(cells)


def main() -> None:
    """Print the table."""
    options = tyro.cli(Options)
    groups: dict[tuple[str, str], dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    settings: dict[str, Settings] = {}
    # Where a run was made a second time, with latency probes, the plain one counts.
    runs = {run.config.id: run for run in sorted(read_paths(options.folders).runs, key=lambda run: not run.latency)}
    for run in runs.values():
        task = task_name((run.config.task, run.config.action_range))
        named = wanted(task, options.tasks) and wanted(run.method, options.methods)
        if run.state != "finished" or not named or not wanted(run.config.seed, options.seeds):
            continue
        own = {name: value for name, value in run.config.distinctive.items() if name != "seed"}
        settings[repr(own)] = own
        groups[task, run.method][repr(own)].append(run)
    print("| task | method | seeds | last window | second half | kept | fall | lag |")
    print("|---|---|---|---|---|---|---|---|")
    for (task, method), found in sorted(groups.items()):
        shared = set.intersection(*({(name, repr(value)) for name, value in settings[own].items()} for own in found))
        for own, runs in found.items():
            apart = {name: value for name, value in settings[own].items() if (name, repr(value)) not in shared}
            what = ", ".join(f"{name.removeprefix('agent.')} {value}" for name, value in apart.items())
            print(f"| {task} | {method}{f' ({what})' if what else ''} | {row(runs)} |")


if __name__ == "__main__":
    main()
