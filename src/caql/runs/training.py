"""The one loop: collect an episode, learn S steps, evaluate, record (Appendix B, the outer loop).

The loop is a generator that yields after every epoch, so that progress bars, files and checkpoints stay
outside it.  Everything random is drawn from a stream named by (seed, purpose, index), and every episode
starts from a seeded reset: between epochs the counters say all there is to say about randomness, and a
run resumed from a checkpoint goes on bit for bit.  An episode counts only when it is over, so an
environment that fails leaves the run as it was before.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from caql.agents import make_agent
from caql.agents.agent import Spec
from caql.config import RunConfig
from caql.environments import Misbehaviour, Task, make_task
from caql.errors import CaqlError
from caql.replay import Batch, Replay
from caql.runs import checkpoints
from caql.runs.clock import Clock
from caql.runs.episodes import Episode, collect, evaluate_policy
from caql.runs.memory import check_memory
from caql.runs.streams import Purpose, reset_seed, stream, update_key


@dataclass
class Epoch:
    """What one turn of the loop brought: counters, the episode, learning statistics, perhaps an evaluation."""

    epoch: int
    train_step: int
    environment_steps: int
    episode_return: float
    statistics: dict[str, float]
    evaluation: dict[str, Any] | None = None


def config_task(config: RunConfig) -> Task:
    """The task that a configuration names."""
    return make_task(config.task, config.action_range, config.episode_steps, config.action_set)


def task_spec(task: Task, config: RunConfig) -> Spec:
    """What an agent must know of a task."""
    shape, dtype = task.observation_shape, task.observation_dtype
    return Spec(task.observation_size, task.action_set, config.steps_per_epoch, task.sets, task.sets_at, shape, dtype)


class Training:
    """A run in progress: the agent's state, the replay buffer and the counters."""

    def __init__(self, config: RunConfig, task: Task | None = None) -> None:
        self.config = config
        self.task = config_task(config) if task is None else task
        self.agent = make_agent(config.agent, task_spec(self.task, config))
        check_memory(self.agent, config.replay_size, self.task.observation_size)
        self.state = self.agent.init(jax.random.key(config.seed))
        sets = self.task.sets
        example = None if sets is None else sets.columns(sets.template)
        sizes = config.replay_size, self.task.observation_size, self.agent.spec.action_size
        self.replay = Replay(*sizes, example, self.agent.stored_dtype)
        self.epoch = 0
        self.train_step = 0
        self.environment_steps = 0
        self.records: list[dict[str, Any]] = []
        """One row per evaluation so far."""
        self.clock = Clock()
        self._since: list[dict[str, float]] = []
        """Statistics of the epochs since the last evaluation."""
        self._returns: list[float] = []
        """Returns of the whole exploring episodes since the last evaluation."""
        self._latest: tuple[Batch, jax.Array] | None = None
        """The minibatches learned last and their key, for `Agent.measure`."""

    def epochs(self, environment_steps: int | None = None) -> Iterator[Epoch]:
        """Train one epoch at a time, until `config.train_steps` gradient steps have been made.

        environment_steps: train until the environment has made this many steps in all, instead.  An episode still
            going on then is stopped there: its transitions are kept and learned from like any others, and the next
            call begins a new episode.
        Raises `Misbehaviour`, naming the step, if the environment does; the run is then as it was before the episode
        (or before the evaluation), and another call tries again.
        """
        if self._evaluation_due():
            row = self._evaluate()
            yield Epoch(self.epoch, self.train_step, self.environment_steps, row["return"], {}, row)
        while (
            self.train_step < self.config.train_steps
            if environment_steps is None
            else self.environment_steps < environment_steps
        ):
            episode = self._collect(None if environment_steps is None else environment_steps - self.environment_steps)
            statistics = self._learn()
            self.epoch += 1
            evaluation = self._evaluate() if self._evaluation_due() else None
            yield Epoch(self.epoch, self.train_step, self.environment_steps, episode.total, statistics, evaluation)

    def evaluate(self, episodes: int, seed_index: int) -> list[float]:
        """Returns of `episodes` greedy episodes, each with a seed of its own."""
        policy = self.agent.policy(self.state, self.epoch)
        return evaluate_policy(policy, self.task, episodes, (self.config.seed, seed_index))

    def snapshot(self) -> tuple[checkpoints.Arrays, dict[str, Any]]:
        """Everything that the rest of the run depends on."""
        arrays = checkpoints.flatten(self.state, "state")
        arrays |= {f"replay.{name}": column for name, column in self.replay.snapshot().items()}
        meta = {
            "epoch": self.epoch,
            "train_step": self.train_step,
            "environment_steps": self.environment_steps,
            "written": self.replay.written,
            "records": self.records,
            "seconds": self.clock.seconds,
            "since": self._since,
            "returns": self._returns,
        }
        return arrays, meta

    def restore(self, arrays: checkpoints.Arrays, meta: dict[str, Any]) -> None:
        """Undo `snapshot`; `CaqlError` for anything missing or mistyped, and then nothing has changed."""
        counters = dict.fromkeys(("epoch", "train_step", "environment_steps", "written"), int)
        checkpoints.check_meta(meta, **counters, records=list, since=list, returns=list, seconds=dict)
        for name, kind in (("records", dict), ("since", dict), ("returns", float)):
            checkpoints.check_entries(name, meta[name], kind)
        checkpoints.check_entries("seconds", meta["seconds"].values(), float | int)
        for row in meta["records"]:
            checkpoints.check_meta(row, train_step=int)
        for statistics in meta["since"]:
            checkpoints.check_entries("since", statistics.values(), float)
        names = {name: f"replay.{name}" for name in self.replay.columns}
        columns = {name: arrays[saved] for name, saved in names.items() if saved in arrays}
        state = checkpoints.unflatten(self.state, arrays, "state")
        self.replay.restore(columns, meta["written"])
        self.state, self.clock = state, Clock(dict(meta["seconds"]))
        self.records, self._since, self._returns = (list(meta[name]) for name in ("records", "since", "returns"))
        self.epoch, self.train_step = meta["epoch"], meta["train_step"]
        self.environment_steps = meta["environment_steps"]

    def _collect(self, most: int | None = None) -> Episode:
        """One exploring episode, of at most so many steps, into the replay buffer."""
        began = time.perf_counter()
        seed = self.config.seed
        policy = self.agent.policy(self.state, self.epoch)
        rng = stream(seed, Purpose.NOISE, self.epoch)
        try:
            episode = collect(policy, self.task, reset_seed(seed, Purpose.EPISODE, self.epoch), rng, most)
        except Misbehaviour as problem:
            step = self.environment_steps + self.task.elapsed
            raise Misbehaviour(f"environment step {step} of {self.config.task}: {problem}") from problem
        if self.config.zero_terminal_reward and episode.transitions.continues[-1] == 0:
            episode.transitions.rewards[-1] = 0.0
        self.replay.extend(episode.transitions)
        self.environment_steps += len(episode.transitions.rewards)
        if episode.whole:
            self._returns.append(episode.total)
        self.clock.add("acting", episode.acting)
        self.clock.add("physics", time.perf_counter() - began - episode.acting)
        return episode

    def _learn(self) -> dict[str, float]:
        """S gradient steps, once the buffer holds enough; their mean statistics."""
        config = self.config
        if len(self.replay) < config.warm_up:
            return {}
        with self.clock.time("updating"):
            batches = self.replay.sample(
                stream(config.seed, Purpose.MINIBATCH, self.epoch), config.steps_per_epoch, config.batch_size
            )
            key = update_key(config.seed, self.epoch)
            self._latest = batches, key
            self.state, found = self.agent.update(self.state, batches, key)
            statistics = {name: float(value) for name, value in jax.device_get(found).items()}
            self.train_step += config.steps_per_epoch
        if not all(math.isfinite(value) for value in statistics.values()):
            raise CaqlError(
                f"training step {self.train_step} gave a non-finite loss ({statistics}); "
                "the run stops here with its last checkpoint intact: a smaller learning rate may help"
            )
        self._since.append(statistics)
        return statistics

    def _evaluation_due(self) -> bool:
        """Whether a multiple of `evaluate_every` has been passed, or the start, since the last evaluation."""
        every = self.config.evaluate_every
        if not every or not self.records:
            return bool(every)
        return self.train_step // every > self.records[-1]["train_step"] // every

    def _evaluate(self) -> dict[str, Any]:
        """Greedy episodes and everything since the last ones, as a row of the records."""
        with self.clock.time("evaluating"):
            returns = self.evaluate(self.config.evaluation_episodes, len(self.records))
        means = self._means()
        row = {
            "train_step": self.train_step,
            "epoch": self.epoch,
            "environment_steps": self.environment_steps,
            "return": float(np.mean(returns)),
            "return_std": float(np.std(returns)),
            "returns": returns,
            "training_return": float(np.mean(self._returns)) if self._returns else None,
            **means,
            "seconds": {part: round(seconds, 3) for part, seconds in self.clock.seconds.items()},
        }
        self._since, self._returns = [], []
        self.records.append(row)
        return row

    def _means(self) -> dict[str, float]:
        """Statistics since the last evaluation; max-Q's share of the updating time is told apart."""
        if not self._since:
            return {}
        names = dict.fromkeys(name for statistics in self._since for name in statistics)
        means = {name: float(np.mean([each[name] for each in self._since if name in each])) for name in names}
        if self._latest is not None:
            means |= self.agent.measure(self.state, *self._latest)
        solving = means.pop("solve_seconds", 0.0) * len(self._since) * self.config.steps_per_epoch
        if solving:
            self.clock.move("updating", "max_q", solving)
        return means
