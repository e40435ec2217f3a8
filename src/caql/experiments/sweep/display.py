"""What a user sees of a sweep: a live table on a terminal, plain lines elsewhere, nothing in tests."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table

from caql.experiments.sweep.costs import in_words, seconds
from caql.experiments.sweep.sweep import Progress

ENDED = ("finished", "skipped", "failed", "busy")
LINE_SECONDS = 60.0
"""Between two lines about the runs in progress, where there is no live table."""


def left(jobs: Sequence[Progress], elapsed: float) -> str:
    """The time that the sweep still needs, judged by how much of its estimated work is done."""
    done = everything = 0.0
    for row in jobs:
        if row.state == "skipped":
            continue
        work = seconds(row.job.config, {})
        steps = max(row.job.config.train_steps, 1)
        everything += work
        if row.state in ENDED:
            done += work
        elif row.state == "running":
            done += work * max(0, row.train_step - row.first_step) / steps
    if elapsed < 5 or done <= 0:
        return "?"
    return in_words(elapsed * (everything - done) / done)


def counts(jobs: Sequence[Progress]) -> str:
    """`3 finished, 2 running, 1 failed`."""
    found = Counter(row.state for row in jobs)
    order = ("finished", "skipped", "running", "waiting", "stopped", "busy", "failed")
    return ", ".join(f"{found[state]} {state}" for state in order if found[state])


def _short(message: str) -> str:
    return message.strip().splitlines()[-1] if message.strip() else ""


class Quiet:
    """Shows nothing."""

    def __enter__(self) -> Quiet:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, jobs: Sequence[Progress]) -> None:
        pass

    def changed(self, progress: Progress) -> None:
        pass


class Lines(Quiet):
    """A line whenever a run starts or ends, and one a minute."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, soft_wrap=True)
        self.began = time.monotonic()
        self.said = 0.0

    def update(self, jobs: Sequence[Progress]) -> None:
        now = time.monotonic()
        if now - self.said >= LINE_SECONDS:
            self.said = now
            self.console.print(f"{counts(jobs)}; about {left(jobs, now - self.began)} left")

    def changed(self, progress: Progress) -> None:
        name = progress.job.folder.name
        at = f" at step {progress.train_step}" if progress.train_step else ""
        last = "" if progress.latest_return is None else f", return {progress.latest_return:.1f}"
        why = f": {_short(progress.message)}" if progress.message else ""
        self.console.print(f"{progress.state} {name}{at}{last}{why}", markup=False)


class LiveTable(Quiet):
    """The running runs with bar, step, return and speed; below it the counts and the latest failures."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        self.live = Live(console=self.console, refresh_per_second=4)
        self.began = time.monotonic()

    def __enter__(self) -> LiveTable:
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def update(self, jobs: Sequence[Progress]) -> None:
        self.live.update(self.table(jobs))

    def changed(self, progress: Progress) -> None:
        if progress.state == "failed" or progress.message:
            self.live.console.print(
                f"{progress.state} {progress.job.folder.name}: {_short(progress.message)}", markup=False
            )

    def table(self, jobs: Sequence[Progress]) -> Table:
        """The table to show now."""
        now = time.monotonic()
        table = Table(
            title=f"{counts(jobs)}; about {left(jobs, now - self.began)} left", title_justify="left", expand=False
        )
        table.add_column("run", no_wrap=True)
        for name in ("step", "of", "return", "steps/s"):
            table.add_column(name, justify="right")
        for row in jobs:
            if row.state != "running":
                continue
            speed = (row.train_step - row.first_step) / max(now - row.began, 1e-9)
            table.add_row(
                row.job.folder.name.rsplit("-", 1)[0],
                f"{row.train_step:,}",
                f"{100 * row.train_step / row.job.config.train_steps:.0f} %",
                "-" if row.latest_return is None else f"{row.latest_return:.1f}",
                f"{speed:.0f}",
            )
        return table


def display_for_terminal() -> Lines | LiveTable:
    """The live table if somebody is watching."""
    console = Console()
    return LiveTable(console) if console.is_terminal else Lines()
