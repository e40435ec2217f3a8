"""Learning curves: evaluation return over training steps, smoothed over six evaluations as in the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from caql.extras import needed_for
from caql.whole_files import write_atomically

WINDOW = 6


def smooth(values: Any, window: int = WINDOW) -> np.ndarray:
    """The mean of each value and the up to `window` - 1 before it."""
    values = np.asarray(values, float)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts))


def save_curve(records: list[dict[str, Any]], path: Path, title: str) -> None:
    """A picture of one run: each evaluation as a dot, the smoothed curve, one standard deviation as a band."""
    with needed_for("a learning curve"):
        from matplotlib.figure import Figure

    steps = np.array([row["train_step"] for row in records])
    returns = np.array([row["return"] for row in records])
    spread = smooth([row["return_std"] for row in records])
    line = smooth(returns)
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.fill_between(steps, line - spread, line + spread, alpha=0.15, linewidth=0)
    axes.plot(steps, returns, ".", markersize=3, alpha=0.5)
    axes.plot(steps, line, linewidth=2, color="C0")
    axes.set(title=title, xlabel="training steps", ylabel=f"evaluation return (window {WINDOW})")
    axes.grid(alpha=0.3)
    write_atomically(path, lambda file: figure.savefig(file, format=path.suffix[1:]))
