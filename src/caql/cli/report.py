"""`caql report RESULTS`: the paper's tables and figures from finished runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from caql.cli.sweep import check_folder_name
from caql.experiments.report.report import build, write


@dataclass(frozen=True)
class Report:
    """Read the runs of a results folder and write one HTML page, and the same as Markdown."""

    results: Annotated[Path, tyro.conf.Positional] = Path("results")
    """Folder that `caql sweep` filled, or one that holds several of them."""
    out: Path = Path("report")
    """Folder for index.html, report.md with its figures, and summary.md (Table 1 in brief)."""
    unfinished: bool = False
    """Count runs that are still going as they stand."""


def main(args: list[str]) -> None:
    """Run `caql report`."""
    options = tyro.cli(Report, prog="caql report", args=args)
    check_folder_name("results", options.results)
    check_folder_name("out", options.out)
    paths = write(build(options.results, options.unfinished), options.out)
    Console(highlight=False).print(f"{paths[0]} and {paths[1]}, {len(paths)} files in all", soft_wrap=True)
