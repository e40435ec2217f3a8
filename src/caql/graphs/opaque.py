"""Functions that may stand before the action enters, where any function may: of a fixed state they are constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from caql.graphs.activations import erf
from caql.graphs.operations import Array, Shape, with_rank


def _same(shape: Shape) -> Shape:
    return shape


def _power(x: Array, y: Array) -> Array:
    rank = max(x.ndim, y.ndim) - 1
    return np.power(with_rank(x, rank), with_rank(y, rank))


OPAQUE: dict[str, tuple[Callable[..., Array], Callable[..., Any]]] = {
    "Exp": (np.exp, _same),
    "Log": (np.log, _same),
    "Sqrt": (np.sqrt, _same),
    "Reciprocal": (np.reciprocal, _same),
    "Sin": (np.sin, _same),
    "Cos": (np.cos, _same),
    "Erf": (erf, _same),
    "Sign": (np.sign, _same),
    "Floor": (np.floor, _same),
    "Ceil": (np.ceil, _same),
    "Round": (np.round, _same),
    "Softsign": (lambda x: x / (1.0 + np.abs(x)), _same),
    "HardSwish": (lambda x: x * np.clip(x / 6.0 + 0.5, 0.0, 1.0), _same),
    "Mish": (lambda x: x * np.tanh(np.logaddexp(x, 0.0)), _same),
    "Pow": (_power, lambda x, y: np.broadcast_shapes(x, y)),
}
"""By ONNX's name: the function, and the shape of its result."""
