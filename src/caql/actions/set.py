"""The admissible action set: what an action may be, as data.

    A = { a : low <= a <= high,  row_low <= R (a, h) <= row_high for some h,  some entries whole numbers }

h are auxiliary variables, bounded like actions but unseen by Q: with them |a|, "at most k of n" or "off, or between
2 and 5" are linear.  An inequality has one infinite side, an equality two equal ones.  The set is a pytree, so it
travels through `jit` like any array, and each of its arrays is either shared by all states or has a leading axis of
them.  The box is the set without rows.

Three things are asked of a set: contains, project, sample.  NumPy arrays are answered on the host, in float64 and
exactly (`projection`); JAX arrays are answered by code that `jit` can trace (`traced`).  What an environment is given
goes through `admissible`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import DTypeLike

from caql.actions import hull, projection, rounding, traced
from caql.actions.constructors import Constructors
from caql.actions.joining import join
from caql.errors import CaqlError

Array = Any
"""A JAX array inside jit, a NumPy array on the host."""

_DATA = ("low", "high", "rows", "row_low", "row_high", "auxiliary_low", "auxiliary_high")
_STATE_AXES = dict.fromkeys(_DATA, 2) | {"rows": 3}
"""How many axes an array has when there is one set per state."""


@partial(jax.tree_util.register_dataclass, data_fields=_DATA, meta_fields=("integer",))
@dataclass(frozen=True)
class ActionSet(Constructors):
    """The actions of d numbers that are admissible, for all states or, with a leading axis B, one set a state.

    low, high: (d,) or (B, d), the box around the set.
    rows: (m, d + k) or (B, m, d + k), over the actions and k auxiliary variables.
    row_low, row_high: (m,) or (B, m), the two sides of each row, one of them perhaps infinite.
    auxiliary_low, auxiliary_high: (k,) or (B, k).
    integer: which of the d + k variables are whole numbers.
    """

    low: Array
    high: Array
    rows: Array
    row_low: Array
    row_high: Array
    auxiliary_low: Array
    auxiliary_high: Array
    integer: tuple[int, ...] = ()

    @classmethod
    def box(cls, low: Array, high: Array) -> ActionSet:
        """low <= a <= high and nothing else, from arrays of one shape, (d,) or (B, d)."""
        nothing = low[..., :0]
        return cls(low, high, nothing[..., None] * low[..., None, :], nothing, nothing, nothing, nothing)

    @property
    def size(self) -> int:
        """d, the length of an action."""
        return int(self.low.shape[-1])

    @property
    def is_box(self) -> bool:
        """Whether the bounds say everything."""
        return self.rows.shape[-2] == 0 and not self.integer

    @property
    def states(self) -> int | None:
        """How many states have a set of their own here; None for one set shared by all."""
        for name, axes in _STATE_AXES.items():
            array = getattr(self, name)
            if array.ndim == axes:
                return int(array.shape[0])
        return None

    @property
    def centre(self) -> Array:
        """The middle of the box."""
        return (self.low + self.high) / 2

    @property
    def radius(self) -> Array:
        """Half the width of each side of the box."""
        return (self.high - self.low) / 2

    def map(self, change: Any) -> ActionSet:
        """The set with every array changed alike."""
        return replace(self, **{name: change(getattr(self, name)) for name in _DATA})

    def on_host(self) -> ActionSet:
        """The same set as NumPy float64 arrays."""
        if all(type(array) is np.ndarray and array.dtype == np.float64 for array in map(self.__dict__.get, _DATA)):
            return self
        return self.map(lambda array: np.asarray(array, np.float64))

    def __getitem__(self, index: Any) -> ActionSet:
        """The sets of some states, or of one: `index` goes to the leading axis of every array that has one."""

        arrays = ((getattr(self, name), axes) for name, axes in _STATE_AXES.items())
        build: Any = type(self)
        made: ActionSet = build(*(each[index] if each.ndim == axes else each for each, axes in arrays), self.integer)
        return made

    def per_state(self, states: int) -> ActionSet:
        """The same sets with the leading axis of states written out in every array."""
        xp = hull.namespace(self)
        shapes = {name: getattr(self, name).shape[1 - axes :] for name, axes in _STATE_AXES.items()}
        return replace(self, **{name: xp.broadcast_to(getattr(self, name), (states, *shapes[name])) for name in _DATA})

    def __and__(self, other: ActionSet) -> ActionSet:
        """The actions that both sets admit: boxes intersected, rows and auxiliary variables side by side."""
        if not isinstance(other, ActionSet):
            return NotImplemented
        return join(self, other)

    def near(self, actions: Array, distance: Array) -> ActionSet:
        """The part of the set within `distance` (d,) of each of (B, d) admissible actions: one set for each of them."""
        xp = jnp if isinstance(actions, jax.Array) else hull.namespace(self)
        return replace(
            self, low=xp.maximum(self.low, actions - distance), high=xp.minimum(self.high, actions + distance)
        )

    def tightened(self) -> ActionSet:
        """The same set in the smallest box that its rows show by interval arithmetic; a box is returned as it is.

        Works on the host and inside `jit`, in the arrays' own precision, and is rounded outwards.  Where the rows
        contradict the box the set is empty, and the box is left as it was.
        """
        return hull.tightened(self)

    def contains(self, actions: Array) -> Array:
        """Whether each of (..., d) actions is admissible -> (...) bool; on the host.

        Bounds and inequalities must hold without any tolerance, in float64; equalities, and bounds without width,
        within the rounding of the actions' own dtype, which has no better number; whole numbers must be whole.
        With auxiliary variables the question is whether values of them exist: a small quadratic program for each
        action, or a search if some are whole numbers, whose rows are taken within a relative 1e-9.
        """
        dtype = actions.dtype if hasattr(actions, "dtype") else np.float64
        given = np.asarray(actions)
        return _for_each(self, given, lambda one, action: projection.contains(one, action, dtype), np.bool_)

    def project(self, actions: Array) -> Array:
        """The closest admissible action to each of (..., d).

        JAX arrays: traceable, clipping exactly for a box and close to the closest point otherwise (`traced`).
        Anything else: on the host in float64, the closest point of the continuous set by DAQP, to within its
        tolerance of 1e-10; whole numbers by branch and bound.

        Raises CaqlError where the set is empty (host only), with the rows that conflict.
        """
        if isinstance(actions, jax.Array):
            return traced.projector(self)(actions)

        def closest(one: projection.System, action: Array) -> Array:
            found = projection.closest(one, action)
            if found is None:
                raise CaqlError(projection.why_empty(one))
            return found[: one.size]

        return _for_each(self, np.asarray(actions, np.float64), closest)

    def closest(self, action: Array) -> Array | None:
        """The closest point to one action, (d,) -> (d + k,), its auxiliary variables with it; None if the set is empty.

        For one state's set, on the host.
        """
        return projection.closest(self._systems[0], np.asarray(action, np.float64))

    def admissible(self, actions: Array, dtype: DTypeLike = np.float32) -> Array:
        """What may be given to an environment in place of (..., d) actions: they themselves, or the closest to them.

        The numbers returned are of `dtype`, and it is they that satisfy every bound and inequality, in float64 and
        in whatever order one adds up, wherever the set has an interior of more than their rounding; equalities
        hold within that rounding, whole numbers are whole.  On the host.

        Raises CaqlError where the set is empty, with the rows that conflict.
        """

        def bring(one: projection.System, action: Array) -> Array:
            return rounding.admissible(one, action, np.dtype(dtype))

        return _for_each(self, np.asarray(actions, np.float64), bring, dtype)

    def sample(self, source: Any, count: int) -> Array:
        """`count` random actions of the set, shape (count, ..., d), uniform where the set is a box.

        source: a JAX key, for traceable code; or a NumPy generator, for the host.  With rows or whole numbers,
        uniform actions of the tightened box are projected, so that those outside the set end on its boundary.
        """
        if isinstance(source, np.random.Generator):
            within = self.on_host().tightened()
            projection.require_finite(within)
            spread = source.random((count, *np.broadcast_shapes(within.low.shape, self._leading())))
            return self.project(within.low + spread * (within.high - within.low))
        within = self.tightened()
        unit = jax.random.uniform(source, (count, *jnp.broadcast_shapes(jnp.shape(within.low), self._leading())))
        samples = within.low + unit * (within.high - within.low)
        return samples if self.is_box else self.project(samples)

    @cached_property
    def _systems(self) -> list[projection.System]:
        """Each state's set as the host's solver wants it, one for all if they share it; made once."""
        host = self.on_host()
        return [projection.system(host if host.states is None else host[state]) for state in range(host.states or 1)]

    def _leading(self) -> tuple[int, ...]:
        return (self.size,) if self.states is None else (self.states, self.size)

    def projector(self) -> traced.Projector:
        """What `project` does to JAX arrays, prepared once for a loop: a pytree to call with (..., d) actions."""
        return traced.projector(self)

    def within(self, low: Array, high: Array) -> ActionSet:
        """The set in another box, (B, d) each, with the leading axis of states written out in every array."""
        return replace(self.per_state(low.shape[0]), low=low, high=high)

    def inset(self, dtype: DTypeLike = np.float32) -> ActionSet:
        """The set from which a point may be rounded to `dtype` and stay admissible; on the host.

        Bounds are rounded inwards, inequalities moved inwards by what the rounding can change; equalities and rows
        with whole numbers are left alone, as is the middle of a row narrower than that.
        """
        return rounding.inset(self.on_host(), np.dtype(dtype))

    def clip(self, actions: Array) -> Array:
        """The nearest actions of the box."""
        return jnp.clip(actions, self.low, self.high)

    def conflict(self) -> str | None:
        """None if some action is admissible; else a sentence that names the rows that rule all of them out.

        The rows named are irreducible: without any one of them the set would not be empty.  With one set per
        state the sentence is about the first that is empty.  On the host.
        """
        for state, one in enumerate(self._systems):
            if projection.closest(one, one.middle) is None:
                where = "" if self.states is None else f" at state {state} of {self.states}"
                return projection.why_empty(one, where)
        return None


def _for_each(
    action_set: ActionSet, actions: Array, answer: Callable[[Any, Array], Any], dtype: DTypeLike = np.float64
) -> Array:
    """One state and one action at a time -> answers with the actions' leading axes."""
    systems = action_set._systems
    size, shared = action_set.size, action_set.states is None
    if actions.shape == (size,) and shared:
        return np.asarray(answer(systems[0], actions), dtype)
    if actions.ndim == 0 or actions.shape[-1] != size:
        raise CaqlError(f"actions has shape {actions.shape}; the set's actions have {size} numbers, the last axis")
    if not shared:
        if actions.ndim > 1 and actions.shape[-2] not in (1, len(systems)):
            raise CaqlError(
                f"actions has shape {actions.shape}; with a set for each of {len(systems)} states its last axes "
                f"must be ({len(systems)}, {size})"
            )
        actions = np.broadcast_to(actions, np.broadcast_shapes(actions.shape, (len(systems), size)))
    pairs = zip(itertools.cycle(systems), actions.reshape(-1, size), strict=False)
    answers = [answer(one, action) for one, action in pairs]
    each = () if dtype is np.bool_ else (size,)
    return np.array(answers, dtype).reshape(*actions.shape[:-1], *each)


def squash(action_set: ActionSet, raw: jax.Array) -> jax.Array:
    """Any real vector brought smoothly into the box: centre + radius * tanh(raw)."""
    return action_set.centre + action_set.radius * jnp.tanh(raw)


def make_box(low: object, high: object) -> ActionSet:
    """A checked box of float32 bounds; degenerate sides (low = high) are allowed."""
    lower = np.asarray(low, dtype=np.float32)
    upper = np.asarray(high, dtype=np.float32)
    if lower.shape != upper.shape or lower.ndim == 0:
        raise CaqlError(
            f"low and high must be vectors of one length, one entry per action dimension; "
            f"got shapes {lower.shape} and {upper.shape}"
        )
    for name, bound in (("low", lower), ("high", upper)):
        if not np.isfinite(bound).all():
            raise CaqlError(f"{name} = {bound.tolist()} must be finite in every action dimension")
    if (lower > upper).any():
        raise CaqlError(f"low = {lower.tolist()} must not exceed high = {upper.tolist()} in any action dimension")
    return ActionSet.box(jnp.asarray(lower), jnp.asarray(upper))
