"""The actions of a task that are more than a box: choices, whole numbers, rows, sets that depend on the state.

Inside, an action is one vector (`actions/spaces.py`); the environment receives its own format.  Whatever an agent
says is replaced by the closest admissible action of the present state, in the space's own number format, before the
environment sees it, and it is this action that is learned from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium as gym
import jax.numpy as jnp
import numpy as np

from caql.action_ranges import ActionRange, restrict, round_inward
from caql.action_sets import Given, StateSets, check_set, check_width, stacked
from caql.actions import ActionSet
from caql.actions.spaces import FlatSpace
from caql.errors import CaqlError

Array = np.ndarray[Any, np.dtype[Any]]


class TaskActions:
    """What the actions of one environment may be, and the set of the state that it is in.

    space: the environment's action space.  action_range: narrows it, if it is a Box.
    given: a set for all states, or what gives the set of one observation; None for the space's own.
    first: gives an observation of the environment, asked for only if the set depends on the state.

    action_set is the float32 set of all states or, where it depends on the state, the box around all of them;
    `sets` is None, or the sets of the states.
    """

    def __init__(
        self, space: gym.Space[Any], action_range: ActionRange, given: Given | None, first: Callable[[], Any]
    ) -> None:
        self.flat = FlatSpace(space)
        own = _narrowed(self.flat, action_range)
        self.sets: StateSets | None = None
        self._shared: ActionSet | None = None
        if given is None or isinstance(given, ActionSet):
            self._shared = own if given is None else join_for_all(given, own)
            hull = self._shared
        else:
            self.sets = StateSets(given, own, first())
            hull = ActionSet.box(own.low, own.high)
        if not (np.isfinite(hull.low).all() and np.isfinite(hull.high).all()):
            raise CaqlError(
                f"the actions have infinite bounds (low {hull.low.tolist()}, high {hull.high.tolist()}); "
                "give action_range, or an action_set with bounds"
            )
        low, high = round_inward(hull.low, hull.high, np.float32)
        sides = np.where(low <= high, low, hull.low), np.where(low <= high, high, hull.low)
        single = replace(hull, low=sides[0], high=sides[1])
        self.action_set = single.map(lambda array: jnp.asarray(array, jnp.float32))
        self.executed = np.zeros(self.flat.size, np.float32)
        """The vector of the last action that the environment was given."""
        self.counted = {"actions": 0, "violations": 0}
        """How many actions the environment was given, and how many of them were not in the set of their state."""
        self._seen: tuple[Any, Array] | None = None
        self._now: ActionSet | None = None

    def see(self, observation: Any, vector: Array) -> None:
        """The environment is at `observation`; agents know it as the float32 `vector`."""
        self._seen, self._now = (observation, vector), None

    def now(self) -> ActionSet:
        """The set of the present state, NumPy float64."""
        if self._shared is not None:
            return self._shared
        if self._now is None:
            assert self._seen is not None, "the environment has not been reset"
            self._now = self._at(self._seen[0])
        return self._now

    def at(self, vector: Array) -> ActionSet:
        """The set of the state that agents know as `vector`, (n,): of the present one, as the environment tells it."""
        if self._shared is not None:
            return self._shared
        if self._seen is not None and np.array_equal(vector, self._seen[1]):
            return self.now()
        return self._at(vector)

    def many(self, vectors: Array) -> ActionSet:
        """The sets of (B, n) states: one for all of them, or with an axis of states."""
        return self._shared if self._shared is not None else stacked([self.at(vector) for vector in vectors])

    def _at(self, observation: Any) -> ActionSet:
        assert self.sets is not None
        return self.sets.at(observation)

    def admissible(self, action: Any, action_set: ActionSet | None = None) -> Array:
        """The closest admissible vector, in the space's number format; of the present state's set by default."""
        found: Array = (action_set or self.now()).admissible(np.asarray(action, np.float64), self.flat.dtype)
        return found + found.dtype.type(0)  # no -0 among whole numbers

    def execute(self, action: Any) -> Any:
        """The closest admissible action of the present state as the environment wants it, counted as given to it."""
        self.executed = self.admissible(action)
        self.counted["actions"] += 1
        self.counted["violations"] += not self.now().contains(self.executed)
        return self.decode(self.executed)

    def decode(self, vector: Array) -> Any:
        """The vector as the environment wants it."""
        return self.flat.decode(vector)

    def take_counted(self) -> dict[str, int]:
        """What was counted since the last call."""
        found, self.counted = self.counted, dict.fromkeys(self.counted, 0)
        return found

    def columns(self, checked: bool = False) -> dict[str, Array]:
        """What is stored of the present state's set; `checked`: raise `CaqlError` if it is empty."""
        if self.sets is None:
            return {}
        if checked:
            conflict = self.now().conflict()
            if conflict is not None:
                raise CaqlError(conflict)
        return self.sets.columns(self.now())


def _narrowed(flat: FlatSpace, action_range: ActionRange) -> ActionSet:
    """The space's own set, in the wanted range."""
    if action_range is None:
        return flat.action_set
    if not isinstance(flat.space, gym.spaces.Box):
        kind = type(flat.space).__name__
        raise CaqlError(f"action_range = {action_range} narrows a Box; the action space is {kind}: give action_set")
    return flat.action_set & ActionSet.bounds(*restrict(flat.space, action_range))


def join_for_all(given: ActionSet, own: ActionSet) -> ActionSet:
    """A set for all states joined with the action space's own; `CaqlError` if it does not fit or leaves no action."""
    check_set(given, own.size)
    if given.states is not None:
        raise CaqlError(f"action_set is for {given.states} states; give one set for all, or a function of observations")
    check_width(given, own)
    joined = given & own
    conflict = joined.conflict()
    if conflict is not None:
        raise CaqlError(conflict)
    return joined


def find_action_set(env: Any, given: Any) -> Given | None:
    """The user's set, or else the environment's own, an attribute or method `action_set` found through wrappers.

    Returns a set for all states, or a function of one observation.
    """
    if given is not None:
        if isinstance(given, ActionSet):
            return given
        if not callable(given):
            raise CaqlError(
                f"action_set = {given!r} must be an ActionSet, or a function of observations that gives one"
            )
        # The user's function takes a batch.
        return lambda observation: given(np.reshape(observation, (1, -1)))
    if not env.has_wrapper_attr("action_set"):
        return None
    found = env.get_wrapper_attr("action_set")
    if isinstance(found, ActionSet) or callable(found):
        return found
    raise CaqlError(
        f"the environment's action_set is a {type(found).__name__}; it must be an ActionSet, or a method of the "
        "observation that gives one"
    )
