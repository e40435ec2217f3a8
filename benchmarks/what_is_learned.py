"""What a run is worth as it goes on: by the return of its evaluations, and by what it learns to maximise.

    python benchmarks/what_is_learned.py table1 --tasks hopper-1 --methods caql-recommended,sac,td3 --seeds 2 --out DIR
    python benchmarks/what_is_learned.py --read DIR

Takes the options of `caql sweep` and trains what it would, one run after another; after each evaluation it plays ten
further episodes without noise from the same ten first states, cut off after 1,000 steps.  Labels bootstrap through the
time limit of 200 steps, so Q learns the discounted return to the end, and an evaluation sees the undiscounted one of
200 steps: a policy can gain in the one and lose in the other.  Each measurement is a row of `worth.jsonl` in the run's
folder; a killed run goes on.

It prints, for each run and measure, the mean of the last six evaluations, of the second half, and how far the first
lies below the best six in a row.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import tyro

from caql.agents.agent import Policy
from caql.cli.sweep import Sweep, planned
from caql.environments import Task, make_task
from caql.runs.folder import is_finished, read_config, run
from caql.runs.progress import Silent
from caql.runs.training import Epoch, Training
from caql.whole_files import write_atomically

LIMIT, EPISODES, FIRST_SEED, WINDOW = 1_000, 10, 5_000, 6
MEASURES = {"return": "return in 200 steps", "longer": "in 1,000 steps", "worth": "discounted to the end"}


def episode(policy: Policy, task: Task, seed: int) -> np.ndarray:
    """The rewards of one episode without noise."""
    observation, _ = task.reset(seed=seed)
    rewards: list[float] = []
    over = False
    while not over:
        observation, reward, terminated, truncated, _ = task.advance(policy.act(observation))
        rewards.append(reward)
        over = terminated or truncated
    return np.asarray(rewards)


class Worth(Silent):
    """Writes `worth.jsonl` beside a run's metrics."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "worth.jsonl"
        self.rows: list[dict[str, float]] = []

    def follow(self, training: Training) -> contextlib.AbstractContextManager[None]:
        self.training = training
        self.task = make_task(training.config.task, training.config.action_range, LIMIT)
        old = self.path.read_text().splitlines() if self.path.exists() else []
        self.rows = [row for row in map(json.loads, old) if row["train_step"] <= training.train_step]
        return contextlib.nullcontext()

    def epoch(self, epoch: Epoch) -> None:
        if epoch.evaluation is None:
            return
        training = self.training
        policy = training.agent.policy(training.state, training.decays)
        rewards = [episode(policy, self.task, FIRST_SEED + number) for number in range(EPISODES)]
        discount = training.config.agent.discount
        self.rows.append(
            {
                "train_step": epoch.train_step,
                "return": epoch.evaluation["return"],
                "longer": float(np.mean([each.sum() for each in rewards])),
                "worth": float(np.mean([(discount ** np.arange(len(each)) * each).sum() for each in rewards])),
                "length": float(np.mean([len(each) for each in rewards])),
            }
        )
        text = "".join(json.dumps(row) + "\n" for row in self.rows)
        write_atomically(self.path, lambda file: file.write_text(text))


def tell(folder: Path) -> None:
    """Print what a run's records say."""
    rows = [json.loads(line) for line in (folder / "worth.jsonl").read_text().splitlines()][1:]
    config = read_config(folder)
    told = []
    for key, name in MEASURES.items():
        values = np.array([row[key] for row in rows])
        windows = np.convolve(values, np.ones(WINDOW) / WINDOW, "valid")
        last, best, half = windows[-1], windows.max(), values[len(values) // 2 :].mean()
        share = 100 * (best - last) / abs(best)
        told.append(f"{name}: last {last:.0f}, half {half:.0f}, falls by {best - last:.0f} ({share:.0f} %)")
    length = np.mean([row["length"] for row in rows[-WINDOW:]])
    print(f"{folder.name}, seed {config.seed}: " + "; ".join(told) + f"; length at the end {length:.0f}", flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--read"]:
        for path in sorted(Path(sys.argv[2]).glob("*/worth.jsonl")):
            tell(path.parent)
        return
    for job in planned(tyro.cli(Sweep, prog="what_is_learned.py")):
        if not is_finished(job.folder):
            if not run(job.config, job.folder, True, Worth(job.folder)):
                return  # stopped by a signal: the same command goes on
            shutil.rmtree(job.folder / "checkpoints", ignore_errors=True)  # as a sweep does
        tell(job.folder)


if __name__ == "__main__":
    main()
