"""Many runs: skip what is finished, resume what is not, retry what was killed, and never stop for one bad run.

A run's folder is named after its configuration, so the results folder itself says what is left to do; the
same command after an interruption goes on.  Where runs happen (processes here, or a Ray cluster) is a
`Backend`; everything else is the same loop.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from caql.config import RunConfig, to_json
from caql.errors import CaqlError
from caql.experiments.sweep.worker import Outcome
from caql.runs.checkpoints import write_json
from caql.runs.folder import is_finished

TRIES = 3
"""How often a run is started whose worker dies under it."""
POLL = 0.5
"""Seconds between looks at the progress of the runs."""


@dataclass(frozen=True)
class Job:
    """One run and where it goes."""

    config: RunConfig
    folder: Path
    latency: bool = False
    checkpoint_seconds: float = 60.0

    def message(self) -> dict[str, Any]:
        """The job as JSON values, for another process."""
        return {
            "config": to_json(self.config),
            "folder": str(self.folder.absolute()),
            "latency": self.latency,
            "checkpoint_seconds": self.checkpoint_seconds,
        }


class Ended(NamedTuple):
    """A job and how it ended."""

    job: Job
    outcome: Outcome


class Backend(Protocol):
    """Where runs happen."""

    @property
    def free(self) -> int:
        """How many jobs could start now."""
        ...

    def start(self, job: Job) -> None: ...

    def wait(self, seconds: float) -> list[Ended]:
        """The jobs that ended, after at most so many seconds."""
        ...

    def stop(self) -> list[Ended]:
        """Let the running jobs write a checkpoint and end; frees everything."""
        ...


@dataclass
class Progress:
    """What is known of a job: waiting, running, finished, skipped, stopped, busy or failed."""

    job: Job
    state: str = "waiting"
    message: str = ""
    tries: int = 0
    train_step: int = 0
    latest_return: float | None = None
    began: float = 0.0
    first_step: int = 0
    _seen: float = field(default=0.0, repr=False)

    def refresh(self) -> None:
        """Read the last evaluation from the run's folder."""
        path = self.job.folder / "metrics.jsonl"
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError, OverflowError, RecursionError):
            changed = path.stat().st_mtime
            if changed != self._seen:
                row = last_row(path)
                step, latest = int(row["train_step"]), float(row["return"])
                self._seen, self.train_step, self.latest_return = changed, step, latest


class Display(Protocol):
    """Shows a sweep to its user."""

    def __enter__(self) -> Display: ...

    def __exit__(self, *_: object) -> None: ...

    def update(self, jobs: Sequence[Progress]) -> None:
        """Called twice a second."""
        ...

    def changed(self, progress: Progress) -> None:
        """Called when a job starts, ends or is tried again."""
        ...


def last_row(path: Path) -> dict[str, Any]:
    """The last row of a file of JSON lines, without reading the rest."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - (1 << 14)))
        row: dict[str, Any] = json.loads(file.read().splitlines()[-1])
    return row


def method_name(config: RunConfig) -> str:
    """`caql-exact`, `sac`: the algorithm with its solver."""
    solver = getattr(config.agent, "solver", None)
    return f"{config.agent.name}-{solver.name}" if solver is not None else str(config.agent.name)


def run_name(config: RunConfig) -> str:
    """A folder's name, for people to read and for the sweep to find again: it ends in the configuration's id."""
    size = config.action_range
    shown = f"{size:g}" if isinstance(size, int | float) else "own" if size is None else "box"
    return f"{config.task.lower().replace('/', '_')}-{shown}-{method_name(config)}-s{config.seed}-{config.id}"


def make_jobs(
    configs: Iterable[RunConfig], out: Path, latency: bool = False, checkpoint_seconds: float = 60.0
) -> list[Job]:
    """A folder in `out` for each configuration."""
    prefix = "latency-" if latency else ""
    return [Job(config, out / f"{prefix}{run_name(config)}", latency, checkpoint_seconds) for config in configs]


@contextlib.contextmanager
def _terminate_is_interrupt() -> Iterator[None]:
    """Stop on SIGTERM as on Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # only the main thread may set handlers
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def sweep(jobs: Sequence[Job], backend: Callable[[], Backend], display: Display) -> list[Progress]:
    """Do all jobs; what became of each.  Ctrl-C leaves the unfinished ones `stopped` or `waiting`."""
    try:
        for folder in {job.folder.parent for job in jobs}:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise CaqlError(f"out = {problem.filename} cannot be made: {problem.strerror}") from problem
    rows = {job.folder: Progress(job, "skipped" if is_finished(job.folder) else "waiting") for job in jobs}
    for row in rows.values():
        row.refresh()
    waiting = [row for row in rows.values() if row.state == "waiting"]
    everything = list(rows.values())
    if not waiting:
        with display:
            display.update(everything)
        return everything
    workers = backend()
    with display, _terminate_is_interrupt():
        try:
            while waiting or any(row.state == "running" for row in everything):
                while waiting and workers.free > 0:
                    _start(waiting.pop(0), workers, display)
                ended = workers.wait(POLL)
                for each in ended:
                    row = rows[each.job.folder]
                    if _settle(row, each.outcome):
                        waiting.append(row)
                    display.changed(row)
                for row in everything:
                    if row.state == "running":
                        row.refresh()
                display.update(everything)
        except KeyboardInterrupt:
            for row in everything:
                if row.state == "running":
                    row.state = "stopped"
        finally:
            for each in workers.stop():
                if each.outcome.kind == "finished":
                    rows[each.job.folder].state = "finished"
            display.update(everything)
    return everything


def _start(row: Progress, workers: Backend, display: Display) -> None:
    row.refresh()
    row.state, row.tries, row.message = "running", row.tries + 1, ""
    row.began, row.first_step = time.monotonic(), row.train_step
    workers.start(row.job)
    display.changed(row)


def _settle(row: Progress, outcome: Outcome) -> bool:
    """Note how a run ended; whether it is to be tried again."""
    row.refresh()
    if outcome.kind == "died" and row.tries < TRIES:
        row.state, row.message = "waiting", f"{outcome.message}; trying again"
        return True
    row.state, row.message = outcome.kind, outcome.message
    if outcome.kind == "died":
        row.state, row.message = "failed", f"{outcome.message}, {row.tries} times"
    if row.state == "failed":
        _record_failure(row)
    return False


def _record_failure(row: Progress) -> None:
    """Leave the reason in the run's folder, for the report; on a full disk there is nowhere to leave it."""
    folder = row.job.folder
    with contextlib.suppress(OSError):
        # Somebody else's folder in the run's place stays as it is.
        if not folder.exists() or not any(folder.iterdir()):
            write_json(folder / "config.json", to_json(row.job.config))
        if (folder / "config.json").exists():
            reason = {"message": row.message, "tries": row.tries, "train_step": row.train_step}
            write_json(folder / "failed.json", reason)
