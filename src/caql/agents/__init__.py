"""The algorithms, by the name that the user types; each is imported only when it is asked for."""

from __future__ import annotations

import importlib
from typing import Any

from caql.errors import CaqlError, nearest

AGENTS = {"caql": "CAQL", "naf": "NAF", "ddpg": "DDPG", "td3": "TD3", "sac": "SAC"}
"""Name -> class in the module of that name; its hyper-parameters are the class `...Config` beside it."""


PRESETS = ("qt-opt", "actor-expert")
"""Relatives that CAQL contains: its own algorithm under other settings."""


def agent_config(name: str) -> Any:
    """Default hyper-parameters of an algorithm or preset."""
    if name == "qt-opt":
        solver = importlib.import_module("caql.maxq.cross_entropy").CrossEntropy()
        return config_class("caql")(solver=solver, action_function="none", clipped_double_q=True)
    if name == "actor-expert":
        return config_class("caql")(action_function="stochastic")
    return config_class(name)()


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
