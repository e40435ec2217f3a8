"""Exploring: one environment, episode after episode, in pieces that may end inside an episode.

An episode has a number, and the number names the streams of its reset and of its noise.  So where an exploration
stands is said by the episode's number and the actions taken in it: reset with the same seed and given the same
actions, an environment that is a function of its seed comes back to the same state.  A checkpoint keeps just that,
and the same way leads back after an evaluation, or a step that failed, has left the environment somewhere else.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from caql.agents.agent import Policy
from caql.environments import Task
from caql.errors import CaqlWarning
from caql.replay import Batch
from caql.runs.streams import Purpose, reset_seed, stream

Array = np.ndarray[Any, np.dtype[Any]]
NOISE_BLOCK = 256
"""Rows of noise that are drawn at once."""


class Seen(NamedTuple):
    """One step of one or N environments, for whoever watches; each field has a row per environment."""

    observations: Array
    rewards: Array
    dones: Array
    infos: list[dict[str, Any]]
    actions: Array


Watch = Callable[[Seen], bool]
"""Called after every step; False ends the collecting there."""


class Rollout(NamedTuple):
    """What one collecting brought."""

    transitions: Batch
    """Steps in order, float32; `continues` is 0 only where the task itself ended."""
    returns: list[float]
    """Undiscounted returns of the episodes that ended."""
    lengths: list[int]
    """Their steps."""
    total: float
    """The return so far of the last episode, whether it ended or not."""
    acting: float
    """Seconds that the policy took."""
    stopped: bool
    """Whether the one who watches ended it."""
    pieces: list[int]
    """Lengths of the stretches that the transitions consist of, each of one episode."""


class Noise:
    """Standard normal rows (d,) of one episode, drawn in blocks; row t is the same however one comes to it."""

    def __init__(self, rng: np.random.Generator, size: int) -> None:
        self.rng, self.size, self.blocks = rng, size, 0
        self.block: Array = np.empty((0, size), np.float32)

    def row(self, t: int) -> Array:
        """The noise of step t; t must not fall below the block reached."""
        while self.blocks <= t // NOISE_BLOCK:
            self.block = self.rng.standard_normal((NOISE_BLOCK, self.size), np.float32)
            self.blocks += 1
        found: Array = self.block[t % NOISE_BLOCK]
        return found


class Steps:
    """Transitions of one environment as they come in."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.states: list[Array] = []
        self.actions: list[Array] = []
        self.rewards: list[float] = []
        self.next_states: list[Array] = []
        self.ends: list[bool] = []
        self.sets: list[dict[str, Array]] = []
        self.next_sets: list[dict[str, Array]] = []

    def before(self, state: Array) -> None:
        """The environment is about to step from `state`, whose set is the step's."""
        self.states.append(state)
        if self.task.depends_on_state:
            self.sets.append(self.next_sets[-1] if self.next_sets else self.task.set_columns())

    def after(self, action: Array, answer: tuple[Array, float, bool, bool, dict[str, Any]], last: bool) -> None:
        """The environment has stepped; `last`: no other step of this episode follows here."""
        observation, reward, terminated, _, _ = answer
        self.next_states.append(observation)
        self.actions.append(action if self.task.actions is None else self.task.actions.executed)
        self.rewards.append(reward)
        self.ends.append(terminated)
        if self.task.depends_on_state:
            # Nothing is asked about the actions after the end; after the clock's, the label bootstraps over them.
            self.next_sets.append(self.sets[-1] if terminated else self.task.set_columns(checked=last))

    def batch(self) -> Batch:
        """All of them."""
        return Batch(
            states=np.stack(self.states),
            actions=np.stack(self.actions),
            rewards=np.asarray(self.rewards, np.float32),
            next_states=np.stack(self.next_states),
            continues=1.0 - np.asarray(self.ends, np.float32),
            sets=_stacked(self.sets),
            next_sets=_stacked(self.next_sets),
        )


def _stacked(sets: list[dict[str, Array]]) -> dict[str, Array] | None:
    return {name: np.stack([each[name] for each in sets]) for name in sets[0]} if sets and sets[0] else None


def joined(batches: list[Batch]) -> Batch:
    """Transitions one after another."""
    import jax

    if len(batches) == 1:
        return batches[0]
    found: Batch = jax.tree.map(lambda *columns: np.concatenate(columns), *batches)
    return found


def sizes(batches: list[Batch]) -> list[int]:
    """How many transitions each holds."""
    return [len(batch.rewards) for batch in batches]


class Explorer:
    """One environment that is explored.

    task: the environment.  seed: the run's.
    """

    size = 1
    """Environments that step at once."""

    def __init__(self, task: Task, seed: int) -> None:
        self.task, self.seed = task, seed
        self.episode = 0
        """The number of the episode going on, or of the next one."""
        self.said: list[Array] = []
        """What the policy said in the episode going on."""
        self.expected: Array | None = None
        """The observation that this led to."""
        self.taken = 0
        """Steps asked of the environment since the present collecting began."""
        self.noise = Noise(np.random.default_rng(0), 0)
        self._there = False
        self._total = 0.0
        self._warned = False

    def collect(
        self, policy: Policy, steps: int | None, episodes: int | None = None, watch: Watch | None = None
    ) -> Rollout:
        """Explore for so many steps, or until so many episodes have ended, whichever comes first.

        Raises `Misbehaviour` if the environment does; then it is as if the collecting had not begun.
        """
        before = self.episode, len(self.said), self.expected
        began, self.taken, acting, stopped = self.said, 0, 0.0, False
        batches: list[Batch] = []
        returns: list[float] = []
        lengths: list[int] = []
        try:
            while self.taken != steps and len(returns) != episodes and not stopped:
                left = None if steps is None else steps - self.taken
                batch, over, seconds, stopped = self._piece(policy, left, watch)
                batches.append(batch)
                acting += seconds
                total = self._total
                if over:
                    returns.append(total)
                    lengths.append(len(self.said))
                    self.stop()
        except BaseException:
            self.episode, length, self.expected = before
            self.said, self._there = began[:length], False
            raise
        return Rollout(joined(batches), returns, lengths, total, acting, stopped, sizes(batches))

    def stop(self) -> None:
        """End the episode, if one is going on: the next step begins another."""
        if self.said:
            self.episode += 1
        self.said, self.expected, self._there = [], None, False

    def leave(self) -> None:
        """Say that the environment is used otherwise; the next collecting leads it back."""
        self._there = False

    def _piece(self, policy: Policy, most: int | None, watch: Watch | None) -> tuple[Batch, bool, float, bool]:
        """Steps of one episode: their transitions, whether it ended, seconds of acting, whether `watch` said stop."""
        observation = self._observation()
        if not self.said and hasattr(policy, "begin"):
            policy.begin()
        steps, acting = Steps(self.task), 0.0
        step = self.task.advance if watch is None else self.task.step
        while True:
            steps.before(observation)
            before = time.perf_counter()
            action = policy.explore(observation, self.noise.row(len(self.said)))
            acting += time.perf_counter() - before
            self.taken += 1
            answer = step(action)
            observation, reward, terminated, truncated, _ = answer
            over = terminated or truncated
            self.said.append(action)
            self._total += reward
            stopped = watch is not None and not watch(_seen(answer, action, over))
            last = over or stopped or len(steps.states) == most
            steps.after(action, answer, last)
            if last:
                self.expected = observation
                return steps.batch(), over, acting, stopped

    def _observation(self) -> Array:
        """The state that the next step starts from: as it was left, come back to, or of a fresh episode."""
        if self._there and self.expected is not None:
            return self.expected
        observation = self._begin()
        possible = self.task.actions
        counted = {} if possible is None else dict(possible.counted)
        for action in self.said:
            observation, reward, terminated, truncated, _ = self.task.advance(action)
            self._total += reward
            if terminated or truncated:
                break
        if possible is not None:
            possible.counted = counted  # what is repeated was counted when it was new
        if self.said and (self.expected is None or not np.array_equal(observation, self.expected)):
            if not self._warned:
                warnings.warn(
                    "the environment does not come back to where it was by the same seed and actions; "
                    "a new episode begins instead, and the result is not repeatable",
                    CaqlWarning,
                    stacklevel=2,
                )
            self._warned = True
            self.stop()
            observation = self._begin()
        self._there = True
        return observation

    def _begin(self) -> Array:
        observation, _ = self.task.reset(seed=reset_seed(self.seed, Purpose.EPISODE, self.episode))
        self.noise = Noise(stream(self.seed, Purpose.NOISE, self.episode), self.task.action_set.size)
        self._total = 0.0
        return observation


def _seen(answer: tuple[Array, float, bool, bool, dict[str, Any]], action: Array, over: bool) -> Seen:
    observation, reward, _, truncated, info = answer
    info = info if isinstance(info, dict) else {}
    if over:
        info = {**info, "terminal_observation": observation, "TimeLimit.truncated": truncated}
    return Seen(observation[None], np.array([reward], np.float32), np.array([over]), [info], action[None])
