"""ONNX operators that move numbers about, sum them over axes, or look at them through windows."""

from __future__ import annotations

import itertools
import math
import operator

import numpy as np

from caql.errors import CaqlError
from caql.graphs.operations import SumLast
from caql.graphs.windows import Windows, convolve, pairs, pool
from caql.network_files.operators import Call


def reshape(call: Call) -> list[int]:
    """Reshape: 0 keeps a side, -1 is whatever is left."""
    target = call.wholes("shape", 1)
    shape = call.shape()
    if target is None:
        raise CaqlError(f"{call.builder.label}: its shape is missing")
    if not call.whole("allowzero", 0):
        target = [shape[k] if side == 0 and k < len(shape) else side for k, side in enumerate(target)]
    open_sides = [k for k, side in enumerate(target) if side == -1]
    known = math.prod(side for side in target if side != -1)
    if len(open_sides) == 1 and known > 0 and math.prod(shape) % known == 0:
        target[open_sides[0]] = math.prod(shape) // known
    if min(target, default=0) < 0:
        raise CaqlError(f"{call.builder.label}: shape {target} cannot be made of shape {shape}")
    return [call.builder.reshape(call.operand(0), tuple(target))]


def flatten(call: Call) -> list[int]:
    """Flatten: two axes, split at `axis`."""
    shape = call.shape()
    axis = call.whole("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise CaqlError(f"{call.builder.label}: it flattens {len(shape)} axes at axis {axis}, which does not exist")
    axis = axis + len(shape) if axis < 0 else axis
    return [call.builder.reshape(call.operand(0), (math.prod(shape[:axis]), math.prod(shape[axis:])))]


def squeeze(call: Call) -> list[int]:
    """Squeeze: without some axes of length one."""
    shape, axes = call.shape(), call.wholes("axes", 1)
    gone = [k for k, side in enumerate(shape) if side == 1] if axes is None else call.axes(axes)
    if any(shape[k] != 1 for k in gone):
        raise CaqlError(f"{call.builder.label}: axes {axes} of shape {shape} are not all of length 1")
    return [call.builder.reshape(call.operand(0), tuple(side for k, side in enumerate(shape) if k not in gone))]


def unsqueeze(call: Call) -> list[int]:
    """Unsqueeze: with new axes of length one."""
    axes = call.wholes("axes", 1) or []
    rank = len(call.shape()) + len(axes)
    new = call.axes(axes, rank)
    sides = iter(call.shape())
    return [call.builder.reshape(call.operand(0), tuple(1 if k in new else next(sides) for k in range(rank)))]


def transpose(call: Call) -> list[int]:
    """Transpose: axes in another order."""
    order = call.wholes("perm")
    if order is not None and sorted(order) != list(range(len(call.shape()))):
        raise CaqlError(f"{call.builder.label}: perm = {order} is not an order of the {len(call.shape())} axes")
    return [call.builder.transpose(call.operand(0), order)]


def concat(call: Call) -> list[int]:
    """Concat along an axis."""
    return [call.builder.concat(call.values, call.axis(call.whole("axis", 0)))]


def slice_(call: Call) -> list[int]:
    """Slice: from, to, along axes, with steps."""
    shape = call.shape()
    starts, ends = call.wholes("starts", 1), call.wholes("ends", 2)
    if starts is None or ends is None or len(starts) != len(ends):
        raise CaqlError(f"{call.builder.label}: its starts and ends must be constants of one length")
    axes = call.wholes("axes", 3)
    axes = call.axes(list(range(len(starts))) if axes is None else axes)
    steps = call.wholes("steps", 4) or [1] * len(starts)
    if not len(axes) == len(steps) == len(starts) or 0 in steps:
        raise CaqlError(f"{call.builder.label}: starts {starts}, axes {axes} and steps {steps} do not fit each other")
    chosen = [slice(None)] * len(shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        chosen[axis] = _range(call, shape[axis], start, end, step)
    return [call.builder.rearranged(call.operand(0), lambda a: a[tuple(chosen)])]


def _range(call: Call, length: int, start: int, end: int, step: int) -> slice:
    """One axis of a slice; backwards, ONNX brings a start that is out of range to the nearest entry, not so Python."""
    if step > 0:
        return slice(start, end, step)
    if end >= 2**31 - 1:
        raise CaqlError(
            f"{call.builder.label}: it goes backwards to {end}, which runtimes read in different ways; right would be "
            f"{-(2**31)}, for all entries down to the first"
        )
    first = min(max(start + length if start < 0 else start, 0), length - 1)
    last = min(max(end + length if end < 0 else end, -1), length - 1)
    return slice(first, None if last < 0 else last, step)


def split(call: Call) -> list[int]:
    """Split along an axis, into equal or given lengths."""
    axis = call.axis(call.whole("axis", 0))
    side = call.shape()[axis]
    lengths = call.wholes("split", 1)
    if lengths is None:
        length = -(-side // max(call.outputs, 1))
        lengths = [min(length, side - k * length) for k in range(call.outputs)]
    if sum(lengths) != side or min(lengths, default=0) < 0 or len(lengths) != call.outputs:
        raise CaqlError(f"{call.builder.label}: lengths {lengths} do not split {side} into {call.outputs}")
    ends = np.cumsum([0, *lengths])
    front = (slice(None),) * axis
    parts = [(*front, slice(first, last)) for first, last in itertools.pairwise(ends)]
    return [call.builder.rearranged(call.operand(0), operator.itemgetter(part)) for part in parts]


def gather(call: Call) -> list[int]:
    """Gather: entries along an axis at constant indices."""
    indices, axis = call.needed(1, "indices"), call.axis(call.whole("axis", 0))
    side = call.shape()[axis]
    if not ((indices >= -side) & (indices < side)).all():
        raise CaqlError(f"{call.builder.label}: its indices reach beyond the {side} entries of axis {axis}")
    size = math.prod(call.shape()) // max(side, 1) * indices.size
    return [call.builder.rearranged(call.operand(0), lambda a: np.take(a, indices.astype(int), axis), size)]


def expand(call: Call) -> list[int]:
    """Expand: broadcast to a shape."""
    target = call.wholes("shape", 1) or []
    try:
        shape = np.broadcast_shapes(call.shape(), tuple(target))
    except ValueError:
        raise CaqlError(f"{call.builder.label}: shape {call.shape()} cannot be expanded to {target}") from None
    return [call.builder.expand(call.operand(0), shape)]


def shape_of(call: Call) -> list[int]:
    """Shape, or a part of it, which is known beforehand."""
    chosen = slice(call.whole("start", 0), call.whole("end", len(call.shape())))
    return [call.builder.constant(np.array(call.shape()[chosen], np.float64))]


def pad(call: Call) -> list[int]:
    """Pad with a constant, or with entries of the value itself: ONNX's modes are called as NumPy's."""
    mode = call.text("mode", "constant")
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise CaqlError(f"{call.builder.label}: mode = {mode!r} is not known; right are constant, edge, reflect, wrap")
    pads, value, axes = call.wholes("pads", 1) or [], call.constant(2, "value"), call.wholes("axes", 3)
    rank = len(call.shape())
    chosen = call.axes(list(range(rank)) if axes is None else axes)
    if len(pads) != 2 * len(chosen):
        raise CaqlError(f"{call.builder.label}: {len(pads)} pads do not fit {len(chosen)} axes")
    each = dict(zip(chosen, pairs(pads), strict=True))
    number = call.number("value", 0.0) if value is None else float(value.ravel()[0])
    return [call.builder.padded(call.operand(0), [each.get(k, (0, 0)) for k in range(rank)], number, mode)]


def reduce(kind: str, call: Call) -> list[int]:
    """ReduceSum, ReduceMean, ReduceMax and ReduceMin over some axes, or all."""
    builder, axes = call.builder, call.wholes("axes", 1)
    if not axes and call.whole("noop_with_empty_axes", 0):
        return [call.operand(0)]
    chosen = call.axes(axes) if axes else list(range(len(call.shape())))
    joined, short, kept = builder.last_axes(call.operand(0), chosen)
    if kind == "Sum":
        result = builder.add(SumLast(), joined)
    elif kind == "Mean":
        result = builder.mean_last(joined)
    elif kind == "Max":
        result = builder.maximum_last(joined)
    else:
        result = builder.scale(builder.maximum_last(builder.scale(joined, -1.0)), -1.0)
    return [builder.reshape(result, kept if call.whole("keepdims", 1) else short)]


def _windows(call: Call, kernel: list[int]) -> Windows:
    axes = len(kernel)
    ones = [1] * axes
    strides, dilations = call.wholes("strides") or ones, call.wholes("dilations") or ones
    pads = call.wholes("pads") or [0] * (2 * axes)
    if not len(strides) == len(dilations) == axes or len(pads) != 2 * axes or len(call.shape()) != axes + 2:
        raise CaqlError(
            f"{call.builder.label}: windows of {kernel} with strides {strides}, dilations {dilations} and pads {pads} "
            f"do not fit values of shape {call.shape()}"
        )
    ceil = bool(call.whole("ceil_mode", 0))
    windows = Windows(tuple(kernel), tuple(strides), tuple(dilations), pairs(pads), ceil)
    if min([*kernel, *strides, *dilations]) < 1:
        raise CaqlError(f"{call.builder.label}: kernel, strides and dilations must be at least 1")
    automatic = call.text("auto_pad", "NOTSET")
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        if max(dilations) > 1 and "kernel_shape" in call.attributes and len(call.operands) == 1:
            raise CaqlError(
                f"{call.builder.label}: runtimes differ in what auto_pad = {automatic!r} means for a pooling with "
                f"dilations {dilations}; right would be pads as numbers"
            )
        return windows.same(call.shape()[2:], automatic == "SAME_LOWER")
    if automatic not in ("NOTSET", "VALID"):
        raise CaqlError(f"{call.builder.label}: auto_pad = {automatic!r} is not known")
    return windows


def conv(call: Call) -> list[int]:
    """Conv with constant kernels."""
    kernels = call.needed(1, "kernels")
    if kernels.ndim < 3:
        raise CaqlError(
            f"{call.builder.label}: kernels of shape {kernels.shape}; right is (outputs, C / group, sides...)"
        )
    windows = _windows(call, list(kernels.shape[2:]))
    bias = call.constant(2, "bias")
    return [convolve(call.builder, call.operand(0), kernels, bias, windows, call.whole("group", 1))]


def max_pool(call: Call) -> list[int]:
    """MaxPool."""
    return [pool(call.builder, call.operand(0), _windows(call, call.wholes("kernel_shape") or []), None)]


def average_pool(call: Call) -> list[int]:
    """AveragePool; `count_include_pad` says what the sums are divided by."""
    counted = "all" if call.whole("count_include_pad", 0) else "inside"
    return [pool(call.builder, call.operand(0), _windows(call, call.wholes("kernel_shape") or []), counted)]


def global_pool(kind: str, call: Call) -> list[int]:
    """GlobalAveragePool and GlobalMaxPool: over everything but samples and channels."""
    builder, shape = call.builder, call.shape()
    if len(shape) < 3:
        raise CaqlError(f"{builder.label}: values of shape {shape} have no sides to pool over")
    joined, _, kept = builder.last_axes(call.operand(0), list(range(2, len(shape))))
    return [builder.reshape(builder.mean_last(joined) if kind == "Average" else builder.maximum_last(joined), kept)]
