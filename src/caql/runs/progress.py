"""What a user sees while a run goes on: a bar on a terminal, plain lines elsewhere, nothing in tests."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from caql.runs.training import Epoch, Training


class Reporter(Protocol):
    """Follows a run; knows nothing of files."""

    def say(self, sentence: str) -> None: ...

    def follow(self, training: Training) -> contextlib.AbstractContextManager[None]:
        """Around the whole of the training."""
        ...

    def epoch(self, epoch: Epoch) -> None:
        """After every epoch."""
        ...


class Silent:
    """Says nothing."""

    def say(self, sentence: str) -> None:
        pass

    def follow(self, training: Training) -> contextlib.AbstractContextManager[None]:
        del training
        return contextlib.nullcontext()

    def epoch(self, epoch: Epoch) -> None:
        pass


class Lines:
    """One plain line per evaluation."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self.total, self.first_step, self.began = 0, 0, 0.0

    def say(self, sentence: str) -> None:
        self.console.print(sentence)

    @contextlib.contextmanager
    def follow(self, training: Training) -> Iterator[None]:
        self.total, self.first_step = training.config.train_steps, training.train_step
        self.began = time.monotonic()
        yield

    def epoch(self, epoch: Epoch) -> None:
        if epoch.evaluation is None:
            return
        rate = (epoch.train_step - self.first_step) / max(time.monotonic() - self.began, 1e-9)
        left = f", {(self.total - epoch.train_step) / rate:.0f} s left" if rate else ""
        loss = f", loss {epoch.statistics['loss']:.3g}" if "loss" in epoch.statistics else ""
        self.console.print(
            f"step {epoch.train_step}/{self.total}: return {epoch.evaluation['return']:.1f} "
            f"± {epoch.evaluation['return_std']:.1f}{loss}, {rate:.0f} steps/s{left}"
        )


class Bar:
    """A live bar with the latest return, loss, speed and time left."""

    def __init__(self, console: Console | None = None) -> None:
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("return {task.fields[value]}  loss {task.fields[loss]}  {task.fields[rate]} steps/s"),
            TimeRemainingColumn(),
            console=console or Console(),
        )
        self.task: Any = None
        self.first_step, self.began = 0, 0.0
        self.value = self.loss = "-"

    def say(self, sentence: str) -> None:
        self.progress.console.print(sentence)

    @contextlib.contextmanager
    def follow(self, training: Training) -> Iterator[None]:
        config = training.config
        self.first_step, self.began = training.train_step, time.monotonic()
        with self.progress:
            self.task = self.progress.add_task(
                f"{config.task} ({config.agent.name})",
                total=config.train_steps,
                completed=training.train_step,
                value="-",
                loss="-",
                rate="-",
            )
            yield

    def epoch(self, epoch: Epoch) -> None:
        if epoch.evaluation is not None:
            self.value = f"{epoch.evaluation['return']:.1f}"
        if "loss" in epoch.statistics:
            self.loss = f"{epoch.statistics['loss']:.3g}"
        rate = (epoch.train_step - self.first_step) / max(time.monotonic() - self.began, 1e-9)
        self.progress.update(
            self.task, completed=epoch.train_step, value=self.value, loss=self.loss, rate=f"{rate:.0f}"
        )


def reporter_for_terminal() -> Reporter:
    """A bar where there is a terminal, lines where there is none."""
    console = Console(highlight=False)
    return Bar(console) if console.is_terminal else Lines(console)
