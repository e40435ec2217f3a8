"""What an environment answers, held to Gymnasium's contract: one number for a reward, yes or no for a flag."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import numpy as np

from caql.errors import CaqlError


class Misbehaviour(CaqlError):
    """The environment raised an error, or answered with something that nothing can be learned from."""


def shown(value: Any) -> str:
    """A value in a few words."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 100 else f"{text[:97]}..."


def told(problem: Exception) -> str:
    """An environment's error with the line that raised it."""
    last = traceback.extract_tb(problem.__traceback__)[-1]
    words = " ".join(str(problem).split())
    return f"{type(problem).__name__}: {words} ({Path(last.filename).name}, line {last.lineno})"


def number(reward: Any) -> float:
    """A reward that is not a Python float: any single real number, also in an array of shape (1,)."""
    try:
        found = np.asarray(reward)
    except (TypeError, ValueError):
        found = np.empty(0)
    if found.size != 1 or found.dtype.kind not in "fiub":
        raise Misbehaviour(f"the environment gave {shown(reward)} as its reward; it must be one number")
    return float(found.reshape(())[()])


def flag(name: str, value: Any) -> bool:
    """A flag that is not a Python bool: NumPy's, or the numbers 0 and 1."""
    try:
        found = np.asarray(value)
    except (TypeError, ValueError):
        found = np.empty(0)
    if found.size != 1 or found.dtype.kind not in "iub" or found.reshape(())[()] not in (0, 1):
        raise Misbehaviour(f"the environment gave {name} = {shown(value)}; it must be True or False")
    return bool(found.reshape(())[()])
