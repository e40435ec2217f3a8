"""From evaluations to the numbers of a table.

The paper reports the "mean +- standard deviation of (95-percentile) final returns" of curves smoothed over six
evaluations, and does not say how.  The 95th percentile of a run's smoothed curve stands beside the paper's number,
and nowhere else: it picks the luckiest windows, and can lie above what any policy scores on average.  What
a user gets is the mean of the last window; how well it was held, the mean of the second half of training, and how far
the last window fell back from the best one.  What the kept weights score (`runs.keeping`) is read off the same
evaluations.  A cell summarises such numbers over its runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from caql.runs.curves import WINDOW, smooth

RESAMPLES = 2000
CONFIDENCE = 0.95


def windows(values: Sequence[float] | np.ndarray, window: int = WINDOW) -> np.ndarray:
    """The means of all whole windows; of a curve shorter than one, the mean of what there is."""
    if len(values) < window:
        return np.asarray([np.mean(values)])
    return smooth(values, window)[window - 1 :]


def best_return(values: Sequence[float] | np.ndarray) -> float:
    """The 95th percentile of the smoothed curve."""
    return float(np.percentile(windows(values), 95))


def last_return(values: Sequence[float] | np.ndarray) -> float:
    """The mean of the last window."""
    return float(windows(values)[-1])


def second_half_return(values: Sequence[float] | np.ndarray) -> float:
    """The mean of the evaluations in the second half of training, the middle one included."""
    return float(np.mean(values[len(values) // 2 :]))


def fall_back(values: Sequence[float] | np.ndarray) -> float:
    """How far the last window lies below the best one."""
    means = windows(values)
    return float(means.max() - means[-1])


def kept(scores: Sequence[float]) -> np.ndarray:
    """Which evaluation's weights a run has kept at each evaluation, as indices.

    scores: the mean returns of the exploring episodes since the evaluation before, -inf where there were none.
        Between two of the paper's evaluations there are as many episodes as `runs.keeping` judges together.
    """
    best, found = 0, []
    for number, score in enumerate(scores):
        if score >= scores[best]:
            best = number
        found.append(best)
    return np.asarray(found)


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """The mean of the middle half along the last axis: a quarter, rounded down, is cut off at either end."""
    cut = values.shape[-1] // 4
    middle = np.sort(values, axis=-1)[..., cut : values.shape[-1] - cut]
    return np.asarray(middle.mean(axis=-1))


class Summary(NamedTuple):
    """A cell's runs in a few numbers."""

    runs: int
    mean: float
    std: float
    """Of a sample (n - 1); zero for a single run."""
    iqm: float
    low: float
    high: float
    """Bootstrap confidence interval of the interquartile mean."""


def summarise(values: Sequence[float]) -> Summary:
    """Mean, standard deviation, interquartile mean and its 95 % bootstrap interval, the same on every call."""
    sample = np.asarray(values, float)
    rng = np.random.default_rng(0)
    draws = interquartile_mean(sample[rng.integers(len(sample), size=(RESAMPLES, len(sample)))])
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    std = float(sample.std(ddof=1)) if len(sample) > 1 else 0.0
    return Summary(len(sample), float(sample.mean()), std, float(interquartile_mean(sample)), float(low), float(high))


class Band(NamedTuple):
    """A mean curve with its standard deviation over runs."""

    steps: np.ndarray
    mean: np.ndarray
    std: np.ndarray


def band(curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> Band:
    """The smoothed (steps, returns) curves of several runs, at the steps that all of them have."""
    smoothed = []
    for steps, values in curves:
        means = windows(values)
        smoothed.append(dict(zip(steps[-len(means) :].tolist(), means.tolist(), strict=True)))
    shared = sorted(set.intersection(*(set(curve) for curve in smoothed)))
    values = np.asarray([[curve[step] for step in shared] for curve in smoothed]).reshape(len(smoothed), len(shared))
    return Band(np.asarray(shared), values.mean(axis=0), values.std(axis=0))
