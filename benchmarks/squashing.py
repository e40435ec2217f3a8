"""Which way onto the admissible set is better for the action function: the closest point, or radial squashing?

    python benchmarks/squashing.py [--train-steps 10000] [--seeds 3] [--task Pendulum]

Two maps from the network's output onto A(x).  `tanh`: into the box, then the closest admissible action, with the
gradient of no projection (straight through).  `radial`: along the ray from a point inside, as far as the set reaches.
The task is Pendulum whose motor has a limited power, |w a| <= 2 with w the angular velocity, so that the set depends on
the state and cuts off most of the torques of a fast swing; or any constrained task by name.  Everything else is equal:
solver, seeds, networks, noise.  Printed: the return of the last window and of the second half, for each seed, and the
audit's shortfall of the action function, how far Q at its action is below the proved maximum.
"""

from __future__ import annotations

import os

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import argparse
import time
from typing import Any

import numpy as np

from caql.actions import ActionSet
from caql.agents.caql import CAQLConfig
from caql.config import RunConfig
from caql.environments import make_task
from caql.experiments.report.statistics import last_return, second_half_return
from caql.maxq.solvers import make_solver
from caql.runs.training import Training

SQUASHINGS = ("tanh", "radial")


def power(observations: Any) -> ActionSet:
    """Pendulum's motor gives and takes at most 2: |w a| <= 2."""
    return ActionSet.absolute_budget(weights=observations[:, 2:3], limit=2.0)


def train(task: str, squash: str, seed: int, train_steps: int) -> dict[str, float]:
    """One run, and what it came to."""
    agent = CAQLConfig(solver=make_solver("exact", threads=1), squash=squash, relative_tolerance=1e-4, audit=500)  # type: ignore[arg-type]
    config = RunConfig(task, train_steps=train_steps, seed=seed, evaluate_every=train_steps // 20, agent=agent)
    training = Training(config, make_task(task, action_set=power if task == "Pendulum" else None))
    began = time.process_time()
    for _ in training.epochs():
        pass
    returns = [row["return"] for row in training.records]
    late = training.records[len(training.records) // 2 :]
    known = [row["audit_action_shortfall"] for row in late if "audit_action_shortfall" in row]
    return {
        "last": last_return(returns),
        "half": second_half_return(returns),
        "shortfall": float(np.mean(known)) if known else float("nan"),
        "violations": sum(row["violations"] for row in training.records),
        "seconds": time.process_time() - began,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="Pendulum")
    parser.add_argument("--train-steps", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {squash: [] for squash in SQUASHINGS}
    for seed in range(options.seeds):
        for squash in SQUASHINGS:
            found[squash].append(train(options.task, squash, seed, options.train_steps))
            shown = ", ".join(f"{name} {value:.4g}" for name, value in found[squash][-1].items())
            print(f"{options.task}, {squash}, seed {seed}: {shown}", flush=True)
    for squash, runs in found.items():
        means = {name: np.mean([run[name] for run in runs]) for name in runs[0]}
        print(f"{squash}: " + ", ".join(f"{name} {value:.4g}" for name, value in means.items()))


if __name__ == "__main__":
    main()
