"""Greedy episodes, to be judged by."""

from __future__ import annotations

from caql.agents.agent import Policy
from caql.environments import Misbehaviour, Task
from caql.errors import CaqlError
from caql.runs.streams import Purpose, reset_seed


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
        observation, reward, terminated, truncated, _ = task.advance(policy.act(observation))
        total += reward
        done = terminated or truncated
    return total
