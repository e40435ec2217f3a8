"""How long a run takes, before it is run: a few measured constants, or better, the finished runs themselves."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from caql.config import RunConfig
from caql.experiments.sweep.sweep import last_row, method_name
from caql.runs.folder import read_config

STEP = {
    "Pendulum": 45e-6,
    "Hopper": 245e-6,
    "Walker2D": 280e-6,
    "HalfCheetah": 100e-6,
    "Ant": 500e-6,
    "Humanoid": 520e-6,
}
"""Seconds for an environment step with its action, one core."""
UPDATE = {
    "caql-exact": 5e-3,
    "caql-mip": 5.0,
    "caql-ga": 0.45e-3,
    "caql-cem": 10e-3,
    "naf": 0.15e-3,
    "ddpg": 0.25e-3,
    "td3": 0.2e-3,
    "sac": 0.4e-3,
}
"""Seconds for a gradient step on a minibatch of 64 with 32 x 16 networks, one core."""

Rates = dict[tuple[str, str, int | None], float]
"""(task, method, episode steps) -> seconds for a training step, all included."""


def measured(results: Path) -> Rates:
    """The median cost of a training step in the finished runs of a results folder."""
    found: dict[tuple[str, str, int | None], list[float]] = defaultdict(list)
    for path in results.glob("*/finished.json"):
        try:
            row = last_row(path.parent / "metrics.jsonl")
            config = read_config(path.parent)
            rate = sum(row["seconds"].values()) / row["train_step"]
            if not 0 <= rate < math.inf:
                continue
        except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
            continue
        found[config.task, method_name(config), config.episode_steps].append(rate)
    return {key: statistics.median(rates) for key, rates in found.items()}


def seconds(config: RunConfig, rates: Rates) -> float:
    """An estimate for one run on one core."""
    method = method_name(config)
    known = rates.get((config.task, method, config.episode_steps))
    if known is not None:
        return known * config.train_steps
    episodes = config.train_steps / config.steps_per_epoch
    if config.evaluate_every:
        episodes += config.train_steps / config.evaluate_every * config.evaluation_episodes
    acting = episodes * (config.episode_steps or 1000) * STEP.get(config.task, 300e-6)
    return acting + config.train_steps * UPDATE.get(method, 1e-3) * _work(config)


def _work(config: RunConfig) -> float:
    """How much more a gradient step costs than with the sizes that were measured."""
    hidden = config.agent.hidden
    # Matrix products of networks this small cost less than what surrounds them until they are much larger.
    units: float = max(1.0, sum(a * b for a, b in itertools.pairwise(hidden)) / 20_000)
    iterations: float = getattr(getattr(config.agent, "solver", None), "iterations", 20) / 20
    return units * max(1.0, 0.7 * iterations)


def total(configs: Iterable[RunConfig], rates: Rates, workers: int = 1) -> float:
    """An estimate for many runs side by side."""
    return sum(seconds(config, rates) for config in configs) / workers


def in_words(duration: float) -> str:
    """`50 s`, `12 min`, `3.5 h`, `2.1 days`."""
    if duration < 90:
        return f"{duration:.0f} s"
    if duration < 5400:
        return f"{duration / 60:.0f} min"
    if duration < 48 * 3600:
        return f"{duration / 3600:.1f} h"
    return f"{duration / 86400:.1f} days"
