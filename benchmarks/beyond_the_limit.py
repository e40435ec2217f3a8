"""What trained policies are worth beyond the time limit that they were scored with.

    python benchmarks/beyond_the_limit.py RUN [RUN ...] [--limit 1000] [--episodes 40]

RUN is a run's folder with its `model.safetensors`.  Labels reach beyond the end of an episode that was cut off by the
clock, and the return of an evaluation does not; so a policy can become better at what it learns and score less.  Every
run acts without noise from the same first states.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from caql import CAQL
from caql.environments import make_task

FIRST_SEED = 5000


def rewards_of(model: CAQL, limit: int, seed: int) -> np.ndarray:
    """The rewards of one episode, cut off after `limit` steps."""
    config = model.config
    task = make_task(config.task, config.action_range, limit)
    state, _ = task.reset(seed=seed)
    found: list[float] = []
    over = False
    while not over:
        state, reward, ended, cut_off, _ = task.step(model.predict(state)[0])
        found.append(reward)
        over = ended or cut_off
    return np.asarray(found)


def measure(run: Path, limit: int, episodes: int) -> None:
    """Print what the run's policy scores within the clock of its training and within `limit`."""
    model = CAQL.load(run / "model.safetensors")
    clock, discount = model.config.episode_steps, model.config.agent.discount
    assert clock is not None
    rows = []
    for episode in range(episodes):
        rewards = rewards_of(model, limit, FIRST_SEED + episode)
        worth = discount ** np.arange(len(rewards)) * rewards
        rows.append(
            (rewards[:clock].sum(), rewards.sum(), worth[:clock].sum(), worth.sum(), len(rewards), len(rewards) < clock)
        )
    means, errors = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) / np.sqrt(episodes)
    names = (f"return in {clock}", f"in {limit}", f"discounted in {clock}", f"in {limit}", "length", "ended early")
    told = [f"{name} {mean:.4g} ± {error:.2g}" for name, mean, error in zip(names, means, errors, strict=True)]
    print(f"{run.name}: " + ", ".join(told), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--episodes", type=int, default=40)
    options = parser.parse_args()
    for run in options.runs:
        measure(run, options.limit, options.episodes)


if __name__ == "__main__":
    main()
