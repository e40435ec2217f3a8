"""Labels over several steps: transitions in which n rewards are added up before Q is asked (Watkins, 1989).

    y = r_t + gamma r_{t+1} + ... + gamma^{m-1} r_{t+m-1} + gamma^m * continues * V(x_{t+m})

m is n, or less where a stretch of steps ends before.  Such a transition is stored like any other: its reward is the
sum, its next state the last one, and its `continues` carries the factor gamma^{m-1}, so that every algorithm's
one-step label is the equation above.  Nothing corrects for the noise in the actions after the first.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from caql.replay import Batch


def n_step(transitions: Batch, pieces: Sequence[int], steps: int, discount: float) -> Batch:
    """Transitions (leading axis: time) with labels over `steps` steps.

    pieces: lengths of the stretches that the transitions consist of, each of one episode.
    discount: gamma.
    """
    ends = np.repeat(np.cumsum(pieces), pieces)
    first = np.arange(len(ends))
    rewards = np.zeros_like(transitions.rewards)
    last, alive = first.copy(), np.ones(len(ends), bool)
    for ahead in range(steps):
        rows = np.minimum(first + ahead, ends - 1)
        alive &= first + ahead < ends
        rewards += np.where(alive, np.float32(discount**ahead) * transitions.rewards[rows], 0)
        last = np.where(alive, rows, last)
        alive &= transitions.continues[rows] > 0
    factor = np.float32(discount) ** (last - first).astype(np.float32)
    return transitions._replace(
        rewards=rewards,
        next_states=transitions.next_states[last],
        continues=transitions.continues[last] * factor,
        next_sets=jax.tree.map(lambda column: column[last], transitions.next_sets),
    )
