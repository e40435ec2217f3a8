"""A run is data: one frozen configuration, written as JSON, hashed to an id.

Settings carry their class's `name` into the JSON (`"agent": {"name": "caql", ...}`), so that a stored
configuration can be read back without guessing.  What a stored configuration is silent about, because the
setting came later, takes the fixed value of `run_ids`, never the default of the day.
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro

from caql.agents import AGENTS, config_class
from caql.agents.caql import CAQLConfig
from caql.environments import ActionRange, episode_limit
from caql.errors import CaqlError, nearest
from caql.maxq.solvers import SOLVERS, implied_settings, solver_class
from caql.run_ids import RUN, completed, distinctive, flatten, run_id

SEEDS = 2**31
"""Seeds are less than this: JAX computes with 32-bit whole numbers."""


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run's result, and nothing that does not."""

    task: tyro.conf.Positional[str]
    """A paper task (Pendulum, Hopper, Walker2D, HalfCheetah, Ant, Humanoid), a constrained one (Microgrid, Platform,
    R+O03, R+O10, R+O30, R+M, HC+O, HC+MA, H+M, W+M) or any Gymnasium id with Box observations."""
    action_range: ActionRange = None
    """Narrow the actions to [-r, r]; the environment's own bounds by default."""
    episode_steps: int | None = 0
    """Steps after which an episode is cut off; none is the environment's own limit, 0 is 200 for a task by name
    and the environment's own limit for a Gymnasium id."""
    train_steps: int = 200_000
    """Gradient steps in all."""
    train_freq: tuple[int, Literal["step", "episode"]] = (1, "episode")
    """How much is collected before each update: so many environment steps, or episodes as in the paper."""
    steps_per_epoch: int = 20
    """S: gradient steps of an update; -1 is as many as environment steps were collected for it."""
    batch_size: int = 64
    """Transitions in a minibatch."""
    label_steps: int = 1
    """Rewards that are added up before Q is asked: n of n-step labels."""
    replay_size: int = 100_000
    """Transitions that the replay buffer holds."""
    replay_keeps: Literal["newest", "sample"] = "newest"
    """What it holds when there were more: the newest, or a uniform sample of all of them."""
    warm_up: int = 1280
    """Transitions to collect before the first gradient step."""
    evaluate_every: int = 1000
    """Gradient steps between evaluations; 0 is never."""
    evaluation_episodes: int = 10
    """Episodes in an evaluation."""
    zero_terminal_reward: bool = False
    """Replace the reward of a terminating step by 0, as the authors' code does."""
    seed: int = 0
    """Decides everything random: weights, episodes, noise, minibatches."""
    action_set: str | None = None
    """MODULE:NAME of an action set, or of a function of observations that gives one for each; the environment's own
    by default."""
    agent: Annotated[Any, tyro.conf.arg(name="")] = field(default_factory=CAQLConfig)
    """The algorithm's hyper-parameters."""

    def __post_init__(self) -> None:
        if isinstance(self.task, str):
            object.__setattr__(self, "episode_steps", episode_limit(self.task, self.episode_steps))
        for name in ("train_steps", "batch_size", "label_steps", "replay_size", "warm_up", "evaluation_episodes"):
            if getattr(self, name) < 1:
                raise CaqlError(f"{name} = {getattr(self, name)} must be at least 1")
        if self.steps_per_epoch < 1 and self.steps_per_epoch != -1:
            raise CaqlError(
                f"steps_per_epoch = {self.steps_per_epoch} must be at least 1, or -1 for as many as steps collected"
            )
        count, unit = self.train_freq
        if count < 1 or unit not in ("step", "episode"):
            raise CaqlError(f"train_freq = {self.train_freq} must be at least 1 and in steps or episodes: (1, 'step')")
        if unit == "step" and count < self.label_steps:
            raise CaqlError(
                f"label_steps = {self.label_steps} needs stretches of at least as many steps; "
                f"train_freq = {self.train_freq} collects {count} at a time"
            )
        if self.replay_keeps not in ("newest", "sample"):
            raise CaqlError(f"replay_keeps = {self.replay_keeps!r} must be 'newest' or 'sample'")
        if self.evaluate_every < 0:
            raise CaqlError(f"evaluate_every = {self.evaluate_every} must not be negative")
        if self.warm_up > self.replay_size:
            raise CaqlError(f"warm_up = {self.warm_up} must not exceed replay_size = {self.replay_size}")
        if not 0 <= self.seed < SEEDS:
            raise CaqlError(f"seed = {self.seed} must not be negative and must be less than 2^31 = {SEEDS}")

    @property
    def by_episode(self) -> bool:
        """Whether whole episodes are collected between updates, as in the paper."""
        return self.train_freq[1] == "episode"

    @property
    def epoch_steps(self) -> int:
        """Gradient steps after which what decays decays once: an update after episodes, or the paper's S."""
        return self.steps_per_epoch if self.by_episode and self.steps_per_epoch > 0 else RUN["steps_per_epoch"]

    @cached_property
    def id(self) -> str:
        """Twelve hexadecimal digits that stand for this configuration; see `run_ids` for what they cover."""
        return run_id(to_json(self), _defaults(self._kinds))

    @property
    def distinctive(self) -> dict[str, Any]:
        """The settings that the id covers: dotted path -> value."""
        return distinctive(to_json(self), _defaults(self._kinds))

    @property
    def _kinds(self) -> tuple[type[Any], ...]:
        solver = getattr(self.agent, "solver", None)
        return (type(self.agent),) if solver is None else (type(self.agent), type(solver))


@lru_cache
def _defaults(kinds: tuple[type[Any], ...]) -> dict[str, Any]:
    """The default configuration with this agent (and solver), for settings that `run_ids` does not know."""
    agent, *solver = kinds
    return to_json(RunConfig("", agent=agent(solver=solver[0]()) if solver else agent()))


def to_json(config: Any) -> dict[str, Any]:
    """A configuration as plain JSON values, nested settings tagged with their class's `name`."""
    found: dict[str, Any] = {}
    if isinstance(getattr(type(config), "name", None), str):
        found["name"] = config.name
    for each in dataclasses.fields(config):
        value = getattr(config, each.name)
        found[each.name] = to_json(value) if dataclasses.is_dataclass(value) else _plain(value)
    return found


def _plain(value: Any) -> Any:
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value


def from_json(values: Any) -> RunConfig:
    """Undo `to_json`, for configurations of this version or an older one.

    values: an object as `json.loads` gives it; settings that are missing take their fixed values (`run_ids`).
    Raises `CaqlError` for anything else, naming the setting by its dotted path, its value and what would be right.
    """
    if not isinstance(values, dict):
        raise CaqlError(f"the configuration = {_shown(values)} must be an object of settings")
    if "task" not in values:
        raise CaqlError("task is missing: a configuration names the task that it is for")
    for path, known in (("agent", AGENTS), ("agent.solver", SOLVERS)):
        inner = _inner(values, path)
        if isinstance(inner, dict) and "name" not in inner:
            raise CaqlError(f"{path}.name is missing; known: {', '.join(known)}")
    config: RunConfig = _build(RunConfig, completed(values), "")
    return config


def _inner(values: Any, path: str) -> Any:
    for name in path.split("."):
        values = values.get(name) if isinstance(values, dict) else None
    return values


@lru_cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    return get_type_hints(cls)


def _build(cls: type[Any], values: dict[str, Any], where: str) -> Any:
    """An object of `cls` from its settings; `where` is the dotted path in front of their names."""
    hints = _hints(cls)  # type: ignore[arg-type]  # mypy does not see that a class is hashable
    fields = [each.name for each in dataclasses.fields(cls)]
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        if name == "name" and name not in fields:
            continue
        if name not in fields:
            raise CaqlError(
                f"{where.rstrip('.') or 'the configuration'} has no setting {name!r}; {nearest(name, fields)}"
            )
        path = where + name
        if name in ("agent", "solver"):
            if not isinstance(value, dict):
                raise CaqlError(f"{path} = {_shown(value)} must be an object with a name and settings")
            chosen = _checked(value["name"], str, f"{path}.name")
            implied = implied_settings(chosen) if name == "solver" else {}
            find = config_class if name == "agent" else solver_class
            arguments[name] = _build(find(chosen), {**implied, **value}, f"{path}.")
        else:
            arguments[name] = _checked(value, hints[name], path)
    try:
        return cls(**arguments)
    except CaqlError as problem:
        # A class names its own field; the reader of a file needs the whole path.
        named = re.match(r"(\w+) = ", str(problem))
        raise CaqlError(f"{where if named and named[1] in fields else ''}{problem}") from problem


def _checked(value: Any, hint: Any, path: str) -> Any:
    """The value as the type `hint` has it: lists become tuples and whole numbers, where it asks for them, floats."""
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return _build(hint, value, f"{path}.")  # type: ignore[arg-type]
    found = _fitted(value, hint)
    if found is _UNFIT:
        raise CaqlError(f"{path} = {_shown(value)} must be {_described(hint)}")
    return found


_UNFIT = object()


def _fitted(value: Any, hint: Any) -> Any:
    """The value converted to `hint`, or `_UNFIT`."""
    origin, options = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return next((found for each in options if (found := _fitted(value, each)) is not _UNFIT), _UNFIT)
    if origin is Literal:
        # The type is compared as well, because True == 1.
        return value if any(type(value) is type(each) and value == each for each in options) else _UNFIT
    if origin is tuple:
        return _fitted_tuple(value, options)
    if hint is float:
        return _fitted_float(value)
    if hint is int:
        return value if type(value) is int and abs(value) < 2**63 else _UNFIT
    return value if type(value) is hint else _UNFIT


def _fitted_float(value: Any) -> Any:
    if type(value) not in (int, float):
        return _UNFIT
    try:
        number = float(value)
    except OverflowError:
        return _UNFIT
    return number if number == number else _UNFIT


def _fitted_tuple(value: Any, options: Sequence[Any]) -> Any:
    if not isinstance(value, list | tuple):
        return _UNFIT
    hints = [options[0]] * len(value) if options[-1] is Ellipsis else options
    if len(value) != len(hints):
        return _UNFIT
    found = tuple(_fitted(each, hint) for each, hint in zip(value, hints, strict=True))
    return _UNFIT if any(each is _UNFIT for each in found) else found


def _described(hint: Any) -> str:
    """A type in words."""
    origin, options = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_described(each) for each in options)
    if origin is Literal:
        return " or ".join(repr(each) for each in options)
    if origin is tuple:
        if options[-1] is Ellipsis:
            return f"a list with {_described(options[0])} in each place"
        return f"a list of {len(options)}: {', '.join(_described(each) for each in options)}"
    words = {bool: "true or false", int: "a whole number below 2^63", float: "a number", str: "text"}
    return words.get(hint, "null" if hint is type(None) else "an object of settings")


def _shown(value: Any) -> str:
    """A value as JSON, cut short."""
    try:
        text = json.dumps(value)
    except RecursionError:
        return "a list of lists of lists"
    return text if len(text) <= 80 else f"{text[:77]}..."


def differences(old: RunConfig, new: RunConfig) -> list[str]:
    """The settings in which two configurations differ, one line each: `agent.discount: 0.99 -> 0.9`."""
    before, after = flatten(to_json(old)), flatten(to_json(new))
    return [
        f"{name}: {before.get(name)} -> {after.get(name)}"
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]
