"""Dense layers from dictionaries of parameters, which say nothing of the activation between them.

A torch `state_dict` holds `NAME.weight` (outputs, inputs) and `NAME.bias`; Flax holds `{NAME: {kernel, bias}}`, kernel
(inputs, outputs), perhaps under `params`.  Layers follow each other as they do in the dictionary, numbers in their
names counting as numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from caql.errors import CaqlError
from caql.graphs import Network
from caql.graphs.builder import Builder
from caql.graphs.graph import Port
from caql.graphs.operations import Array
from caql.importers.activations import activation as named

Layers = list[tuple[Array, Array]]


def as_array(what: str, value: Any) -> Array:
    """Finite float64 numbers of an array of any library."""
    value = value.detach().cpu() if hasattr(value, "detach") else getattr(value, "value", value)
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise CaqlError(f"{what} is a {type(value).__name__}; right would be an array of numbers") from None
    if not np.isfinite(array).all():
        raise CaqlError(f"{what} holds numbers that are not finite")
    return array


def network_of_parameters(parameters: Mapping[Any, Any], activation: str = "relu") -> Network:
    """The network of a torch `state_dict` or of Flax parameters."""
    return chain(layers_of_parameters(parameters), activation)


def layers_of_parameters(parameters: Mapping[Any, Any]) -> Layers:
    """The dense layers, each checked against the one before it."""
    parameters = parameters["params"] if set(parameters) == {"params"} else parameters
    found: Layers = []
    for name, weight, bias in _named(parameters):
        matrix, vector = as_array(f"{name} weight", weight), None if bias is None else as_array(f"{name} bias", bias)
        if matrix.ndim != 2 or (vector is not None and vector.shape != matrix.shape[1:]):
            raise CaqlError(
                f"{name} has a weight of shape {matrix.shape}; a dictionary of parameters may hold dense layers only, "
                "give the module itself for others"
            )
        if found and found[-1][0].shape[1] != len(matrix):
            raise CaqlError(f"{name} takes {len(matrix)} inputs but the layer before it has {found[-1][0].shape[1]}")
        found.append((matrix, np.zeros(matrix.shape[1]) if vector is None else vector))
    if not found:
        held = ", ".join(map(str, list(parameters)[:10])) or "nothing"
        raise CaqlError(f"it holds {held}; right would be NAME.weight and NAME.bias, or NAME: kernel and bias")
    return found


def _natural(name: str) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _named(parameters: Mapping[Any, Any]) -> list[tuple[str, Any, Any]]:
    """(name, weight (inputs, outputs), bias or None) of each layer, in order."""
    layers: list[tuple[str, Any, Any]] = []
    for key, value in parameters.items():
        name = str(key)
        if isinstance(value, Mapping):
            if "kernel" not in value:
                raise CaqlError(f"{name} holds {', '.join(map(str, value))}; right would be kernel and bias")
            layers.append((name, value["kernel"], value.get("bias")))
        elif name.endswith("weight"):
            stem = name[: -len("weight")]
            matrix = as_array(name, value)
            layers.append((name, matrix.T if matrix.ndim == 2 else matrix, parameters.get(f"{stem}bias")))
        elif not name.endswith("bias"):
            raise CaqlError(f"{name} is neither a weight nor a bias; give the module itself, not its parameters")
    return sorted(layers, key=lambda layer: _natural(layer[0]))


def chain(layers: Sequence[tuple[Array, Array]], between: str, last: str = "identity") -> Network:
    """Dense layers with an activation between them, and perhaps another after the last."""
    builder = Builder()
    value = first = builder.input((len(layers[0][0]),), "input")
    for k, (weights, bias) in enumerate(layers):
        builder.label = f"layer {k}"
        value = builder.dense(value, weights, bias)
        value = named(between if k < len(layers) - 1 else last)(builder, value)
    return Network(builder, (Port("input", first),), (Port("output", value),))
