"""Dot: a point that must be steered to a target, seen as 16 x 16 pixels; a task for encoders of images.

    p <- p + 0.1 a, within the unit square        a in [-1, 1]^2
    reward = -|p - target|

The image has two channels, one for the point and one for the target, each a spot of light shared by the four nearest
pixels, so that positions between pixels are seen too.  The best policy goes straight at the target and stays there:
`best_action`; its return is what a learner can be held against.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

SIDE = 16
SPEED = 0.1
STEPS = 40

Array = np.ndarray[Any, np.dtype[Any]]


class Dot(gym.Env[Array, Array]):  # type: ignore[misc]
    """Observations are uint8 (16, 16, 2), channels last; an episode is cut off after 40 steps."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(0, 255, (SIDE, SIDE, 2), np.uint8)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.point = self.target = np.full(2, 0.5)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.point, self.target = self.np_random.random((2, 2))
        self.steps = 0
        return self._image(), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.point = np.clip(self.point + SPEED * np.asarray(action, np.float64), 0.0, 1.0)
        self.steps += 1
        return self._image(), -self.distance, False, self.steps >= STEPS, {}

    @property
    def distance(self) -> float:
        """From the point to the target."""
        return float(np.linalg.norm(self.point - self.target))

    def best_action(self) -> Array:
        """Straight to the target, as fast as the faster of the two axes allows."""
        way = (self.target - self.point) / SPEED
        return way / max(1.0, float(np.abs(way).max()))

    def _image(self) -> Array:
        image = np.zeros((SIDE, SIDE, 2))
        for channel, place in enumerate((self.point, self.target)):
            at = place * (SIDE - 1)
            low = np.minimum(at.astype(int), SIDE - 2)
            (y, x), (v, u) = low, at - low
            image[y : y + 2, x : x + 2, channel] = np.outer([1 - v, v], [1 - u, u])
        return np.rint(255 * image).astype(np.uint8)
