"""What the speed-ups save when max-Q is solved exactly: time per training step and return, side by side.

    python benchmarks/exact_speedups.py [--tasks Hopper HalfCheetah] [--train-steps 20000] [--seeds 1] [--settings ...]

One run of each setting with the same seed after the other.  Times are processor time of one thread: on an idle
machine the same as the time on the wall, on a busy one the better estimate of it.
"""

from __future__ import annotations

import os

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import argparse
import time
from typing import Any

import numpy as np

from caql.agents.caql import CAQLConfig
from caql.config import RunConfig
from caql.maxq.exact.solver import Exact
from caql.runs.training import Training

EXACT = {"solver": Exact(threads=1), "relative_tolerance": 1e-4}
DYNAMIC = EXACT | {"dynamic_tolerance": 1.0, "tolerance": 1e-4}
# Radii in mean state lengths, as in Table 3.
FILTERED = DYNAMIC | {"dual_filter": True, "cluster_relative": True}
SETTINGS = {
    "exact": EXACT,
    "exact + DTol(1, 1e-4)": DYNAMIC,
    "exact + DTol + DF + C(0.25)": FILTERED | {"cluster_radius": 0.25},
    "exact + DTol + DF + C(0.5)": FILTERED | {"cluster_radius": 0.5},
}


def timed(training: Training) -> list[float]:
    """A list that grows by the processor time of each epoch's updates."""
    seconds: list[float] = []
    update = training.agent.update

    def measured(*arguments: Any) -> Any:
        before = time.process_time()
        answer = update(*arguments)
        np.asarray(answer[0].step)  # JAX answers before it has computed
        seconds.append(time.process_time() - before)
        return answer

    training.agent.update = measured  # type: ignore[method-assign]
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", default=["Hopper", "HalfCheetah"])
    parser.add_argument("--train-steps", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    options = parser.parse_args()
    print("| task | setting | ms a step | times faster | filtered | clustered | nodes | last return (each seed) |")
    print("|---|---|---|---|---|---|---|---|")
    for task in options.tasks:
        plain = 0.0
        for name in options.settings:
            found = []
            for seed in range(options.first_seed, options.first_seed + options.seeds):
                training = Training(
                    RunConfig(task, train_steps=options.train_steps, seed=seed, agent=CAQLConfig(**SETTINGS[name]))
                )
                seconds = timed(training)
                for _ in training.epochs():
                    pass
                rows = training.records
                # The first epochs include compilation.
                learning = np.sum(seconds[10:]) / (len(seconds[10:]) * training.config.steps_per_epoch)
                means = [np.mean([row[key] for row in rows[1:]]) for key in ("filtered", "clustered", "work")]
                found.append([learning * 1e3, *means, np.mean([row["return"] for row in rows[-6:]])])
            ms, filtered, clustered, nodes, value = np.mean(found, axis=0)
            plain = plain or ms
            each = ", ".join(f"{row[-1]:.0f}" for row in found)
            print(
                f"| {task} | {name} | {ms:.2f} | {plain / ms:.2f} | {filtered:.1%} | {clustered:.1%} "
                f"| {nodes:.1f} | {value:.0f} ({each}) |",
                flush=True,
            )


if __name__ == "__main__":
    main()
