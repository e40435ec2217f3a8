"""`action_noise`: what is added to the actions while collecting, in place of the agent's own noise.

Stable-Baselines3's `NormalActionNoise` without a mean, of one size for all actions, is the agent's own noise without
its decay, and becomes a setting of it: seeded by the run and stored with it.  Any other noise is an object that is
called once a step; where its numbers come from is its own affair.  Noise is measured in half-widths of the range.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from caql.agents.agent import Array, Policy
from caql.agents.policies import Exploration
from caql.errors import CaqlError


def as_exploration(action_noise: Any) -> Exploration | None:
    """The noise as a setting of the agent, where it is one; a number is its standard deviation."""
    sigma: Any = action_noise
    if type(action_noise).__name__ == "NormalActionNoise":
        mean = np.asarray(getattr(action_noise, "_mu", 1.0), float)
        sizes = np.unique(np.asarray(getattr(action_noise, "_sigma", [0.0, 1.0]), float))
        if mean.any() or len(sizes) != 1:
            return None
        sigma = float(sizes[0])
    if not isinstance(sigma, int | float):
        return None
    if not 0 <= sigma < float("inf"):
        raise CaqlError(f"action_noise = {sigma} must be a finite number, at least 0")
    return Exploration(sigma=float(sigma), decay=1.0, minimum=float(sigma))


class NoisyPolicy:
    """A policy whose actions are given noise by an object.

    own: whether the policy's own exploration stays, as SAC's does.
    """

    def __init__(self, policy: Policy, noise: Any, half: Array, own: bool) -> None:
        self.policy, self.noise, self.half, self.own = policy, noise, half, own

    def begin(self) -> None:
        """An episode begins: a noise that wanders starts anew."""
        if hasattr(self.noise, "reset"):
            self.noise.reset()

    def act(self, state: Array) -> Array:
        return self.policy.act(state)

    def explore(self, state: Array, noise: Array) -> Array:
        action = self.policy.explore(state, noise) if self.own else self.policy.act(state)
        added = np.asarray(self.noise(), np.float32).reshape(-1)
        if added.shape != action.shape:
            raise CaqlError(f"action_noise gave {added.shape[0]} numbers for an action of {action.shape[0]}")
        # The task brings what leaves the range back into it.
        noisy: Array = np.asarray(action + self.half * added, np.float32)
        return noisy
