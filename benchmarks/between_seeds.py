"""How far the seeds of one configuration end from each other: what a number with few seeds behind it is worth.

    python benchmarks/between_seeds.py results/paper

Reads finished runs on robots and trains nothing.  Each configuration that was run with two seeds or more counts once,
by the mean difference of its pairs of seeds in the last window, the mean of the last six evaluations.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import numpy as np

from caql.experiments.report.results import Run, read_paths

EPISODE = 200
"""Steps of the paper's episodes; returns of longer ones are of another size."""


def differences(runs: list[Run]) -> dict[str, list[tuple[float, float]]]:
    """By method: (mean difference of two seeds, mean return) of each configuration that has at least two."""
    groups: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    # Where a run was made a second time, with latency probes, the plain one counts.
    for run in sorted(runs, key=lambda run: bool(run.latency), reverse=True):
        if run.state == "finished" and run.config.task != "Pendulum" and run.config.episode_steps == EPISODE:
            own = {name: value for name, value in run.config.distinctive.items() if name != "seed"}
            groups[run.method, repr(own)][run.config.seed] = run.last
    found = defaultdict(list)
    for (method, _), ends in groups.items():
        pairs = [abs(one - other) for one, other in combinations(ends.values(), 2)]
        if pairs:
            found[method].append((float(np.mean(pairs)), float(np.mean(list(ends.values())))))
    return dict(sorted(found.items()))


def main() -> None:
    """Print the table."""
    if len(sys.argv) < 2:
        raise SystemExit("name folders of runs: python benchmarks/between_seeds.py results/paper")
    found = differences(read_paths([Path(name) for name in sys.argv[1:]]).runs)
    print(f"{'':12}{'configurations':>16}{'quarter':>9}{'median':>9}{'quarter':>9}{'median / return':>17}")
    found["all"] = [cell for cells in found.values() for cell in cells]
    for method, cells in found.items():
        apart = [difference for difference, _ in cells]
        low, middle, high = np.percentile(apart, [25, 50, 75])
        share = np.median([difference / mean for difference, mean in cells])
        print(f"{method:12}{len(cells):16}{low:9.0f}{middle:9.0f}{high:9.0f}{share:17.2f}")


if __name__ == "__main__":
    main()
