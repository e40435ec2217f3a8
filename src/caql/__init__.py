"""Q-learning for continuous actions in which every greedy action can be proved optimal.

The public names; each is imported when it is first used, so that `import caql` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from caql.actions import ActionSet as ActionSet
    from caql.config import RunConfig as RunConfig
    from caql.environments import make_task as make_task
    from caql.errors import CaqlError as CaqlError
    from caql.errors import CaqlWarning as CaqlWarning
    from caql.importers import network as network
    from caql.maxq.interrupts import Interrupted as Interrupted
    from caql.maxq.maximize import maximize as maximize
    from caql.maxq.problem import Status as Status
    from caql.model import CAQL as CAQL
    from caql.model import DDPG as DDPG
    from caql.model import NAF as NAF
    from caql.model import SAC as SAC
    from caql.model import TD3 as TD3

_HOMES = {
    "ActionSet": "caql.actions",
    "CAQL": "caql.model",
    "DDPG": "caql.model",
    "NAF": "caql.model",
    "SAC": "caql.model",
    "TD3": "caql.model",
    "CaqlError": "caql.errors",
    "CaqlWarning": "caql.errors",
    "Interrupted": "caql.maxq.interrupts",
    "RunConfig": "caql.config",
    "Status": "caql.maxq.problem",
    "make_task": "caql.environments",
    "maximize": "caql.maxq.maximize",
    "network": "caql.importers",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'caql' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
