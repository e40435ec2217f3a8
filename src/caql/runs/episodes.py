"""Episodes: exploring ones to learn from, greedy ones to be judged by."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from caql.agents.agent import Policy
from caql.environments import Misbehaviour, Task
from caql.errors import CaqlError
from caql.replay import Batch
from caql.runs.streams import Purpose, reset_seed

NOISE_BLOCK = 256
"""Rows of noise that are drawn at once."""


class Episode(NamedTuple):
    """One exploring episode."""

    transitions: Batch
    """Its T steps in order, float32; `continues` is 0 only where the task itself ended."""
    total: float
    """Its undiscounted return."""
    whole: bool
    """False if it was stopped because no more steps were allowed."""
    acting: float
    """Seconds that the policy took."""


def collect(policy: Policy, task: Task, seed: int, rng: np.random.Generator, most: int | None = None) -> Episode:
    """Explore from a reset with `seed` until the episode ends, or for `most` steps.

    rng: the exploration noise; the same draws whatever `most` is.
    Raises `Misbehaviour` if the environment does; `task.elapsed` then says at which step.
    """
    observation, _ = task.reset(seed=seed)
    states, rewards, ends = [observation], [], []
    actions: list[np.ndarray] = []
    size, acting, over = task.action_set.size, 0.0, False
    noise = np.empty((0, size), np.float32)
    sets: list[dict[str, np.ndarray]] = []
    while not over and len(actions) != most:
        row = len(actions) % NOISE_BLOCK
        if row == 0:
            noise = rng.standard_normal((NOISE_BLOCK, size), np.float32)
        before = time.perf_counter()
        action = policy.explore(observation, noise[row])
        acting += time.perf_counter() - before
        if task.depends_on_state:
            sets.append(task.set_columns())
        observation, reward, terminated, truncated, _ = task.step(action)
        states.append(observation)
        actions.append(action if task.actions is None else task.actions.executed)
        rewards.append(reward)
        ends.append(terminated)
        over = terminated or truncated
    if task.depends_on_state:
        # Nothing is asked about the actions after the end; after the clock's, the label bootstraps over them.
        sets.append(sets[-1] if ends[-1] else task.set_columns(checked=True))
    columns = np.stack(states)
    varying = {name: np.stack([each[name] for each in sets]) for name in (sets[0] if sets else {})}
    transitions = Batch(
        states=columns[:-1],
        actions=np.stack(actions),
        rewards=np.asarray(rewards, np.float32),
        next_states=columns[1:],
        continues=1.0 - np.asarray(ends, np.float32),
        sets={name: array[:-1] for name, array in varying.items()} or None,
        next_sets={name: array[1:] for name, array in varying.items()} or None,
    )
    return Episode(transitions, float(sum(rewards)), over, acting)


def evaluate_policy(policy: Policy, task: Task, episodes: int, seed: tuple[int, int]) -> list[float]:
    """Undiscounted returns of greedy episodes; episode i resets with a seed made of `seed` and i.

    Raises `CaqlError` for a negative seed, and `Misbehaviour`, naming episode and step, if the environment does.
    """
    if min(seed) < 0:
        raise CaqlError(f"seed = {min(seed)} must not be negative")
    returns = []
    for episode in range(episodes):
        try:
            returns.append(_greedy_return(policy, task, reset_seed(seed[0], Purpose.EVALUATION, seed[1], episode)))
        except Misbehaviour as problem:
            raise Misbehaviour(f"step {task.elapsed} of evaluation episode {episode + 1}: {problem}") from problem
    return returns


def _greedy_return(policy: Policy, task: Task, seed: int) -> float:
    observation, _ = task.reset(seed=seed)
    total, done = 0.0, False
    while not done:
        observation, reward, terminated, truncated, _ = task.step(policy.act(observation))
        total += reward
        done = terminated or truncated
    return total
