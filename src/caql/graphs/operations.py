"""What a node of a graph computes: the few operations that every network here is written in.

Values have a shape of their own and one more axis in front, over samples.  The linear operations are linear in all
operands together (`Add`, `Concat`), in each operand while the other is fixed (`Multiply`, `Divide`, `MatMul`), or in
the only one that they have.  Convolutions, poolings, slices, transpositions and normalisations are made of these
in `builder`: a window is a `Take`, a convolution a `Take` and a `MatMul`, a pooling a `Take` and a sum or a maximum.

All coefficients of the operands in `Add`, `Concat`, `Reshape`, `Take` and `SumLast` are 0 or 1, and the products are
monotone in absolute values; so `evaluate` on absolute values bounds the sum of the absolute values of all terms, from
which rounding errors are bounded (`expressions`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from caql.errors import CaqlError

Array = NDArray[Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Operation:
    """An operation on values with an axis of samples in front."""

    @property
    def name(self) -> str:
        """What errors call it."""
        return type(self).__name__

    def shape(self, *shapes: Shape) -> Shape:
        """The shape of the result, without the axis of samples; `CaqlError` if the operands do not fit."""
        raise NotImplementedError

    def evaluate(self, *values: Array) -> Array:
        """The result, (samples, *shape)."""
        raise NotImplementedError


def with_rank(value: Array, rank: int) -> Array:
    """The value with axes of length one after that of the samples, so that NumPy broadcasts shapes of any rank."""
    missing = rank + 1 - value.ndim
    return value.reshape(value.shape[:1] + (1,) * missing + value.shape[1:]) if missing > 0 else value


def _together(values: tuple[Array, ...]) -> list[Array]:
    rank = max(value.ndim for value in values) - 1
    return [with_rank(value, rank) for value in values]


def _broadcast(name: str, shapes: tuple[Shape, ...]) -> Shape:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        shown = " and ".join(map(str, shapes))
        raise CaqlError(f"{name} has operands of shapes {shown}, which do not fit each other") from None


@dataclass(frozen=True)
class Linear(Operation):
    """A linear operation; `additive` if an operand that is fixed is added, and not a factor."""

    additive: ClassVar[bool] = False

    def terms(self, *shapes: Shape) -> int:
        """How many products are added up in one entry of the result."""
        return len(shapes)


@dataclass(frozen=True)
class Add(Linear):
    """x + y, broadcast against each other."""

    additive: ClassVar[bool] = True

    def shape(self, *shapes: Shape) -> Shape:
        return _broadcast(self.name, shapes)

    def evaluate(self, *values: Array) -> Array:
        x, y = _together(values)
        return x + y


@dataclass(frozen=True)
class Multiply(Linear):
    """x * y, broadcast; linear while one of them is fixed."""

    def shape(self, *shapes: Shape) -> Shape:
        return _broadcast(self.name, shapes)

    def evaluate(self, *values: Array) -> Array:
        x, y = _together(values)
        return x * y


@dataclass(frozen=True)
class Divide(Linear):
    """x / y, broadcast; linear in x."""

    def shape(self, *shapes: Shape) -> Shape:
        return _broadcast(self.name, shapes)

    def evaluate(self, *values: Array) -> Array:
        x, y = _together(values)
        with np.errstate(divide="ignore", invalid="ignore"):
            return x / y


@dataclass(frozen=True)
class MatMul(Linear):
    """The matrix product as NumPy has it, also of stacks of matrices and of vectors."""

    def shape(self, *shapes: Shape) -> Shape:
        left, right = shapes
        if not left or not right or left[-1] != right[-2 if len(right) > 1 else 0]:
            raise CaqlError(f"MatMul has operands of shapes {left} and {right}, whose inner sides are not equal")
        stack = _broadcast(self.name, (left[:-2], right[:-2]))
        return stack + (left[-2:-1] if len(left) > 1 else ()) + (right[-1:] if len(right) > 1 else ())

    def evaluate(self, *values: Array) -> Array:
        left, right = values
        shape = self.shape(left.shape[1:], right.shape[1:])
        left = left[:, None, :] if left.ndim == 2 else left
        right = right[:, :, None] if right.ndim == 2 else right
        left, right = _together((left, right))
        if left.ndim == 3 and len(right) == 1:
            # One product of two matrices instead of a stack of small ones.
            flat = left.reshape(-1, left.shape[-1]) @ right[0]
            return flat.reshape(len(left), *shape)
        product = left @ right
        return product.reshape(len(product), *shape)

    def terms(self, *shapes: Shape) -> int:
        return shapes[0][-1]


@dataclass(frozen=True)
class Concat(Linear):
    """The operands one after another along an axis."""

    axis: int
    additive: ClassVar[bool] = True

    def shape(self, *shapes: Shape) -> Shape:
        rank, axis = len(shapes[0]), self.axis
        rest = {shape[:axis] + shape[axis + 1 :] for shape in shapes}
        if not 0 <= axis < rank or len(rest) != 1 or any(len(shape) != rank for shape in shapes):
            raise CaqlError(f"Concat along axis {axis} has operands of shapes {', '.join(map(str, shapes))}")
        first = shapes[0]
        return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])

    def evaluate(self, *values: Array) -> Array:
        samples = max(len(value) for value in values)
        spread = [np.broadcast_to(value, (samples, *value.shape[1:])) for value in values]
        return np.concatenate(spread, axis=self.axis + 1)

    def terms(self, *shapes: Shape) -> int:  # noqa: ARG002 - nothing is added up
        return 1


@dataclass(frozen=True)
class Reshape(Linear):
    """The same numbers in another shape."""

    target: Shape

    def shape(self, *shapes: Shape) -> Shape:
        if np.prod(shapes[0], dtype=object) != np.prod(self.target, dtype=object):
            raise CaqlError(f"Reshape cannot make shape {self.target} of shape {shapes[0]}")
        return self.target

    def evaluate(self, *values: Array) -> Array:
        return values[0].reshape(len(values[0]), *self.target)


@dataclass(frozen=True, eq=False)
class Take(Linear):
    """Entries of the flattened operand, at `indices`, an array of the result's shape."""

    indices: NDArray[np.intp]

    def shape(self, *shapes: Shape) -> Shape:  # noqa: ARG002 - the indices were made for the operand
        return self.indices.shape

    def evaluate(self, *values: Array) -> Array:
        flat = values[0].reshape(len(values[0]), -1)
        return flat[:, self.indices.ravel()].reshape(len(flat), *self.indices.shape)


@dataclass(frozen=True)
class SumLast(Linear):
    """The sum over the last axis."""

    def shape(self, *shapes: Shape) -> Shape:
        return shapes[0][:-1]

    def evaluate(self, *values: Array) -> Array:
        total: Array = values[0].sum(axis=-1)
        return total

    def terms(self, *shapes: Shape) -> int:
        return shapes[0][-1]


@dataclass(frozen=True)
class Maximum(Operation):
    """The larger of two values of one shape, entry by entry: max(x, y) = y + [x - y]+."""

    def shape(self, *shapes: Shape) -> Shape:
        if shapes[0] != shapes[1]:
            raise CaqlError(f"Maximum has operands of shapes {shapes[0]} and {shapes[1]}, which must be equal")
        return shapes[0]

    def evaluate(self, *values: Array) -> Array:
        return np.maximum(*values)


@dataclass(frozen=True, eq=False)
class Opaque(Operation):
    """Any other function; it may depend on the state, but not on the action."""

    called: str
    function: Callable[..., Array]
    result: Callable[..., Shape]

    @property
    def name(self) -> str:
        return self.called

    def shape(self, *shapes: Shape) -> Shape:
        return self.result(*shapes)

    def evaluate(self, *values: Array) -> Array:
        return self.function(*values)
