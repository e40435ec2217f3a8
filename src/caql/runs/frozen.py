"""Entries of the action that no longer move: the sign of an actor whose outputs no gradient reaches any more.

tanh brings outputs into the range of the actions, and far out its slope is 0 in float32.  An actor that has come there
gives the same end of the range at every state for as long as the run goes on; nothing else in the records tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from caql.actions import ActionSet
from caql.agents.agent import Array, Policy

NEAR = 1e-4
"""Half ranges from an end within which an action counts as lying there."""
IN_A_ROW = 6
"""Evaluations without a movement before it is told."""


class Extent:
    """A policy that remembers the smallest and the largest greedy action that it gave, entry by entry."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.smallest: Array | None = None
        self.largest: Array | None = None

    def act(self, state: Array) -> Array:
        action = self.policy.act(state)
        if self.smallest is None or self.largest is None:
            self.smallest, self.largest = action.copy(), action.copy()
        else:
            np.minimum(self.smallest, action, out=self.smallest)
            np.maximum(self.largest, action, out=self.largest)
        return action

    def explore(self, state: Array, noise: Array) -> Array:
        return self.policy.explore(state, noise)

    def frozen(self, box: ActionSet) -> int:
        """How many entries have stayed at one end of their range in `box`; those without a range do not count."""
        if self.smallest is None or self.largest is None:
            return 0
        near = NEAR * np.asarray(box.radius)
        stayed = (self.largest <= box.low + near) | (self.smallest >= box.high - near)
        return int(np.sum(stayed & (near > 0)))


def warning(records: Sequence[dict[str, Any]], agent: Any, size: int) -> str | None:
    """What to tell after an evaluation: once, when the whole action has not moved in the last `IN_A_ROW` of them.

    agent: its configuration; nothing is told of one that `saturation_penalty` could not help, or has helped already.
    size: entries of an action.
    """
    helped = getattr(agent, "saturation_penalty", None) != 0 or getattr(agent, "action_function", "") == "none"
    if helped or getattr(agent, "squash", "tanh") not in ("tanh", "radial"):
        return None
    streak = 0
    for row in reversed(records):
        if row.get("frozen") != size:
            break
        streak += 1
    if streak != IN_A_ROW:
        return None
    return (
        f"the action has stayed at one end of its range in the last {IN_A_ROW} evaluations, whatever the state: "
        f"{agent.name}'s outputs are where tanh has no slope, and may not come back; saturation_penalty = 1 prevents it"
    )
