"""The public benchmark for action constraints (Kasaura et al., 2023), its linear problems under their own names.

The constraint limits the power that the joints take: w_i are the joints' velocities, read from the observation.

    O: sum |w_i a_i| <= limit    M: sum max(w_i a_i, 0) <= limit    MA: a weighted sum over two joints (`_feet`)

The robots are Gymnasium's present models.  The benchmark's Reacher is PyBullet's; ours is MuJoCo's, whose torques have
the same range, so its numbers do not compare.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from caql.actions import ActionSet

Array = NDArray[np.floating[Any]]


class Constrained(NamedTuple):
    """A problem: the Gymnasium environment, and its admissible actions as a function of (B, n) observations."""

    id: str
    action_set: Callable[[Array], ActionSet]


def _absolute(first: int, joints: int, limit: float) -> Callable[[Array], ActionSet]:
    return lambda x: ActionSet.absolute_budget(weights=x[:, first : first + joints], limit=limit)


def _positive(first: int, joints: int, limit: float) -> Callable[[Array], ActionSet]:
    return lambda x: ActionSet.positive_budget(weights=x[:, first : first + joints], limit=limit)


def _feet(observations: Array) -> ActionSet:
    """HC+MA: w_1 a_1 sin(th_1 + th_2 + th_3) + w_4 a_4 sin(th_4 + th_5 + th_6) <= 5."""
    weights = np.zeros((len(observations), 6))
    weights[:, 0] = observations[:, 11] * np.sin(observations[:, 2:5].sum(axis=1))
    weights[:, 3] = observations[:, 14] * np.sin(observations[:, 5:8].sum(axis=1))
    return ActionSet.budget(weights=weights, limit=5.0)


PROBLEMS = {
    "R+O03": Constrained("Reacher-v5", _absolute(6, 2, 0.3)),
    "R+O10": Constrained("Reacher-v5", _absolute(6, 2, 1.0)),
    "R+O30": Constrained("Reacher-v5", _absolute(6, 2, 3.0)),
    "R+M": Constrained("Reacher-v5", _positive(6, 2, 1.0)),
    "HC+O": Constrained("HalfCheetah-v5", _absolute(11, 6, 20.0)),
    "HC+MA": Constrained("HalfCheetah-v5", _feet),
    "H+M": Constrained("Hopper-v5", _positive(8, 3, 10.0)),
    "W+M": Constrained("Walker2d-v5", _positive(11, 6, 10.0)),
}
"""By the benchmark's names."""
