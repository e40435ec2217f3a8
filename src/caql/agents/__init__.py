"""The algorithms, by the name that the user types; each is imported only when it is asked for."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from caql.errors import CaqlError, nearest

AGENTS = {"caql": "CAQL", "naf": "NAF", "ddpg": "DDPG", "td3": "TD3", "sac": "SAC"}
"""Name -> class in the module of that name; its hyper-parameters are the class `...Config` beside it."""


PRESETS = ("paper", "recommended", "qt-opt", "actor-expert")
"""CAQL under other settings: those of the reproduced tables, those that we would take, and two relatives of it."""


def preset_settings(name: str) -> dict[str, Any]:
    """The settings that make up a preset, CAQL's own and those of the loop around it (fields of `RunConfig`).

    `paper` is what the tables are made with: the defaults, with the noise that the search chose.  `recommended` is
    the same with the minimum of two critics, 64 x 64 networks, learning rates that decay to a tenth, and a larger
    replay buffer that forgets no part of the run; docs/explanation/notebook.md has its evidence.
    Raises `CaqlError` for an unknown name.
    """
    if name not in PRESETS:
        raise CaqlError(f"preset = {name!r} is not known; {nearest(name, PRESETS)}")
    if name == "qt-opt":
        solver = importlib.import_module("caql.maxq.cross_entropy").CrossEntropy()
        return {"solver": solver, "action_function": "none", "clipped_double_q": True}
    if name == "actor-expert":
        return {"action_function": "stochastic"}
    paper = {"exploration": importlib.import_module("caql.agents.policies").Exploration(decay=0.9999)}
    if name == "paper":
        return paper
    networks = {"critics": 2, "hidden": (64, 64), "action_hidden": (64, 64), "rate_decay": 0.9998}
    return paper | networks | {"replay_size": 1_000_000, "replay_keeps": "sample"}


def preset_loop(name: str) -> dict[str, Any]:
    """What a preset sets of the loop: fields of `RunConfig`; nothing for the name of an algorithm."""
    settings = preset_settings(name) if name in PRESETS else {}
    return {key: value for key, value in settings.items() if key not in _fields("caql")}


def agent_config(name: str) -> Any:
    """Default hyper-parameters of an algorithm or preset."""
    if name in PRESETS:
        own = _fields("caql")
        return config_class("caql")(**{key: value for key, value in preset_settings(name).items() if key in own})
    return config_class(name)()


def _fields(name: str) -> set[str]:
    """The names of an algorithm's hyper-parameters."""
    return {field.name for field in dataclasses.fields(config_class(name))}


def _module(name: str) -> Any:
    if name not in AGENTS:
        raise CaqlError(f"agent = {name!r} is not an algorithm; {nearest(name, [*AGENTS, *PRESETS])}")
    return importlib.import_module(f"caql.agents.{name}")


def config_class(name: str) -> type[Any]:
    """The frozen dataclass of an algorithm's hyper-parameters."""
    found: type[Any] = getattr(_module(name), f"{AGENTS[name]}Config")
    return found


def make_agent(config: Any, spec: Any) -> Any:
    """The algorithm that `config` belongs to, bound to a task."""
    return getattr(_module(config.name), AGENTS[config.name])(config, spec)
