"""torch's layers, by the name of their class, as operations on a value (N, ...)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from caql.errors import CaqlError
from caql.graphs.activations import Clip, Gelu, GeluTanh, LeakyRelu, Relu, Sigmoid, Silu, Softplus, Tanh
from caql.graphs.builder import Builder
from caql.graphs.operations import Operation
from caql.graphs.windows import Windows, convolve, pool
from caql.importers.activations import activation
from caql.importers.parameters import as_array

Reader = Callable[[Builder, Any, int], int]


def _linear(builder: Builder, layer: Any, x: int) -> int:
    bias = None if layer.bias is None else as_array("bias", layer.bias)
    return builder.dense(x, as_array("weight", layer.weight).T, bias)


def _each(value: Any, axes: int) -> tuple[int, ...]:
    return (int(value),) * axes if isinstance(value, int) else tuple(int(each) for each in value)


def _conv(builder: Builder, layer: Any, x: int) -> int:
    kernels = as_array("weight", layer.weight)
    axes = kernels.ndim - 2
    if layer.padding_mode != "zeros":
        raise CaqlError(f"{builder.label}: padding_mode = {layer.padding_mode!r} cannot be read; right is 'zeros'")
    windows = Windows(kernels.shape[2:], _each(layer.stride, axes), _each(layer.dilation, axes), ((0, 0),) * axes)
    if layer.padding == "same":
        windows = windows.same(builder.shape(x)[2:], lower=False)
    elif layer.padding != "valid":
        windows = windows._replace(pads=tuple((pad, pad) for pad in _each(layer.padding, axes)))
    bias = None if layer.bias is None else as_array("bias", layer.bias)
    return convolve(builder, x, kernels, bias, windows, int(layer.groups))


def _pool(builder: Builder, layer: Any, x: int) -> int:
    axes = len(builder.shape(x)) - 2
    average = "Avg" in type(layer).__name__
    kernel = _each(layer.kernel_size, axes)
    strides = kernel if layer.stride is None else _each(layer.stride, axes)
    dilations = (1,) * axes if average else _each(layer.dilation, axes)
    pads = tuple((pad, pad) for pad in _each(layer.padding, axes))
    windows = Windows(kernel, strides, dilations, pads, bool(layer.ceil_mode))
    if average and getattr(layer, "divisor_override", None):
        raise CaqlError(f"{builder.label}: divisor_override cannot be read; leave it out")
    return pool(builder, x, windows, None if not average else "all" if layer.count_include_pad else "inside")


def _global(builder: Builder, layer: Any, x: int) -> int:
    sizes = layer.output_size if isinstance(layer.output_size, tuple | list) else [layer.output_size]
    if any(size != 1 for size in sizes):
        raise CaqlError(f"{builder.label}: output_size = {layer.output_size} cannot be read; right would be 1")
    joined, _, kept = builder.last_axes(x, list(range(2, len(builder.shape(x)))))
    best = builder.mean_last(joined) if "Avg" in type(layer).__name__ else builder.maximum_last(joined)
    return builder.reshape(best, kept)


def _norm(builder: Builder, layer: Any, x: int) -> int:
    if layer.running_mean is None:
        raise CaqlError(f"{builder.label}: it keeps no statistics (track_running_stats=False), so it is not fixed")
    mean, variance = as_array("running_mean", layer.running_mean), as_array("running_var", layer.running_var)
    scale = np.ones_like(mean) if layer.weight is None else as_array("weight", layer.weight)
    bias = np.zeros_like(mean) if layer.bias is None else as_array("bias", layer.bias)
    return builder.batch_norm(x, (scale, bias, mean, variance), float(layer.eps))


def _prelu(builder: Builder, layer: Any, x: int) -> int:
    slope, shape = as_array("weight", layer.weight), builder.shape(x)
    if slope.size > 1:
        slope = slope.reshape(-1, *(1 for _ in shape[2:]))
    return builder.add(LeakyRelu(np.broadcast_to(slope, shape)), x)


def _flatten(builder: Builder, layer: Any, x: int) -> int:
    return flatten(builder, x, layer.start_dim, layer.end_dim)


def flatten(builder: Builder, x: int, start_dim: int = 0, end_dim: int = -1) -> int:
    """The axes from `start_dim` to `end_dim` made one."""
    shape = builder.shape(x)
    first, last = start_dim % len(shape), end_dim % len(shape)
    return builder.reshape(x, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


def _softplus(builder: Builder, layer: Any, x: int) -> int:
    """log(1 + exp(beta x)) / beta; torch itself returns x beyond a threshold, a difference below 3e-9 / beta."""
    scaled = x if layer.beta == 1 else builder.scale(x, float(layer.beta))
    value = builder.add(Softplus(), scaled)
    return value if layer.beta == 1 else builder.scale(value, 1.0 / float(layer.beta))


def _one(operation: Operation) -> Reader:
    return lambda builder, _, x: builder.add(operation, x)


def _same(builder: Builder, layer: Any, x: int) -> int:
    del builder, layer
    return x


LAYERS: dict[str, Reader] = {
    "Linear": _linear,
    **dict.fromkeys(("Conv1d", "Conv2d", "Conv3d"), _conv),
    **dict.fromkeys(("BatchNorm1d", "BatchNorm2d", "BatchNorm3d"), _norm),
    **dict.fromkeys(("MaxPool1d", "MaxPool2d", "MaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d"), _pool),
    **dict.fromkeys(("AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d"), _global),
    "ReLU": _one(Relu()),
    "ReLU6": _one(Clip(0.0, 6.0)),
    "LeakyReLU": lambda builder, layer, x: builder.add(LeakyRelu(float(layer.negative_slope)), x),
    "PReLU": _prelu,
    "Hardtanh": lambda builder, layer, x: builder.add(Clip(float(layer.min_val), float(layer.max_val)), x),
    "Hardsigmoid": lambda builder, _, x: builder.hard_sigmoid(x, 1.0 / 6.0, 0.5),
    "Tanh": _one(Tanh()),
    "Sigmoid": _one(Sigmoid()),
    "Softplus": _softplus,
    "SiLU": _one(Silu()),
    "GELU": lambda builder, layer, x: builder.add(GeluTanh() if layer.approximate == "tanh" else Gelu(), x),
    "ELU": lambda builder, layer, x: builder.elu(x, float(layer.alpha)),
    "SELU": lambda builder, _, x: activation("selu")(builder, x),
    "Flatten": _flatten,
    **dict.fromkeys(("Identity", "Dropout", "Dropout1d", "Dropout2d"), _same),
}
