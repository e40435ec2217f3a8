"""One call of `learn`: the training loop with callbacks, a log and a progress bar around it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from caql.errors import CaqlError
from caql.model.callbacks import Callbacks
from caql.model.logger import Logger, next_folder
from caql.runs.training import Epoch


class Asked(NamedTuple):
    """The arguments of `learn`."""

    total_timesteps: int
    callback: Any
    log_interval: int | None
    tb_log_name: str
    reset_num_timesteps: bool
    progress_bar: bool


class Log:
    """What is told of a learning: every `log_interval` episodes the mean return, the speed and the latest losses."""

    def __init__(self, model: Any, every: int | None, window: int) -> None:
        self.model, self.every = model, every
        self.returns: deque[float] = deque(maxlen=window)
        self.lengths: deque[int] = deque(maxlen=window)
        self.episodes = 0
        self.statistics: dict[str, float] = {}
        self.began, self.first = time.monotonic(), model.num_timesteps

    def epoch(self, epoch: Epoch) -> None:
        """Take an epoch in, and write where it is time."""
        before = self.episodes
        self.returns.extend(epoch.returns)
        self.lengths.extend(epoch.lengths)
        self.episodes += len(epoch.returns)
        self.statistics = epoch.statistics or self.statistics
        if self.every and self.episodes // self.every > before // self.every:
            self.dump()

    def dump(self) -> None:
        """Write what is known now."""
        logger, steps = self.model.logger, self.model.num_timesteps
        seconds = max(time.monotonic() - self.began, 1e-9)
        if self.returns:
            logger.record("rollout/ep_rew_mean", float(np.mean(self.returns)))
            logger.record("rollout/ep_len_mean", float(np.mean(self.lengths)))
        logger.record("time/episodes", self.episodes, exclude="tensorboard")
        logger.record("time/fps", int((steps - self.first) / seconds))
        logger.record("time/time_elapsed", int(seconds), exclude="tensorboard")
        logger.record("time/total_timesteps", steps, exclude="tensorboard")
        for name, value in self.statistics.items():
            logger.record(f"train/{name}", value)
        if self.statistics:
            logger.record("train/n_updates", self.model.train_step, exclude="tensorboard")
        logger.dump(steps)


def learn(model: Any, asked: Asked) -> None:
    """See `Model.learn`."""
    training = model.training
    if asked.total_timesteps < 1:
        raise CaqlError(f"total_timesteps = {asked.total_timesteps} must be at least 1")
    if asked.log_interval is not None and asked.log_interval < 1:
        raise CaqlError(f"log_interval = {asked.log_interval} must be at least 1, or None for no log")
    callbacks = Callbacks(model, asked.callback)
    last = training.environment_steps + asked.total_timesteps
    own = _own_logger(model, asked)
    log = model.log = Log(model, asked.log_interval, model.stats_window_size)
    watch = callbacks.step if callbacks.objects else None
    try:
        training.watch = watch
        callbacks.start(
            asked._asdict() | {"self": model, "total_timesteps": model.num_timesteps + asked.total_timesteps}
        )
        with StepsBar(asked.total_timesteps, asked.progress_bar) as advance:
            callbacks.rollout(begins=True)
            for epoch in training.epochs(last):
                callbacks.rollout(begins=False)
                log.epoch(epoch)
                advance(asked.total_timesteps - (last - training.environment_steps), epoch)
                if not callbacks.epoch(epoch):
                    break
                if training.environment_steps < last:
                    callbacks.rollout(begins=True)
        callbacks.end()
    finally:
        training.watch = None
        training.explorer.stop()
        if own is not None:
            own.close()


def _own_logger(model: Any, asked: Asked) -> Logger | None:
    """The log of this call, unless the user has set one."""
    if model.logger_is_set:
        return None
    folder = None
    if model.tensorboard_log is not None:
        folder = next_folder(Path(model.tensorboard_log), asked.tb_log_name, again=not asked.reset_num_timesteps)
    step = 0 if asked.reset_num_timesteps else model.num_timesteps
    own = Logger(folder, bool(model.verbose), step)
    model.use_logger(own)
    return own


class StepsBar:
    """A bar over environment steps, if wanted."""

    def __init__(self, total: int, wanted: bool) -> None:
        from rich.progress import Progress

        self.bar = Progress(disable=not wanted)
        self.task = self.bar.add_task("learning", total=total)

    def __enter__(self) -> Callable[[int, Epoch], None]:
        self.bar.__enter__()
        return lambda done, epoch: self.bar.update(
            self.task, completed=done, description=f"return {epoch.episode_return:.1f}"
        )

    def __exit__(self, *problem: Any) -> None:
        self.bar.__exit__(*problem)
