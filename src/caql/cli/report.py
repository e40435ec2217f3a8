"""`caql report RESULTS`: the paper's tables and figures from finished runs, or any runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from caql.cli.sweep import check_folder_name
from caql.errors import CaqlError
from caql.experiments.report.report import build, write
from caql.playing import screen

FRAMES = 8
"""Pictures in a strip."""


@dataclass(frozen=True)
class Report:
    """Read runs and write one HTML page, and the same as Markdown.

    Of one folder that holds runs: the paper's tables, ours beside the paper's, and the other runs after them.  Of a
    run, or of several folders: the runs side by side.
    """

    results: Annotated[tuple[Path, ...], tyro.conf.Positional] = (Path("results"),)
    """Folders of runs, or folders that hold runs, at any depth."""
    out: Path = Path("report")
    """Folder for index.html, report.md with its figures, and summary.md (Table 1 in brief)."""
    unfinished: bool = False
    """Count runs that are still going as they stand; side by side they always do."""
    frames: bool = False
    """Side by side, show frames of each policy, where the run has kept its weights."""


def main(args: list[str]) -> None:
    """Run `caql report`."""
    options = tyro.cli(Report, prog="caql report", args=args)
    if not options.results:
        raise CaqlError("results is missing: give a folder of runs")
    for path in options.results:
        check_folder_name("results", path)
    check_folder_name("out", options.out)
    if options.frames:
        screen.prepare()
    pictures = _pictures if options.frames else None
    paths = write(build(options.results, options.unfinished, pictures), options.out)
    Console(highlight=False).print(f"{paths[0]} and {paths[1]}, {len(paths)} files in all", soft_wrap=True)


def _pictures(folder: Path) -> Sequence[str]:
    """A run's policy in a few frames; `CaqlError` where it cannot be loaded or drawn."""
    # Only here: a report of numbers needs neither the networks nor what draws.
    from caql.model import load_model
    from caql.playing.strips import strip

    return strip(load_model(folder), FRAMES)
