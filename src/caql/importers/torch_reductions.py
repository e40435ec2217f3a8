"""torch's sums, means and extremes along sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from caql.errors import CaqlError
from caql.graphs.builder import Builder
from caql.graphs.operations import SumLast
from caql.importers.torch_values import Function, Value, node_of, shape_of, side_of


def _along(finish: Callable[[Builder, int], int]) -> Function:
    """A reduction of the last axis made one of any axes but the batch's."""

    def applied(builder: Builder, x: Any, dim: Any = None, keepdim: bool = False, dtype: None = None) -> int:
        shape = shape_of(builder, x)
        given = list(dim) if isinstance(dim, list | tuple) else [dim]
        if dim is None or not given:
            raise CaqlError(
                f"{builder.label}: it goes over all sides, the batch's too; right would be dim = 1 or later"
            )
        if dtype is not None:
            raise CaqlError(f"{builder.label}: dtype = {dtype} cannot be read; leave it out")
        sides = sorted({side_of(builder, side, len(shape)) for side in given})
        if 0 in sides:
            raise CaqlError(f"{builder.label}: it goes over the batch (dim 0); right would be dim = 1 or later")
        joined, short, kept = builder.last_axes(node_of(builder, x), sides)
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
            return together(builder, [node_of(builder, x), other.node])
        return [along(builder, x, other if dim is None else dim, keepdim)]

    return applied


REDUCTIONS: dict[str, Function] = {
    "max": _extreme(largest, Builder.maximum),
    "min": _extreme(smallest, Builder.minimum),
    "amax": largest,
    "amin": smallest,
    "sum": total,
    "mean": mean,
}
"""Functions and methods alike."""
