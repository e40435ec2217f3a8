"""Several environments that step together: those of Gymnasium and of Stable-Baselines3, for collecting.

Each of the N environments is a `Task` of its own, which narrows its actions and checks its answers; only the step
itself is one call for all.  What the two libraries do at the end of an episode differs, and is the same after here:

    Gymnasium, next step   the step after the last one resets that environment and means nothing else
    Gymnasium, same step   the answer is the next episode's first observation, and `final_obs` the last one's
    Gymnasium, disabled    the environments that ended are reset here, by a mask
    Stable-Baselines3      as same step, with `terminal_observation` and one flag for both kinds of end
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from caql.action_ranges import ActionRange
from caql.answers import Misbehaviour, shown, told
from caql.environments import Task
from caql.errors import CaqlError

Array = np.ndarray[Any, np.dtype[Any]]


def is_vector(env: Any) -> bool:
    """Whether `env` is several environments of Gymnasium or of Stable-Baselines3."""
    return isinstance(env, gym.vector.VectorEnv) or (
        hasattr(env, "num_envs") and hasattr(env, "step_async") and hasattr(env, "env_method")
    )


class _Row(gym.Env[Any, Any]):  # type: ignore[misc]
    """One environment of several as a `Task` sees it: its spaces, its first observation and perhaps its action set."""

    def __init__(self, spaces: tuple[Any, Any], first: Any, own: Any) -> None:
        self.observation_space, self.action_space = spaces
        self.first = first
        if own is not None and own.has_wrapper_attr("action_set"):
            self.action_set = own.get_wrapper_attr("action_set")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        del seed, options
        return self.first, {}


class RowAnswer(NamedTuple):
    """What a step brought in one environment."""

    answer: tuple[Array, float, bool, bool, dict[str, Any]]
    """As a single environment answers: at an end, with the last observation of the episode that ended."""
    fresh: Any
    """The first observation of the next episode, if it has begun already; see `VectorTask.begin`."""


class VectorTask:
    """N environments, each with a narrowed action space and float32 vectors for observations.

    envs: a vector of environments; its sub-environments must be alike.
    action_range, action_set: as of `Task`.
    Raises `CaqlError` for spaces, ranges and sets that do not fit.
    """

    def __init__(self, envs: Any, action_range: ActionRange, action_set: Any) -> None:
        self.envs, self.size = envs, int(envs.num_envs)
        self.gymnasium = isinstance(envs, gym.vector.VectorEnv)
        names = ("observation_space", "action_space")
        single = tuple(getattr(envs, f"single_{name}" if self.gymnasium else name) for name in names)
        if isinstance(single[1], gym.spaces.Tuple | gym.spaces.Dict):
            raise CaqlError(
                f"env has the action space {type(single[1]).__name__}, which caql takes of one environment only"
            )
        own = list(getattr(envs, "envs", [None] * self.size))
        first = self._reset(0)
        self.rows = [
            Task(_Row(single, observation, each), action_range, None, action_set)
            for observation, each in zip(first, own, strict=True)
        ]
        self.resetting = np.zeros(self.size, np.bool_)
        """Which of them only begin an episode in the next step."""
        self._given: list[Any] = [None] * self.size

    def reset(self, seed: int) -> list[Array]:
        """Begin an episode in each; their seeds are made from `seed` as the library does."""
        self.resetting = np.zeros(self.size, np.bool_)
        return [self.begin(i, observation) for i, observation in enumerate(self._reset(seed))]

    def _reset(self, seed: int) -> Any:
        try:
            if self.gymnasium:
                return self.envs.reset(seed=seed)[0]
            # Stable-Baselines3 adds the environment's number to the seed and holds both in 32 bits.
            self.envs.seed(seed % 2**31)
            return self.envs.reset()
        except Exception as problem:
            raise Misbehaviour(f"reset raised {told(problem)}") from problem

    def begin(self, row: int, observation: Any) -> Array:
        """The environment begins an episode at `observation`; its vector."""
        self.rows[row].elapsed = 0
        return self.rows[row].seen(observation)

    def step(self, actions: list[Array]) -> list[RowAnswer]:
        """Step all of them.

        Of those that were `resetting` the answer has nothing but `fresh`.
        """
        for i, (row, action) in enumerate(zip(self.rows, actions, strict=True)):
            if not self.resetting[i]:
                self._given[i] = row.prepared(action)
        try:
            answer = self.envs.step(np.stack(self._given))
        except Exception as problem:
            raise Misbehaviour(f"step raised {told(problem)}") from problem
        try:
            return self._of_gymnasium(*answer) if self.gymnasium else self._of_stable_baselines(*answer)
        except CaqlError:
            raise
        except (TypeError, ValueError, KeyError, IndexError) as problem:
            raise Misbehaviour(f"step returned {shown(answer)}, which caql does not understand") from problem

    def _of_stable_baselines(self, observations: Any, rewards: Any, dones: Any, infos: Any) -> list[RowAnswer]:
        found = []
        for i, row in enumerate(self.rows):
            info, done = infos[i], bool(dones[i])
            cut = done and bool(info.get("TimeLimit.truncated", False))
            last = info["terminal_observation"] if done else observations[i]
            answer = row.checked((last, rewards[i], done and not cut, cut, info))
            found.append(RowAnswer(answer, observations[i] if done else None))
        return found

    def _of_gymnasium(
        self, observations: Any, rewards: Any, terminated: Any, truncated: Any, infos: Any
    ) -> list[RowAnswer]:
        modes = gym.vector.AutoresetMode
        mode = self.envs.metadata.get("autoreset_mode", modes.NEXT_STEP)
        dones = np.asarray(terminated) | np.asarray(truncated)
        fresh: Any = observations
        if mode == modes.DISABLED and dones.any():
            fresh = self.envs.reset(options={"reset_mask": dones})[0]
        found = []
        for i, row in enumerate(self.rows):
            if self.resetting[i]:
                found.append(RowAnswer((np.empty(0), 0.0, False, False, {}), observations[i]))
                continue
            last = infos["final_obs"][i] if dones[i] and mode == modes.SAME_STEP else observations[i]
            answer = row.checked((last, rewards[i], terminated[i], truncated[i], _info(infos, i)))
            found.append(RowAnswer(answer, fresh[i] if dones[i] and mode != modes.NEXT_STEP else None))
        self.resetting = dones & ~self.resetting & (mode == modes.NEXT_STEP)
        return found


def _info(infos: Any, row: int) -> dict[str, Any]:
    """One environment's part of Gymnasium's dictionary of arrays, of which some are dictionaries again."""
    own = [name for name in infos if f"_{name}" in infos and infos[f"_{name}"][row]]
    return {name: _info(infos[name], row) if isinstance(infos[name], dict) else infos[name][row] for name in own}
