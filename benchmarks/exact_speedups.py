"""What the speed-ups save when max-Q is solved exactly: time per training step and return, side by side.

    python benchmarks/exact_speedups.py [--tasks Hopper HalfCheetah] [--train-steps 20000] [--seeds 1]

Runs of the same seed alternate between the settings; times are the runs' own clocks (max-Q and updating).
"""

from __future__ import annotations

import os

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import argparse

import numpy as np

from caql.agents.caql import CAQLConfig
from caql.config import RunConfig
from caql.maxq.exact import Exact
from caql.training import Training

EXACT = {"solver": Exact(threads=1), "relative_tolerance": 1e-4}
SETTINGS = {
    "exact": EXACT,
    "exact + DTol(1, 1e-4)": EXACT | {"dynamic_tolerance": 1.0, "tolerance": 1e-4},
    "exact + DTol + DF + C(0.25)": EXACT
    | {"dynamic_tolerance": 1.0, "tolerance": 1e-4, "dual_filter": True}
    # Radii in mean state lengths, as in Table 3.
    | {"cluster_radius": 0.25, "cluster_relative": True},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", default=["Hopper", "HalfCheetah"])
    parser.add_argument("--train-steps", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    print("| task | setting | ms a step | of plain | of it max-Q | filtered | clustered | nodes | last return |")
    print("|---|---|---|---|---|---|---|---|---|")
    for task in options.tasks:
        plain = 0.0
        for name, settings in SETTINGS.items():
            found = []
            for seed in range(options.seeds):
                training = Training(
                    RunConfig(task, train_steps=options.train_steps, seed=seed, agent=CAQLConfig(**settings))
                )
                for _ in training.epochs():
                    pass
                rows, seconds = training.records, training.clock.seconds
                # The first evaluation's epochs include compilation.
                first = rows[1]["seconds"]
                steps = rows[-1]["train_step"] - rows[1]["train_step"]
                solving = (seconds["max_q"] - first["max_q"]) / steps
                learning = solving + (seconds["updating"] - first["updating"]) / steps
                means = [np.mean([row[key] for row in rows[1:]]) for key in ("filtered", "clustered", "work")]
                found.append([learning * 1e3, solving * 1e3, *means, np.mean([row["return"] for row in rows[-6:]])])
            ms, solving, filtered, clustered, nodes, value = np.mean(found, axis=0)
            plain = plain or ms
            print(
                f"| {task} | {name} | {ms:.2f} | {ms / plain:.2f} | {solving:.2f} | {filtered:.1%} | {clustered:.1%} "
                f"| {nodes:.1f} | {value:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
