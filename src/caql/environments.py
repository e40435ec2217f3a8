"""Tasks: the paper's six, any other Gymnasium id, or the user's own environment, under one wrapper.

The wrapper narrows `action_space` to the wanted range, turns observations into float32 vectors of their own
memory, and ends an episode after a number of steps with `truncated`, never with `terminated`: the Bellman label
bootstraps through the clock but not through a fall.  What goes in is inside the environment's own space, in its own
number format; what comes out is checked, because one NaN or one reused array would spoil everything that is learned
from it.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from caql.action_ranges import ActionRange as ActionRange
from caql.action_ranges import restrict, round_inward
from caql.action_sets import StateSets, named_set
from caql.actions import ActionSet, make_box
from caql.answers import Misbehaviour as Misbehaviour
from caql.answers import flag, number, shown, told
from caql.errors import CaqlError, nearest
from caql.extras import is_there, missing
from caql.mujoco_steps import direct_step, quiet_mujoco
from caql.task_actions import TaskActions, find_action_set, join_for_all
from caql.task_names import OWN_TASKS, PaperTask
from caql.task_names import TASKS as TASKS
from caql.task_names import episode_limit as episode_limit
from caql.task_names import known_task as known_task
from caql.task_names import paper_task as paper_task
from caql.tasks import constrained

Array = np.ndarray[Any, np.dtype[Any]]


LONG_EPISODE = 100_000
"""Steps after which an episode with no limit is remarked on."""


def _make(task: str, own_limit: bool, render_mode: str | None) -> gym.Env[Any, Any]:
    known = known_task(task)
    if known in OWN_TASKS:
        if render_mode is not None:
            raise CaqlError(f"task = {task!r} has no picture of itself to show")
        own: gym.Env[Any, Any] = getattr(importlib.import_module(OWN_TASKS[known]), known)()
        return own
    if known in constrained.PROBLEMS:
        spec = PaperTask(constrained.PROBLEMS[known].id, {}, ())
    else:
        spec = TASKS[known] if known else PaperTask(task, {}, ())
    # The paper's environments are Gym's version 2, to which version 4 is the closest that is still kept;
    # Gymnasium warns of its age, and MuJoCo (into a file in the working directory) of an attribute in its model.
    with warnings.catch_warnings(), quiet_mujoco():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            limit = None if own_limit else -1
            seen = {} if render_mode is None else {"render_mode": render_mode}
            return gym.make(spec.id, disable_env_checker=True, max_episode_steps=limit, **spec.arguments, **seen)
        except Exception as problem:  # the environment's own constructor may raise anything
            if isinstance(problem, gym.error.Error) and spec.id not in gym.registry:
                raise CaqlError(
                    f"task = {task!r} is neither a paper task nor a Gymnasium id; "
                    f"{nearest(task, [*TASKS, *OWN_TASKS, *constrained.PROBLEMS])}, or any Gymnasium id"
                ) from problem
            if isinstance(problem, gym.error.DependencyNotInstalled) and not is_there("mujoco"):
                raise missing("mujoco", f"task = {task!r}") from problem
            raise CaqlError(f"task = {task!r} cannot be made: {type(problem).__name__}: {problem}") from problem


class Task(gym.Wrapper[Any, Any, Any, Any]):  # type: ignore[misc]
    """An environment with a narrowed action space, float32 vectors for observations and an episode length.

    env: one Gymnasium environment with Box observations.
    action_range: see `ActionRange`.
    episode_steps: steps after which an episode is cut off; None leaves the environment's own limit.
    action_set: a set, or a function of observations (B, n) that gives one for each; None for the environment's own,
        an attribute or method `action_set`, if it has one.
    made_here: whether the environment is not the user's own, so that `advance` may take a shorter way.

    `action_set` is then the set of all states or, if it depends on the state, the box around all of them; `sets` is
    None, or knows the set of each state.  Where the actions are more than a box, `step` takes the vector that stands
    for an action (`actions/spaces.py`), and `executed` is the one that the environment was given.

    `reset` and `step` raise `Misbehaviour` where the environment raises an error or breaks Gymnasium's contract, and
    where no action is admissible.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        action_range: ActionRange,
        episode_steps: int | None,
        action_set: Any = None,
        made_here: bool = False,
    ) -> None:
        super().__init__(env)
        self._made_here = made_here
        self._direct: Any = None
        observations = _box(env, "observation_space")
        if episode_steps is not None and episode_steps < 1:
            raise CaqlError(f"episode_steps = {episode_steps} must be at least 1")
        given = find_action_set(env, action_set)
        self.actions: TaskActions | None = None
        bounds = given if isinstance(given, ActionSet) and given.is_box else None
        if isinstance(getattr(env, "action_space", None), gym.spaces.Box) and given is bounds:
            self.action_set = self._make_box(_box(env, "action_space"), action_range, bounds)
        else:
            self.actions = TaskActions(env.action_space, action_range, given, lambda: env.reset(seed=0)[0])
            self.action_set = self.actions.action_set
        self.low, self.high = np.asarray(self.action_set.low), np.asarray(self.action_set.high)
        self.observation_shape = observations.shape
        self.observation_dtype = np.uint8 if observations.dtype == np.uint8 else np.float32
        """Of the environment's own observations, where it matters: pixels, or numbers."""
        self.observation_size = math.prod(observations.shape)
        with np.errstate(over="ignore"):
            edges = [np.asarray(bound, np.float32).reshape(-1) for bound in (observations.low, observations.high)]
        self.observation_space = gym.spaces.Box(*edges, dtype=np.float32)
        self.action_space = gym.spaces.Box(self.low, self.high, dtype=np.float32)
        self.episode_steps = episode_steps
        self.elapsed = 0
        """Steps asked of the environment since its reset."""
        own_limit = env.has_wrapper_attr("_max_episode_steps")  # as Gymnasium's TimeLimit has
        self._remark_at = None if episode_steps or own_limit else LONG_EPISODE
        # x . tiny is finite exactly if x is: one call, and no overflow even for entries of 1e38.
        self._tiny = np.full(self.observation_size, 1e-30, np.float32)
        self._tiny_action = np.full(len(self.low), 1e-30, np.float64 if self.actions else self._low.dtype)

    def _make_box(self, space: gym.spaces.Box, action_range: ActionRange, bounds: ActionSet | None) -> ActionSet:
        """The agents' box, and what `step` needs to bring an action into the space."""
        low, high = restrict(space, action_range)
        if bounds is not None:
            joined = join_for_all(bounds, ActionSet.box(low, high))
            low, high = joined.low, joined.high
        self._single = space.dtype == np.float32
        self.shape, self.dtype = space.shape, space.dtype
        self._low, self._high = self._bounds(low, high, action_range)
        return make_box(*self._chosen_from(low, high))

    @property
    def sets(self) -> StateSets | None:
        """The sets of the states, if they differ."""
        return None if self.actions is None else self.actions.sets

    @property
    def depends_on_state(self) -> bool:
        """Whether the admissible actions do."""
        return self.sets is not None

    def set_at(self, observation: Any) -> ActionSet:
        """The admissible actions at an observation (n,), NumPy float64.

        Raises `CaqlError` if what the action set's function gives there is no sound set.
        """
        if self.actions is None:
            return self.action_set.on_host()
        return self.actions.at(np.asarray(observation))

    def sets_at(self, observations: Any) -> ActionSet:
        """The same at (B, n) observations: one set for all of them, or with an axis of states."""
        if self.actions is None:
            return self.action_set.on_host()
        return self.actions.many(np.asarray(observations))

    def _bounds(self, low: Array, high: Array, action_range: ActionRange) -> tuple[Array, Array]:
        """What `step` clips to, in the format that it computes in: float32 for float32, else float64."""
        if self._single:
            return low.astype(np.float32), high.astype(np.float32)
        lower, upper = round_inward(low, high, self.dtype)
        if (lower > upper).any():
            raise CaqlError(f"action_range = {action_range} holds no number of the action space's type, {self.dtype}")
        return lower, upper

    def _chosen_from(self, low: Array, high: Array) -> tuple[Array, Array]:
        """The agents' float32 bounds; inside a float64 space, so that `predict` never leaves it."""
        if self._single:
            return low.astype(np.float32), high.astype(np.float32)
        lower, upper = round_inward(low, high, np.float32)
        # A side without a float32 number in it is narrower than one unit in the last place.
        return np.where(lower <= upper, lower, low), np.where(lower <= upper, upper, low)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        self.elapsed = 0
        try:
            answer = self.env.reset(seed=seed, options=options)
        except Exception as problem:
            raise Misbehaviour(f"reset raised {told(problem)}") from problem
        if not (isinstance(answer, tuple) and len(answer) == 2):
            raise Misbehaviour(f"reset returned {shown(answer)}; it must return an observation and a dictionary")
        self._direct = direct_step(self.env) if self._made_here else None
        return self.seen(answer[0]), answer[1]

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        inside = self.prepared(action)
        try:
            answer = self.env.step(inside)
        except Exception as problem:
            raise Misbehaviour(f"step raised {told(problem)}") from problem
        return self.checked(answer)

    def advance(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """As `step`, for those who do not read `info`, which may be empty: MuJoCo's robots are quicker so."""
        inside = self.prepared(action)
        try:
            answer = (self._direct or self.env.step)(inside)
        except Exception as problem:
            raise Misbehaviour(f"step raised {told(problem)}") from problem
        return self.checked(answer)

    def __getstate__(self) -> dict[str, Any]:
        """A copy has an environment of its own, and must not step the old one."""
        return self.__dict__ | {"_direct": None}

    def prepared(self, action: Any) -> Any:
        """The action as the environment may be given it; the first half of `step`."""
        self.elapsed += 1
        return self._admissible(action) if self.actions is None else self._in_set(self.actions, action)

    def checked(self, answer: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """The environment's answer, if it keeps Gymnasium's contract; the second half of `step`."""
        try:
            observation, reward, terminated, truncated, info = answer
        except (TypeError, ValueError) as problem:
            raise Misbehaviour(
                f"step returned {shown(answer)}; it must return observation, reward, terminated, truncated, info"
            ) from problem
        amount = float(reward) if isinstance(reward, float) else number(reward)
        if not math.isfinite(amount):
            raise Misbehaviour(f"the environment gave a non-finite reward, {amount}")
        ended = terminated if isinstance(terminated, bool) else flag("terminated", terminated)
        cut = truncated if isinstance(truncated, bool) else flag("truncated", truncated)
        if self.elapsed == self.episode_steps and not ended:
            cut = True
        if self.elapsed == self._remark_at and not (ended or cut):
            self._remark()
        return self.seen(observation), amount, ended, cut, info

    def seen(self, observation: Any) -> Array:
        """The observation's vector; where actions depend on the state, that is the state from now on."""
        vector = self._vector(observation)
        if self.actions is not None:
            self.actions.see(np.array(observation), vector)
        return vector

    def _in_set(self, actions: TaskActions, action: Any) -> Any:
        """The closest admissible action of the present state, as the environment wants it."""
        vector = np.asarray(action, np.float64)
        if not math.isfinite(vector.dot(self._tiny_action)):
            raise Misbehaviour(f"the action {shown(action)} for this step is not a number")
        with _told_of_sets():
            return actions.execute(vector)

    def set_columns(self, checked: bool = False) -> dict[str, Array]:
        """What the replay buffer stores of the present state's set; `checked`: it must not be empty."""
        if self.actions is None:
            return {}
        with _told_of_sets():
            return self.actions.columns(checked)

    def _admissible(self, action: Any) -> Array:
        """The action brought back into the range, in the space's own type: nothing beyond it reaches the environment.

        The array is the environment's to keep or change.
        """
        inside: Array = np.minimum(np.maximum(action, self._low), self._high)
        if not math.isfinite(inside.dot(self._tiny_action)):
            raise Misbehaviour(f"the action {shown(action)} for this step is not a number")
        if inside.dtype != self.dtype or inside.shape != self.shape:
            whole = np.rint(inside) if self.dtype.kind in "iub" else inside
            inside = whole.astype(self.dtype).reshape(self.shape)
        return inside

    def _vector(self, observation: Any) -> Array:
        """An observation as a float32 vector that no one else can change."""
        try:
            state = np.array(observation, np.float32)
        except (TypeError, ValueError, OverflowError) as problem:
            raise Misbehaviour(
                f"the environment gave {shown(observation)} as its observation, not numbers"
            ) from problem
        if state.shape != self.observation_shape:
            raise Misbehaviour(
                f"the environment gave {shown(observation)} as its observation, of shape {state.shape}; "
                f"its observation_space has {self.observation_shape}"
            )
        if state.ndim != 1:
            state = state.reshape(-1)
        if not math.isfinite(state.dot(self._tiny)):
            raise Misbehaviour(
                f"the environment gave a non-finite observation (or beyond float32), {shown(observation)}"
            )
        return state

    def _remark(self) -> None:
        self._remark_at = None
        warnings.warn(
            f"an episode has taken {self.elapsed} steps, and the environment has no step limit; "
            "if it never ends, nothing is learned from it: give episode_steps",
            stacklevel=3,
        )


@contextlib.contextmanager
def _told_of_sets() -> Iterator[None]:
    """What goes wrong with the set of a state is the environment's step's fault."""
    try:
        yield
    except CaqlError as problem:
        raise Misbehaviour(str(problem)) from problem
    except Exception as problem:  # the user's function may raise anything
        raise Misbehaviour(f"action_set raised {told(problem)}") from problem


def _box(env: Any, name: str) -> gym.spaces.Box:
    space = getattr(env, name, None)
    if not isinstance(space, gym.spaces.Box):
        found = "missing" if space is None else type(space).__name__
        raise CaqlError(f"{name} is {found}; caql needs a Box")
    if math.prod(space.shape) == 0:
        raise CaqlError(f"{name} has shape {space.shape}, which holds no number")
    return space


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


def is_made_by_name(task: str) -> bool:
    """Whether a stored name is a task's here or a Gymnasium id, and not the class of the user's own environment."""
    return known_task(task) is not None or ":" in task or task in gym.registry


def make_task(
    task: str | gym.Env[Any, Any],
    action_range: ActionRange | Sequence[Any] = None,
    episode_steps: int | None = 0,
    action_set: Any = None,
    render_mode: str | None = None,
) -> Task:
    """A task by name or Gymnasium id, or from an environment.

    action_range: see `ActionRange`.
    episode_steps: steps after which an episode is cut off; None is the environment's own limit, and 0 is 200 for a
        task that has a name here and the environment's own limit for everything else.
    action_set: the admissible actions: an `ActionSet`, a function of observations (B, n) that gives one for each, or
        `MODULE:NAME` of either.  None is the environment's own `action_set(observation)`, or its action space.  It is
        joined with the action space; given here, it takes the place of the environment's own.
    render_mode: Gymnasium's, such as `rgb_array`, for an environment that is made here.
    Raises `CaqlError` for an unknown task, spaces that caql does not take, a range or a set that does not fit.
    """
    if isinstance(action_set, str):
        action_set = named_set(action_set)
    if action_set is None and isinstance(task, str) and known_task(task) in constrained.PROBLEMS:
        action_set = constrained.PROBLEMS[str(known_task(task))].action_set
    limit = episode_limit(task, episode_steps)
    if isinstance(task, Task):
        if not (action_range is None and limit is None and action_set is None):
            raise CaqlError(
                "env is a task already, with its range, episode length and action set; give all of them to make_task"
            )
        return task
    env = _make(task, limit is None, render_mode) if isinstance(task, str) else task
    if not isinstance(env, gym.Env):
        many = f" with {env.num_envs} environments" if hasattr(env, "num_envs") else ""
        raise CaqlError(f"env is a {type(env).__name__}{many}; caql needs one Gymnasium environment")
    wanted: Any = action_range
    return Task(env, wanted, limit, action_set, isinstance(task, str))
