"""The words of Stable-Baselines3's users, and what they are called here.

    learning_rate   every learning rate of the agent          gamma            discount
    tau             target_rate                               buffer_size      replay_size
    learning_starts warm_up                                   gradient_steps   steps_per_epoch
    net_arch        hidden, action_hidden

A task with a name here, such as "Hopper", begins with the paper's loop, that of `caql train`: S = 20 gradient steps
after each episode of 200 steps.  Any other environment begins with `STEPPING`: as many gradient steps as environment
steps, which is what a user of Stable-Baselines3 expects of `learn(10_000)`.  Whatever the loop, CAQL begins with the
preset that `default_preset` names.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from caql.agents import config_class, preset_settings
from caql.agents.policies import Exploration
from caql.config import RunConfig
from caql.errors import CaqlError, nearest
from caql.maxq.solvers import make_solver, proves

STEPPING = {"train_freq": (20, "step"), "steps_per_epoch": -1, "warm_up": 100}
"""The loop for environments that have no name here.  Blocks of twenty, because twenty gradient steps are one compiled
call: at `train_freq=1, gradient_steps=1` the same learning takes several times as long."""
STEPPING_AGENT = {"target_rate": 0.005, "exploration": Exploration(sigma=1.0, decay=0.995, minimum=0.1)}
"""Noise from half the action range to a twentieth of it within the first 9,200 gradient steps."""

SAME = {
    "gamma": "discount",
    "tau": "target_rate",
    "buffer_size": "replay_size",
    "learning_starts": "warm_up",
    "gradient_steps": "steps_per_epoch",
}
"""Their name -> ours."""
OF_AGENT = {
    "td3": {"target_policy_noise": "smoothing_sigma", "target_noise_clip": "smoothing_clip"},
}
WITHOUT_EFFECT = {
    "optimize_memory_usage": False,
    "replay_buffer_class": None,
    "replay_buffer_kwargs": None,
    "use_sde": False,
    "sde_sample_freq": -1,
    "use_sde_at_warmup": False,
    "use_sde_at_warm_up": False,
    "target_update_interval": 1,
    "n_steps": 1,
    "monitor_wrapper": True,
    "_init_setup_model": True,
}
"""Their settings that have one value here, and may be given with that value."""
SUGGESTED = {
    "lr": "learning_rate",
    "alpha": "learning_rate",
    "polyak": "tau",
    "memory_size": "buffer_size",
    "net_arch": "policy_kwargs=dict(net_arch=[...])",
    "activation_fn": "policy_kwargs=dict(activation_fn=...)",
    "n_envs": "env, which may be several environments",
}
"""What is meant by names that no spelling correction would find."""


class Chosen(NamedTuple):
    """What the user's settings come to."""

    agent: Any
    """The agent's configuration."""
    loop: dict[str, Any]
    """Fields of `RunConfig`."""


class Defaults(NamedTuple):
    """What a user's settings are laid over."""

    paper_loop: bool
    """The paper's loop instead of `STEPPING`."""
    preset: bool = True
    """Where the user names no preset, the one of `default_preset`; otherwise CAQL's own defaults, the paper's."""


def default_preset(settings: dict[str, Any]) -> str | None:
    """The preset that CAQL begins with in Python where the user names none.

    `recommended`, but for two cases in which it was not measured and costs too much: with a solver that proves its
    maxima, which its two networks of 64 x 64 units take 8 to 86 times as long as the paper's one of 32 x 16, and behind
    an encoder, whose images would fill memory with a million transitions.  There it is None, the paper's settings.
    """
    solver = settings.get("solver", "ga")
    searches = not proves(solver) if isinstance(solver, str) else getattr(solver, "traceable", False)
    return "recommended" if searches and settings.get("encoder") is None else None


def choose(
    kind: tuple[str, str], settings: dict[str, Any], policy_kwargs: dict[str, Any] | None, defaults: Defaults
) -> Chosen:
    """The agent's configuration and the loop's settings from keyword arguments under either name.

    kind: the agent's name, and the name of the user's class.
    Raises `CaqlError` for the first name that is not known or value that does not fit.
    """
    name, shown = kind
    agent_class = config_class(name)
    fields = {each.name for each in dataclasses.fields(agent_class)}
    known = fields | set(loop_fields())
    given = _ours(name, fields, _fixed(settings))
    begin = _begin(name, given, defaults)
    _networks(fields, policy_kwargs or {}, given)
    solver = {key: given.pop(key) for key in ("backend", "solver_kwargs") if key in given and "solver" in fields}
    for each in given:
        if each not in known:
            raise CaqlError(f"{shown} has no setting {each!r}; {_hint(each, name, known)}")
    laid_over = begin | given
    agent = {key: value for key, value in laid_over.items() if key in fields}
    loop = {key: value for key, value in laid_over.items() if key not in fields}
    if isinstance(agent.get("solver"), str):
        backend = {"backend": solver["backend"]} if "backend" in solver else {}
        agent["solver"] = make_solver(agent["solver"], **backend, **solver.get("solver_kwargs", {}))
    elif solver:
        raise CaqlError(f"{next(iter(solver))} goes with a solver's name, as in solver='mip'")
    return Chosen(agent_class(**agent), _loop(loop, settings, defaults.paper_loop))


def _begin(agent: str, given: dict[str, Any], defaults: Defaults) -> dict[str, Any]:
    """What lies under the user's settings; takes the preset's name out of them.

    The preset, and over it what goes with the loop, which says how long an epoch is and so how fast noise decays.
    """
    preset = given.pop("preset", None)
    if preset is not None and agent != "caql":
        raise CaqlError(f"preset = {preset!r} is a set of CAQL's settings; {agent} has none")
    if preset is None and agent == "caql" and defaults.preset:
        preset = default_preset(given)
    begin = {} if preset is None else preset_settings(preset)
    own = {each.name for each in dataclasses.fields(config_class(agent))}
    stepping = {} if defaults.paper_loop else {key: value for key, value in STEPPING_AGENT.items() if key in own}
    return begin | stepping


def loop_fields() -> list[str]:
    """The settings of the loop that a user may give."""
    chosen = {"task", "action_range", "action_set", "episode_steps", "seed", "agent", "train_steps"}
    return [each.name for each in dataclasses.fields(RunConfig) if each.name not in chosen]


def _fixed(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings without those that have one value here."""
    for name, value in WITHOUT_EFFECT.items():
        if name in settings and settings[name] != value:
            raise CaqlError(f"{name} = {settings[name]!r} is not supported; leave it out, or {value!r}")
    return {name: value for name, value in settings.items() if name not in WITHOUT_EFFECT}


def _ours(agent: str, fields: set[str], settings: dict[str, Any]) -> dict[str, Any]:
    """The settings under our names."""
    found: dict[str, Any] = {}
    renamed = SAME | OF_AGENT.get(agent, {})
    for name, value in settings.items():
        if name in renamed:
            if renamed[name] in settings:
                raise CaqlError(f"{name} and {renamed[name]} are two names of one setting; give one of them")
            found[renamed[name]] = max(value, 1) if name == "learning_starts" and value == 0 else value
        elif name == "learning_rate":
            if not isinstance(value, int | float):
                raise CaqlError(f"learning_rate = {value!r} must be a number: a schedule is not supported")
            rates = {each for each in fields if each.endswith("learning_rate")} - {"hinge_penalty_learning_rate"}
            found |= {each: float(value) for each in rates if each not in settings}
        elif name == "ent_coef" and agent == "sac":
            found |= _temperature(value)
        elif name == "target_entropy" and value == "auto":
            found[name] = None
        elif name == "train_freq":
            found[name] = _frequency(value)
        else:
            found[name] = value
    return found


def _temperature(value: Any) -> dict[str, Any]:
    """SAC's entropy coefficient: learned ("auto", "auto_0.1") or fixed (a number)."""
    if isinstance(value, int | float):
        return {"temperature": "decayed", "initial_temperature": float(value), "temperature_decay": 1.0}
    words = str(value).split("_")
    try:
        start = float(words[1]) if len(words) > 1 else 1.0
    except ValueError:
        start = -1.0
    if words[0] != "auto" or start <= 0:
        raise CaqlError(f"ent_coef = {value!r} must be a number, 'auto', or 'auto_' and a positive number")
    return {"temperature": "learned", "initial_temperature": start}


def _frequency(value: Any) -> tuple[int, str]:
    """`train_freq` as a number and a unit; a number alone counts steps."""
    count, unit = value if isinstance(value, tuple | list) and len(value) == 2 else (value, "step")
    if not isinstance(count, int | np.integer) or isinstance(count, bool) or unit not in ("step", "episode"):
        raise CaqlError(f"train_freq = {value!r} must be a number of steps, or a pair such as (1, 'episode')")
    return int(count), str(unit)


def _networks(fields: set[str], policy_kwargs: dict[str, Any], given: dict[str, Any]) -> None:
    """`policy_kwargs` as sizes of networks, into `given`."""
    for name, value in policy_kwargs.items():
        if name == "activation_fn":
            called = getattr(value, "__name__", str(value)).lower()
            if called != "relu":
                raise CaqlError(f"activation_fn = {called!r} is not supported: caql's networks are ReLU networks")
        elif name != "net_arch":
            raise CaqlError(f"policy_kwargs has no {name!r}; {nearest(name, ['net_arch', 'activation_fn'])}")
    if "net_arch" not in policy_kwargs:
        return
    arch = policy_kwargs["net_arch"]
    both = arch if isinstance(arch, dict) else {"qf": arch, "pi": arch}
    if sorted(both) != ["pi", "qf"]:
        raise CaqlError(f"net_arch = {arch!r} must be a list of hidden units, or dict(qf=[...], pi=[...])")
    sizes = {side: _units(both[side], arch) for side in ("qf", "pi")}
    if "action_hidden" in fields:
        given |= {"hidden": sizes["qf"], "action_hidden": sizes["pi"]}
    elif sizes["qf"] != sizes["pi"]:
        raise CaqlError(f"net_arch = {arch!r} must be the same for qf and pi here; only CAQL's may differ")
    else:
        given["hidden"] = sizes["qf"]


def _units(value: Any, arch: Any) -> tuple[int, ...]:
    try:
        units = tuple(value)
    except TypeError:
        units = (None,)
    if not all(isinstance(each, int | np.integer) for each in units):
        raise CaqlError(f"net_arch = {arch!r} must be a list of whole numbers, the units of each hidden layer")
    return tuple(int(each) for each in units)


def _loop(given: dict[str, Any], settings: dict[str, Any], paper: bool) -> dict[str, Any]:
    """The loop's settings, with the defaults that go with what was given."""
    loop: dict[str, Any] = {"evaluate_every": 0, **({} if paper else STEPPING)}
    if "steps_per_epoch" in settings and "train_freq" not in settings:
        # The paper's word for the paper's loop: S gradient steps after each episode.
        loop["train_freq"] = (1, "episode")
    elif "gradient_steps" in settings and not paper:
        loop["train_freq"] = (1, "step")
    if "train_freq" in settings:
        loop["steps_per_epoch"] = 1
    loop |= given
    if "warm_up" not in given and "replay_size" in given and "warm_up" in loop:
        loop["warm_up"] = min(loop["warm_up"], given["replay_size"])
    return loop


def _hint(name: str, agent: str, known: set[str]) -> str:
    """What may have been meant."""
    if name == "ent_coef":
        return f"it is SAC's, and {agent} has no temperature: leave it out"
    if name in SUGGESTED:
        return f"did you mean {SUGGESTED[name]}?"
    return nearest(name, [*sorted(known), *SAME, "learning_rate", "verbose", "tensorboard_log", "action_noise"])
