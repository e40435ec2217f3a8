"""Keras's layers, by the name of their class, as operations on values (1, ...), and its functions of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from caql.errors import CaqlError
from caql.graphs.activations import Abs, Clip, LeakyRelu, Relu, Tanh
from caql.graphs.builder import Builder
from caql.graphs.opaque import normalised, standardised
from caql.graphs.operations import Add, Array, Divide, MatMul, Multiply, Opaque, Operation
from caql.graphs.windows import Windows, convolve, pool
from caql.importers.parameters import as_array

Reader = Callable[[Builder, Any, list[int]], int]


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


def _prelu(builder: Builder, layer: Any, operands: list[int]) -> int:
    slopes = np.broadcast_to(as_array("alpha", layer.alpha), builder.shape(operands[0]))
    return builder.add(LeakyRelu(slopes), operands[0])


def _first(builder: Builder, layer: Any, operands: list[int]) -> int:
    del builder, layer
    return operands[0]


def _turned(builder: Builder, layer: Any, x: int, back: bool = False) -> int:
    """The value with its channels in front of its sides, or back behind them, unless it is so already."""
    rank = len(builder.shape(x))
    if getattr(layer, "data_format", "channels_last") != "channels_last":
        return x
    return builder.transpose(x, [0, *range(2, rank), 1] if back else [0, rank - 1, *range(1, rank - 1)])


def _windows(builder: Builder, layer: Any, kernel: Any, dilation: Any, sides: tuple[int, ...]) -> Windows:
    each = [tuple(int(k) for k in np.broadcast_to(part, len(sides))) for part in (kernel, layer.strides, dilation)]
    windows = Windows(each[0], each[1], each[2], ((0, 0),) * len(sides))
    if layer.padding not in ("valid", "same"):
        raise CaqlError(f"{builder.label} has padding {layer.padding!r}; right would be 'valid' or 'same'")
    return windows.same(sides, lower=False) if layer.padding == "same" else windows


def _conv(builder: Builder, layer: Any, operands: list[int]) -> int:
    x = _turned(builder, layer, operands[0])
    kernel = as_array("kernel", layer.kernel)
    windows = _windows(builder, layer, layer.kernel_size, layer.dilation_rate, builder.shape(x)[2:])
    kernels = kernel.transpose(kernel.ndim - 1, kernel.ndim - 2, *range(kernel.ndim - 2))
    bias = as_array("bias", layer.bias) if layer.use_bias else None
    return _turned(builder, layer, convolve(builder, x, kernels, bias, windows, int(layer.groups)), back=True)


def _pool(average: str | None) -> Reader:
    def read(builder: Builder, layer: Any, operands: list[int]) -> int:
        x = _turned(builder, layer, operands[0])
        windows = _windows(builder, layer, layer.pool_size, 1, builder.shape(x)[2:])
        return _turned(builder, layer, pool(builder, x, windows, average), back=True)

    return read


def _global(average: bool) -> Reader:
    def read(builder: Builder, layer: Any, operands: list[int]) -> int:
        x = _turned(builder, layer, operands[0])
        joined, short, kept = builder.last_axes(x, list(range(2, len(builder.shape(x)))))
        best = builder.mean_last(joined) if average else builder.maximum_last(joined)
        best = builder.reshape(best, kept if layer.keepdims else short)
        return _turned(builder, layer, best, back=True) if layer.keepdims else best

    return read


def _reshape(builder: Builder, layer: Any, operands: list[int]) -> int:
    size, target = math.prod(builder.shape(operands[0])), list(layer.target_shape)
    known = math.prod(side for side in target if side != -1)
    return builder.reshape(operands[0], (1, *(size // max(known, 1) if side == -1 else side for side in target)))


def _zero_padding(builder: Builder, layer: Any, operands: list[int]) -> int:
    x = _turned(builder, layer, operands[0])
    given = layer.padding if isinstance(layer.padding[0], tuple | list) else [layer.padding]
    pads = [(int(before), int(after)) for before, after in given]
    return _turned(builder, layer, builder.padded(x, [(0, 0), (0, 0), *pads]), back=True)


def _constant(what: str, builder: Builder, value: Any) -> int:
    array: Array = as_array(what, value)
    return builder.constant(array)


def _rescaling(builder: Builder, layer: Any, operands: list[int]) -> int:
    scaled = builder.add(Multiply(), operands[0], _constant("scale", builder, layer.scale))
    return builder.add(Add(), scaled, _constant("offset", builder, layer.offset))


def _normalization(builder: Builder, layer: Any, operands: list[int]) -> int:
    if layer.invert:
        raise CaqlError(f"{builder.label} is inverted; right would be invert=False")
    centred = builder.subtract(operands[0], _constant("mean", builder, layer.mean))
    deviation = np.maximum(np.sqrt(as_array("variance", layer.variance)), 1e-7)  # Keras's own smallest divisor
    return builder.add(Divide(), centred, builder.constant(deviation))


def _layer_norm(builder: Builder, layer: Any, operands: list[int]) -> int:
    """LayerNormalization, of the state alone."""
    axes = layer.axis if isinstance(layer.axis, tuple | list) else [layer.axis]
    if [axis % len(builder.shape(operands[0])) for axis in axes] != [len(builder.shape(operands[0])) - 1]:
        raise CaqlError(f"{builder.label} normalises axes {list(axes)}; right would be the last")
    norm = Opaque("LayerNormalization", standardised(1, float(layer.epsilon)), lambda shape: shape)
    value = builder.add(norm, operands[0])
    value = builder.add(Multiply(), value, _constant("gamma", builder, layer.gamma)) if layer.scale else value
    return builder.add(Add(), value, _constant("beta", builder, layer.beta)) if layer.center else value


def _softmax(builder: Builder, layer: Any, operands: list[int]) -> int:
    """Softmax, of the state alone."""
    rank = len(builder.shape(operands[0]))
    axes = [axis % rank + 1 for axis in (layer.axis if isinstance(layer.axis, tuple | list) else [layer.axis])]
    return builder.add(Opaque("Softmax", normalised(*axes), lambda shape: shape), operands[0])


def _product(builder: Builder, layer: Any, operands: list[int]) -> int:
    del layer
    value = operands[0]
    for each in operands[1:]:
        value = builder.add(Multiply(), value, each)
    return value


def _average(builder: Builder, layer: Any, operands: list[int]) -> int:
    del layer
    return builder.scale(builder.total(operands), 1.0 / len(operands))


LAYERS: dict[str, Reader] = {
    "Dense": _dense,
    **{f"Conv{n}D": _conv for n in (1, 2, 3)},
    **{f"MaxPooling{n}D": _pool(None) for n in (1, 2, 3)},
    **{f"AveragePooling{n}D": _pool("inside") for n in (1, 2, 3)},
    **{f"GlobalMaxPooling{n}D": _global(False) for n in (1, 2, 3)},
    **{f"GlobalAveragePooling{n}D": _global(True) for n in (1, 2, 3)},
    **{f"ZeroPadding{n}D": _zero_padding for n in (1, 2, 3)},
    "Activation": _first,
    "ReLU": _relu,
    "LeakyReLU": _leaky,
    "PReLU": _prelu,
    "ELU": lambda builder, layer, operands: builder.elu(operands[0], float(layer.alpha)),
    "Softmax": _softmax,
    "BatchNormalization": _norm,
    "LayerNormalization": _layer_norm,
    "Normalization": _normalization,
    "Rescaling": _rescaling,
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Permute": lambda builder, layer, operands: builder.transpose(operands[0], [0, *layer.dims]),
    **dict.fromkeys(("Identity", "Dropout", "SpatialDropout1D", "SpatialDropout2D", "GaussianNoise"), _first),
    "Concatenate": lambda builder, layer, operands: builder.concat(operands, layer.axis),
    "Add": lambda builder, _, operands: builder.total(operands),
    "Subtract": lambda builder, _, operands: builder.subtract(*operands),
    "Multiply": _product,
    "Average": _average,
    "Maximum": lambda builder, _, operands: builder.maximum(operands),
    "Minimum": lambda builder, _, operands: builder.minimum(operands),
}
"""How each kind of layer is read; its `activation`, if it has one, is added after it."""


def _two(operation: Operation) -> Callable[[Builder, list[int]], int]:
    return lambda builder, operands: builder.add(operation, *operands)


FUNCTIONS: dict[str, Callable[[Builder, list[int]], int]] = {
    "Add": _two(Add()),
    "Subtract": lambda builder, operands: builder.subtract(*operands),
    "Multiply": _two(Multiply()),
    **dict.fromkeys(("Divide", "TrueDivide"), _two(Divide())),
    "Matmul": _two(MatMul()),
    "Maximum": Builder.maximum,
    "Minimum": Builder.minimum,
    "Negative": lambda builder, operands: builder.scale(operands[0], -1.0),
    **dict.fromkeys(("Abs", "Absolute"), _two(Abs())),
    "Relu": _two(Relu()),
    "Tanh": _two(Tanh()),
}
"""Keras's functions of tensors, `x + y` among them: what they make of their operands, without any other setting."""
