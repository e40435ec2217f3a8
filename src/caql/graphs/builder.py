"""The operators of networks, written in the few operations of a graph.

slice, gather, transpose, expand, split   a `Take` of the operand's own entries, whose indices NumPy computes
padding                                   one more entry, then a `Take` in which the padded places point at it; other
                                          paddings repeat entries, and negative ones cut them off: a `Take` alone
convolution                               a `Take` of all windows, a `MatMul` with the kernels
average pooling, maximum pooling          a `Take` of all windows, then a sum or a tree of maxima
batch normalisation                       (x - mean) * (scale / sqrt(variance + epsilon)) + bias
maximum of several, minimum               a balanced tree of maxima of two; min(x, y) = -max(-x, -y)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from caql.errors import CaqlError
from caql.graphs.activations import Clip, Elu, QuadraticRamp, Relu, Softplus
from caql.graphs.graph import LARGEST, Graph
from caql.graphs.operations import Add, Array, Concat, Divide, MatMul, Maximum, Multiply, Reshape, Shape, SumLast, Take


class Builder(Graph):
    """A graph with a method for each operator."""

    def reshape(self, x: int, shape: Shape) -> int:
        return x if self.shape(x) == shape else self.add(Reshape(shape), x)

    def rearranged(self, x: int, change: Callable[[Array], Array], size: int | None = None) -> int:
        """What NumPy's `change` would make of the value; `size` of the result where that can be more."""
        shape = self.shape(x)
        self.require_room(max(math.prod(shape), size or 0))
        indices = change(np.arange(math.prod(shape), dtype=np.intp).reshape(shape))
        # Not ascontiguousarray, which makes one number an array of one.
        return self.add(Take(np.array(indices, np.intp, order="C")), x)

    def require_room(self, size: int) -> None:
        """Raise `CaqlError` unless so many more numbers can be held."""
        if self.entries + size > LARGEST:
            raise CaqlError(f"{self.label}: at most {LARGEST} numbers can be held, and this needs {size} more")

    def transpose(self, x: int, order: Sequence[int] | None = None) -> int:
        return self.rearranged(x, lambda a: np.transpose(a, order))

    def concat(self, values: Sequence[int], axis: int) -> int:
        axis = axis + len(self.shape(values[0])) if axis < 0 else axis
        return values[0] if len(values) == 1 else self.add(Concat(axis), *values)

    def scale(self, x: int, factor: float) -> int:
        return self.add(Multiply(), x, self.constant(factor))

    def shift(self, x: int, number: float) -> int:
        return self.add(Add(), x, self.constant(number))

    def subtract(self, x: int, y: int) -> int:
        return self.add(Add(), x, self.scale(y, -1.0))

    def dense(self, x: int, weights: Array, bias: Array | None = None) -> int:
        """x W + b, W of shape (inputs, outputs)."""
        product = self.add(MatMul(), x, self.constant(weights))
        return product if bias is None else self.add(Add(), product, self.constant(bias))

    def total(self, values: Sequence[int]) -> int:
        """The sum of several values."""
        result = values[0]
        for each in values[1:]:
            result = self.add(Add(), result, each)
        return result

    def expand(self, x: int, shape: Shape) -> int:
        return (
            x if self.shape(x) == shape else self.rearranged(x, lambda a: np.broadcast_to(a, shape), math.prod(shape))
        )

    def maximum(self, values: Sequence[int]) -> int:
        """The largest of several values, entry by entry, broadcast against each other."""
        try:
            shape = np.broadcast_shapes(*(self.shape(each) for each in values))
        except ValueError:
            shown = ", ".join(str(self.shape(each)) for each in values)
            raise CaqlError(f"{self.label}: values of shapes {shown} do not fit each other") from None
        level = [self.expand(each, shape) for each in values]
        while len(level) > 1:
            pairs = [self.add(Maximum(), *level[k : k + 2]) for k in range(0, len(level) - 1, 2)]
            level = pairs + level[len(level) - len(level) % 2 :]
        return level[0]

    def minimum(self, values: Sequence[int]) -> int:
        """The smallest of several values."""
        return self.scale(self.maximum([self.scale(each, -1.0) for each in values]), -1.0)

    def maximum_last(self, x: int) -> int:
        """The largest entry along the last axis: halves are compared, then quarters."""
        while (count := self.shape(x)[-1]) > 1:
            half = count // 2
            left = self.rearranged(x, lambda a, n=half: a[..., :n])  # type: ignore[misc]
            right = self.rearranged(x, lambda a, n=half: a[..., n : 2 * n])  # type: ignore[misc]
            larger = self.add(Maximum(), left, right)
            if count % 2:
                rest = self.rearranged(x, lambda a: a[..., -1:])
                larger = self.concat([larger, rest], -1)
            x = larger
        return self.reshape(x, self.shape(x)[:-1])

    def last_axes(self, x: int, axes: Sequence[int]) -> tuple[int, Shape, Shape]:
        """The value with some axes made one, at the end, and the shapes without them and with ones for them."""
        shape = self.shape(x)
        kept = [k for k in range(len(shape)) if k not in axes]
        short = tuple(shape[k] for k in kept)
        moved = self.transpose(x, [*kept, *axes])
        return (
            self.reshape(moved, (*short, math.prod(shape[k] for k in axes))),
            short,
            tuple(1 if k in axes else side for k, side in enumerate(shape)),
        )

    def mean_last(self, x: int) -> int:
        return self.add(Divide(), self.add(SumLast(), x), self.constant(float(self.shape(x)[-1])))

    def padded(self, x: int, pads: Sequence[tuple[int, int]], value: float = 0.0, mode: str = "constant") -> int:
        """The value with entries before and after each axis: a constant, or as NumPy's `mode` repeats its own.

        Where a number of entries is negative, so many are cut off.
        """
        shape, given = self.shape(x), list(itertools.chain(*pads))
        if not any(given):
            return x
        if any(side + sum(pad) < 0 for side, pad in zip(shape, pads, strict=True)):
            raise CaqlError(f"{self.label}: padding {list(pads)} cuts off more than shape {shape} has")
        added = [(max(before, 0), max(after, 0)) for before, after in pads]
        size, result = math.prod(shape), math.prod(side + sum(pad) for side, pad in zip(shape, added, strict=True))
        if mode != "constant":
            longest = [side if mode == "wrap" else side - 1 for side in shape]
            beyond = any(mode != "edge" and max(pad) > most for pad, most in zip(pads, longest, strict=True))
            if size == 0 or beyond or min(given) < 0:
                raise CaqlError(f"{self.label}: padding {list(pads)} is more than values of shape {shape} can repeat")
            # One of NumPy's modes, whose names mypy knows only one by one.
            return self.rearranged(x, lambda a: np.pad(a, list(pads), mode=mode), result)  # type: ignore[call-overload]
        self.require_room(result)
        longer = self.concat([self.reshape(x, (size,)), self.constant([value])], 0)
        indices = np.pad(np.arange(size, dtype=np.intp).reshape(shape), added, constant_values=size)
        kept = [slice(max(-pad[0], 0), side - max(-pad[1], 0)) for side, pad in zip(indices.shape, pads, strict=True)]
        return self.add(Take(indices[tuple(kept)].copy()), longer)

    def batch_norm(self, x: int, statistics: Sequence[Array], epsilon: float) -> int:
        """Normalisation along axis 1 of (N, C, ...) by stored statistics: scale, bias, mean and variance."""
        shape, (scale, bias, mean, variance) = self.shape(x), statistics
        if len(shape) < 2 or any(part.shape != (shape[1],) for part in statistics):
            raise CaqlError(f"{self.label}: its statistics do not fit values of shape {shape} along axis 1")
        if not (variance + epsilon > 0).all():
            raise CaqlError(f"{self.label}: its variance plus epsilon must be positive")
        side = (shape[1],) + (1,) * (len(shape) - 2)
        factor = (scale / np.sqrt(variance + epsilon)).reshape(side)
        centred = self.subtract(x, self.constant(mean.reshape(side)))
        scaled = self.add(Multiply(), centred, self.constant(factor))
        return self.add(Add(), scaled, self.constant(bias.reshape(side)))

    def elu(self, x: int, alpha: float) -> int:
        """x for x > 0, alpha (exp(x) - 1) below: a smooth part, and a kink at 0 unless alpha is 1."""
        smooth = self.add(Elu(), x)
        if alpha == 1.0:
            return smooth
        return self.total([self.scale(smooth, alpha), self.scale(self.add(Relu(), x), 1.0 - alpha)])

    def hard_sigmoid(self, x: int, alpha: float, beta: float) -> int:
        """min(max(alpha x + beta, 0), 1)."""
        return self.add(Clip(0.0, 1.0), self.shift(self.scale(x, alpha), beta))

    def hard_swish(self, x: int) -> int:
        """x min(max(x / 6 + 1/2, 0), 1): quadratic between kinks at -3 and 3, at each of which its slope drops by 1/2.

        With r(t) = `QuadraticRamp` it is 12 r((x + 3) / 6) - [x + 3]+ / 2 - [x - 3]+ / 2.
        """
        bent = self.scale(self.add(QuadraticRamp(), self.scale(self.shift(x, 3.0), 1.0 / 6.0)), 12.0)
        drops = [self.scale(self.add(Relu(), self.shift(x, kink)), -0.5) for kink in (3.0, -3.0)]
        return self.total([bent, *drops])

    def celu(self, x: int, alpha: float) -> int:
        """x for x > 0, alpha (exp(x / alpha) - 1) below."""
        if not alpha > 0.0:
            raise CaqlError(f"{self.label}: alpha = {alpha:g} must be positive")
        return self.scale(self.add(Elu(), self.scale(x, 1.0 / alpha)), alpha)

    def softplus(self, x: int, beta: float) -> int:
        """log(1 + exp(beta x)) / beta."""
        if beta == 1.0:
            return self.add(Softplus(), x)
        return self.scale(self.add(Softplus(), self.scale(x, beta)), 1.0 / beta)

    def log_sigmoid(self, x: int) -> int:
        """log(1 / (1 + exp(-x))) = -softplus(-x)."""
        return self.softplus(x, -1.0)

    def soft_shrink(self, x: int, width: float) -> int:
        """x without what a clip to +-width leaves of it."""
        return self.subtract(x, self.add(Clip(-width, width), x))
