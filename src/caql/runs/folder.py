"""A run on disk: train in one folder, so that it can be killed at any instant and go on.

    config.json       what was asked for, written first
    metrics.jsonl     one row per evaluation
    checkpoints/      the two latest states, complete
    tensorboard/      the same numbers for TensorBoard
    model.safetensors the final weights       curve.svg  the learning curve
    finished.json     written last: a folder without it is unfinished

Time decides only when a checkpoint is written, never what is in it, so it cannot change a result.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from caql.config import RunConfig, differences, from_json, to_json
from caql.errors import CaqlError
from caql.runs import checkpoints
from caql.runs.curves import save_curve
from caql.runs.progress import Reporter, Silent
from caql.runs.training import Epoch, Training


def read_config(folder: Path) -> RunConfig:
    """The configuration of the run in `folder`."""
    path = folder / "config.json"
    try:
        return from_json(json.loads(path.read_text()))
    except FileNotFoundError as problem:
        raise CaqlError(f"{folder} holds no run: it has no config.json") from problem
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise CaqlError(f"{path} is damaged: {problem}") from problem


def is_finished(folder: Path) -> bool:
    """Whether the run in `folder` came to its end."""
    return (folder / "finished.json").exists()


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """A run's evaluations so far; a truncated last line is left out."""
    path = folder / "metrics.jsonl"
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with contextlib.suppress(json.JSONDecodeError):
            rows.append(json.loads(line))
    return rows


def check_folder(config: RunConfig, folder: Path, resume: bool) -> None:
    """Whether `folder` can hold this run: new or empty, or this very run to be resumed."""
    if not (folder / "config.json").exists():
        if folder.exists() and not folder.is_dir():
            raise CaqlError(f"out = {folder} is a file; choose a folder")
        if folder.exists() and any(folder.iterdir()):
            raise CaqlError(f"out = {folder} is not empty and holds no run; choose an empty or new folder")
        return
    if not resume:
        raise CaqlError(f"out = {folder} already holds a run; add --resume to go on with it, or choose another folder")
    stored = read_config(folder)
    changed = [line for line in differences(stored, config) if not line.startswith("train_steps:")]
    if changed:
        raise CaqlError(f"the run in {folder} was started with other settings; {'; '.join(changed)}")
    if config.train_steps < stored.train_steps:
        raise CaqlError(
            f"train_steps = {config.train_steps} is less than the {stored.train_steps} of the run in {folder}"
        )


def claim_folder(config: RunConfig, folder: Path) -> None:
    """Write the configuration; a longer run makes a finished one unfinished again."""
    if not (folder / "config.json").exists() or read_config(folder) != config:
        (folder / "finished.json").unlink(missing_ok=True)
        checkpoints.write_json(folder / "config.json", to_json(config))
    for left_over in folder.rglob(".*.tmp"):
        left_over.unlink(missing_ok=True)


@contextlib.contextmanager
def stop_on_signal() -> Iterator[list[int]]:
    """Collect the first SIGINT or SIGTERM instead of dying of it; a second one kills as usual."""
    caught: list[int] = []
    previous: dict[int, Any] = {}

    def note(number: int, _: object) -> None:
        caught.append(number)
        signal.signal(number, previous[number])

    for signal_number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(ValueError):  # only the main thread may set handlers
            previous[signal_number] = signal.signal(signal_number, note)
    try:
        yield caught
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def run(
    config: RunConfig,
    folder: Path,
    resume: bool = False,
    reporter: Reporter | None = None,
    checkpoint_seconds: float = 60.0,
) -> bool:
    """Train in `folder`, from its latest checkpoint if `resume`; False if a signal stopped it before the end."""
    reporter = reporter or Silent()
    check_folder(config, folder, resume)
    training = Training(config)
    claim_folder(config, folder)
    if is_finished(folder):
        reporter.say(f"the run in {folder} is already finished")
        return True
    if checkpoints.checkpoint_files(folder):
        training.restore(*checkpoints.latest_checkpoint(folder, reporter.say))
        reporter.say(f"resuming at training step {training.train_step}")
    with contextlib.ExitStack() as stack:
        board = stack.enter_context(contextlib.closing(_tensorboard(folder, training.train_step)))
        caught = stack.enter_context(stop_on_signal())
        stack.enter_context(reporter.follow(training))
        saved = began = time.monotonic()
        for epoch in training.epochs():
            reporter.epoch(epoch)
            if epoch.evaluation is not None:
                _record(folder, training.records, epoch, board)
            if caught or time.monotonic() - saved >= checkpoint_seconds:
                checkpoints.save_checkpoint(folder, training.train_step, *training.snapshot())
                saved = time.monotonic()
            if caught:
                reporter.say(f"stopped at training step {training.train_step}; --resume goes on from here")
                return False
        checkpoints.save_checkpoint(folder, training.train_step, *training.snapshot())
    save_model(folder / "model.safetensors", training)
    if training.records:
        save_curve(training.records, folder / "curve.svg", title=f"{config.task}, {config.agent.name}")
    done = {"train_step": training.train_step, "wall_seconds": round(time.monotonic() - began, 3)}
    checkpoints.write_json(folder / "finished.json", done)
    return True


def save_model(path: Path, training: Training) -> None:
    """The weights and optimiser with the configuration, without the replay buffer."""
    _, meta = training.snapshot()
    kept = {name: meta[name] for name in ("epoch", "train_step", "environment_steps")}
    task = training.task
    spaces = {
        "observation_size": task.observation_size,
        "low": task.low.tolist(),
        "high": task.high.tolist(),
    }
    arrays = checkpoints.flatten(training.state, "state")
    checkpoints.save(path, arrays, {"config": to_json(training.config), "spaces": spaces, **kept})


def _record(folder: Path, records: list[dict[str, Any]], epoch: Epoch, board: Any) -> None:
    rows = "".join(json.dumps(row) + "\n" for row in records)
    checkpoints.write_atomically(folder / "metrics.jsonl", lambda file: file.write_text(rows))
    for name, value in (epoch.evaluation or {}).items():
        if isinstance(value, int | float):
            board.add_scalar(name, value, epoch.train_step)
    board.flush()


def _tensorboard(folder: Path, step: int) -> Any:
    from tensorboardX import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"), purge_step=step or None)
