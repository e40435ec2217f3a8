"""Environments that break Gymnasium's contract, or strain it, each in one way."""

import gymnasium as gym
import numpy as np


class Counting(gym.Env):
    """State = steps since the reset; ends after ten.  `last_action` and `total` are there to look at."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, fault=None, at=13):
        self.fault, self.at, self.t, self.total, self.last_action = fault, at, 0, 0, None

    def observe(self):
        return np.array([self.t, -self.t], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        if self.fault in RESETS and self.total >= self.at:
            return RESETS[self.fault](self)
        return self.observe(), {}

    def step(self, action):
        self.t += 1
        self.total += 1
        self.last_action = action
        if self.fault in STEPS and self.total == self.at:
            return STEPS[self.fault][0](self)
        return self.observe(), 1.0, False, self.t >= 10, {}


def _raise(_):
    raise RuntimeError("the simulator\nis gone")


STEPS = {
    "nan": (lambda env: (np.array([np.nan, 0]), 1.0, False, False, {}), "non-finite observation"),
    "infinite": (lambda env: (np.array([0, np.inf]), 1.0, False, False, {}), "non-finite observation"),
    "shape": (lambda env: (np.zeros(3), 1.0, False, False, {}), r"of shape \(3,\); its observation_space has \(2,\)"),
    "matrix": (lambda env: (np.zeros((1, 2)), 1.0, False, False, {}), r"of shape \(1, 2\)"),
    "nothing": (lambda env: (None, 1.0, False, False, {}), "gave None as its observation"),
    "words": (lambda env: ("here", 1.0, False, False, {}), "gave 'here' as its observation, not numbers"),
    "ragged": (lambda env: ([[1], [1, 2]], 1.0, False, False, {}), "as its observation, not numbers"),
    "reward none": (lambda env: (env.observe(), None, False, False, {}), "gave None as its reward"),
    "reward nan": (lambda env: (env.observe(), float("nan"), False, False, {}), "non-finite reward, nan"),
    "reward infinite": (lambda env: (env.observe(), float("inf"), False, False, {}), "non-finite reward, inf"),
    "reward huge": (lambda env: (env.observe(), 10**400, False, False, {}), "as its reward; it must be one number"),
    "rewards": (lambda env: (env.observe(), np.ones(2), False, False, {}), "as its reward; it must be one number"),
    "reward ragged": (lambda env: (env.observe(), [[1], [1, 2]], False, False, {}), "as its reward"),
    "reward words": (lambda env: (env.observe(), "1", False, False, {}), "gave '1' as its reward"),
    "terminated none": (lambda env: (env.observe(), 1.0, None, False, {}), "terminated = None"),
    "terminated two": (lambda env: (env.observe(), 1.0, 2, False, {}), "terminated = 2"),
    "truncated nan": (lambda env: (env.observe(), 1.0, False, float("nan"), {}), "truncated = nan"),
    "truncated ragged": (lambda env: (env.observe(), 1.0, False, [[1], [1, 2]], {}), "truncated = "),
    "four": (lambda env: (env.observe(), 1.0, False, {}), "it must return observation, reward, terminated"),
    "no answer": (lambda env: None, "step returned None"),
    "raises": (_raise, r"step raised RuntimeError: the simulator is gone \(misbehaving\.py, line \d+\)"),
}
"""Fault of the step `at` -> what is returned, and words of the error."""
RESETS = {
    "reset raises": _raise,
    "reset without info": lambda env: env.observe(),
    "reset nan": lambda env: (np.full(2, np.nan), {}),
}
RESET_WORDS = {
    "reset raises": "reset raised RuntimeError",
    "reset without info": "reset returned array",
    "reset nan": "non-finite observation",
}


class Reusing(Counting):
    """Answers with one array, changed in place, and scribbles over the action it was given."""

    def __init__(self):
        super().__init__()
        self.array = np.zeros(2, np.float32)

    def observe(self):
        self.array[:] = self.t, -self.t
        return self.array

    def step(self, action):
        answer = super().step(action)
        action[:] = 77.0
        return answer


class Endless(Counting):
    """Never ends."""

    def step(self, action):
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, False, info


for _name, _fault in (("Raising", "raises"), ("Wordless", "nothing"), ("Whole", None)):
    if f"{_name}-v0" not in gym.registry:
        gym.register(f"{_name}-v0", lambda fault=_fault, **_: Counting(fault))
