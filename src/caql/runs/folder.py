"""A run on disk: train in one folder, so that it can be killed at any instant and go on.

    config.json       what was asked for, written first
    metrics.jsonl     one row per evaluation
    checkpoints/      the two latest states, complete; step-....damaged is one that could not be read
    tensorboard/      the same numbers for TensorBoard; with the extra `report`
    model.safetensors the final weights       curve.svg  the learning curve; with the extra `report`
    kept.safetensors  the weights under which exploring episodes scored best (`keeping`), if there were enough of them
    finished.json     written last: a folder without it is unfinished

Time decides only when a checkpoint is written, never what is in it, so it cannot change a result.  One process at a
time trains in a folder; it holds the folder's lock.
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
from caql.environments import Misbehaviour
from caql.errors import CaqlError
from caql.extras import is_there
from caql.runs import checkpoints, frozen
from caql.runs.board import Board
from caql.runs.curves import save_curve
from caql.runs.lock import alone
from caql.runs.progress import Reporter, Silent
from caql.runs.training import Training
from caql.whole_files import write_atomically

PICTURES = {"tensorboard/": "tensorboardX", "curve.svg": "matplotlib"}
"""What a run draws if the module is there; it trains without."""
WRITING = 0.05
"""The largest share of a run's time that goes into checkpoints: a long replay buffer makes them large, and rarer."""


class Busy(CaqlError):
    """Another process is training in the folder."""


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
    """A run's evaluations so far; lines that are not JSON, such as a truncated last one, are left out."""
    path = folder / "metrics.jsonl"
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with contextlib.suppress(json.JSONDecodeError, RecursionError):
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
    """Train in `folder`, from its latest checkpoint if `resume`.

    Returns False if a signal stopped it before the end.
    Raises `CaqlError` if the folder holds something else, is in use (`Busy`) or cannot be written, or if the
    environment fails; what had been written before is intact.
    """
    reporter = reporter or Silent()
    try:
        check_folder(config, folder, resume)
        training = Training(config)
        folder.mkdir(parents=True, exist_ok=True)
        with alone(folder) as ours:
            if not ours:
                raise Busy(f"out = {folder} is in use: another process is training in it; wait, or choose another")
            # Whoever had the lock a moment ago may have begun a run here.
            check_folder(config, folder, resume)
            claim_folder(config, folder)
            if is_finished(folder):
                reporter.say(f"the run in {folder} is already finished")
                return True
            _go_on(training, folder, reporter)
            return _train(training, folder, reporter, checkpoint_seconds)
    except OSError as problem:
        raise CaqlError(f"out = {folder} cannot be used: {problem}; what was written before is intact") from problem


def _go_on(training: Training, folder: Path, reporter: Reporter) -> None:
    """Restore the newest sound checkpoint, if there is any."""
    some = bool(checkpoints.checkpoint_files(folder))
    found = checkpoints.resume_from(folder, reporter.say)
    if found is None:
        if some:
            reporter.say("no checkpoint is left; the run begins again and will come to the same result")
        return
    path, arrays, meta = found
    try:
        training.restore(arrays, meta)
    except CaqlError as problem:
        raise CaqlError(f"{path} cannot be resumed from: {problem}") from problem
    reporter.say(f"resuming at training step {training.train_step}")


def _train(training: Training, folder: Path, reporter: Reporter, checkpoint_seconds: float) -> bool:
    """The loop with its files around it; False if a signal stopped it."""
    config = training.config
    absent = [name for name, module in PICTURES.items() if not is_there(module)]
    if absent:
        reporter.say(f'without {" and ".join(absent)}; what draws them comes with: pip install "caql[report]"')
    with contextlib.ExitStack() as stack:
        board = None
        if is_there("tensorboardX"):
            board = stack.enter_context(contextlib.closing(Board(folder / "tensorboard", training.train_step)))
        caught = stack.enter_context(stop_on_signal())
        stack.enter_context(reporter.follow(training))
        saved = time.monotonic()
        pause = checkpoint_seconds
        try:
            for epoch in training.epochs():
                reporter.epoch(epoch)
                if epoch.evaluation is not None:
                    _record(folder, training.records)
                    if told := frozen.warning(training.records, config.agent, training.agent.spec.action_size):
                        reporter.say(told)
                    if board is not None:
                        board.add(epoch.evaluation, epoch.train_step)
                if caught or time.monotonic() - saved >= pause:
                    writing = time.monotonic()
                    checkpoints.save_checkpoint(folder, training.train_step, *training.snapshot())
                    saved = time.monotonic()
                    pause = max(checkpoint_seconds, (saved - writing) / WRITING) if checkpoint_seconds else 0.0
                if caught:
                    reporter.say(f"stopped at training step {training.train_step}; --resume goes on from here")
                    return False
        except Misbehaviour as problem:
            checkpoints.save_checkpoint(folder, training.train_step, *training.snapshot())
            kept = f"the run is kept at training step {training.train_step}, and --resume tries again from there"
            raise CaqlError(f"{problem}; {kept}") from problem
        checkpoints.save_checkpoint(folder, training.train_step, *training.snapshot())
    save_model(folder / "model.safetensors", training)
    spent = sum(training.clock.seconds.values())
    done: dict[str, Any] = {"train_step": training.train_step, "seconds": round(spent, 3)}
    if training.keeper.weights is not None:
        arrays, counters = training.keeper.weights
        checkpoints.save(folder / "kept.safetensors", arrays, model_meta(training, counters))
        done["kept"] = {"train_step": counters["train_step"], "training_return": training.keeper.score}
        reporter.say(
            f"kept.safetensors has the weights of training step {counters['train_step']}, after the exploring episodes "
            f"that scored best ({training.keeper.score:.1f} on average)"
        )
    if training.records and is_there("matplotlib"):
        save_curve(training.records, folder / "curve.svg", title=f"{config.task}, {config.agent.name}")
    checkpoints.write_json(folder / "finished.json", done)
    return True


def save_model(path: Path, training: Training) -> None:
    """The weights and optimiser with the configuration, without the replay buffer."""
    checkpoints.save(path, checkpoints.flatten(training.state, "state"), model_meta(training))


def model_meta(training: Training, counters: dict[str, int] | None = None) -> dict[str, Any]:
    """What a saved model says beside its weights: the configuration, the spaces and the counters (as they are now)."""
    task = training.task
    spaces = {
        "observation_size": task.observation_size,
        "low": task.low.tolist(),
        "high": task.high.tolist(),
    }
    return {"config": to_json(training.config), "spaces": spaces, **(counters or training.counters)}


def _record(folder: Path, records: list[dict[str, Any]]) -> None:
    rows = "".join(json.dumps(row) + "\n" for row in records)
    write_atomically(folder / "metrics.jsonl", lambda file: file.write_text(rows))
