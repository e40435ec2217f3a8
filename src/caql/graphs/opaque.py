"""Functions that may stand before the action enters, where any function may: of a fixed state they are constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from caql.graphs.operations import Array, Shape, with_rank


def _same(shape: Shape) -> Shape:
    return shape


def _power(x: Array, y: Array) -> Array:
    rank = max(x.ndim, y.ndim) - 1
    return np.power(with_rank(x, rank), with_rank(y, rank))


def normalised(*axes: int) -> Callable[[Array], Array]:
    """Softmax over axes, counted with that of the samples."""

    def softmax(x: Array) -> Array:
        powers = np.exp(x - x.max(axis=axes, keepdims=True))
        return powers / powers.sum(axis=axes, keepdims=True)

    return softmax


def standardised(count: int, epsilon: float) -> Callable[[Array], Array]:
    """Each sample's mean over the last `count` axes taken away, and its deviation divided out, as LayerNorm does."""
    axes = tuple(range(-count, 0))

    def standardise(x: Array) -> Array:
        centred = x - x.mean(axis=axes, keepdims=True)
        return centred / np.sqrt((centred**2).mean(axis=axes, keepdims=True) + epsilon)

    return standardise


OPAQUE: dict[str, tuple[Callable[..., Array], Callable[..., Any]]] = {
    "Exp": (np.exp, _same),
    "Log": (np.log, _same),
    "Sqrt": (np.sqrt, _same),
    "Reciprocal": (np.reciprocal, _same),
    "Sign": (np.sign, _same),
    "Floor": (np.floor, _same),
    "Ceil": (np.ceil, _same),
    "Round": (np.round, _same),
    "Pow": (_power, lambda x, y: np.broadcast_shapes(x, y)),
}
"""By ONNX's name: the function, and the shape of its result."""
