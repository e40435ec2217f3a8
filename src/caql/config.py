"""A run is data: one frozen configuration, written as JSON, hashed to an id.

Settings carry their class's `name` into the JSON (`"agent": {"name": "caql", ...}`), so that a stored
configuration can be read back without guessing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from typing import Annotated, Any

import tyro

from caql.agents import config_class
from caql.agents.caql import CAQLConfig
from caql.environments import ActionRange, episode_limit
from caql.errors import CaqlError, nearest
from caql.maxq.solvers import solver_class


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
    steps_per_epoch: int = 20
    """S: gradient steps after each episode."""
    batch_size: int = 64
    """Transitions in a minibatch."""
    replay_size: int = 100_000
    """Transitions that the replay buffer holds."""
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
        for name in ("train_steps", "steps_per_epoch", "batch_size", "replay_size", "warm_up", "evaluation_episodes"):
            if getattr(self, name) < 1:
                raise CaqlError(f"{name} = {getattr(self, name)} must be at least 1")
        if self.evaluate_every < 0:
            raise CaqlError(f"evaluate_every = {self.evaluate_every} must not be negative")
        if self.warm_up > self.replay_size:
            raise CaqlError(f"warm_up = {self.warm_up} must not exceed replay_size = {self.replay_size}")
        if self.seed < 0:
            raise CaqlError(f"seed = {self.seed} must not be negative")

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits that stand for this configuration."""
        return hashlib.sha256(json.dumps(to_json(self), sort_keys=True).encode()).hexdigest()[:12]


def to_json(config: Any) -> dict[str, Any]:
    """A configuration as plain JSON values, nested settings tagged with their class's `name`."""
    found: dict[str, Any] = {}
    if isinstance(getattr(type(config), "name", None), str):
        found["name"] = config.name
    for each in dataclasses.fields(config):
        value = getattr(config, each.name)
        found[each.name] = to_json(value) if dataclasses.is_dataclass(value) else value
    return json.loads(json.dumps(found))


def _build(cls: type[Any], values: dict[str, Any], where: str) -> Any:
    fields = {each.name: each for each in dataclasses.fields(cls)}
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        if name == "name" and name not in fields:
            continue
        if name not in fields:
            raise CaqlError(f"{where} has no setting {name!r}; {nearest(name, fields)}")
        if name == "agent":
            value = _build(config_class(value["name"]), value, "agent")
        elif name == "solver" and isinstance(value, dict):
            value = _build(solver_class(value["name"]), value, "solver")
        elif isinstance(value, dict):
            factory = fields[name].default_factory
            default = fields[name].default if factory is dataclasses.MISSING else factory()
            value = _build(type(default), value, name)
        elif isinstance(value, list):
            value = tuple(tuple(item) if isinstance(item, list) else item for item in value)
        arguments[name] = value
    return cls(**arguments)


def from_json(values: dict[str, Any]) -> RunConfig:
    """Undo `to_json`."""
    config: RunConfig = _build(RunConfig, values, "the configuration")
    return config


def differences(old: RunConfig, new: RunConfig) -> list[str]:
    """The settings in which two configurations differ, one line each: `agent.discount: 0.99 -> 0.9`."""

    def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in values.items():
            found.update(flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value})
        return found

    before, after = flat(to_json(old)), flat(to_json(new))
    return [
        f"{name}: {before.get(name)} -> {after.get(name)}"
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]
