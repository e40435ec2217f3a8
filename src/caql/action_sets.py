"""The action set of a task: where it comes from, what form it has, and the set of one state.

    A(x) = { a of the action space }  &  what a function of the observation, or the environment itself, admits at x

A set that does not depend on the state is one `ActionSet`.  One that does is a `StateSets`: its form (the number of
rows, of auxiliary variables, which of them are whole numbers) is the same at every state, so that the arrays that
vary can be stored beside the transitions and travel through `jit`; the others are kept once, in the template.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from caql.actions import ActionSet
from caql.errors import CaqlError
from caql.named_code import import_named

Array = np.ndarray[Any, np.dtype[Any]]
Columns = dict[str, Any]
"""The arrays of some sets that vary from state to state, by name; leading axes are those of the states."""
Given = ActionSet | Callable[[Any], ActionSet]
"""A set for all states, or a function of a batch of observations (B, n) that returns one set for each."""

ARRAYS = tuple(each.name for each in fields(ActionSet) if each.name != "integer")


class StateSets:
    """A(x) as a function of the observation.

    source: one observation, as the environment gives it -> its set, with or without an axis of one state.
    space: the set of the action space, joined with every state's.
    first: an observation of the environment, whose set shows the form that all of them have.
    """

    def __init__(self, source: Callable[[Any], Any], space: ActionSet, first: Any) -> None:
        self.source, self.space = source, space
        joined = self._joined(first)
        with_axis = [name for name in ARRAYS if getattr(joined, name).ndim > getattr(space, name).ndim]
        # A source that answers without an axis of states may still answer differently at each of them.
        self.varying = tuple(with_axis if with_axis else (n for n in ARRAYS if getattr(joined, n).size))
        self.template = _without_axis(joined)

    def _joined(self, observation: Any) -> ActionSet:
        return self._given(observation) & self.space

    def _given(self, observation: Any) -> ActionSet:
        given = self.source(observation)
        check_set(given, self.space.size)
        if given.states not in (None, 1):
            raise CaqlError(f"action_set gave sets for {given.states} states when asked about one observation")
        return given

    def at(self, observation: Any) -> ActionSet:
        """The set of one state, NumPy float64 without an axis of states.

        Raises `CaqlError` if it is not a sound set, or not of the first one's form.
        """
        found = _without_axis(self._given(observation)) & self.space
        if found.integer != self.template.integer or any(
            getattr(found, name).shape != getattr(self.template, name).shape for name in ARRAYS
        ):
            raise CaqlError(
                f"the action set has {_form(found)} at this observation and {_form(self.template)} at the first; "
                "its form must be the same at all of them (a row that does not matter can have an infinite side)"
            )
        return found

    def columns(self, action_set: ActionSet) -> dict[str, Array]:
        """What is stored of one state's set, float32."""
        return {name: np.asarray(getattr(action_set, name), np.float32) for name in self.varying}

    def of(self, columns: Columns) -> ActionSet:
        """Undo `columns`: the sets of a batch of states, float32, for use inside `jit`."""
        return replace(self.template.map(lambda array: jnp.asarray(array, jnp.float32)), **columns)


def stacked(sets: Sequence[ActionSet]) -> ActionSet:
    """Sets of one form with an axis of states in front."""
    arrays: dict[str, Any] = {name: np.stack([getattr(one, name) for one in sets]) for name in ARRAYS}
    return replace(sets[0], **arrays)


def relaxed(action_set: ActionSet) -> ActionSet:
    """The set without the demand for whole numbers."""
    return replace(action_set, integer=())


def _without_axis(action_set: ActionSet) -> ActionSet:
    return action_set if action_set.states is None else action_set[0]


def _form(action_set: ActionSet) -> str:
    rows, auxiliary = action_set.rows.shape[-2], action_set.auxiliary_low.shape[-1]
    return f"{rows} rows, {auxiliary} auxiliary variables and {len(action_set.integer)} whole numbers"


def check_set(given: Any, size: int) -> None:
    """Raise `CaqlError`, one sentence, unless `given` is a sound set of actions of `size` numbers."""
    if not isinstance(given, ActionSet):
        raise CaqlError(
            f"action_set gave {type(given).__name__}; it must be an ActionSet, such as ActionSet.budget(weights, limit)"
        )
    if given.size != size:
        raise CaqlError(f"the action set is over {given.size} numbers; an action of the task has {size}")
    rows, variables = given.rows.shape[-2], size + given.auxiliary_low.shape[-1]
    wanted = {
        "high": size,
        "rows": variables,
        "row_low": rows,
        "row_high": rows,
        "auxiliary_high": variables - size,
    }
    for name, length in wanted.items():
        if getattr(given, name).shape[-1] != length:
            raise CaqlError(f"the action set's {name} has shape {getattr(given, name).shape}; it must end in {length}")
    if any(not 0 <= i < variables for i in given.integer):
        raise CaqlError(f"the action set's integer = {given.integer} must be among its {variables} variables")
    for name in ARRAYS:
        array = np.asarray(getattr(given, name))
        finite = name in ("rows", "auxiliary_low", "auxiliary_high")
        # One call in place of two, where nothing is wrong: the sum of squares is NaN or infinite with any entry.
        squares = np.vdot(array, array)
        if squares < np.inf or (squares == np.inf and not finite):
            continue
        if (not np.isfinite(array).all()) if finite else np.isnan(array).any():
            raise CaqlError(f"the action set's {name} holds a number that is not finite: {array.tolist()}")


def check_width(given: ActionSet, space: ActionSet) -> None:
    """Raise `CaqlError` where a set for all states has finite bounds wider than the action space's."""
    low, high = np.asarray(given.low, np.float64), np.asarray(given.high, np.float64)
    wide = (np.isfinite(low) & (low < space.low - 1e-6)) | (np.isfinite(high) & (high > space.high + 1e-6))
    if wide.any():
        i = int(np.argmax(np.atleast_2d(wide).any(axis=0)))
        raise CaqlError(
            f"action_set bounds action {i} by {low[..., i]:g} and {high[..., i]:g}, wider than the action space's "
            f"{space.low[i]:g} and {space.high[i]:g}"
        )


def named_set(name: str) -> Given:
    """What `module:name` stands for: an `ActionSet`, or a function that gives one; the module is imported."""
    found = import_named("action_set", name, "MODULE:NAME, a set or a function in a module")
    if not (isinstance(found, ActionSet) or callable(found)):
        raise CaqlError(f"action_set = {name!r} is a {type(found).__name__}; it must be an ActionSet or a function")
    return found


def require_given(stored: str | None) -> None:
    """Raise `CaqlError` for a stored configuration with an action set: a file must not say which code to run."""
    if stored is not None:
        raise CaqlError(
            f"the run was made with action_set = {stored!r}, which is not stored with it; give it again: "
            "action_set= in Python, --action-set MODULE:NAME on the command line"
        )


def set_name(given: Given | str | None) -> str | None:
    """What a configuration stores of an action set: MODULE:NAME of a function, a digest of a set's numbers."""
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, ActionSet):
        digest = hashlib.sha256(repr(given.integer).encode())
        for leaf in jax.tree.leaves(given.on_host()):
            digest.update(f"{leaf.shape}".encode() + leaf.tobytes())
        return f"ActionSet:{digest.hexdigest()[:12]}"
    return f"{getattr(given, '__module__', '?')}:{getattr(given, '__qualname__', type(given).__qualname__)}"
