"""An episode with its frames: what the policy did, what came of it, and what Q said of it.

Q(x, a) is shown for CAQL alone, whose Q-network is the thing that its policy maximises.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from caql.agents.agent import Policy
from caql.agents.policies import HostNetwork
from caql.environments import Task, make_task
from caql.errors import CaqlError
from caql.extras import missing
from caql.model import CAQL, Model
from caql.runs.streams import Purpose, reset_seed

Array = np.ndarray[Any, np.dtype[Any]]


class Moment(NamedTuple):
    """One step of an episode, seen before it is taken.

    frame: (height, width, 3) of uint8, or None where the environment draws nothing.
    state, action: what the policy saw and what the environment was given.
    reward, total: of this step, and of the episode up to it.  q: Q(state, action), None for other agents than CAQL.
    """

    step: int
    frame: Array | None
    state: Array
    action: Array
    reward: float
    total: float
    q: float | None


def visible_task(model: Model, action_set: Any = None) -> Task:
    """The model's task once more, with frames; `CaqlError` if it has none, or if they cannot be drawn here."""
    config = model.config
    task = make_task(config.task, config.action_range, config.episode_steps, action_set, render_mode="rgb_array")
    if "rgb_array" not in task.metadata.get("render_modes", ()):
        raise CaqlError(f"task = {config.task!r} has no picture of itself to show")
    _follow(task)
    return task


def _follow(task: Task) -> None:
    """Let a MuJoCo robot be seen by the camera that its model has for following it; the free one loses it."""
    with contextlib.suppress(AttributeError, KeyError):
        robot = task.unwrapped
        robot.mujoco_renderer.camera_id = robot.model.camera("track").id


def frame_rate(task: Task) -> float:
    """Frames a second at which the task looks as fast as it is."""
    return float(task.metadata.get("render_fps") or 30)


def _frame(task: Task) -> Array:
    try:
        frame = task.render()
    except gym.error.DependencyNotInstalled as problem:
        raise missing("pygame", "drawing the task") from problem
    except Exception as problem:  # OpenGL fails in as many ways as there are drivers
        reason = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
        raise CaqlError(
            f"the environment could not draw itself: {reason}; without a screen MuJoCo needs OSMesa or EGL "
            "(Debian: libosmesa6 or libegl1; MUJOCO_GL chooses)"
        ) from problem
    if not (isinstance(frame, np.ndarray) and frame.ndim == 3 and frame.shape[2] == 3):
        raise CaqlError("the environment gave something else than a picture when asked to draw itself")
    return frame


def _worth_of(model: Model) -> Callable[[Any, Any], float] | None:
    """Q(x, a) of one state and action, where the agent has such a network."""
    if not isinstance(model, CAQL):
        return None
    q, inputs = HostNetwork(model.q_layers()), model.q_inputs
    return lambda state, action: float(q(np.concatenate([inputs(state[None])[0], action]))[0])


def episode(
    model: Model, policy: Policy, task: Task, seed: tuple[int, int], drawn: bool | Container[int] = True
) -> Iterator[Moment]:
    """A greedy episode, step by step; the last moment is the state in which it ended.

    seed: as in `evaluate_policy`, the seed and the episode's number, so that the same ones give the same episode.
    drawn: whether to make frames, or of which steps.
    """
    worth_of = _worth_of(model)
    state, _ = task.reset(seed=reset_seed(seed[0], Purpose.EVALUATION, 0, seed[1]))
    total, reward, over = 0.0, 0.0, False
    while True:
        action = policy.act(state)
        if task.actions is not None:
            action = task.actions.admissible(action)
        worth = None if worth_of is None else worth_of(state, action)
        frame = _frame(task) if drawn is True or (drawn and task.elapsed in drawn) else None
        yield Moment(task.elapsed, frame, state, action, reward, total, worth)
        if over:
            return
        state, reward, terminated, truncated, _ = task.step(action)
        total += reward
        over = terminated or truncated
