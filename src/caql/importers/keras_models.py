"""Keras: sequential and functional models, walked back from their outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from caql.errors import CaqlError
from caql.graphs import Network
from caql.graphs.activations import Clip, LeakyRelu
from caql.graphs.builder import Builder
from caql.graphs.graph import Port
from caql.importers.activations import activation_of
from caql.importers.parameters import as_array

OPTIONS = ("action",)


def read(model: Any, action: str | None = None) -> Network:
    """The network of a model whose sizes are all known."""
    if not getattr(model, "built", False) or not hasattr(model, "inputs"):
        raise CaqlError(f"the Keras {type(model).__name__} is not built; call it once, or begin it with an Input layer")
    builder, values, inputs = Builder(), {}, []
    for tensor in model.inputs:
        name = tensor._keras_history.operation.name
        if any(side is None for side in tensor.shape[1:]):
            raise CaqlError(f"input {name!r} has shape {tensor.shape}; every side but the first must be fixed")
        values[id(tensor)] = builder.input((1, *tensor.shape[1:]), f"input {name!r}")
        inputs.append(Port(name, values[id(tensor)]))
    for tensor in model.outputs:
        _walk(builder, values, tensor)
    outputs = [Port(tensor._keras_history.operation.name, values[id(tensor)]) for tensor in model.outputs]
    position = None
    if len(inputs) > 1:
        names = [port.name for port in inputs]
        chosen = action or next((name for name in names if "action" in name.lower()), "")
        if chosen not in names:
            raise CaqlError(f"the model has the inputs {', '.join(names)}; say which is the action (action='NAME')")
        position = names.index(chosen)
    return Network(builder, tuple(inputs), tuple(outputs), position)


def _walk(builder: Builder, values: dict[int, int], wanted: Any) -> None:
    """Compute a tensor's value, and before it all that it depends on."""
    stack = [wanted]
    while stack:
        tensor = stack[-1]
        if id(tensor) in values:
            stack.pop()
            continue
        history = tensor._keras_history
        needed = history.operation._inbound_nodes[history.node_index].input_tensors
        missing = [each for each in needed if id(each) not in values]
        if missing:
            stack += missing
            continue
        layer = history.operation
        builder.label = f"layer {layer.name!r} ({type(layer).__name__})"
        values[id(tensor)] = _layer(builder, layer, [values[id(each)] for each in needed])
        stack.pop()


def _layer(builder: Builder, layer: Any, operands: list[int]) -> int:
    kind = type(layer).__name__
    if kind not in LAYERS:
        raise CaqlError(f"{builder.label} cannot be read; known are {', '.join(LAYERS)}")
    value = LAYERS[kind](builder, layer, operands)
    function = getattr(layer, "activation", None)
    if function is None:
        return value
    return activation_of(function, str(getattr(function, "__name__", type(function).__name__)))(builder, value)


def _dense(builder: Builder, layer: Any, operands: list[int]) -> int:
    bias = as_array("bias", layer.bias) if layer.use_bias else None
    return builder.dense(operands[0], as_array("kernel", layer.kernel), bias)


def _norm(builder: Builder, layer: Any, operands: list[int]) -> int:
    shape = builder.shape(operands[0])
    axis = layer.axis if isinstance(layer.axis, int) else layer.axis[0]
    if axis not in (-1, len(shape) - 1):
        raise CaqlError(f"{builder.label} normalises axis {axis}; right would be the last")
    mean, variance = as_array("mean", layer.moving_mean), as_array("variance", layer.moving_variance)
    scale = as_array("gamma", layer.gamma) if layer.scale else np.ones_like(mean)
    shift = as_array("beta", layer.beta) if layer.center else np.zeros_like(mean)
    last = builder.reshape(operands[0], (int(np.prod(shape[:-1])), shape[-1]))
    return builder.reshape(builder.batch_norm(last, (scale, shift, mean, variance), float(layer.epsilon)), shape)


def _flatten(builder: Builder, layer: Any, operands: list[int]) -> int:
    if layer.data_format == "channels_first" and len(builder.shape(operands[0])) > 2:
        raise CaqlError(f"{builder.label} puts its channels last first; right would be data_format='channels_last'")
    return builder.reshape(operands[0], (1, int(np.prod(builder.shape(operands[0])))))


def _relu(builder: Builder, layer: Any, operands: list[int]) -> int:
    if layer.threshold:
        raise CaqlError(f"{builder.label} has threshold {layer.threshold}; right would be 0")
    below = builder.add(LeakyRelu(float(layer.negative_slope or 0.0)), operands[0])
    return below if layer.max_value is None else builder.add(Clip(high=float(layer.max_value)), below)


def _leaky(builder: Builder, layer: Any, operands: list[int]) -> int:
    return builder.add(LeakyRelu(float(layer.negative_slope)), operands[0])


def _first(builder: Builder, layer: Any, operands: list[int]) -> int:
    del builder, layer
    return operands[0]


LAYERS: dict[str, Callable[[Builder, Any, list[int]], int]] = {
    "Dense": _dense,
    "Activation": _first,
    "ReLU": _relu,
    "LeakyReLU": _leaky,
    "BatchNormalization": _norm,
    "Flatten": _flatten,
    "Dropout": _first,
    "Concatenate": lambda builder, layer, operands: builder.concat(operands, layer.axis),
    "Add": lambda builder, _, operands: builder.total(operands),
    "Subtract": lambda builder, _, operands: builder.subtract(*operands),
    "Maximum": lambda builder, _, operands: builder.maximum(operands),
    "Minimum": lambda builder, _, operands: builder.minimum(operands),
}
"""How each kind of layer is read; its `activation`, if it has one, is added after it."""
