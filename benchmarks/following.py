"""How well CAQL's action function follows its maximiser while a run goes on, and what holds it back where it does not.

    python benchmarks/following.py table1 --tasks halfcheetah-0.5 --methods caql-ga --seeds 2 --first-seed 20 --out DIR
    python benchmarks/following.py --read DIR

Takes the options of `caql sweep` and trains what it would, one run after another; the runs are the same as without it.
Every 5,000 training steps it takes 256 states from the replay buffer, solves each exactly, and writes a row to
`following.jsonl` in the run's folder:

    output     mean size of the action function's outputs before tanh
    flat       share of its actions within 0.0001 half ranges of an end
    corners    share of the maximisers' actions that lie at an end of their range
    away       mean distance of its action from the maximiser's, in half ranges
    short      mean of max Q - Q(x, pi(x))
    uphill     mean of what a straight step to the better end of each action would gain by Q's slope at pi(x)
    passes     share of that slope which tanh lets through to the outputs

Where `short` is large and `uphill` small, the action function sits at a local maximum; where both are large and
`passes` is small, it would know where to go and tanh does not let it.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from caql.cli.sweep import Sweep, planned
from caql.maxq.solvers import make_solver
from caql.networks import folded_value, forward
from caql.runs.folder import is_finished, read_config, run
from caql.runs.progress import Silent
from caql.runs.training import Epoch, Training
from caql.whole_files import write_atomically

EVERY, STATES, TOLERANCE = 5_000, 256, 1e-4
SHOWN = ("output", "flat", "corners", "away", "short", "uphill", "passes")


def measured(training: Training) -> dict[str, float]:
    """One row, without `train_step` and `return`; draws from a generator of its own."""
    agent, state = training.agent, training.state
    rng = np.random.default_rng(training.train_step)
    seen = training.replay.columns["next_states"][rng.integers(0, len(training.replay), STATES)]
    problem = agent.max_q(state, seen, TOLERANCE)
    solution = make_solver("exact").solve(problem, None)
    guess = np.asarray(problem.warm_start)
    slope = np.asarray(jax.grad(lambda actions: jnp.sum(folded_value(problem.network, actions)))(problem.warm_start))
    centre, radius = np.asarray(agent.spec.action_set.centre), np.asarray(agent.spec.action_set.radius)
    outputs = forward(agent.action_function.network.layers(state.action_function.vector), seen)
    share, best = (guess - centre) / radius, (np.asarray(solution.actions) - centre) / radius
    gains = np.maximum(slope * radius * (1 - share), slope * radius * (-1 - share))
    return {
        "output": float(np.abs(np.asarray(outputs)).mean()),
        "flat": float((np.abs(share) > 1 - 1e-4).mean()),
        "corners": float((np.abs(best) > 1 - 1e-6).mean()),
        "away": float(np.abs(best - share).mean()),
        "short": float(np.mean(np.asarray(solution.values) - folded_value(problem.network, problem.warm_start))),
        "uphill": float(gains.sum(-1).mean()),
        "passes": float((np.abs(slope * radius) * (1 - share**2)).sum() / np.abs(slope * radius).sum()),
    }


class Following(Silent):
    """Writes `following.jsonl` beside a run's metrics."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "following.jsonl"
        self.rows: list[dict[str, float]] = []

    def follow(self, training: Training) -> contextlib.AbstractContextManager[None]:
        self.training = training
        old = self.path.read_text().splitlines() if self.path.exists() else []
        self.rows = [row for row in map(json.loads, old) if row["train_step"] <= training.train_step]
        return contextlib.nullcontext()

    def epoch(self, epoch: Epoch) -> None:
        if epoch.evaluation is None or epoch.train_step % EVERY or not epoch.train_step:
            return
        row = {"train_step": epoch.train_step, "return": epoch.evaluation["return"]}
        self.rows.append(row | measured(self.training))
        text = "".join(json.dumps(each) + "\n" for each in self.rows)
        write_atomically(self.path, lambda file: file.write_text(text))


def tell(folder: Path) -> None:
    """Print what a run's rows say."""
    print(f"{folder.name}, seed {read_config(folder).seed}")
    print(f"{'step':>9}{'return':>9}" + "".join(f"{name:>9}" for name in SHOWN))
    for line in (folder / "following.jsonl").read_text().splitlines():
        row = json.loads(line)
        print(
            f"{row['train_step']:9,}{row['return']:9.0f}" + "".join(f"{row[name]:9.3f}" for name in SHOWN), flush=True
        )


def main() -> None:
    if sys.argv[1:2] == ["--read"]:
        for path in sorted(Path(sys.argv[2]).glob("*/following.jsonl")):
            tell(path.parent)
        return
    for job in planned(tyro.cli(Sweep, prog="following.py")):
        if not is_finished(job.folder):
            if not run(job.config, job.folder, True, Following(job.folder)):
                return  # stopped by a signal: the same command goes on
            shutil.rmtree(job.folder / "checkpoints", ignore_errors=True)  # as a sweep does
        tell(job.folder)


if __name__ == "__main__":
    main()
