"""How far a run is from the best that any policy could do, where that is known.

Pendulum's optimal returns were computed once (`caql.experiments.optimum`) from the start states of the runs' own
evaluations and are stored beside that module; a run is compared with them evaluation by evaluation, so that
lucky starts count for both.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

import numpy as np

from caql.config import RunConfig
from caql.experiments.paper import Benchmark
from caql.runs.curves import WINDOW


@cache
def _curves() -> dict[str, np.ndarray]:
    stored = json.loads(files("caql.experiments").joinpath("optimum.json").read_text())
    return {name: np.asarray(rows, float) for name, rows in stored.items() if name.startswith("Pendulum")}


def optimal_return(task: Benchmark) -> float | None:
    """The optimal policy's mean return, over all starts that were replayed; None where it is not known."""
    found = _curves().get(f"{task[0]} {task[1]:g}")
    return None if found is None else float(found.mean())


def last_window_regret(config: RunConfig, returns: np.ndarray) -> float | None:
    """`regret` over the last window."""
    return regret(config, returns, np.arange(len(returns))[-WINDOW:])


def regret(config: RunConfig, returns: np.ndarray, numbers: np.ndarray) -> float | None:
    """The optimal policy's return minus the run's, over the evaluations of these numbers, such as the last window's.

    numbers: indices of `returns`.
    Both are from the same starts, where the run's seed and evaluations are among those replayed; otherwise the
    optimum is its mean over all of them.  None where it is not known.
    """
    if not isinstance(config.action_range, float | int) or config.episode_steps != 200:
        return None
    found = _curves().get(f"{config.task} {config.action_range:g}")
    if found is None:
        return None
    replayed = config.evaluation_episodes == 10 and config.seed < len(found) and numbers.max() < found.shape[1]
    best = found[config.seed, numbers] if replayed else found.mean()
    return float(np.mean(best - returns[numbers]))
