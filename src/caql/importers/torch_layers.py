"""torch's layers, by the name of their class, as operations on a value (N, ...)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from caql.errors import CaqlError
from caql.graphs.activations import Clip, Gelu, GeluTanh, LeakyRelu, Mish, Relu, Sigmoid, Silu, Softsign, Tanh
from caql.graphs.builder import Builder
from caql.graphs.opaque import normalised, standardised
from caql.graphs.operations import Add, Array, Multiply, Opaque, Operation
from caql.graphs.windows import Windows, convolve, pool
from caql.importers.activations import activation
from caql.importers.parameters import as_array
from caql.importers.torch_values import filled, side_of, sizes_of

Reader = Callable[[Builder, Any, int], int]


def _linear(builder: Builder, layer: Any, x: int) -> int:
    bias = None if layer.bias is None else as_array("bias", layer.bias)
    return builder.dense(x, as_array("weight", layer.weight).T, bias)


def _each(value: Any, axes: int) -> tuple[int, ...]:
    return (int(value),) * axes if isinstance(value, int) else tuple(int(each) for each in value)


def _conv(builder: Builder, layer: Any, x: int) -> int:
    bias = None if layer.bias is None else as_array("bias", layer.bias)
    return convolution(builder, x, as_array("weight", layer.weight), bias, layer)


def convolution(builder: Builder, x: int, kernels: Array, bias: Array | None, layer: Any) -> int:
    """A convolution with torch's settings: stride, padding, dilation, groups and padding_mode of `layer`."""
    axes = kernels.ndim - 2
    windows = Windows(kernels.shape[2:], _each(layer.stride, axes), _each(layer.dilation, axes), ((0, 0),) * axes)
    if layer.padding == "same":
        windows = windows.same(builder.shape(x)[2:], lower=False)
    elif layer.padding != "valid":
        windows = windows._replace(pads=tuple((pad, pad) for pad in _each(layer.padding, axes)))
    if layer.padding_mode != "zeros":
        if len(builder.shape(x)) != axes + 2:
            raise CaqlError(f"{builder.label}: values of shape {builder.shape(x)} do not fit {axes} sides")
        x = builder.padded(x, [(0, 0), (0, 0), *windows.pads], mode=_mode(builder, layer.padding_mode))
        windows = windows._replace(pads=((0, 0),) * axes)
    return convolve(builder, x, kernels, bias, windows, int(layer.groups))


def _mode(builder: Builder, mode: str) -> str:
    """NumPy's name of a padding."""
    if mode not in MODES:
        raise CaqlError(f"{builder.label}: padding of mode {mode!r} cannot be read; known are {', '.join(MODES)}")
    return MODES[mode]


def padded(builder: Builder, x: int, pads: list[int], mode: str, value: float) -> int:
    """torch's padding: pairs of entries before and after, for the last side first."""
    rank = len(builder.shape(x))
    if len(pads) % 2 or len(pads) > 2 * rank or not all(type(pad) is int for pad in pads):
        raise CaqlError(f"{builder.label}: padding {pads} does not fit a value of {rank} sides")
    given = list(zip(pads[::2], pads[1::2], strict=True))[::-1]
    return builder.padded(x, [(0, 0)] * (rank - len(given)) + given, value, _mode(builder, mode))


def _pad(mode: str) -> Reader:
    def read(builder: Builder, layer: Any, x: int) -> int:
        pads = list(layer.padding) if isinstance(layer.padding, tuple | list) else None
        sides = len(builder.shape(x)) - 2
        return padded(builder, x, pads or [layer.padding] * 2 * sides, mode, float(getattr(layer, "value", 0.0)))

    return read


def _axes(builder: Builder, layer: Any, x: int) -> int:
    """How many sides a pooling goes over, by its name; without a batch in front torch would take others."""
    axes, shape = int(type(layer).__name__[-2]), builder.shape(x)
    if len(shape) != axes + 2:
        raise CaqlError(f"{builder.label}: a value of shape {shape}; right would be (N, C) and {axes} sides")
    return axes


def _pool(builder: Builder, layer: Any, x: int) -> int:
    axes = _axes(builder, layer, x)
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
    joined, _, kept = builder.last_axes(x, list(range(2, 2 + _axes(builder, layer, x))))
    best = builder.mean_last(joined) if "Avg" in type(layer).__name__ else builder.maximum_last(joined)
    return builder.reshape(best, kept)


def _norm(builder: Builder, layer: Any, x: int) -> int:
    if layer.running_mean is None:
        raise CaqlError(f"{builder.label}: it keeps no statistics; right would be track_running_stats=True")
    mean, variance = as_array("running_mean", layer.running_mean), as_array("running_var", layer.running_var)
    scale = np.ones_like(mean) if layer.weight is None else as_array("weight", layer.weight)
    bias = np.zeros_like(mean) if layer.bias is None else as_array("bias", layer.bias)
    return builder.batch_norm(x, (scale, bias, mean, variance), float(layer.eps))


def _prelu(builder: Builder, layer: Any, x: int) -> int:
    return prelu(builder, x, as_array("weight", layer.weight))


def prelu(builder: Builder, x: int, slope: Array) -> int:
    """A ReLU with one slope below zero, or one for each channel of (N, C, ...)."""
    shape = builder.shape(x)
    if slope.size > 1:
        if len(shape) < 2 or slope.size != shape[1]:
            raise CaqlError(f"{builder.label}: {slope.size} slopes do not fit the channels of shape {shape}")
        slope = slope.reshape(-1, *(1 for _ in shape[2:]))
    return builder.add(LeakyRelu(np.broadcast_to(slope.reshape(()) if slope.size == 1 else slope, shape)), x)


def _flatten(builder: Builder, layer: Any, x: int) -> int:
    return flatten(builder, x, layer.start_dim, layer.end_dim)


def flatten(builder: Builder, x: int, start_dim: int = 0, end_dim: int = -1) -> int:
    """The axes from `start_dim` to `end_dim` made one."""
    shape = builder.shape(x)
    if not shape:
        return builder.reshape(x, (1,))
    first, last = (side_of(builder, dim, len(shape)) for dim in (start_dim, end_dim))
    if first > last:
        raise CaqlError(f"{builder.label}: it flattens from side {first} to side {last}; right would be the other way")
    return builder.reshape(x, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


def _softplus(builder: Builder, layer: Any, x: int) -> int:
    return softplus(builder, x, float(layer.beta), float(layer.threshold))


def softplus(builder: Builder, x: int, beta: float, limit: float) -> int:
    """log(1 + exp(beta x)) / beta; torch itself returns x beyond a threshold, a difference below 3e-9 / beta."""
    if limit < 20.0:
        raise CaqlError(f"{builder.label}: at its threshold of {limit:g} it jumps; right would be 20, as by default")
    return builder.softplus(x, beta)


def threshold(builder: Builder, x: int, limit: float, value: float) -> int:
    """x where it is above the limit and a value elsewhere: continuous, and a clip, if these are the same."""
    if limit != value:
        raise CaqlError(f"{builder.label}: it jumps from {value:g} to {limit:g}; right would be two numbers alike")
    return builder.add(Clip(low=limit), x)


def _layer_norm(builder: Builder, layer: Any, x: int) -> int:
    """LayerNorm, of the state alone."""
    sides = tuple(layer.normalized_shape)
    if builder.shape(x)[-len(sides) :] != sides:
        raise CaqlError(f"{builder.label}: normalized_shape = {sides} does not fit a value of shape {builder.shape(x)}")
    norm = Opaque("LayerNorm", standardised(len(sides), float(layer.eps)), lambda shape: shape)
    value = builder.add(norm, x)
    if layer.weight is not None:
        value = builder.add(Multiply(), value, builder.constant(as_array("weight", layer.weight)))
    return value if layer.bias is None else builder.add(Add(), value, builder.constant(as_array("bias", layer.bias)))


def _softmax(builder: Builder, layer: Any, x: int) -> int:
    """Softmax, of the state alone."""
    side = side_of(builder, layer.dim, len(builder.shape(x)))
    return builder.add(Opaque("Softmax", normalised(side + 1), lambda shape: shape), x)


def _unflatten(builder: Builder, layer: Any, x: int) -> int:
    shape = builder.shape(x)
    side = side_of(builder, layer.dim, len(shape))
    parts = filled(builder, sizes_of(builder, (tuple(layer.unflattened_size),)), shape[side])
    return builder.reshape(x, (*shape[:side], *parts, *shape[side + 1 :]))


def _named(name: str) -> Reader:
    return lambda builder, _, x: activation(name)(builder, x)


def _one(operation: Operation) -> Reader:
    return lambda builder, _, x: builder.add(operation, x)


def _same(builder: Builder, layer: Any, x: int) -> int:
    del builder, layer
    return x


MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
"""NumPy's names of torch's paddings."""
LAYERS: dict[str, Reader] = {
    "Linear": _linear,
    **dict.fromkeys(("Conv1d", "Conv2d", "Conv3d"), _conv),
    **dict.fromkeys(("BatchNorm1d", "BatchNorm2d", "BatchNorm3d"), _norm),
    **dict.fromkeys(("MaxPool1d", "MaxPool2d", "MaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d"), _pool),
    **dict.fromkeys((f"Adaptive{kind}Pool{n}d" for kind in ("Avg", "Max") for n in (1, 2, 3)), _global),
    **dict.fromkeys((f"{kind}Pad{n}d" for kind in ("Zero", "Constant") for n in (1, 2, 3)), _pad("constant")),
    **dict.fromkeys((f"ReflectionPad{n}d" for n in (1, 2, 3)), _pad("reflect")),
    **dict.fromkeys((f"ReplicationPad{n}d" for n in (1, 2, 3)), _pad("replicate")),
    "ReLU": _one(Relu()),
    "ReLU6": _one(Clip(0.0, 6.0)),
    "LeakyReLU": lambda builder, layer, x: builder.add(LeakyRelu(float(layer.negative_slope)), x),
    "RReLU": lambda builder, layer, x: builder.add(LeakyRelu(0.5 * (layer.lower + layer.upper)), x),
    "PReLU": _prelu,
    "Threshold": lambda builder, layer, x: threshold(builder, x, float(layer.threshold), float(layer.value)),
    "Hardtanh": lambda builder, layer, x: builder.add(Clip(float(layer.min_val), float(layer.max_val)), x),
    "Hardsigmoid": _named("hard_sigmoid"),
    "Hardswish": _named("hard_swish"),
    "Softshrink": lambda builder, layer, x: builder.soft_shrink(x, float(layer.lambd)),
    "Tanh": _one(Tanh()),
    "Tanhshrink": _named("tanh_shrink"),
    "Sigmoid": _one(Sigmoid()),
    "LogSigmoid": _named("log_sigmoid"),
    "Softsign": _one(Softsign()),
    "Softplus": _softplus,
    "SiLU": _one(Silu()),
    "Mish": _one(Mish()),
    "GELU": lambda builder, layer, x: builder.add(GeluTanh() if layer.approximate == "tanh" else Gelu(), x),
    "ELU": lambda builder, layer, x: builder.elu(x, float(layer.alpha)),
    "CELU": lambda builder, layer, x: builder.celu(x, float(layer.alpha)),
    "SELU": _named("selu"),
    "LayerNorm": _layer_norm,
    "Softmax": _softmax,
    "Flatten": _flatten,
    "Unflatten": _unflatten,
    **dict.fromkeys(("Identity", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d"), _same),
    **dict.fromkeys(("AlphaDropout", "FeatureAlphaDropout"), _same),
}
