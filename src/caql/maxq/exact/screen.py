"""Rows that cannot be solved, sorted out before the search sees them.

A number that is not finite in a row's bias, action set, warm start or tolerance fails that row, one in the
shared weights fails them all, and a box whose low exceeds its high is empty; so is a set with such a row.
The others are solved as if nothing had happened.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from caql.maxq.exact.compilation import compiled, is_finite
from caql.maxq.exact.rows import Region
from caql.maxq.exact.threads import Batch, region_of

WANTED = 1
LIMITED, FAILED, SKIPPED, INFEASIBLE = 2, 3, 4, 5
"""Values of `caql.maxq.problem.Status`; a test compares them."""


@compiled
def all_finite(numbers: NDArray[np.float64]) -> bool:
    """Whether no entry of a vector is NaN or infinite."""
    finite = True
    for i in range(numbers.size):
        finite = finite and is_finite(numbers[i])
    return finite


@compiled
def sound_rows(region: Region) -> tuple[bool, bool]:
    """Whether the rows of a set are finite numbers, but for sides that are missing, and whether no side is crossed."""
    sound, crossed = True, False
    for r in range(region.rows.shape[0]):
        bottom, top = region.row_low[r], region.row_high[r]
        sound = sound and all_finite(region.rows[r]) and bottom < np.inf and top > -np.inf
        crossed = crossed or bottom > top
    return sound, crossed


@compiled
def screen(batch: Batch) -> None:
    """Write into `wanted` the status of each row that cannot be solved, and give it an action inside its bounds."""
    weights_finite = all_finite(batch.stack.flat)
    for b in range(batch.wanted.size):
        region, action = region_of(batch.sets, b), batch.actions[b]
        low, high = region.low, region.high
        sound, crossed = sound_rows(region)
        for k in range(low.size):
            crossed = crossed or low[k] > high[k]
        d = batch.stack.sizes[0]  # auxiliary variables may be without bounds of their own
        sound = sound and weights_finite and all_finite(batch.stack.first_bias[b])
        sound = sound and all_finite(low[:d]) and all_finite(high[:d]) and all_finite(action)
        sound = sound and is_finite(batch.tolerance[0, b]) and is_finite(batch.tolerance[1, b])
        if sound and not crossed:
            continue
        if batch.wanted[b] == WANTED:
            batch.wanted[b] = FAILED if not sound else INFEASIBLE
        for k in range(low.size):
            guess = action[k] if is_finite(action[k]) else 0.5 * (low[k] + high[k])
            if guess < low[k]:
                guess = low[k]
            if guess > high[k]:
                guess = high[k]
            action[k] = guess if is_finite(guess) else 0.0


@compiled
def set_down(answer: NDArray[np.float64], wanted: int) -> None:
    """The answer of a row that is not searched, whose value is in place: masked out, refused or interrupted."""
    answer[1], answer[2], answer[3], answer[4], answer[5] = np.inf, SKIPPED, 0, 0, 0
    if wanted == WANTED:
        answer[2] = LIMITED
    elif wanted == FAILED:
        answer[0], answer[2] = np.nan, FAILED
    elif wanted == INFEASIBLE:
        answer[0], answer[1], answer[2] = -np.inf, -np.inf, INFEASIBLE
