"""The sets that people write down, each a constructor of the one `ActionSet`, to be joined with `&`.

    ActionSet.bounds(-1, 1, size=3) & ActionSet.absolute_budget(weights, limit=10.0)

Arguments are in the environment's units.  Weights, limits and bounds may have a leading axis of observations: the
result is then one set per state.  Given NumPy arrays or lists the set is NumPy float64 and everything is checked;
inside `jit` it is JAX, and only shapes can be.

A constructor says only what its name says.  Apart from it the actions are unbounded, and become bounded when the set
is joined with the environment's box.  `at_most` needs the bounds itself, for its rows

    low_i z_i <= a_i <= high_i z_i,    z_i in {0, 1},

hold for the bounds they were made with: a set joined with a smaller box stays correct, one joined with a larger
box keeps the smaller bounds.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from caql.actions.arguments import check, check_one_batch, is_known, limit_numbers, numbers, whole_number
from caql.actions.joining import stacked
from caql.errors import CaqlError

if TYPE_CHECKING:
    pass

SIGN_ROWS = 4
"""Up to this many actions |w_1 a_1| + ... is written with all combinations of signs, 2^(d-1) two-sided rows."""
SUBSET_ROWS = 3
"""Up to this many actions [w_1 a_1]+ + ... is written with all subsets, 2^d - 1 rows; above it, auxiliary variables."""


def _spread(xp: Any, value: Any, shape: Any) -> Any:
    """A value written out; on the host `full` takes a fifth of the time of `broadcast_to`."""
    return np.full(shape, value) if xp is np else xp.broadcast_to(value, shape)


@lru_cache(maxsize=32)
def _signs(d: int) -> Any:
    """All combinations of d signs up to their opposites, (2^(d-1), d)."""
    return np.array([(1, *rest) for rest in itertools.product((1, -1), repeat=d - 1)], np.float64)


@lru_cache(maxsize=32)
def _subsets(d: int) -> Any:
    """All subsets of d but the empty one, (2^d - 1, d)."""
    return np.array([s for s in itertools.product((0, 1), repeat=d) if any(s)], np.float64)


class Constructors:
    """The constructors of `ActionSet`, as class methods of it."""

    @classmethod
    def _of(
        cls,
        d: int,
        rows: Any = None,
        row_low: Any = None,
        row_high: Any = None,
        *,
        low: Any = -np.inf,
        high: Any = np.inf,
        auxiliary: tuple[Any, Any] | None = None,
        integer: Sequence[int] = (),
    ) -> Self:
        """A set of d actions; what is not given is no restriction."""
        traced = any(not is_known(a) for a in (rows, row_low, row_high, low, high, *(auxiliary or ())))
        xp: Any = jnp if traced else np
        k = 0 if auxiliary is None else auxiliary[0].shape[-1]
        rows = xp.zeros((0, d + k)) if rows is None else rows
        m = rows.shape[-2]

        def side(value: Any, missing: float) -> Any:
            value = xp.asarray(missing if value is None else value)
            return _spread(xp, value, m) if value.ndim == 0 else value

        def bound(value: Any) -> Any:
            return _spread(xp, value, d) if np.ndim(value) == 0 else value

        build: Any = cls
        none = xp.zeros(0)
        made: Self = build(
            bound(low), bound(high), rows, side(row_low, -np.inf), side(row_high, np.inf),
            *(auxiliary or (none, none)), tuple(integer),
        )  # fmt: skip
        return made

    @classmethod
    def bounds(cls, low: Any, high: Any, size: int | None = None) -> Self:
        """low <= a <= high: one number each with `size`, (d,), or (observations, d); sides may be infinite."""
        lower, upper = (
            numbers(name, value, (0, 1, 2), infinite=True) for name, value in (("low", low), ("high", high))
        )
        sizes = {array.shape[-1] for array in (lower, upper) if array.ndim} | ({size} if size is not None else set())
        if len(sizes) != 1:
            raise CaqlError(
                f"low has shape {tuple(lower.shape)}, high {tuple(upper.shape)} and size is {size}; "
                "they must agree on the number of actions, and one of them must say it"
            )
        check_one_batch(low=(lower, 1), high=(upper, 1))
        if is_known(lower) and is_known(upper):
            check("low", lower, lower > upper, "exceeds high; it must not be larger anywhere")
        return cls._of(sizes.pop(), low=lower, high=upper)

    @classmethod
    def linear(cls, rows: Any, low: Any = None, high: Any = None) -> Self:
        """low <= rows @ a <= high: rows (m, d) or (observations, m, d), sides one number, (m,) or (observations, m)."""
        matrix = rows if not is_known(rows) else np.asarray(rows, np.float64)
        if matrix.ndim not in (2, 3):
            raise CaqlError(f"rows has shape {tuple(matrix.shape)}; right would be (m, d) or (observations, m, d)")
        if is_known(matrix):
            check("rows", matrix, ~np.isfinite(matrix), "is not finite; every entry must be")
        if low is None and high is None:
            raise CaqlError("linear needs low, high or both: rows without a side say nothing")
        sides: list[Any] = []
        for name, side in (("low", low), ("high", high)):
            array = None if side is None else numbers(name, side, (0, 1, 2), infinite=True)
            if array is not None and array.ndim and array.shape[-1] != matrix.shape[-2]:
                raise CaqlError(f"{name} has shape {tuple(array.shape)} for {matrix.shape[-2]} rows; one number each")
            sides.append(array)
        given = {name: (array, 1) for name, array in zip(("low", "high"), sides, strict=True) if array is not None}
        check_one_batch(rows=(matrix, 2), **given)
        if len(given) == 2 and all(is_known(array) for array, _ in given.values()):
            check("low", sides[0], sides[0] > sides[1], "exceeds high: no action could satisfy that row")
        return cls._of(matrix.shape[-1], matrix, *sides)

    @classmethod
    def equality(cls, weights: Any, total: Any) -> Self:
        """sum_i w_i a_i = total: weights (d,) or (observations, d), total one number or one per observation."""
        w, t = numbers("weights", weights, (1, 2)), limit_numbers("total", total)
        check_one_batch(weights=(w, 1), total=(t, 0))
        return cls._of(w.shape[-1], w[..., None, :], t[..., None], t[..., None])

    @classmethod
    def budget(cls, weights: Any, limit: Any) -> Self:
        """sum_i w_i a_i <= limit: weights (d,) or (observations, d), limit one number or one per observation."""
        w, most = numbers("weights", weights, (1, 2)), limit_numbers("limit", limit)
        check_one_batch(weights=(w, 1), limit=(most, 0))
        return cls._of(w.shape[-1], w[..., None, :], None, most[..., None])

    @classmethod
    def absolute_budget(cls, weights: Any, limit: Any) -> Self:
        """sum_i |w_i a_i| <= limit: power, or effort.

        Up to four actions as rows of the actions alone, one for each combination of signs; beyond that with an
        auxiliary h_i >= |w_i a_i| for each of them and one row over the h.
        """
        w, most = _budget("absolute_budget", weights, limit)
        xp: Any = np if is_known(w) and is_known(most) else jnp
        d = w.shape[-1]
        if d <= SIGN_ROWS:
            signs = _signs(d)
            sides = _spread(xp, most[..., None], (*most.shape, len(signs)))
            return cls._of(d, w[..., None, :] * signs, -sides, sides)
        each = w[..., None, :] * np.eye(d)
        rows = [stacked(xp, [sign * each, -np.eye(d)], -1) for sign in (1.0, -1.0)]
        return cls._of(d, *_summed(xp, rows, most), auxiliary=_shares(xp, d, most))

    @classmethod
    def positive_budget(cls, weights: Any, limit: Any) -> Self:
        """sum_i max(w_i a_i, 0) <= limit: mechanical power that is spent and not recovered.

        Up to three actions as rows of the actions alone, one for each subset; beyond that with an auxiliary
        h_i >= max(w_i a_i, 0) for each of them and one row over the h.
        """
        w, most = _budget("positive_budget", weights, limit)
        xp: Any = np if is_known(w) and is_known(most) else jnp
        d = w.shape[-1]
        if d <= SUBSET_ROWS:
            subsets = _subsets(d)
            sides = _spread(xp, most[..., None], (*most.shape, len(subsets)))
            return cls._of(d, w[..., None, :] * subsets, None, sides)
        rows = [stacked(xp, [w[..., None, :] * np.eye(d), -np.eye(d)], -1)]
        return cls._of(d, *_summed(xp, rows, most), auxiliary=_shares(xp, d, most))

    @classmethod
    def simplex(cls, size: int, total: Any = 1.0) -> Self:
        """a_i >= 0 and sum_i a_i = total: shares of a whole; total one number or one per observation."""
        d, whole = whole_number("size", size), limit_numbers("total", total)
        check("total", whole, whole < 0 if is_known(whole) else False, "must not be negative: the shares are not")
        return cls._of(d, np.ones((1, d)), whole[..., None], whole[..., None], low=0.0)

    @classmethod
    def rate_limit(cls, observations: Any, last: Any, step: Any) -> Self:
        """|a_i - last_i| <= step_i: how far an action may be from the one before it.

        observations: (n,) or (observations, n).
        last: where the last action stands in an observation: a slice, or a list of indices.
        step: one number, or (d,).
        """
        seen = numbers("observations", observations, (1, 2))
        try:
            before = seen[..., last if isinstance(last, slice) else np.asarray(last, np.intp)]
        except (IndexError, TypeError, ValueError):
            raise CaqlError(
                f"last = {last!r} must be a slice or a list of indices below {seen.shape[-1]}, an observation's length"
            ) from None
        if before.ndim != seen.ndim or before.shape[-1] == 0:
            count = "a single number" if before.ndim != seen.ndim else "no number"
            raise CaqlError(f"last = {last!r} picks {count} of an observation; give a slice or a list, one per action")
        width = numbers("step", step, (0, 1))
        if width.ndim and width.shape[-1] != before.shape[-1]:
            raise CaqlError(f"step has {width.shape[-1]} numbers for {before.shape[-1]} actions; one each is right")
        check("step", width, width < 0 if is_known(width) else False, "must not be negative")
        return cls._of(before.shape[-1], low=before - width, high=before + width)

    @classmethod
    def at_most(cls, count: int, low: Any, high: Any) -> Self:
        """At most `count` of the actions are not zero; low and high, (d,), are the bounds of those that are not.

        The bounds are part of the set: give the environment's, or smaller ones.
        """
        lower, upper = numbers("low", low, (1,)), numbers("high", high, (1,))
        if lower.shape != upper.shape:
            raise CaqlError(f"low has {lower.shape[-1]} numbers and high {upper.shape[-1]}; one per action is right")
        d = lower.shape[-1]
        if not 0 <= whole_number("count", count, least=0) <= d:
            raise CaqlError(f"count = {count} must be between 0 and {d}, the number of actions")
        check("low", lower, lower > 0, "must not be above 0, or the action could never be zero")
        check("high", upper, upper < 0, "must not be below 0, or the action could never be zero")
        rows = np.concatenate([np.hstack([np.eye(d), -np.diag(side)]) for side in (upper, lower)])
        rows = np.concatenate([rows, np.hstack([np.zeros((1, d)), np.ones((1, d))])])
        row_low = np.concatenate([np.full(d, -np.inf), np.zeros(d), [-np.inf]])
        row_high = np.concatenate([np.zeros(d), np.full(d, np.inf), [count]])
        switches = np.zeros(d), np.ones(d)
        return cls._of(d, rows, row_low, row_high, low=lower, high=upper, auxiliary=switches, integer=range(d, 2 * d))

    @classmethod
    def one_of(cls, size: int) -> Self:
        """A choice among `size`: one action is 1 and the others are 0."""
        d = whole_number("size", size)
        return cls._of(d, np.ones((1, d)), np.ones(1), np.ones(1), low=0.0, high=1.0, integer=range(d))

    @classmethod
    def whole(cls, size: int, indices: Sequence[int] | None = None) -> Self:
        """Whole numbers: all of `size` actions, or those at `indices`."""
        d = whole_number("size", size)
        chosen = range(d) if indices is None else indices
        wrong = [i for i in chosen if isinstance(i, bool) or not isinstance(i, int | np.integer) or not 0 <= i < d]
        if wrong:
            raise CaqlError(f"indices holds {wrong[0]!r}; with {d} actions they are whole numbers from 0 to {d - 1}")
        return cls._of(d, integer=sorted({int(i) for i in chosen}))

    @classmethod
    def levels(cls, values: Sequence[Any]) -> Self:
        """a_i is one of values[i], a list of numbers for each action; None leaves that action free."""
        lists = [
            None if each is None else np.unique(numbers(f"values[{i}]", each, (1,))) for i, each in enumerate(values)
        ]
        if not lists:
            raise CaqlError("values is empty; it must hold a list of numbers for each action")
        for i, each in enumerate(lists):
            if each is not None and not len(each):
                raise CaqlError(f"values[{i}] is empty; an action needs at least one level")
        d, k = len(lists), sum(0 if each is None else len(each) for each in lists)
        rows, sides, done = [], [], d
        for i, each in enumerate(lists):
            if each is None:
                continue
            value, choice = np.zeros(d + k), np.zeros(d + k)
            value[i], value[done : done + len(each)], choice[done : done + len(each)] = -1.0, each, 1.0
            rows += [value, choice]
            sides += [0.0, 1.0]
            done += len(each)
        row_sides = np.array(sides)
        matrix = np.array(rows).reshape(-1, d + k)
        choices = np.zeros(k), np.ones(k)
        return cls._of(d, matrix, row_sides, row_sides, auxiliary=choices, integer=range(d, d + k))

    @classmethod
    def off_or_between(cls, low: Any, high: Any) -> Self:
        """a_i = 0 or low_i <= a_i <= high_i, for each i: (d,) numbers, or (observations, d)."""
        lower, upper = numbers("low", low, (1, 2)), numbers("high", high, (1, 2))
        if lower.shape[-1] != upper.shape[-1]:
            raise CaqlError(f"low has {lower.shape[-1]} numbers and high {upper.shape[-1]}; one per action is right")
        check_one_batch(low=(lower, 1), high=(upper, 1))
        xp: Any = np if is_known(lower) and is_known(upper) else jnp
        if xp is np:
            check("low", lower, lower > upper, "exceeds high; it must not be larger anywhere")
        d = lower.shape[-1]
        rows = stacked(xp, [stacked(xp, [np.eye(d), -side[..., None] * np.eye(d)], -1) for side in (upper, lower)], -2)
        row_low = np.concatenate([np.full(d, -np.inf), np.zeros(d)])
        row_high = np.concatenate([np.zeros(d), np.full(d, np.inf)])
        switches = np.zeros(d), np.ones(d)
        box = {"low": xp.minimum(lower, 0.0), "high": xp.maximum(upper, 0.0)}
        return cls._of(d, rows, row_low, row_high, **box, auxiliary=switches, integer=range(d, 2 * d))

    def at(self, indices: Sequence[int], size: int) -> Self:
        """The same set for the actions at `indices` among `size`, the others free."""
        mine: Any = self
        d, k = mine.size, mine.auxiliary_low.shape[-1]
        places = [int(i) for i in indices]
        if len(places) != d or len(set(places)) != d or not all(0 <= i < size for i in places):
            raise CaqlError(f"indices = {places} must be {d} different places among the {size} actions, from 0")
        xp: Any = jnp if any(not is_known(leaf) for leaf in jax.tree.leaves(mine)) else np
        columns = np.zeros((d + k, size + k))
        columns[np.arange(d + k), [*places, *range(size, size + k)]] = 1.0
        # Where each of the `size` bounds comes from: one of the d, or the last entry, which is no bound.
        source = np.full(size, d)
        source[places] = np.arange(d)

        def spread(bound: Any, missing: float) -> Any:
            return stacked(xp, [bound, np.full(1, missing)], -1)[..., source]

        whole = [places[i] if i < d else size + i - d for i in mine.integer]
        build: Any = type(self)
        made: Self = build(
            spread(mine.low, -np.inf), spread(mine.high, np.inf), mine.rows @ columns, mine.row_low, mine.row_high,
            mine.auxiliary_low, mine.auxiliary_high, tuple(sorted(whole)),
        )  # fmt: skip
        return made


def _budget(name: str, weights: Any, limit: Any) -> tuple[Any, Any]:
    w, most = numbers("weights", weights, (1, 2)), limit_numbers("limit", limit)
    check_one_batch(weights=(w, 1), limit=(most, 0))
    check("limit", most, most < 0 if is_known(most) else False, f"must not be negative: {name} could never be met")
    return w, most


def _summed(xp: Any, rows: list[Any], most: Any) -> tuple[Any, Any, Any]:
    """Rows  +-w_i a_i - h_i <= 0  and, last, sum_i h_i <= limit."""
    d = rows[0].shape[-2]
    total = np.concatenate([np.zeros((1, d)), np.ones((1, d))], axis=-1)
    zeros = np.zeros(d * len(rows))
    return stacked(xp, [*rows, total], -2), None, stacked(xp, [zeros, most[..., None]], -1)


def _shares(xp: Any, d: int, most: Any) -> tuple[Any, Any]:
    return np.zeros(d), _spread(xp, most[..., None], (*most.shape, d))
