"""Which settings tell two runs apart: the fixed table behind run ids and behind stored configurations.

A run's id covers the settings that have an effect on the run and differ from the fixed values below.
These are the paper's settings as they stood when the first results were committed; for a setting that came later,
the value that stands for what a run did before it existed.  They are kept apart from the defaults of
the configuration classes on purpose.  A default may change when something better is found; a value here must
not, because it is also what a stored configuration means where it is silent.

    a new setting      gets a row here, with the value under which a run is what it was without it
    a renamed setting  gets a row in `RENAMED`; the ids keep the first name it had
    a changed default  changes nothing here
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from caql.errors import CaqlError

Flat = dict[str, Any]
"""Dotted path of a setting -> its value: `{"task": "Hopper", "agent.exploration.decay": 0.9995}`."""

RUN: Flat = {
    "action_range": None,
    "action_set": None,
    "episode_steps": 200,
    "train_steps": 200_000,
    "train_freq": [1, "episode"],
    "steps_per_epoch": 20,
    "batch_size": 64,
    "label_steps": 1,
    "replay_size": 100_000,
    "replay_keeps": "newest",
    "warm_up": 1280,
    "evaluate_every": 1000,
    "evaluation_episodes": 10,
    "zero_terminal_reward": False,
    "seed": 0,
    "agent.name": "caql",
}
_EXPLORATION: Flat = {
    "exploration.sigma": 1.0,
    "exploration.decay": 0.9995,
    "exploration.minimum": 0.01,
    "exploration.relative": True,
}
_COMMON: Flat = {"hidden": [32, 16], "discount": 0.99, "target_rate": 0.001}
AGENTS: dict[str, Flat] = {
    "caql": {
        **_COMMON,
        **_EXPLORATION,
        "solver.name": "ga",
        "action_hidden": [32, 16],
        "q_learning_rate": 0.001,
        "action_learning_rate": 0.001,
        "rate_decay": 1.0,
        "rate_minimum": 0.1,
        "average_rate": 0.0,
        "loss": "l2",
        "huber_width": 1.0,
        "hinge_penalty": 1.0,
        "hinge_penalty_learning_rate": 0.0,
        "clip_labels": False,
        "maximised": "q",
        "trust_region": None,
        "clipped_double_q": False,
        "second_target_every": 5000,
        "action_function": "deterministic",
        "squash": "tanh",
        "saturation_penalty": 0.0,
        "action_labels": "primal",
        "action_loss": "l2",
        "tolerance": 1e-6,
        "relative_tolerance": 0.0,
        "dynamic_tolerance": None,
        "tolerance_decay": 0.9995,
        "tolerance_maximum": 100.0,
        "dual_filter": False,
        "cluster_radius": 0.0,
        "cluster_decay": 1.0,
        "cluster_p": 2.0,
        "cluster_relative": False,
        "cluster_method": "online",
        "cluster_cap_by_bound": False,
        "dual_only": False,
        "audit": 0,
        "relaxed": False,
        "critics": 1,
        "combine": "min",
        "encoder": None,
    },
    "naf": {**_COMMON, **_EXPLORATION, "q_learning_rate": 0.001, "saturation_penalty": 1.0},
    "ddpg": {
        **_COMMON,
        **_EXPLORATION,
        "critic_learning_rate": 0.001,
        "actor_learning_rate": 0.001,
        "saturation_penalty": 0.0,
    },
    "td3": {
        **_COMMON,
        **_EXPLORATION,
        "critic_learning_rate": 0.001,
        "actor_learning_rate": 0.001,
        "saturation_penalty": 0.0,
        "policy_delay": 2,
        "smoothing_sigma": 0.2,
        "smoothing_clip": 0.5,
    },
    "sac": {
        **_COMMON,
        "critic_learning_rate": 0.001,
        "actor_learning_rate": 0.0005,
        "temperature": "learned",
        "initial_temperature": 1.0,
        "temperature_learning_rate": 0.0005,
        "temperature_decay": 0.99995,
        "target_entropy": None,
    },
}
SOLVERS: dict[str, Flat] = {
    "ga": {"iterations": 20, "step_size": 0.3, "normalise": True, "line_search": True, "restarts": 0},
    "cem": {"iterations": 20, "samples": 64, "elites": 8, "spread": 0.5},
    "exact": {"node_limit": 100_000, "time_limit": 60.0, "threads": None},
    "mip": {"backend": "scip", "time_limit": 60.0, "threads": 1, "bounds": "backward", "cut_rounds": 0},
}

RENAMED: Flat = {}
"""First name of a setting -> its name today, both as dotted paths."""

_ALWAYS = ("agent.name", "agent.solver.name")
_DEEPEST = 4
"""Levels of a configuration: agent, solver, and one to spare."""


def _with(path: str, *values: Any) -> Callable[[Flat], bool]:
    return lambda settings: settings.get(path) in values


_hinge = _with("agent.loss", "hinge")
_acting = _with("agent.action_function", "deterministic", "stochastic")
COUNTS_ONLY_IF: dict[str, Callable[[Flat], bool]] = {
    "evaluation_episodes": lambda settings: settings["evaluate_every"] > 0,
    "agent.huber_width": _with("agent.loss", "huber"),
    "agent.hinge_penalty": _hinge,
    "agent.hinge_penalty_learning_rate": _hinge,
    "agent.second_target_every": _with("agent.clipped_double_q", True),
    "agent.rate_minimum": lambda settings: settings["agent.rate_decay"] < 1,
    "agent.combine": lambda settings: settings["agent.critics"] > 1,
    "agent.average_rate": _acting,
    # NAF, DDPG and TD3 have the setting too, and no action function.
    "agent.saturation_penalty": lambda settings: settings.get("agent.action_function") != "none",
    "agent.action_loss": _with("agent.action_function", "deterministic"),
    **dict.fromkeys(
        [f"agent.{name}" for name in ("action_hidden", "action_learning_rate", "squash", "action_labels")], _acting
    ),
    **dict.fromkeys(
        ["agent.tolerance_decay", "agent.tolerance_maximum"],
        lambda settings: settings["agent.dynamic_tolerance"] is not None,
    ),
    **dict.fromkeys(
        [f"agent.cluster_{name}" for name in ("decay", "p", "relative", "method", "cap_by_bound")],
        lambda settings: settings["agent.cluster_radius"] > 0,
    ),
    # A run with an audit has the same weights and returns as one without.
    "agent.audit": lambda _: False,
    # The exact solver's answer does not depend on its threads; that of a commercial MIP solver may.
    "agent.solver.threads": _with("agent.solver.name", "mip"),
    "agent.temperature_decay": _with("agent.temperature", "decayed"),
    "agent.temperature_learning_rate": _with("agent.temperature", "learned"),
    "agent.target_entropy": _with("agent.temperature", "learned"),
}
"""First name of a setting -> whether it has an effect beside the others.  How often and how long a run is
evaluated does not change its weights, but is what its records consist of, so it counts."""


def flatten(values: dict[str, Any], prefix: str = "") -> Flat:
    """Nested settings as dotted paths; `CaqlError` if they are nested deeper than any configuration is."""
    found: Flat = {}
    for name, value in values.items():
        path = f"{prefix}{name}"
        if "." in name:
            raise CaqlError(f"the configuration has no setting {path!r}: a name has no dot in it")
        if path.count(".") > _DEEPEST:
            raise CaqlError(f"the configuration is nested too deeply at {prefix[:60]!r}")
        found.update(flatten(value, f"{path}.") if isinstance(value, dict) else {path: value})
    return found


def nest(settings: Flat) -> dict[str, Any]:
    """Undo `flatten`; where a plain value stands in the way of a path, the path wins."""
    found: dict[str, Any] = {}
    for path, value in settings.items():
        *folders, name = path.split(".")
        inner = found
        for folder in folders:
            if not isinstance(inner.get(folder), dict):
                inner[folder] = {}
            inner = inner[folder]
        inner[name] = value
    return found


def fixed(settings: Flat) -> Flat:
    """The fixed values of all settings that the named agent and solver have, by their first names."""
    found = dict(RUN)
    agent = settings.get("agent.name", RUN["agent.name"])
    found |= {f"agent.{name}": value for name, value in _row(AGENTS, agent).items()}
    if "agent.solver.name" in found:
        solver = settings.get("agent.solver.name", found["agent.solver.name"])
        found |= {f"agent.solver.{name}": value for name, value in _row(SOLVERS, solver).items()}
    return found


def _row(table: dict[str, Flat], name: Any) -> Flat:
    return table.get(name, {}) if isinstance(name, str) else {}


def today(path: str) -> str:
    """The present name of a setting, which may be given by its first one."""
    return str(RENAMED.get(path, path))


def completed(values: dict[str, Any]) -> dict[str, Any]:
    """A stored configuration with every setting it is silent about at its fixed value, under today's names."""
    settings = {today(path): value for path, value in flatten(values).items()}
    for path, value in fixed(settings).items():
        name = today(path)
        # A plain value where settings are expected stays, for the reader to reject.
        if not any(name[:end] in settings for end, sign in enumerate(name) if sign == "."):
            settings.setdefault(name, value)
    return nest(settings)


def distinctive(values: dict[str, Any], defaults: dict[str, Any] | None = None) -> Flat:
    """The settings of a complete configuration that have an effect and differ from the fixed values.

    defaults: a configuration to compare with where the table has no row.
    Returns the settings by their first names, sorted; the algorithm's and the solver's name are always among them.
    """
    first = {new: old for old, new in RENAMED.items()}
    settings = {first.get(path, path): _plain(value) for path, value in flatten(values).items()}
    usual = {first.get(path, path): value for path, value in flatten(defaults or {}).items()} | fixed(settings)
    usual = {path: _plain(value) for path, value in usual.items()}
    return {
        path: value
        for path, value in sorted(settings.items())
        if path in _ALWAYS or (_differs(value, usual, path) and _counts(path, settings))
    }


def _differs(value: Any, usual: Flat, path: str) -> bool:
    # As text, because 1 == True.
    return path not in usual or json.dumps(value) != json.dumps(usual[path])


def _counts(path: str, settings: Flat) -> bool:
    return path not in COUNTS_ONLY_IF or COUNTS_ONLY_IF[path](settings)


def _plain(value: Any) -> Any:
    """A value in the one form that is hashed: 2.0 is 2, a tuple is a list."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def run_id(values: dict[str, Any], defaults: dict[str, Any] | None = None) -> str:
    """Twelve hexadecimal digits for a complete configuration; arguments as of `distinctive`."""
    pairs = list(distinctive(values, defaults).items())
    return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()[:12]
