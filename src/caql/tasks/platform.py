"""Platform (Masson, Ranchod and Konidaris, 2016): choose how to move, and how far.

A player crosses three platforms with two gaps between them and an enemy walking on each of the first two.  An action
is a choice with a number: run(dx), hop(dx) or leap(dx).  Running lasts a second; a hop or a leap lasts until the
player lands.  The reward is the distance covered as a fraction of the whole way, so an episode that reaches the goal
returns 1.  It ends at the goal, in a gap or on an enemy.

Sizes, speeds and noise are those of the published domain, with the time step of 0.05 s.  Distances are given as
fractions of the farthest of their move, for a Q-network learns little from inputs of 720 beside others of 1.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

RUN, HOP, LEAP = 0, 1, 2
FARTHEST = (30.0, 720.0, 430.0)
"""The largest dx of run, hop and leap."""
WIDTHS, GAPS = (250.0, 275.0, 50.0), (225.0, 235.0)
STARTS = (0.0, WIDTHS[0] + GAPS[0], WIDTHS[0] + GAPS[0] + WIDTHS[1] + GAPS[1])
GOAL = STARTS[2] + WIDTHS[2]
GROUND = 40.0
"""Height of the platforms."""
BODY = (20.0, 30.0)
"""Width and height of the player and of an enemy."""
STEP = 0.05
FASTEST, FASTEST_ON_GROUND, FASTEST_UP = 100.0, 70.0, 200.0
ENEMY_SPEED, NOISE, JUMP_NOISE = 30.0, 0.5, 1.0
GRAVITY, DRAG = 9.8, 0.99
RISE = {HOP: 35.0, LEAP: 25.0}
"""Upward speed at the start of a jump."""


class Platform(gym.Env[NDArray[np.float32], Any]):  # type: ignore[misc]
    """Actions are `(choice, (run, hop, leap))`: which of the three, and for each a fraction of its farthest distance.

    Observation, nine numbers near [0, 1]: the player's position and speed, the position and speed of the enemy at
    hand, and of the present platform its width, the next one's width, the gap, its start, the change in height.
    """

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-1.0, 2.0, (9,), np.float32)
        distances = gym.spaces.Box(0.0, 1.0, (3,), np.float32)
        self.action_space = gym.spaces.Tuple((gym.spaces.Discrete(3), distances))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.x, self.y = 0.0, GROUND
        self.forward, self.up = 0.0, 0.0
        self.enemies = [STARTS[k] + WIDTHS[k] - BODY[0] for k in range(2)]
        self.enemy_speeds = [-ENEMY_SPEED, -ENEMY_SPEED]
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        choice = int(action[0])
        distance = FARTHEST[choice] * _clip(float(np.reshape(action[1], -1)[choice]), 0.0, 1.0)
        began, ticks = self.x, 0
        while True:
            self._advance(choice, distance)
            ticks += 1
            over, at_goal = self._ended()
            if over or (ticks == round(1.0 / STEP) if choice == RUN else self._standing()):
                break
        covered = (GOAL if at_goal else self.x) - began
        return self._observe(), covered / GOAL, over, False, {"ticks": ticks}

    def _advance(self, choice: int, distance: float) -> None:
        """One tick of 0.05 s: push or fall, move, let the enemy walk, come to rest on a platform."""
        if not self._standing():
            self._push(0.0, -GRAVITY)
        elif choice == RUN:
            self._push(distance / STEP, 0.0)
        else:
            rise = RISE[choice]
            forward = distance / (2.0 * rise / GRAVITY + 1.0) - self.forward
            forward = _clip(forward, -(FASTEST - FASTEST_ON_GROUND) / STEP, FASTEST_UP - rise)
            slips = (abs(self.np_random.normal(0.0, JUMP_NOISE)) for _ in range(2))
            self._push((forward - next(slips)) / STEP, (rise - next(slips)) / STEP)
        if self._standing():
            self.forward = _clip(self.forward, 0.0, FASTEST_ON_GROUND)
        self.x = _clip(self.x + STEP * self.forward, 0.0, GOAL)
        self.y += STEP * self.up
        self.forward *= DRAG
        self._walk(self._near())
        self._rest()

    def _push(self, forward: float, up: float) -> None:
        """Change the velocity by an acceleration over one tick; moving costs a little random speed."""
        most = (FASTEST - FASTEST_ON_GROUND) / STEP
        slowed = abs(self.np_random.normal(0.0, NOISE * STEP))
        self.forward = _clip(self.forward + STEP * _clip(forward, -most, most) - slowed, 0.0, FASTEST)
        highest = FASTEST_UP / STEP
        self.up = _clip(self.up + STEP * _clip(up, -highest, highest), -FASTEST_UP, FASTEST_UP)

    def _walk(self, k: int) -> None:
        """The enemy at hand walks to and fro on its platform."""
        right = STARTS[k] + WIDTHS[k] - BODY[0]
        if not STARTS[k] < self.enemies[k] < right:
            self.enemy_speeds[k] *= -1.0
        noisy = self.enemy_speeds[k] + self.np_random.normal(0.0, NOISE * STEP)
        self.enemy_speeds[k] = _clip(noisy, -ENEMY_SPEED, ENEMY_SPEED)
        self.enemies[k] = _clip(self.enemies[k] + STEP * self.enemy_speeds[k], STARTS[k], right)

    def _rest(self) -> None:
        """A player that has sunk into a platform is put back on its top or at its side, whichever is nearer."""
        for start, width in zip(STARTS, WIDTHS, strict=True):
            x, y = self.x, self.y
            if not (start - BODY[0] < x < start + width and -BODY[1] < y < GROUND):
                continue
            aside = start - BODY[0] if x < start else (start + width if x > start + width - BODY[0] else x)
            above = GROUND if y > GROUND - BODY[1] else (-BODY[1] if y < 0.0 else y)
            if aside == x or (above != y and abs(x - aside) >= abs(y - above)):
                self.y, self.up = above, 0.0
            else:
                self.x = aside
            self.forward = 0.0

    def _standing(self) -> bool:
        """Whether the player stands on a platform."""
        return self.y == GROUND and any(
            -BODY[0] <= self.x - start <= width for start, width in zip(STARTS, WIDTHS, strict=True)
        )

    def _near(self) -> int:
        """The enemy at hand: the second from the second platform on."""
        return int(self.x > STARTS[1])

    def _ended(self) -> tuple[bool, bool]:
        """Whether the episode is over, and whether at the goal."""
        level = abs(self.y - GROUND) < BODY[1]
        hit = level and any(abs(self.x - enemy) < BODY[0] for enemy in self.enemies)
        at_goal = self.x >= GOAL
        return at_goal or hit or self.y < GROUND, at_goal

    def _observe(self) -> NDArray[np.float32]:
        x, k = self.x, self._near()
        here = 0 if x < STARTS[1] else (1 if x < STARTS[2] else 2)
        following, gap = (WIDTHS[here + 1], GAPS[here]) if here < 2 else (0.0, 0.0)
        features = [
            (x + BODY[0]) / (GOAL + BODY[0]),
            self.forward / FASTEST,
            self.enemies[k] / GOAL,
            (self.enemy_speeds[k] + ENEMY_SPEED) / (2.0 * ENEMY_SPEED),
            WIDTHS[here] / max(WIDTHS),
            following / max(WIDTHS),
            gap / max(GAPS),
            STARTS[here] / GOAL,
            0.0,
        ]
        return np.array(features, np.float32)


def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
