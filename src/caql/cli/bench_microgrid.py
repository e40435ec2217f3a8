"""`caql bench microgrid`: train three agents on the microgrid, and print their costs beside an engineer's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from caql.cli.sweep import check_folder_name
from caql.errors import CaqlError, nearest

if TYPE_CHECKING:
    from caql.experiments.microgrid import Found


@dataclass(frozen=True)
class Arguments:
    """Train caql-exact, caql-ga (relaxed, rounded) and sac on the microgrid, and compare what they cost.

    The other rows are rolling-horizon control with a naive forecast, and buying everything from the grid.  Runs are
    kept in a folder: the same command again goes on with those that are unfinished, and only judges the others.
    """

    train_steps: int = 6000
    """Gradient steps of each run."""
    episodes: int = 20
    """Episodes of 48 hours that every policy is judged on."""
    methods: str = "caql-exact,caql-ga,sac"
    """Which of the three, separated by commas."""
    seed: int = 0
    """Seed of the training runs."""
    horizon: int = 24
    """Hours that rolling-horizon control plans ahead."""
    out: Path = Path("results/microgrid")
    """Folder for the runs."""


def main(args: list[str]) -> None:
    """Run the command."""
    options = tyro.cli(Arguments, args=args, prog="caql bench microgrid")
    for name in ("train_steps", "episodes", "horizon"):
        if getattr(options, name) < 1:
            raise CaqlError(f"{name} = {getattr(options, name)} must be at least 1")
    check_folder_name("out", options.out)
    from caql.experiments import microgrid
    from caql.experiments.sweep.sweep import run_name
    from caql.runs.compilation_cache import keep_compiled
    from caql.runs.progress import Lines

    methods = [name.strip() for name in options.methods.split(",") if name.strip()]
    for name in methods:
        if name not in microgrid.METHODS:
            raise CaqlError(f"method = {name!r} is not part of the comparison; {nearest(name, microgrid.METHODS)}")
    keep_compiled()
    episodes = microgrid.Episodes.draw(options.episodes)
    found = []
    for name in methods:
        config = microgrid.configuration(name, options.train_steps, options.seed)
        print(f"training {name}, {options.train_steps:,} steps ...", flush=True)
        learned = microgrid.trained(config, options.out / run_name(config), Lines())
        if learned is None:
            print("stopped; the same command goes on from here")
            return
        found.append(microgrid.judge_learned(name, learned, episodes))
    found += [microgrid.judge_rolling_horizon(episodes, options.horizon), microgrid.judge_buying(episodes)]
    print(table(found, options.episodes))


def table(found: list[Found], episodes: int) -> str:
    """The comparison as Markdown."""
    lines = [
        f"Cost over the bound of perfect information, {episodes} episodes of 48 hours; processor time:",
        "",
        "| policy | cost / bound | violations | us a decision | training |",
        "|---|---|---|---|---|",
    ]
    for each in found:
        counted = f"{each.violations} of {each.decisions}"
        trained = f"{each.train_steps:,} steps" if each.train_steps else "none"
        cost = f"{each.over_bound:.3f} ± {each.spread:.3f}"
        lines.append(f"| {each.name} | {cost} | {counted} | {1e6 * each.seconds:,.0f} | {trained} |")
    return "\n".join(lines)
