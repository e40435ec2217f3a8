"""What torch's functions are given while a traced graph is read: values of the builder, and what is known already.

In the traced graph a plain number and the number of a node would look alike, so nodes come wrapped in `Value`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from caql.errors import CaqlError
from caql.graphs.builder import Builder
from caql.graphs.operations import Array, Shape

Function = Callable[..., Any]


class Value(NamedTuple):
    """A value of the graph."""

    node: int


class Known(NamedTuple):
    """What a traced node is already while reading: a shape, or one side of it."""

    value: Any


def node_of(builder: Builder, given: Any) -> int:
    """An operand: a value, or a number."""
    if isinstance(given, Value):
        return given.node
    if isinstance(given, int | float):
        return builder.constant(float(given))
    raise CaqlError(f"{builder.label}: an operand of type {type(given).__name__} cannot be read")


def shape_of(builder: Builder, x: Any) -> Shape:
    """The shape of an operand."""
    return builder.shape(node_of(builder, x))


def constant_of(builder: Builder, given: Any, what: str) -> Array:
    """An operand that must be known: a parameter, a buffer, or computed from these."""
    found = builder.nodes[node_of(builder, given)].constant
    if found is None:
        raise CaqlError(f"{builder.label}: its {what} is computed; right would be a parameter or a buffer")
    return found


def number_of(builder: Builder, given: Any, what: str) -> float:
    """One number, plain or as a constant."""
    found = constant_of(builder, given, what)
    if found.size != 1:
        raise CaqlError(f"{builder.label}: its {what} has shape {found.shape}; right would be one number")
    return float(found.item())


def side_of(builder: Builder, dim: Any, rank: int) -> int:
    """A side counted from the front."""
    if type(dim) is not int or not -rank <= dim < rank:
        raise CaqlError(f"{builder.label}: dim = {dim} is not a side of a value with {rank} sides")
    return dim % rank


def sizes_of(builder: Builder, given: tuple[Any, ...]) -> list[int]:
    """Sizes given one by one or as one sequence."""
    sizes = list(given[0]) if len(given) == 1 and isinstance(given[0], list | tuple) else list(given)
    if not all(type(size) is int for size in sizes):
        raise CaqlError(f"{builder.label}: its shape is computed; right would be numbers, with -1 for one of them")
    return sizes


def filled(builder: Builder, sizes: list[int], total: int) -> Shape:
    """The sizes with the one that is -1 made what is left of `total` numbers."""
    known = math.prod(size for size in sizes if size != -1)
    if sizes.count(-1) > 1 or min(sizes, default=0) < -1 or (-1 in sizes and (known == 0 or total % known)):
        raise CaqlError(f"{builder.label}: shape {tuple(sizes)} cannot be made of {total} numbers")
    return tuple(total // known if size == -1 else size for size in sizes)
