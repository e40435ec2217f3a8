"""Convolutions and poolings over any number of spatial axes: which entries each window reads, as indices.

Values have shape (N, C, side, ...), as ONNX and PyTorch have them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from caql.errors import CaqlError
from caql.graphs.builder import Builder
from caql.graphs.graph import LARGEST
from caql.graphs.operations import Add, Array, Divide, MatMul, Shape, SumLast, Take


class Windows(NamedTuple):
    """How windows lie over the spatial axes; `ceil` lets the last ones reach beyond the padding's end."""

    kernel: Shape
    strides: Shape
    dilations: Shape
    pads: tuple[tuple[int, int], ...]
    ceil: bool = False

    def positions(self, sides: Shape, label: str) -> list[NDArray[np.intp]]:
        """For each axis, (windows, kernel) positions of the operand's entries; those outside are padding."""
        found = []
        for side, size, stride, dilation, (before, after) in zip(
            sides, self.kernel, self.strides, self.dilations, self.pads, strict=True
        ):
            reach = dilation * (size - 1) + 1
            room = side + before + after - reach
            if min(size, stride, dilation) < 1 or min(before, after) < 0 or room < 0:
                raise CaqlError(
                    f"{label}: windows of {self.kernel} with strides {self.strides}, dilations {self.dilations} and "
                    f"pads {self.pads} do not fit values of {sides}"
                )
            count = room // stride + 1
            if self.ceil and room % stride and count * stride < side + before:
                count += 1  # a window must begin on the operand or the padding before it
            if count * size > LARGEST:
                raise CaqlError(f"{label}: at most {LARGEST} numbers can be held")
            found.append(np.arange(count)[:, None] * stride + np.arange(size) * dilation - before)
        return found

    def same(self, sides: Shape, lower: bool) -> Windows:
        """The same windows with the padding that keeps ceil(side / stride) of them."""
        pads = []
        for side, size, stride, dilation in zip(sides, self.kernel, self.strides, self.dilations, strict=True):
            total = max(0, (math.ceil(side / stride) - 1) * stride + dilation * (size - 1) + 1 - side)
            pads.append(((total + 1) // 2, total // 2) if lower else (total // 2, (total + 1) // 2))
        return self._replace(pads=tuple(pads))


def _gathered(builder: Builder, sides: Shape, windows: Windows) -> tuple[NDArray[np.intp], NDArray[np.bool_], Shape]:
    """Flat positions over the spatial axes, (windows, kernel entries), which of them are inside, the result's sides."""
    positions = windows.positions(sides, builder.label)
    result = tuple(len(each) for each in positions)
    if math.prod(result) * math.prod(windows.kernel) + builder.entries > LARGEST:
        raise CaqlError(f"{builder.label}: at most {LARGEST} numbers can be held")
    flat = np.zeros((1, 1), np.intp)
    inside = np.ones((1, 1), np.bool_)
    for side, each in zip(sides, positions, strict=True):
        within = (each >= 0) & (each < side)
        flat = (flat[:, None, :, None] * side + np.clip(each, 0, side - 1)[None, :, None, :]).reshape(
            len(flat) * len(each), -1
        )
        inside = (inside[:, None, :, None] & within[None, :, None, :]).reshape(flat.shape)
    return flat, inside, result


def _images(builder: Builder, x: int, windows: Windows) -> tuple[int, int, Shape]:
    shape = builder.shape(x)
    if len(shape) != len(windows.kernel) + 2:
        raise CaqlError(
            f"{builder.label}: windows of {len(windows.kernel)} axes need values (N, C, sides...), not {shape}"
        )
    return shape[0], shape[1], shape[2:]


def convolve(builder: Builder, x: int, kernels: Array, bias: Array | None, windows: Windows, groups: int) -> int:
    """The convolution (a correlation, as all frameworks have it) with kernels (outputs, C / groups, sides...)."""
    samples, channels, sides = _images(builder, x, windows)
    outputs = len(kernels)
    if (
        groups < 1
        or channels % groups
        or outputs % groups
        or kernels.shape[1:] != (channels // groups, *windows.kernel)
    ):
        raise CaqlError(
            f"{builder.label}: kernels of shape {kernels.shape} in {groups} groups do not fit {channels} channels"
        )
    flat, inside, result = _gathered(builder, sides, windows)
    area, each = math.prod(sides), channels // groups
    builder.require_room(samples * channels * flat.size)
    size = samples * channels * area
    image = np.arange(samples * channels).reshape(samples, groups, 1, each, 1)
    indices = np.where(inside[:, None, :], image * area + flat[:, None, :], size)
    indices = indices.reshape(samples, groups, len(flat), each * flat.shape[1])
    source = builder.reshape(x, (size,))
    if not inside.all():
        source = builder.concat([source, builder.constant([0.0])], 0)
    gathered = builder.add(Take(indices), source)
    matrices = kernels.reshape(groups, outputs // groups, -1).transpose(0, 2, 1)
    product = builder.add(MatMul(), gathered, builder.constant(matrices))
    swapped = builder.transpose(product, (0, 1, 3, 2))
    maps = builder.reshape(swapped, (samples, outputs, *result))
    if bias is None:
        return maps
    if bias.shape != (outputs,):
        raise CaqlError(f"{builder.label}: a bias of shape {bias.shape} does not fit {outputs} outputs")
    return builder.add(Add(), maps, builder.constant(bias.reshape(outputs, *(1 for _ in result))))


def pool(builder: Builder, x: int, windows: Windows, average: str | None) -> int:
    """Maximum pooling, or average pooling over `average`: 'all' entries of a window, or those 'inside' the operand."""
    samples, channels, sides = _images(builder, x, windows)
    flat, inside, result = _gathered(builder, sides, windows)
    if not inside.any(axis=1).all():
        raise CaqlError(f"{builder.label}: a window lies in the padding alone")
    area, images = math.prod(sides), samples * channels
    builder.require_room(images * flat.size)
    shape = (samples, channels, *result)
    image = np.arange(images)[:, None, None] * area
    if average is None:
        # The maximum does not change if an entry of the padding is replaced by another of the window.
        first = flat[np.arange(len(flat)), inside.argmax(axis=1)]
        indices = image + np.where(inside, flat, first[:, None])
        largest = builder.maximum_last(builder.add(Take(indices), x))
        return builder.reshape(largest, shape)
    indices = np.where(inside, image + flat, images * area)
    source = builder.reshape(x, (images * area,))
    if not inside.all():
        source = builder.concat([source, builder.constant([0.0])], 0)
    sums = builder.add(SumLast(), builder.add(Take(indices), source))
    counts = inside.sum(axis=1) if average == "inside" else _within_padding(windows, sides)
    means = builder.add(Divide(), sums, builder.constant(counts.astype(np.float64)))
    return builder.reshape(means, shape)


def _within_padding(windows: Windows, sides: Shape) -> NDArray[np.intp]:
    """How many entries of each window lie on the operand or its padding, and not beyond."""
    counts = []
    for side, each, (before, after) in zip(sides, windows.positions(sides, ""), windows.pads, strict=True):
        counts.append(((each >= -before) & (each < side + after)).sum(axis=1))
    return np.array([math.prod(each) for each in itertools.product(*counts)])


def pairs(pads: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """ONNX's pads, all beginnings and then all ends, as one pair per axis."""
    half = len(pads) // 2
    return tuple(zip(pads[:half], pads[half:], strict=True))
