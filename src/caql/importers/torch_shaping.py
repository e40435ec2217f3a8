"""torch's functions that choose, cut and rearrange, and its poolings as functions; nodes come wrapped in `Value`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from caql.errors import CaqlError
from caql.graphs.builder import Builder
from caql.importers.torch_layers import LAYERS


class Value(NamedTuple):
    """A value of the graph."""

    node: int


class Known(NamedTuple):
    """What a traced node is already while reading: a shape, or one side of it."""

    value: Any


def getitem(builder: Builder, x: Any, index: Any) -> Any:
    """x[...] by whole numbers, slices, None and the ellipsis; of several values, one of them; of a shape, a side."""
    if not isinstance(x, Value):
        try:
            return x[index].node if isinstance(x, list) else Known(x[index])
        except IndexError:
            what = "its values, not their indices, can be read" if len(x) == 1 else f"it has {len(x)} parts"
            raise CaqlError(f"{builder.label}: part {index} is asked for; {what}") from None
    parts = (index,) if isinstance(index, Value) or not isinstance(index, tuple) else index
    for part in parts:
        numbers = (part.start, part.stop, part.step) if isinstance(part, slice) else (part,)
        if not all(each is None or each is Ellipsis or type(each) is int for each in numbers):
            raise CaqlError(f"{builder.label}: it is indexed by what is computed; right would be numbers and slices")
    try:
        return builder.rearranged(x.node, lambda a: np.asarray(a[parts]))
    except IndexError as problem:
        raise CaqlError(f"{builder.label}: a value of shape {builder.shape(x.node)}: {problem}") from None


def split(builder: Builder, x: Any, sizes: Any, dim: int = 0) -> list[int]:
    """Parts of given lengths, or of one length each with what is left at the end."""
    length = builder.shape(x.node)[dim]
    if isinstance(sizes, int):
        sizes = [min(sizes, length - start) for start in range(0, length, max(sizes, 1))]
    ends = list(itertools.accumulate(sizes))
    if not ends or ends[-1] != length:
        raise CaqlError(f"{builder.label}: lengths {sizes} do not add up to {length}")
    return [
        builder.rearranged(x.node, lambda a, i=end - size, j=end: np.moveaxis(np.moveaxis(a, dim, 0)[i:j], 0, dim))  # type: ignore[misc]
        for size, end in zip(sizes, ends, strict=True)
    ]


def chunk(builder: Builder, x: Any, chunks: int, dim: int = 0) -> list[int]:
    """So many parts, the last perhaps shorter."""
    return split(builder, x, -(-builder.shape(x.node)[dim] // chunks), dim)


def stack(builder: Builder, values: list[Any], dim: int = 0) -> int:
    """The values beside each other along a new axis."""
    shape = list(builder.shape(values[0].node))
    dim %= len(shape) + 1
    longer = (*shape[:dim], 1, *shape[dim:])
    return builder.concat([builder.reshape(each.node, longer) for each in values], dim)


def transpose(builder: Builder, x: Any, dim0: int, dim1: int) -> int:
    """Two axes exchanged."""
    return builder.rearranged(x.node, lambda a: np.swapaxes(a, dim0, dim1))


def permute(builder: Builder, x: Any, *dims: Any) -> int:
    """The axes in another order."""
    order = list(dims[0] if len(dims) == 1 and isinstance(dims[0], list | tuple) else dims)
    return builder.transpose(x.node, [side % len(order) for side in order])


def pooling(kind: str, **defaults: Any) -> Callable[..., int]:
    """A pooling as a function, by torch's layer of that name."""

    def applied(builder: Builder, x: Any, kernel_size: Any, *given: Any, **settings: Any) -> int:
        settings.pop("return_indices", None)  # torch calls another function where it is True
        named = dict(zip(("stride", "padding"), given, strict=False)) | settings
        if len(given) > 2 or not set(named) <= set(defaults):
            raise CaqlError(f"{builder.label}: it can be read with {', '.join(defaults)}, given by their names")
        layer = type(kind, (SimpleNamespace,), {})(kernel_size=kernel_size, **{**defaults, **named})
        return LAYERS[kind](builder, layer, x.node)

    return applied


_POOL = {"stride": None, "padding": 0, "ceil_mode": False}
SHAPING: dict[str, Callable[..., Any]] = {
    "split": split,
    "chunk": chunk,
    "transpose": transpose,
    "permute": permute,
}
"""Functions and methods alike."""
AS_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "getitem": getitem,
    "stack": stack,
    **{f"max_pool{n}d": pooling(f"MaxPool{n}d", dilation=1, **_POOL) for n in (1, 2, 3)},
    **{
        f"avg_pool{n}d": pooling(f"AvgPool{n}d", count_include_pad=True, divisor_override=None, **_POOL)
        for n in (1, 2, 3)
    },
}
