"""torch's sums, means and extremes along sides, and what it says of a value's shape; nodes come wrapped in `Value`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from caql.errors import CaqlError
from caql.graphs.builder import Builder
from caql.graphs.operations import SumLast
from caql.importers.torch_shaping import Known, Value

Function = Callable[..., Any]


def _along(finish: Callable[[Builder, int], int]) -> Function:
    """A reduction of the last axis made one of any axes but the batch's."""

    def applied(builder: Builder, x: Any, dim: Any = None, keepdim: bool = False) -> int:
        shape = builder.shape(x.node)
        given = list(dim) if isinstance(dim, list | tuple) else [dim]
        if not all(type(side) is int and -len(shape) <= side < len(shape) for side in given):
            raise CaqlError(f"{builder.label}: dim = {dim} cannot be read; right would be sides of {shape} by number")
        sides = sorted({side % len(shape) for side in given})
        if 0 in sides:
            raise CaqlError(f"{builder.label}: it goes over the batch (dim 0); right would be dim = 1 or later")
        joined, short, kept = builder.last_axes(x.node, sides)
        return builder.reshape(finish(builder, joined), kept if keepdim else short)

    return applied


def _smallest_last(builder: Builder, x: int) -> int:
    return builder.scale(builder.maximum_last(builder.scale(x, -1.0)), -1.0)


largest = _along(lambda builder, x: builder.maximum_last(x))
smallest = _along(_smallest_last)
total = _along(lambda builder, x: builder.add(SumLast(), x))
mean = _along(lambda builder, x: builder.mean_last(x))


def _extreme(along: Function, together: Callable[[Builder, list[int]], int]) -> Function:
    """torch.max and torch.min: of two values, or along a side, where they return the values and their indices."""

    def applied(builder: Builder, x: Any, other: Any = None, keepdim: bool = False, *, dim: Any = None) -> Any:
        if isinstance(other, Value):
            return together(builder, [x.node, other.node])
        return [along(builder, x, other if dim is None else dim, keepdim)]

    return applied


def size(builder: Builder, x: Any, dim: int | None = None) -> Known:
    """The shape, the batch as one sample, or one side of it."""
    shape = builder.shape(x.node)
    return Known(shape if dim is None else shape[dim])


def attribute(builder: Builder, x: Any, name: str) -> Any:
    """`x.shape`, and `.values` of an extreme along a side."""
    if name == "shape" and isinstance(x, Value):
        return size(builder, x)
    if name == "values" and isinstance(x, list) and len(x) == 1:
        return x[0].node
    raise CaqlError(f"{builder.label}: the attribute {name!r} cannot be read; known are shape and values")


def same(builder: Builder, x: Any, *_: Any, **__: Any) -> int:
    """What does nothing at inference."""
    del builder
    return int(x.node)


REDUCTIONS: dict[str, Function] = {
    "max": _extreme(largest, Builder.maximum),
    "min": _extreme(smallest, Builder.minimum),
    "amax": largest,
    "amin": smallest,
    "sum": total,
    "mean": mean,
}
"""Functions and methods alike."""
