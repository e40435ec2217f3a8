"""torch's functions and methods that choose, cut, join and rearrange."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from caql.errors import CaqlError
from caql.graphs.builder import Builder
from caql.importers.torch_layers import flatten as flattened
from caql.importers.torch_values import (
    Function,
    Known,
    Value,
    constant_of,
    filled,
    node_of,
    shape_of,
    side_of,
    sizes_of,
)


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


def _reshape(builder: Builder, x: Any, *shape: Any) -> int:
    total = math.prod(shape_of(builder, x))
    return builder.reshape(node_of(builder, x), filled(builder, sizes_of(builder, shape), total))


def _like(builder: Builder, x: Any, other: Any) -> int:
    return builder.reshape(node_of(builder, x), shape_of(builder, other))


def _flatten(builder: Builder, x: Any, start_dim: int = 0, end_dim: int = -1) -> int:
    return flattened(builder, node_of(builder, x), start_dim, end_dim)


def _unflatten(builder: Builder, x: Any, dim: int, sizes: Any) -> int:
    shape = shape_of(builder, x)
    side = side_of(builder, dim, len(shape))
    parts = filled(builder, sizes_of(builder, (sizes,)), shape[side])
    return builder.reshape(node_of(builder, x), (*shape[:side], *parts, *shape[side + 1 :]))


def _squeeze(builder: Builder, x: Any, dim: Any = None) -> int:
    shape = shape_of(builder, x)
    given = range(len(shape)) if dim is None else dim if isinstance(dim, list | tuple) else [dim]
    gone = [side_of(builder, each, len(shape)) for each in given]
    return builder.reshape(
        node_of(builder, x), tuple(side for k, side in enumerate(shape) if side != 1 or k not in gone)
    )


def _unsqueeze(builder: Builder, x: Any, dim: int) -> int:
    shape = list(shape_of(builder, x))
    shape.insert(side_of(builder, dim, len(shape) + 1), 1)
    return builder.reshape(node_of(builder, x), tuple(shape))


def split(builder: Builder, x: Any, sizes: Any, dim: int = 0) -> list[int]:
    """Parts of given lengths, or of one length each with what is left at the end."""
    shape = shape_of(builder, x)
    side = side_of(builder, dim, len(shape))
    length = shape[side]
    if isinstance(sizes, int):
        sizes = [min(sizes, length - start) for start in range(0, length, max(sizes, 1))]
    ends = list(itertools.accumulate(sizes))
    if not ends or ends[-1] != length or min(sizes) < 0:
        raise CaqlError(f"{builder.label}: lengths {sizes} do not add up to {length}")
    return [_between(builder, x, side, end - size, end) for size, end in zip(sizes, ends, strict=True)]


def _between(builder: Builder, x: Any, side: int, first: int, last: int) -> int:
    chosen = (*(slice(None),) * side, slice(first, last))
    return builder.rearranged(node_of(builder, x), lambda a: a[chosen])


def _split(builder: Builder, x: Any, split_size_or_sections: Any = None, dim: int = 0, split_size: Any = None) -> Any:
    return split(builder, x, split_size if split_size_or_sections is None else split_size_or_sections, dim)


def chunk(builder: Builder, x: Any, chunks: int, dim: int = 0) -> list[int]:
    """So many parts, the last perhaps shorter."""
    shape = shape_of(builder, x)
    return split(builder, x, -(-shape[side_of(builder, dim, len(shape))] // chunks), dim)


def _unbind(builder: Builder, x: Any, dim: int = 0) -> list[int]:
    shape = shape_of(builder, x)
    side = side_of(builder, dim, len(shape))
    return [_select(builder, x, side, k) for k in range(shape[side])]


def _select(builder: Builder, x: Any, dim: int, index: int) -> int:
    side = side_of(builder, dim, len(shape_of(builder, x)))
    return int(getitem(builder, x, (*(slice(None),) * side, index)))


def _narrow(builder: Builder, x: Any, dim: int, start: int, length: int) -> int:
    shape = shape_of(builder, x)
    side = side_of(builder, dim, len(shape))
    first = start + shape[side] if start < 0 else start
    if first < 0 or length < 0 or first + length > shape[side]:
        raise CaqlError(f"{builder.label}: {length} entries from {start} on do not lie within {shape[side]}")
    return _between(builder, x, side, first, first + length)


def _index_select(builder: Builder, x: Any, dim: int, index: Any) -> int:
    chosen, side = constant_of(builder, index, "index").astype(int), side_of(builder, dim, len(shape_of(builder, x)))
    size = math.prod(shape_of(builder, x)) * max(chosen.size, 1)
    return builder.rearranged(node_of(builder, x), lambda a: np.take(a, chosen, side), size)


def _concat(builder: Builder, values: list[Any], dim: int = 0, axis: int | None = None) -> int:
    nodes = [node_of(builder, each) for each in values]
    side = side_of(builder, dim if axis is None else axis, len(builder.shape(nodes[0])))
    return builder.concat(nodes, side)


def stack(builder: Builder, values: list[Any], dim: int = 0) -> int:
    """The values beside each other along a new axis."""
    shape = shape_of(builder, values[0])
    side = side_of(builder, dim, len(shape) + 1)
    return builder.concat([_unsqueeze(builder, each, side) for each in values], side)


def _transpose(builder: Builder, x: Any, dim0: int, dim1: int) -> int:
    sides = [side_of(builder, dim, len(shape_of(builder, x))) for dim in (dim0, dim1)]
    return builder.rearranged(node_of(builder, x), lambda a: np.swapaxes(a, *sides))


def _turned(builder: Builder, x: Any) -> int:
    """`.t()` and `.T` of two sides at most."""
    if len(shape_of(builder, x)) > 2:
        raise CaqlError(
            f"{builder.label}: a value of shape {shape_of(builder, x)}; right would be permute or transpose"
        )
    return builder.transpose(node_of(builder, x))


def _permute(builder: Builder, x: Any, *dims: Any) -> int:
    rank = len(shape_of(builder, x))
    order = [side_of(builder, dim, rank) for dim in sizes_of(builder, dims)]
    if sorted(order) != list(range(rank)):
        raise CaqlError(f"{builder.label}: dims {order} are not an order of the {rank} sides")
    return builder.transpose(node_of(builder, x), order)


def _movedim(builder: Builder, x: Any, source: int, destination: int) -> int:
    sides = [side_of(builder, dim, len(shape_of(builder, x))) for dim in (source, destination)]
    return builder.rearranged(node_of(builder, x), lambda a: np.moveaxis(a, *sides))


def _flip(builder: Builder, x: Any, *dims: Any) -> int:
    sides = tuple(side_of(builder, dim, len(shape_of(builder, x))) for dim in sizes_of(builder, dims))
    return builder.rearranged(node_of(builder, x), lambda a: np.flip(a, sides))


def _expand(builder: Builder, x: Any, *sizes: Any) -> int:
    """Sides of length one made longer; -1 keeps a side."""
    shape, target = shape_of(builder, x), sizes_of(builder, sizes)
    full = (1,) * (len(target) - len(shape)) + shape
    wanted = tuple(own if size == -1 else size for own, size in zip(full, target, strict=True))
    if any(own not in (1, size) for own, size in zip(full, wanted, strict=True)):
        raise CaqlError(f"{builder.label}: shape {shape} cannot be expanded to {tuple(target)}")
    return builder.expand(node_of(builder, x), wanted)


def _repeat(builder: Builder, x: Any, *sizes: Any) -> int:
    times = sizes_of(builder, sizes)
    size = math.prod(shape_of(builder, x)) * math.prod(times)
    return builder.rearranged(node_of(builder, x), lambda a: np.tile(a, times), size)


def size(builder: Builder, x: Any, dim: int | None = None) -> Known:
    """The shape, the batch as one sample, or one side of it."""
    shape = shape_of(builder, x)
    return Known(shape if dim is None else shape[side_of(builder, dim, len(shape))])


def attribute(builder: Builder, x: Any, name: str) -> Any:
    """`x.shape`, `x.ndim`, `x.T`, and `.values` of an extreme along a side."""
    if isinstance(x, Value):
        if name == "shape":
            return size(builder, x)
        if name == "ndim":
            return Known(len(shape_of(builder, x)))
        if name == "T":
            return _turned(builder, x)
        if name == "mT":
            return _transpose(builder, x, -2, -1)
    if name == "values" and isinstance(x, list) and len(x) == 1:
        return x[0].node
    raise CaqlError(f"{builder.label}: the attribute {name!r} cannot be read; known are shape, ndim, T, mT and values")


def _copy(builder: Builder, x: Any) -> int:
    """What changes a tensor's memory, or its place, and not its numbers."""
    return node_of(builder, x)


def _to(builder: Builder, x: Any, *where: Any, **options: Any) -> int:
    kinds = [each for each in (*where, options.get("dtype")) if type(each).__name__ == "dtype"]
    if any(not kind.is_floating_point or kind.itemsize < 4 for kind in kinds):
        raise CaqlError(f"{builder.label}: a cast to {kinds[0]} rounds; right would be torch.float32 or torch.float64")
    return node_of(builder, x)


SHAPING: dict[str, Function] = {
    "reshape": _reshape,
    "flatten": _flatten,
    "unflatten": _unflatten,
    "squeeze": _squeeze,
    "unsqueeze": _unsqueeze,
    "split": _split,
    "chunk": chunk,
    "unbind": _unbind,
    "select": _select,
    "narrow": _narrow,
    "index_select": _index_select,
    **dict.fromkeys(("transpose", "swapaxes", "swapdims"), _transpose),
    "t": _turned,
    "permute": _permute,
    **dict.fromkeys(("movedim", "moveaxis"), _movedim),
    "flip": _flip,
    "broadcast_to": _expand,
    "tile": _repeat,
    "clone": _copy,
    "numel": lambda builder, x: Known(math.prod(shape_of(builder, x))),
}
"""Functions and methods alike."""
AS_FUNCTIONS: dict[str, Function] = {
    "getitem": getitem,
    "getattr": attribute,
    **dict.fromkeys(("cat", "concat", "concatenate"), _concat),
    "stack": stack,
}
AS_METHODS: dict[str, Function] = {
    "view": _reshape,
    **dict.fromkeys(("view_as", "reshape_as"), _like),
    "expand": _expand,
    "expand_as": lambda builder, x, other: _expand(builder, x, shape_of(builder, other)),
    "repeat": _repeat,
    "size": size,
    "dim": lambda builder, x: Known(len(shape_of(builder, x))),
    **dict.fromkeys(("contiguous", "detach", "float", "double", "cpu"), _copy),
    "to": _to,
}
COPIES = {"cat", "concat", "concatenate", "stack", "clone", "repeat", "tile", "flip", "index_select"}
VIEWS = frozenset({*SHAPING, *AS_FUNCTIONS, *AS_METHODS} - COPIES)
"""What may give back the memory of its operand."""
