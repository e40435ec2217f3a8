"""Tasks: the paper's six, any other Gymnasium id, or the user's own environment, under one wrapper.

The wrapper narrows `action_space` to the wanted range, flattens observations and actions to vectors, and
ends an episode after a number of steps with `truncated`, never with `terminated`: the Bellman label
bootstraps through the clock but not through a fall.  This is the only file that knows MuJoCo.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from caql.actions import ActionSet, make_box
from caql.errors import CaqlError, nearest

ActionRange = float | tuple[tuple[float, ...], tuple[float, ...]] | None
"""None: the environment's own; r: [-r, r] in every dimension; (low, high): one number per dimension each."""


class PaperTask(NamedTuple):
    """One of the paper's benchmarks: its Gymnasium id, constructor arguments and tested ranges (Table 6)."""

    id: str
    arguments: dict[str, Any]
    ranges: tuple[float, ...]


TASKS = {
    "Pendulum": PaperTask("Pendulum-v1", {}, (2.0, 1.0, 0.66)),
    "Hopper": PaperTask("Hopper-v4", {}, (1.0, 0.5, 0.25)),
    "Walker2D": PaperTask("Walker2d-v4", {}, (1.0, 0.5, 0.25)),
    "HalfCheetah": PaperTask("HalfCheetah-v4", {}, (1.0, 0.5, 0.25)),
    # Gym's version 2 reported contact forces; only with them does an Ant have the paper's 111 observations.
    "Ant": PaperTask("Ant-v4", {"use_contact_forces": True}, (1.0, 0.5, 0.25, 0.1)),
    "Humanoid": PaperTask("Humanoid-v4", {}, (0.4, 0.25, 0.1)),
}


def paper_task(name: str) -> str | None:
    """The paper's spelling of a task name, whatever the case, or None."""
    return {known.lower(): known for known in TASKS}.get(name.lower())


@contextlib.contextmanager
def _quiet_mujoco() -> Iterator[None]:
    import mujoco

    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def _make(task: str, own_limit: bool) -> gym.Env[Any, Any]:
    known = paper_task(task)
    spec = TASKS[known] if known else PaperTask(task, {}, ())
    # The paper's environments are Gym's version 2, to which version 4 is the closest that is still kept;
    # Gymnasium warns of its age, and MuJoCo (into a file in the working directory) of an attribute in its model.
    with warnings.catch_warnings(), _quiet_mujoco():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            limit = None if own_limit else -1
            return gym.make(spec.id, disable_env_checker=True, max_episode_steps=limit, **spec.arguments)
        except gym.error.Error as problem:
            if spec.id in gym.registry:
                raise CaqlError(f"task = {task!r} cannot be made: {problem}") from problem
            raise CaqlError(
                f"task = {task!r} is neither a paper task nor a Gymnasium id; {nearest(task, TASKS)}, "
                "or any Gymnasium id with Box spaces"
            ) from problem


def restrict(box: gym.spaces.Box, action_range: ActionRange) -> ActionSet:
    """The admissible actions: the space's own bounds, narrowed to `action_range`."""
    low, high = (np.asarray(bound, np.float32).reshape(-1) for bound in (box.low, box.high))
    if action_range is None:
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise CaqlError(
                f"the environment's actions have infinite bounds (low {low.tolist()}, high {high.tolist()}); "
                "give action_range: a number r for [-r, r], or (low, high) with one number per dimension"
            )
        return make_box(low, high)
    if isinstance(action_range, int | float):
        if not (np.isfinite(action_range) and action_range > 0):
            raise CaqlError(f"action_range = {action_range} must be a positive finite number")
        wanted = np.full_like(low, -action_range), np.full_like(high, action_range)
    else:
        try:
            lower, upper = action_range
            wanted = np.asarray(lower, np.float32).reshape(-1), np.asarray(upper, np.float32).reshape(-1)
        except (TypeError, ValueError) as problem:
            raise CaqlError(
                f"action_range = {action_range!r} must be a number r, or a pair (low, high) of vectors"
            ) from problem
        if wanted[0].shape != low.shape or wanted[1].shape != low.shape:
            raise CaqlError(
                f"action_range has {len(wanted[0])} low and {len(wanted[1])} high numbers; "
                f"the task has {len(low)} action dimensions"
            )
    if not (np.isfinite(wanted[0]).all() and np.isfinite(wanted[1]).all()):
        raise CaqlError(f"action_range = {action_range} must be finite in every dimension")
    if (wanted[0] >= wanted[1]).any():
        raise CaqlError(
            f"action_range = {action_range} is empty or reversed: low must be below high in every dimension"
        )
    if (wanted[0] < low - 1e-6).any() or (wanted[1] > high + 1e-6).any():
        raise CaqlError(
            f"action_range = {action_range} is wider than the environment's own actions, "
            f"low {low.tolist()} and high {high.tolist()}"
        )
    return make_box(np.maximum(wanted[0], low), np.minimum(wanted[1], high))


class Task(gym.Wrapper[Any, Any, Any, Any]):  # type: ignore[misc]
    """An environment with a narrowed action space, vector observations and an episode length."""

    def __init__(self, env: gym.Env[Any, Any], action_range: ActionRange, episode_steps: int | None) -> None:
        super().__init__(env)
        for name, space in (("observation_space", env.observation_space), ("action_space", env.action_space)):
            if not isinstance(space, gym.spaces.Box):
                raise CaqlError(f"{name} is {type(space).__name__}; caql needs Box observations and actions")
        if episode_steps is not None and episode_steps < 1:
            raise CaqlError(f"episode_steps = {episode_steps} must be at least 1")
        assert isinstance(env.observation_space, gym.spaces.Box)
        assert isinstance(env.action_space, gym.spaces.Box)
        self.action_set = restrict(env.action_space, action_range)
        self.low, self.high = np.asarray(self.action_set.low), np.asarray(self.action_set.high)
        self.shape = env.action_space.shape
        self.dtype = env.action_space.dtype
        self.flat = len(env.observation_space.shape) == 1
        self.observation_size = int(np.prod(env.observation_space.shape))
        self.action_space = gym.spaces.Box(self.low, self.high, dtype=np.float32)
        if not self.flat:
            self.observation_space = gym.spaces.flatten_space(env.observation_space)
        self.episode_steps = episode_steps
        self.elapsed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.elapsed = 0
        observation, info = self.env.reset(seed=seed, options=options)
        return observation if self.flat else np.reshape(observation, -1), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        # An action outside the range is brought back: nothing beyond it ever reaches the environment.
        inside = np.minimum(np.maximum(action, self.low), self.high)
        if inside.dtype != self.dtype or inside.shape != self.shape:
            inside = inside.astype(self.dtype).reshape(self.shape)
        observation, reward, terminated, truncated, info = self.env.step(inside)
        self.elapsed += 1
        if self.elapsed == self.episode_steps and not terminated:
            truncated = True
        return observation if self.flat else np.reshape(observation, -1), float(reward), terminated, truncated, info


def stored_task(task: str, place: object, trust: bool) -> str:
    """The task that a file names, if making it imports nothing that only the file's author chose.

    `module:Env-v0` makes Gymnasium import `module`.  Raises `CaqlError` for such a name unless the user trusts it.
    """
    if ":" in task and not trust:
        raise CaqlError(
            f"{place} asks to import {task.split(':')[0]!r} for its task {task!r}; "
            "give env= (in Python), the task itself (caql train) or --trust if you know that code"
        )
    return task


def make_task(
    task: str | gym.Env[Any, Any], action_range: ActionRange | Sequence[Any] = None, episode_steps: int | None = 200
) -> Task:
    """A task by name or Gymnasium id, or the user's own environment; no `episode_steps` leaves its own time limit."""
    env = _make(task, own_limit=episode_steps is None) if isinstance(task, str) else task
    wanted: Any = action_range
    return Task(env, wanted, episode_steps)
