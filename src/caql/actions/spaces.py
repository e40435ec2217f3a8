"""Gymnasium's action spaces as sets of vectors, and actions from one form to the other.

Inside, an action is one vector.  A number of a Box is itself, a whole number if the Box's dtype is; a choice among n,
Discrete or an entry of MultiDiscrete, is n numbers of which one is 1 and the others 0; a binary is 0 or 1.  Tuple and
Dict are their parts side by side, nested as they may be.  The environment receives its own format and dtype.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import and_
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from caql.actions.set import ActionSet
from caql.errors import CaqlError

spaces = gym.spaces


@dataclass(frozen=True, eq=False)
class FlatSpace:
    """An action space and the vectors that stand for its actions."""

    space: gym.Space[Any]

    def __post_init__(self) -> None:
        for leaf in _leaves(self.space):
            if not isinstance(leaf, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
                raise CaqlError(
                    f"the action space holds {type(leaf).__name__}; caql takes Box, Discrete, MultiDiscrete, "
                    "MultiBinary, and Tuple or Dict of them"
                )
        if self.size == 0:
            raise CaqlError(
                f"the action space {self.space} has no actions; an agent needs at least one number to choose"
            )

    @cached_property
    def size(self) -> int:
        """The length of a vector."""
        return sum(_width(leaf) for leaf in _leaves(self.space))

    @cached_property
    def _is_plain(self) -> bool:
        """Whether an action is its vector, but for dtype and shape."""
        return isinstance(self.space, spaces.Box) and bool(np.issubdtype(self.space.dtype, np.floating))

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The coarsest floating dtype among the parts, float32 if there is none: what actions are rounded to."""
        kinds = [leaf.dtype for leaf in _leaves(self.space) if np.issubdtype(leaf.dtype, np.floating)]
        return np.dtype(min(kinds, key=lambda kind: kind.itemsize) if kinds else np.float32)

    @cached_property
    def action_set(self) -> ActionSet:
        """The vectors that stand for actions, NumPy float64; a Box without bounds leaves them infinite."""
        parts, done = [], 0
        for leaf in _leaves(self.space):
            width = _width(leaf)
            if width:
                parts.append(_leaf_set(leaf).at(range(done, done + width), self.size))
            done += width
        return reduce(and_, parts)

    def encode(self, action: Any) -> NDArray[np.float64]:
        """The vector of an action in the environment's own format -> (size,).

        Raises CaqlError for an action that the space does not hold.
        """
        if not self.space.contains(action):
            raise CaqlError(f"action = {action!r} is not an action of {self.space}")
        leaves = zip(_leaves(self.space), _parts(self.space, action), strict=True)
        return np.concatenate([_encode(leaf, part) for leaf, part in leaves])

    def decode(self, vector: Any) -> Any:
        """The action that an admissible vector, (size,), stands for, as the environment wants it.

        Of a choice the largest entry counts, of whole numbers the nearest: a vector within rounding is enough.
        """
        given = np.asarray(vector)
        if given.shape != (self.size,):
            raise CaqlError(f"vector has shape {given.shape}; an action of {self.space} is ({self.size},)")
        if self._is_plain:
            return given.astype(self.space.dtype).reshape(self.space.shape)
        decoded, done = [], 0
        for leaf in _leaves(self.space):
            width = _width(leaf)
            decoded.append(_decode(leaf, given[done : done + width]))
            done += width
        return _assemble(self.space, iter(decoded))


def _leaves(space: Any) -> Iterator[Any]:
    """The spaces without parts, in the order of their vectors."""
    if isinstance(space, spaces.Tuple):
        for part in space.spaces:
            yield from _leaves(part)
    elif isinstance(space, spaces.Dict):
        for part in space.spaces.values():
            yield from _leaves(part)
    else:
        yield space


def _parts(space: Any, action: Any) -> Iterator[Any]:
    """The action of each leaf."""
    if isinstance(space, spaces.Tuple):
        for part, each in zip(space.spaces, action, strict=True):
            yield from _parts(part, each)
    elif isinstance(space, spaces.Dict):
        for name, part in space.spaces.items():
            yield from _parts(part, action[name])
    else:
        yield action


def _assemble(space: Any, decoded: Iterator[Any]) -> Any:
    """The leaves' actions put together as the space wants them."""
    if isinstance(space, spaces.Tuple):
        return tuple(_assemble(part, decoded) for part in space.spaces)
    if isinstance(space, spaces.Dict):
        return {name: _assemble(part, decoded) for name, part in space.spaces.items()}
    return next(decoded)


def _width(leaf: Any) -> int:
    if isinstance(leaf, spaces.Discrete):
        return int(leaf.n)
    if isinstance(leaf, spaces.MultiDiscrete):
        return int(np.sum(leaf.nvec))
    return int(np.prod(leaf.shape))


def _leaf_set(leaf: Any) -> ActionSet:
    if isinstance(leaf, spaces.Discrete):
        return ActionSet.one_of(int(leaf.n))
    size = _width(leaf)
    if isinstance(leaf, spaces.MultiDiscrete):
        counts = [int(n) for n in leaf.nvec.reshape(-1)]
        starts = np.cumsum([0, *counts])
        return reduce(
            and_,
            (ActionSet.one_of(n).at(range(start, start + n), size) for n, start in zip(counts, starts, strict=False)),
        )
    if isinstance(leaf, spaces.MultiBinary):
        return ActionSet.bounds(0, 1, size) & ActionSet.whole(size)
    box = ActionSet.bounds(leaf.low.reshape(-1).astype(np.float64), leaf.high.reshape(-1).astype(np.float64))
    return box if np.issubdtype(leaf.dtype, np.floating) else box & ActionSet.whole(size)


def _encode(leaf: Any, part: Any) -> NDArray[np.float64]:
    if isinstance(leaf, spaces.Discrete):
        return _one_hot(int(leaf.n), int(part) - int(leaf.start))
    if isinstance(leaf, spaces.MultiDiscrete):
        chosen = (np.asarray(part) - leaf.start).reshape(-1)
        return np.concatenate([_one_hot(int(n), int(i)) for n, i in zip(leaf.nvec.reshape(-1), chosen, strict=True)])
    return np.asarray(part, np.float64).reshape(-1)


def _one_hot(count: int, index: int) -> NDArray[np.float64]:
    return (np.arange(count) == index).astype(np.float64)


def _decode(leaf: Any, numbers: NDArray[Any]) -> Any:
    if isinstance(leaf, spaces.Discrete):
        return leaf.start + leaf.dtype.type(np.argmax(numbers))
    if isinstance(leaf, spaces.MultiDiscrete):
        ends = np.cumsum(leaf.nvec.reshape(-1))
        chosen = [int(np.argmax(choice)) for choice in np.split(numbers, ends[:-1])]
        return (leaf.start + np.reshape(chosen, leaf.nvec.shape)).astype(leaf.dtype)
    if isinstance(leaf, spaces.MultiBinary) or not np.issubdtype(leaf.dtype, np.floating):
        return np.round(numbers).astype(leaf.dtype).reshape(leaf.shape)
    return numbers.astype(leaf.dtype).reshape(leaf.shape)
