"""The one loop: collect an episode, learn S steps, evaluate, record (Appendix B, the outer loop).

The loop is a generator that yields after every epoch, so that progress bars, files and checkpoints stay
outside it.  Everything random is drawn from a stream named by (seed, purpose, index), and every episode
starts from a seeded reset: between epochs the counters say all there is to say about randomness, and a
run resumed from a checkpoint goes on bit for bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import jax
import numpy as np

from caql.agents import make_agent
from caql.agents.agent import Policy, Spec
from caql.config import RunConfig
from caql.environments import Task, make_task
from caql.errors import CaqlError
from caql.replay import Batch, Replay
from caql.runs import checkpoints
from caql.runs.memory import check_memory

NOISE_BLOCK = 256


class Purpose(IntEnum):
    """What a random stream is for; part of every stream's seed, so the numbers must never change."""

    WEIGHTS = 0
    EPISODE = 1
    NOISE = 2
    MINIBATCH = 3
    UPDATE = 4
    EVALUATION = 5


def stream(seed: int, purpose: Purpose, *index: int) -> np.random.Generator:
    """The random numbers of one purpose and index, independent of all others."""
    return np.random.default_rng(np.random.SeedSequence([seed, int(purpose), *index]))


def reset_seed(seed: int, purpose: Purpose, *index: int) -> int:
    """A seed for one environment reset."""
    return int(np.random.SeedSequence([seed, int(purpose), *index]).generate_state(1)[0])


@jax.jit
def update_key(seed: int, epoch: int) -> jax.Array:
    """The JAX key of an epoch's updates; compiled, because three eager operations cost half a millisecond."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), Purpose.UPDATE), epoch)


@dataclass
class Epoch:
    """What one turn of the loop brought: counters, the episode, learning statistics, perhaps an evaluation."""

    epoch: int
    train_step: int
    environment_steps: int
    episode_return: float
    statistics: dict[str, float]
    evaluation: dict[str, Any] | None = None


@dataclass
class Clock:
    """Seconds spent, by part of the loop."""

    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, part: str, seconds: float) -> None:
        self.seconds[part] = self.seconds.get(part, 0.0) + seconds


class Training:
    """A run in progress: the agent's state, the replay buffer and the counters."""

    def __init__(self, config: RunConfig, task: Task | None = None) -> None:
        self.config = config
        self.task = make_task(config.task, config.action_range, config.episode_steps) if task is None else task
        spec = Spec(self.task.observation_size, self.task.action_set, config.steps_per_epoch)
        self.agent = make_agent(config.agent, spec)
        check_memory(self.agent, config.replay_size, self.task.observation_size)
        self.state = self.agent.init(jax.random.key(config.seed))
        self.replay = Replay(config.replay_size, self.task.observation_size, self.agent.spec.action_size)
        self.epoch = 0
        self.train_step = 0
        self.environment_steps = 0
        self.records: list[dict[str, Any]] = []
        """One row per evaluation so far."""
        self.clock = Clock()
        self._since: list[dict[str, float]] = []
        """Statistics of the epochs since the last evaluation."""
        self._returns: list[float] = []
        self._latest: tuple[Batch, jax.Array]

    def epochs(self) -> Iterator[Epoch]:
        """Train until `train_steps`, one epoch at a time."""
        config = self.config
        if config.evaluate_every and not self.records:
            row = self._evaluate()
            yield Epoch(self.epoch, self.train_step, self.environment_steps, row["return"], {}, row)
        while self.train_step < config.train_steps:
            episode_return = self._collect()
            statistics = self._learn()
            self.epoch += 1
            evaluation = None
            if statistics and config.evaluate_every:
                due = self.train_step // config.evaluate_every
                if due > (self.train_step - config.steps_per_epoch) // config.evaluate_every:
                    evaluation = self._evaluate()
            yield Epoch(self.epoch, self.train_step, self.environment_steps, episode_return, statistics, evaluation)

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
        """Undo `snapshot`."""
        counts = {"epoch": int, "train_step": int, "environment_steps": int, "written": int}
        checkpoints.check_meta(meta, **counts, records=list, seconds=dict, since=list, returns=list)
        for name, column in self.replay.data._asdict().items():
            kept = min(meta["written"], self.replay.capacity)
            checkpoints.check_array(arrays, f"replay.{name}", (kept, *column.shape[1:]), column.dtype)
        self.state = checkpoints.unflatten(self.state, arrays, "state")
        self.replay.restore({n: arrays[f"replay.{n}"] for n in Batch._fields}, meta["written"])
        self.epoch, self.train_step = meta["epoch"], meta["train_step"]
        self.environment_steps, self.records = meta["environment_steps"], meta["records"]
        self.clock.seconds = meta["seconds"]
        self._since, self._returns = meta["since"], meta["returns"]

    def _collect(self) -> float:
        """One exploring episode into the replay buffer; its return."""
        began = time.perf_counter()
        seed = self.config.seed
        policy = self.agent.policy(self.state, self.epoch)
        rng = stream(seed, Purpose.NOISE, self.epoch)
        size = self.agent.spec.action_size
        observation = self._checked(self.task.reset(seed=reset_seed(seed, Purpose.EPISODE, self.epoch))[0], 0.0)
        states: list[np.ndarray] = [observation]
        actions: list[np.ndarray] = []
        rewards: list[float] = []
        ends: list[bool] = []
        acting = 0.0
        noise = np.empty((0, size), np.float32)
        while True:
            row = len(actions) % NOISE_BLOCK
            if row == 0:
                noise = rng.standard_normal((NOISE_BLOCK, size), np.float32)
            before = time.perf_counter()
            action = policy.explore(observation, noise[row])
            acting += time.perf_counter() - before
            raw, reward, terminated, truncated, _ = self.task.step(action)
            observation = self._checked(raw, reward)
            states.append(observation)
            actions.append(action)
            rewards.append(reward)
            ends.append(terminated)
            self.environment_steps += 1
            if terminated or truncated:
                break
        total = float(sum(rewards))
        if ends[-1] and self.config.zero_terminal_reward:
            rewards[-1] = 0.0
        columns = np.stack(states)
        self.replay.extend(
            Batch(
                states=columns[:-1],
                actions=np.stack(actions),
                rewards=np.asarray(rewards, np.float32),
                next_states=columns[1:],
                continues=1.0 - np.asarray(ends, np.float32),
            )
        )
        self.clock.add("acting", acting)
        self.clock.add("physics", time.perf_counter() - began - acting)
        self._returns.append(total)
        return total

    def _checked(self, observation: Any, reward: float) -> np.ndarray:
        state = np.asarray(observation, np.float32)
        # The dot product is finite only if every entry is; one call instead of a pass and a reduction.
        if not (math.isfinite(reward) and math.isfinite(state.dot(state))):
            what = f"reward {reward}" if not math.isfinite(reward) else f"observation {state.tolist()}"
            raise CaqlError(
                f"environment step {self.environment_steps} of {self.config.task} gave a non-finite {what}; "
                "the run stops here with its last checkpoint intact"
            )
        return state

    def _learn(self) -> dict[str, float]:
        """S gradient steps, once the buffer holds enough; their mean statistics."""
        config = self.config
        if len(self.replay) < config.warm_up:
            return {}
        began = time.perf_counter()
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
        self.clock.add("updating", time.perf_counter() - began)
        return statistics

    def _evaluate(self) -> dict[str, Any]:
        began = time.perf_counter()
        returns = self.evaluate(self.config.evaluation_episodes, len(self.records))
        self.clock.add("evaluating", time.perf_counter() - began)
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
        """Statistics since the last evaluation, and max-Q's share of the updating time."""
        if not self._since:
            return {}
        names = dict.fromkeys(name for statistics in self._since for name in statistics)
        means = {name: float(np.mean([each[name] for each in self._since if name in each])) for name in names}
        if hasattr(self.agent, "probe"):
            means |= self.agent.probe(self.state, *self._latest)
        solving = means.pop("solve_seconds", 0.0) * len(self._since) * self.config.steps_per_epoch
        if solving:
            self.clock.add("max_q", solving)
            self.clock.add("updating", -solving)
        return means


def evaluate_policy(policy: Policy, task: Task, episodes: int, seed: tuple[int, int]) -> list[float]:
    """Undiscounted returns of greedy episodes; episode i resets with a seed made of `seed` and i."""
    returns = []
    for episode in range(episodes):
        observation, _ = task.reset(seed=reset_seed(seed[0], Purpose.EVALUATION, seed[1], episode))
        total, done = 0.0, False
        while not done:
            action = policy.act(np.asarray(observation, np.float32))
            observation, reward, terminated, truncated, _ = task.step(action)
            total += reward
            done = terminated or truncated
        returns.append(total)
    return returns
