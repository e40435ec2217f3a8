"""`caql watch FOLDER`: a live view of a run or of a sweep."""

from __future__ import annotations

import contextlib
import importlib.util
import select
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.live import Live

from caql.cli.output import require_output
from caql.cli.sweep import check_folder_name
from caql.errors import CaqlError
from caql.watching.status import Watch
from caql.watching.view import view


@dataclass(frozen=True)
class Arguments:
    """Show how far a run or a sweep is: progress, learning curve, last return, speed and time left.

    It only reads folders, so it can be started and ended at any time; q or Ctrl-C ends it, as does the last run's end.
    """

    folder: Annotated[Path, tyro.conf.Positional] = Path("results")
    """A run's folder, or one that holds runs."""
    once: bool = False
    """Print one view and stop, as where the output is no terminal."""
    every: float = 2.0
    """Seconds between two looks."""


def main(arguments: list[str]) -> None:
    """Run `caql watch`."""
    options = tyro.cli(Arguments, prog="caql watch", args=arguments)
    require_output()
    check_folder_name("folder", options.folder)
    if not 0.1 <= options.every <= 3600:
        raise CaqlError(f"--every = {options.every} must be at least 0.1 and at most 3600 seconds")
    watch, console = Watch(options.folder), Console(highlight=False)
    if options.once or not console.is_terminal:
        console.print(view(watch.look(), console.width, 10_000))
        return
    with contextlib.suppress(KeyboardInterrupt), _keys() as pressed, Live(console=console, auto_refresh=False) as live:
        while True:
            runs = watch.look()
            live.update(view(runs, console.width, console.height), refresh=True)
            if all(run.state in ("finished", "failed") for run in runs) or pressed(options.every):
                return


def _has_keys() -> bool:
    """Whether keys can be read one by one: Windows has no termios, and the input may be no terminal."""
    return importlib.util.find_spec("termios") is not None and sys.stdin is not None and sys.stdin.isatty()


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """What waits for some seconds and says whether q was pressed in them."""
    if not _has_keys():  # Ctrl-C still works

        def wait(seconds: float) -> bool:
            time.sleep(seconds)
            return False

        yield wait
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)

    def pressed(seconds: float) -> bool:
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return bool(ready) and sys.stdin.read(1) in ("q", "Q", "")

    try:
        tty.setcbreak(sys.stdin)
        yield pressed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
