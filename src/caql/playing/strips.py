"""A few frames of a policy as pictures that a page can hold."""

from __future__ import annotations

import base64
import contextlib
import io
from typing import Any

import numpy as np

from caql.model import Model
from caql.playing.episodes import episode, visible_task
from caql.playing.overlay import resized

SEED = 1_000_000
"""Of the episode: none that training used."""


def spread(count: int, wanted: int) -> list[int]:
    """At most `wanted` of `count` things at even distances, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, wanted)).round().astype(int)).tolist()


def address(frame: np.ndarray[Any, Any], width: int) -> str:
    """The frame, at most `width` pixels wide, as a `data:` address."""
    file = io.BytesIO()
    resized(frame, min(width, frame.shape[1])).save(file, "JPEG", quality=72, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def strip(model: Model, count: int, width: int = 180) -> list[str]:
    """`count` frames of one greedy episode at even distances; `CaqlError` where they cannot be drawn."""
    policy, seed = model.greedy_policy(), (SEED, 0)
    length = sum(1 for _ in episode(model, policy, model.task, seed, drawn=False))
    wanted = spread(length, count)
    with contextlib.closing(visible_task(model)) as task:
        moments = episode(model, policy, task, seed, drawn=wanted)
        return [address(moment.frame, width) for moment in moments if moment.frame is not None]
