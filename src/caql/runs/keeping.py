"""The weights that a run keeps: those after the 50 exploring episodes that scored best.

What a run has learned it may let go of again, and its last weights may be far from its best.  Exploring episodes tell
how good the weights are as training goes on, at no cost, so the run keeps a copy of the best ones beside the latest
(as the checkpoints of TD7 do: Fujimoto et al. 2023).  Learning and evaluations are the same with or without it: they
go on with the latest weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from caql.runs import checkpoints

STRETCH = 50
"""Exploring episodes that are judged together: those between two of the paper's evaluations."""
Weights = tuple[checkpoints.Arrays, dict[str, int]]
"""An agent's state as named arrays, and the counters of the run at that time."""


class Keeper:
    """The best weights so far, and the returns of the stretch that is going on."""

    def __init__(self) -> None:
        self.returns: list[float] = []
        self.score = -math.inf
        """The mean return of the best stretch."""
        self.weights: Weights | None = None
        """Those at its end; None before the first stretch has ended."""

    def add(self, returns: Sequence[float], weights: Callable[[], Weights]) -> None:
        """Take in exploring episodes that were followed by learning; `weights` copies the latest ones when asked."""
        self.returns += returns
        if len(self.returns) < STRETCH:
            return
        score = float(np.mean(self.returns))
        self.returns = []
        if score >= self.score:
            self.score, self.weights = score, weights()

    def snapshot(self) -> tuple[checkpoints.Arrays, dict[str, Any]]:
        """What a checkpoint holds of it."""
        if self.weights is None:
            return {}, {"returns": self.returns}
        arrays, counters = self.weights
        meta = {"returns": self.returns, "score": self.score, "counters": counters}
        return {f"kept.{name}": array for name, array in arrays.items()}, meta

    @classmethod
    def restored(cls, arrays: checkpoints.Arrays, meta: Any) -> Keeper:
        """Undo `snapshot`, from all arrays of a checkpoint; `CaqlError` for anything mistyped."""
        keeper = cls()
        checkpoints.check_meta({"kept": meta}, kept=dict)
        checkpoints.check_meta({"returns": []} | meta, returns=list)
        keeper.returns = list(meta.get("returns", []))
        checkpoints.check_entries("kept returns", keeper.returns, float)
        if "counters" in meta:
            checkpoints.check_meta(meta, counters=dict)
            checkpoints.check_entries("kept score", [meta.get("score")], float)
            checkpoints.check_meta(meta["counters"], **dict.fromkeys(COUNTERS, int))
            own = {name.removeprefix("kept."): array for name, array in arrays.items() if name.startswith("kept.")}
            keeper.score, keeper.weights = meta["score"], (own, dict(meta["counters"]))
        return keeper


COUNTERS = ("epoch", "train_step", "environment_steps", "episode")
"""What a saved model says of the run's length."""
