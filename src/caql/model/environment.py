"""The environment of a model: what may be given, and what `get_env` gives back.

`get_env` answers as in Stable-Baselines3, with a vector of environments: `reset()` gives observations (N, n), `step`
observations, rewards, dones and infos, and an environment that ends begins again by itself.  For a single environment
that is `OneEnvironment`, or that library's own `DummyVecEnv` where it is in use already, because its callbacks look
at the type.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from caql.environments import Task, make_task
from caql.errors import CaqlError
from caql.vector_environments import VectorTask, is_vector

Array = np.ndarray[Any, np.dtype[Any]]


def make_environment(
    env: Any, action_range: Any, episode_steps: int | None, action_set: Any
) -> tuple[Task, VectorTask | None]:
    """The task, and the vector of environments whose first one it is, if `env` is one."""
    if not is_vector(env):
        return make_task(env, action_range, episode_steps, action_set), None
    if episode_steps is not None:
        raise CaqlError(
            f"episode_steps = {episode_steps} needs one environment and not {env.num_envs}; wrap each of them in "
            "gymnasium.wrappers.TimeLimit"
        )
    if isinstance(action_set, str):
        raise CaqlError(f"action_set = {action_set!r} must be an ActionSet or a function for several environments")
    envs = VectorTask(env, action_range, action_set)
    return envs.rows[0], envs


def environment_name(env: Any) -> str:
    """What a configuration stores of an environment: its id, or the name of its class."""
    if isinstance(env, str):
        return env
    spec = getattr(env, "spec", None)
    if spec is None and is_vector(env):
        inner = getattr(env, "envs", None)
        return environment_name(inner[0]) if inner else type(env).__name__
    return str(spec.id) if spec is not None and getattr(spec, "id", None) else type(env).__name__


def require_alike(old: Task, new: Task) -> None:
    """Raise `CaqlError` unless what was learned in one environment means the same in the other."""
    if new.observation_size != old.observation_size:
        raise CaqlError(
            f"env has observations of {new.observation_size} numbers; the model was made for {old.observation_size}"
        )
    require_bounds(old.low.tolist(), old.high.tolist(), new)
    if (old.sets is None) != (new.sets is None):
        raise CaqlError("env must have an action set that depends on the state if the model's has, and none if not")


def require_bounds(low: Any, high: Any, task: Task) -> None:
    """Raise `CaqlError` unless the task's action bounds are these."""
    same = len(low) == len(task.low) and np.array_equal(np.float32(low), task.low)
    if not (same and np.array_equal(np.float32(high), task.high)):
        raise CaqlError(
            f"env has actions from {task.low.tolist()} to {task.high.tolist()}; the model's are from {list(low)} to "
            f"{list(high)}, and what it learned means something else in other bounds"
        )


class OneEnvironment:
    """One environment with the methods of Stable-Baselines3's vectors of them."""

    num_envs = 1

    def __init__(self, task: Task) -> None:
        self.task = task
        # What the user's environment calls its spaces, as `predict` takes and gives them.
        self.observation_space, self.action_space = task.env.observation_space, task.env.action_space
        self.metadata, self.render_mode = task.env.metadata, task.env.render_mode
        self._seed: int | None = None
        self._actions: Any = None
        self.reset_infos: list[dict[str, Any]] = [{}]

    @property
    def envs(self) -> list[Any]:
        """The environment itself."""
        return [self.task.env]

    @property
    def unwrapped(self) -> OneEnvironment:
        return self

    def seed(self, seed: int | None = None) -> list[int | None]:
        """The seed of the next reset."""
        self._seed = seed
        return [seed]

    def reset(self) -> Array:
        """Begin an episode: observations (1, n)."""
        observation, info = self.task.env.reset(seed=self._seed)
        self._seed, self.reset_infos = None, [info]
        return np.asarray(observation)[None]

    def step_async(self, actions: Any) -> None:
        """The actions of the next `step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[Array, Array, Array, list[dict[str, Any]]]:
        return self.step(self._actions)

    def step(self, actions: Any) -> tuple[Array, Array, Array, list[dict[str, Any]]]:
        """One step with actions (1, d): observations, rewards, dones, infos; an episode that ended has begun again."""
        observation, reward, terminated, truncated, info = self.task.env.step(actions[0])
        done = bool(terminated or truncated)
        info = {**info, "TimeLimit.truncated": bool(truncated) and not terminated}
        if done:
            info["terminal_observation"] = observation
            observation, self.reset_infos[0] = self.task.env.reset()
        return np.asarray(observation)[None], np.array([reward], np.float32), np.array([done]), [info]

    def render(self, mode: str | None = None) -> Any:
        """What the environment renders; its `render_mode` was chosen when it was made."""
        del mode
        return self.task.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.task.env.close()

    def get_attr(self, name: str, indices: Any = None) -> list[Any]:
        del indices
        return [self.task.env.get_wrapper_attr(name)]

    def set_attr(self, name: str, value: Any, indices: Any = None) -> None:
        del indices
        self.task.env.set_wrapper_attr(name, value)

    def env_method(self, name: str, *arguments: Any, indices: Any = None, **named: Any) -> list[Any]:
        del indices
        return [self.task.env.get_wrapper_attr(name)(*arguments, **named)]

    def env_is_wrapped(self, wrapper: Any, indices: Any = None) -> list[bool]:
        """Whether a wrapper of this class is around the environment."""
        del indices
        env = self.task.env
        while not isinstance(env, wrapper) and hasattr(env, "env"):
            env = env.env
        return [isinstance(env, wrapper)]


def vector_of(task: Task, envs: VectorTask | None) -> Any:
    """What `get_env` gives back."""
    if envs is not None:
        return envs.envs
    library = sys.modules.get("stable_baselines3.common.vec_env")
    return OneEnvironment(task) if library is None else library.DummyVecEnv([lambda: task.env])


def normaliser(envs: VectorTask | None) -> Any:
    """Stable-Baselines3's `VecNormalize` around the given environments, or None."""
    env = None if envs is None else envs.envs
    while env is not None and type(env).__name__ != "VecNormalize":
        env = getattr(env, "venv", None)
    return env
