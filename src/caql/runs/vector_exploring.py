"""Exploring several environments that step together; as `exploring`, but for what a vector cannot do.

A vector of environments begins its episodes by itself, so only the start of a collecting call is seeded by the
run; within one, an episode's start is the environment's own affair.  There is no way back into an episode:
a vector is for learning in one process, and a run in a folder has one environment.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from caql.agents.agent import Policy
from caql.errors import CaqlError
from caql.runs.exploring import Array, Noise, Rollout, Seen, Steps, Watch, joined, sizes
from caql.runs.streams import Purpose, reset_seed, stream
from caql.vector_environments import RowAnswer, VectorTask


class _Ended(NamedTuple):
    """The episodes that ended."""

    returns: list[float]
    lengths: list[int]


class VectorExplorer:
    """N environments that are explored together.

    envs: the environments.  seed: the run's.
    """

    def __init__(self, envs: VectorTask, seed: int) -> None:
        self.envs, self.seed = envs, seed
        self.size = envs.size
        self.task = envs.rows[0]
        self.episode = 0
        """How often all of them have been reset; names the streams."""
        self.said: list[Array] = []
        self.expected: Array | None = None
        self.taken = 0
        """Steps of all environments together since the present collecting began."""
        self.noise = [Noise(np.random.default_rng(0), 0)]
        self._now: list[Array] = []
        self._step = 0
        self._totals = np.zeros(self.size)
        self._lengths = np.zeros(self.size, int)

    def collect(
        self, policy: Policy, steps: int | None, episodes: int | None = None, watch: Watch | None = None
    ) -> Rollout:
        """Explore until all of them together have made so many steps, or a few more."""
        if steps is None or episodes is not None:
            raise CaqlError("train_freq in episodes needs one environment; give a number of steps for several")
        try:
            return self._collect(policy, steps, watch)
        except BaseException:
            self.stop()
            raise

    def _collect(self, policy: Policy, steps: int, watch: Watch | None) -> Rollout:
        envs, self.taken, acting, stopped = self.envs, 0, 0.0, False
        if not self._now:
            self._begin()
        open_parts = [Steps(row) for row in envs.rows]
        parts, ended = list(open_parts), _Ended([], [])
        while self.taken < steps and not stopped:
            resetting = envs.resetting
            before = time.perf_counter()
            noise = [each.row(self._step) for each in self.noise]
            actions = [policy.explore(x, e) for x, e in zip(self._now, noise, strict=True)]
            acting += time.perf_counter() - before
            for row in np.flatnonzero(~resetting):
                open_parts[row].before(self._now[row])
            answers = envs.step(actions)
            self._step += 1
            self.taken += int(np.sum(~resetting))
            stopped = watch is not None and not watch(_seen(answers, actions, resetting))
            last = stopped or self.taken >= steps
            for i, (answer, fresh) in enumerate(answers):
                over = not resetting[i] and (answer[2] or answer[3])
                if not resetting[i]:
                    open_parts[i].after(actions[i], answer, last or over)
                    self._count(i, answer[1], over, ended)
                    self._now[i] = answer[0]
                if over:
                    open_parts[i] = Steps(envs.rows[i])
                    parts.append(open_parts[i])
                if fresh is not None:
                    self._now[i] = envs.begin(i, fresh)
        batches = [part.batch() for part in parts if part.rewards]
        return Rollout(joined(batches), *ended, float(self._totals[0]), acting, stopped, sizes(batches))

    def _count(self, row: int, reward: float, over: bool, ended: _Ended) -> None:
        self._totals[row] += reward
        self._lengths[row] += 1
        if over:
            ended.returns.append(float(self._totals[row]))
            ended.lengths.append(int(self._lengths[row]))
            self._totals[row] = self._lengths[row] = 0

    def stop(self) -> None:
        """End the episodes going on: the next step begins others."""
        if self._now:
            self.episode += 1
        self._now = []

    def leave(self) -> None:
        """Say that the environments are used otherwise: a vector cannot be led back, and begins anew."""
        self.stop()

    def _begin(self) -> None:
        self._now = self.envs.reset(reset_seed(self.seed, Purpose.EPISODE, self.episode))
        streams = (stream(self.seed, Purpose.NOISE, self.episode, i) for i in range(self.size))
        self.noise = [Noise(each, self.task.action_set.size) for each in streams]
        self._step = 0
        self._totals[:] = self._lengths[:] = 0


def _seen(answers: list[RowAnswer], actions: list[Array], resetting: Array) -> Seen:
    ends = np.array([answer[2] or answer[3] for answer, _ in answers])
    # What was seen last: of an episode that has begun, its first observation, as Stable-Baselines3 has it.
    observations = [
        np.asarray(fresh if fresh is not None else answer[0], np.float32).reshape(-1) for answer, fresh in answers
    ]
    rewards = np.array([answer[1] for answer, _ in answers], np.float32)
    return Seen(
        np.stack(observations), rewards, ends & ~resetting, [answer[4] for answer, _ in answers], np.stack(actions)
    )
