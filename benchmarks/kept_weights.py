"""What runs kept beside what they ended with, method by method.

    python benchmarks/kept_weights.py [results/paper]

Reads finished runs with the paper's episodes of 200 steps and trains nothing.  Robots: the mean of the last six
evaluations, what the kept weights scored in their evaluation, and how far each lies below the best window.  Pendulum:
regrets to the optimal policy, because there an evaluation's return depends on its starts more than on the policy.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from caql.experiments.report.results import Run, read_results


def method(run: Run) -> str:
    """Its name, and whether it is CAQL with several critics."""
    return run.method + (" of two critics" if getattr(run.config.agent, "critics", 1) > 1 else "")


def main() -> None:
    """Print a line for each method."""
    robots: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    pendulum: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for run in read_results(Path(sys.argv[1] if len(sys.argv) > 1 else "results/paper")).runs:
        # Returns of longer episodes are several times as large and would outweigh all others.
        if run.state != "finished" or run.latency or run.kept is None or run.config.episode_steps != 200:
            continue
        if run.regret is None:
            robots[method(run)].append((run.last, run.kept, run.fall, run.kept_fall or 0.0))
        else:
            pendulum[method(run)].append((run.regret, run.kept_regret or 0.0))
    robots["all"] = [row for rows in robots.values() for row in rows]
    print("robots: runs, of which higher with the kept weights; last window -> kept; fall -> fall of the kept")
    for name, rows in robots.items():
        last, kept, fall, kept_fall = np.mean(rows, axis=0)
        higher = sum(row[1] > row[0] for row in rows)
        print(f"  {name:25} {len(rows):3} {higher:3}  {last:5.0f} -> {kept:5.0f}  {fall:4.0f} -> {kept_fall:4.0f}")
    print("Pendulum: runs, of which lower with the kept weights; regret of the last window -> of the kept")
    for name, rows in pendulum.items():
        last, kept = np.mean(rows, axis=0)
        lower = sum(row[1] < row[0] for row in rows)
        print(f"  {name:25} {len(rows):3} {lower:3}  {last:5.0f} -> {kept:5.0f}")


if __name__ == "__main__":
    main()
