"""Small environments whose admissible actions are counted: budgets, choices, mixed spaces."""

import gymnasium as gym
import numpy as np

from caql.actions import ActionSet

WIDE, TWO = ActionSet.bounds(-3, 3, 1), ActionSet.budget([1.0, 1.0], 1.0)
EMPTY, ENDLESS = ActionSet.budget([1.0], -3.0), ActionSet.budget([1.0], 1.0).map(lambda array: array * np.nan)
"""Sets that do not fit the pendulum's one action within [-2, 2]."""


class Budgeted(gym.Env):
    """Three pushes on a point; w and the limits change with every step, and so do the admissible pushes.

        |w_1 a_1| + |w_2 a_2| + |w_3 a_3| <= limit(x),    a_1 >= least(x)

    `violations` counts the actions that broke either, without any tolerance.
    """

    def __init__(self, dtype=np.float32, steps=25):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (5,), dtype)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (3,), dtype)
        self.dtype, self.steps = dtype, steps
        self.violations = self.taken = 0

    def action_set(self, observation):
        x = np.atleast_2d(np.asarray(observation, np.float64))
        least = np.concatenate([-x[:, 4:] / 8, np.full((len(x), 2), -np.inf)], axis=1)
        return ActionSet.absolute_budget(x[:, 1:4], x[:, 4]) & ActionSet.bounds(least, np.inf)

    def observe(self):
        self.x = np.concatenate([[self.place], self.np_random.normal(0, 2, 3), self.np_random.uniform(0.2, 2, 1)])
        self.x = self.x.astype(self.dtype)
        return self.x

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.t = 0.0, 0
        return self.observe(), {}

    def step(self, action):
        assert action.dtype == self.dtype
        assert action.shape == (3,)
        exact, x = action.astype(np.float64), self.x.astype(np.float64)
        within = np.abs(x[1:4] * exact).sum() <= x[4] and exact[0] >= -x[4] / 8 and (np.abs(exact) <= 1).all()
        self.violations += not within
        self.taken += 1
        self.place += float(exact.sum())
        self.t += 1
        return self.observe(), -abs(self.place - 2), abs(self.place) > 12, self.t == self.steps, {}


class Mixed(gym.Env):
    """A choice with a strength, as a Tuple or a Dict; remembers whether each action belonged to the space."""

    observation_space = gym.spaces.Box(-9, 9, (2,))

    def __init__(self, kind=tuple):
        parts = gym.spaces.Discrete(3, start=1), gym.spaces.Box(-1.0, 1.0, (2,))
        self.action_space = gym.spaces.Tuple(parts) if kind is tuple else gym.spaces.Dict(pick=parts[0], how=parts[1])
        self.kind, self.picked = kind, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.np_random.normal(size=2).astype(np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        pick, how = action if self.kind is tuple else (action["pick"], action["how"])
        self.picked.append(int(pick))
        self.t += 1
        reward = float(pick == 2) - float(np.abs(how).sum())
        return self.np_random.normal(size=2).astype(np.float32), reward, False, self.t == 10, {}


class Closing(Budgeted):
    """The budget is negative after a while: no action is admissible any more."""

    def action_set(self, observation):
        limit = 1.0 if self.t < 4 else -1.0
        return ActionSet.linear(np.ones((1, 3)), high=limit) & ActionSet.linear(np.ones((1, 3)), low=0.0)


class EveryKind(gym.Env):
    """One set with every kind of limit at once, most of them changing with the state; each is counted by its sentence.

    a0 + a1 = share(x);  a2 = 0 or 0.5 <= a2 <= 2;  a3 a whole number, at least least(x);
    |a4 - last a4| <= 0.25;  at most one of a5, a6 is not zero;  a0 + a2 + a3 + a5 <= limit(x)
    """

    def __init__(self, dtype=np.float32, steps=25):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), dtype)
        low, high = np.array([0, 0, 0, -2, -1, -1, -1]), np.array([1, 1, 2, 2, 1, 1, 1])
        self.action_space = gym.spaces.Box(low.astype(dtype), high.astype(dtype), dtype=dtype)
        self.dtype, self.steps = dtype, steps
        self.violations, self.taken = {}, 0

    def action_set(self, observation):
        x = np.atleast_2d(np.asarray(observation, np.float64))
        share, limit, last, least = (x[:, k] for k in range(4))
        bounds = np.tile(np.array([0.0, 0, 0, -2, -1, -1, -1]), (len(x), 1))
        bounds[:, 3] = least
        return (
            ActionSet.equality([1.0, 1, 0, 0, 0, 0, 0], share)
            & ActionSet.off_or_between([0.5], [2.0]).at([2], 7)
            & ActionSet.whole(7, [3])
            & ActionSet.bounds(bounds, np.array([1.0, 1, 2, 2, 1, 1, 1]))
            & ActionSet.rate_limit(np.repeat(last[:, None], 1, axis=1), [0], 0.25).at([4], 7)
            & ActionSet.at_most(1, [-1.0, -1.0], [1.0, 1.0]).at([5, 6], 7)
            & ActionSet.budget([1.0, 0, 1, 1, 0, 1, 0], limit)
        )

    def observe(self):
        drawn = self.np_random.uniform([0.2, 0.5, 0, -2], [1.0, 2.0, 0, 0])
        drawn[2] = self.last
        self.x = drawn.astype(self.dtype)
        return self.x

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.last, self.t = 0.0, 0
        return self.observe(), {}

    def step(self, action):
        assert action.dtype == self.dtype
        a, x = action.astype(np.float64), self.x.astype(np.float64)
        rounding = max(8 * float(np.finfo(self.dtype).eps), 1e-11)  # of the dtype, or of the host's float64 solver
        broken = {
            "equality": abs(a[0] + a[1] - x[0]) > rounding,
            "off or between": not (a[2] == 0 or 0.5 <= a[2] <= 2),
            "whole": a[3] != round(a[3]) or not x[3] <= a[3] <= 2,
            "rate": abs(a[4] - x[2]) > 0.25,
            "at most one": a[5] != 0 and a[6] != 0,
            "budget": a[0] + a[2] + a[3] + a[5] > x[1],
            "space": not self.action_space.contains(action),
        }
        for name, wrong in broken.items():
            self.violations[name] = self.violations.get(name, 0) + bool(wrong)
        self.taken += 1
        self.t += 1
        self.last = float(a[4])
        return self.observe(), float(a[1] - a[2] ** 2 + a[4]), False, self.t == self.steps, {}
