"""Every constructor against its own sentence: the set holds the actions it should and no others."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caql.actions import ActionSet
from caql.errors import CaqlError

BOX = 2.0
"""The environment's bounds in the examples, [-2, 2]."""


def zero_or(low, high):
    return lambda a: bool(((a == 0) | ((a >= low) & (a <= high))).all())


def drawn(name, rng, d):
    """A random set of that name, and its sentence as a function of one action in float64."""
    w = np.round(rng.normal(size=d), 2) * (rng.random(d) < 0.85)
    limit = float(np.round(rng.uniform(0.3, 3.0), 2))
    if name == "budget":
        return ActionSet.budget(w, limit), lambda a: bool(np.sum(w * a) <= limit)
    if name == "absolute_budget":
        return ActionSet.absolute_budget(w, limit), lambda a: bool(np.abs(w * a).sum() <= limit)
    if name == "positive_budget":
        return ActionSet.positive_budget(w, limit), lambda a: bool(np.maximum(w * a, 0).sum() <= limit)
    if name == "simplex":
        return ActionSet.simplex(d, limit), lambda a: bool((a >= 0).all() and abs(a.sum() - limit) <= 1e-6)
    if name == "equality":
        w = w + (np.abs(w).sum() == 0)
        total = float(w @ rng.uniform(-1, 1, d))
        return ActionSet.equality(w, total), lambda a: bool(abs(w @ a - total) <= 1e-5)
    if name == "rate_limit":
        seen, step = rng.uniform(-2, 2, d + 3), rng.uniform(0.01, 1.0)
        last = seen[2 : 2 + d]
        keep = ActionSet.rate_limit(seen, slice(2, 2 + d), step)
        return keep, lambda a: bool((np.abs(a - last) <= step + 1e-15).all())
    if name == "at_most":
        count = int(rng.integers(0, d + 1))
        return ActionSet.at_most(count, np.full(d, -BOX), np.full(d, BOX)), lambda a: bool((a != 0).sum() <= count)
    if name == "one_of":
        return ActionSet.one_of(d), lambda a: bool(np.isin(a, [0, 1]).all() and a.sum() == 1)
    if name == "whole":
        return ActionSet.whole(d), lambda a: bool((a == np.round(a)).all())
    if name == "levels":
        lists = [np.round(rng.uniform(-BOX, BOX, rng.integers(1, 5)), 1) for _ in range(d)]

        def on_level(a):
            return all(np.abs(levels - x).min() <= 1e-6 for levels, x in zip(lists, a, strict=True))

        return ActionSet.levels(lists), on_level
    low = rng.uniform(0.2, 1.0, d)
    high = low + rng.uniform(0, 0.8, d)
    return ActionSet.off_or_between(low, high), zero_or(low, high)


NAMES = (
    "budget",
    "absolute_budget",
    "positive_budget",
    "simplex",
    "equality",
    "rate_limit",
    "at_most",
    "one_of",
    "whole",
    "levels",
    "off_or_between",
)
by_name = pytest.mark.parametrize("name", NAMES)


@by_name
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), d=st.integers(1, 6), dtype=st.sampled_from([np.float32, np.float64]))
def test_what_is_handed_over_satisfies_the_sentence(name, seed, d, dtype):
    rng = np.random.default_rng(seed)
    one, sentence = drawn(name, rng, d)
    joined = one & ActionSet.bounds(-BOX, BOX, d)
    if joined.conflict() is not None:
        assert name in ("simplex", "rate_limit", "equality")
        return
    for target in rng.normal(size=(4, d)) * rng.choice([0.3, 1.0, 5.0]):
        action = joined.admissible(target, dtype)
        assert action.dtype == dtype
        assert sentence(action.astype(np.float64)), (action, target)
        assert (np.abs(action) <= BOX).all()
        assert joined.contains(action)


@by_name
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), d=st.integers(1, 6))
def test_an_action_is_contained_exactly_if_the_sentence_holds(name, seed, d):
    """Random actions, and admissible ones moved a little: near the boundary both answers occur."""
    rng = np.random.default_rng(seed)
    one, sentence = drawn(name, rng, d)
    joined = one & ActionSet.bounds(-BOX, BOX, d)
    if joined.conflict() is not None:
        return
    inside = joined.admissible(rng.normal(size=d), np.float64)
    moved = inside + rng.choice([0.0, 1e-3], d) * rng.choice([-1, 1], d)
    for action in (rng.uniform(-BOX, BOX, d), np.round(rng.uniform(-BOX, BOX, d)), inside, moved, np.zeros(d)):
        assert bool(joined.contains(action)) == (sentence(action) and bool((np.abs(action) <= BOX).all())), action


@pytest.mark.parametrize("name", ["budget", "absolute_budget", "positive_budget", "equality", "off_or_between"])
@pytest.mark.parametrize("d", [2, 6])
def test_one_set_per_observation_is_each_of_them(name, d):
    rng = np.random.default_rng(0)
    weights, limits = np.abs(rng.normal(size=(5, d))) + 0.1, rng.uniform(2.5, 3.5, 5)
    weights = weights + (name == "equality")
    both = (weights, weights + 1) if name == "off_or_between" else (weights, limits)
    together = getattr(ActionSet, name)(*both)
    assert together.states == 5
    targets = 3 * rng.normal(size=(5, d))
    box = ActionSet.bounds(-3, 3, d)
    found = (together & box).project(targets)
    for state in range(5):
        alone = getattr(ActionSet, name)(both[0][state], both[1][state]) & box
        np.testing.assert_allclose(found[state], alone.project(targets[state]), atol=1e-8)
        np.testing.assert_allclose((together & box)[state].project(targets[state]), found[state], atol=1e-12)
    inside = jax.jit(lambda *arrays: getattr(ActionSet, name)(*arrays))(*map(jnp.asarray, both))
    for one, other in zip(jax.tree.leaves(inside), jax.tree.leaves(together), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert inside.integer == together.integer


def test_weights_shared_and_limits_by_observation():
    found = ActionSet.budget([1.0, 1.0], [0.5, 1.0]) & ActionSet.bounds(-1, 1, 2)
    assert found.rows.shape == (1, 2)
    assert found.row_high.shape == (2, 1)
    np.testing.assert_allclose(found.project([1.0, 1.0]), [[0.25, 0.25], [0.5, 0.5]])


def test_both_forms_of_a_budget_are_the_same_set(monkeypatch):
    """With rows of the actions alone and with auxiliary variables."""
    from caql.actions import constructors

    rng = np.random.default_rng(1)
    for d, name in itertools.product((2, 3, 4), ("absolute_budget", "positive_budget")):
        w, limit = rng.normal(size=d), 1.0
        small = getattr(ActionSet, name)(w, limit) & ActionSet.bounds(-2, 2, d)
        with monkeypatch.context() as patch:
            patch.setattr(constructors, "SIGN_ROWS", 0)
            patch.setattr(constructors, "SUBSET_ROWS", 0)
            large = getattr(ActionSet, name)(w, limit) & ActionSet.bounds(-2, 2, d)
        assert large.auxiliary_low.shape == (d,)
        for target in 3 * rng.normal(size=(20, d)):
            np.testing.assert_allclose(small.project(target), large.project(target), atol=1e-6)


def test_a_set_for_some_of_the_actions_leaves_the_others_free():
    one = ActionSet.off_or_between([2.0], [5.0]).at([2], 4) & ActionSet.whole(1).at([0], 4) & ActionSet.bounds(-9, 9, 4)
    assert one.size == 4
    assert one.contains([3.0, -8.5, 4.2, 8.9])
    assert one.contains([3.0, -8.5, 0.0, 8.9])
    assert not one.contains([3.0, -8.5, 1.0, 8.9])
    assert not one.contains([3.5, -8.5, 4.2, 8.9])
    np.testing.assert_allclose(one.project([0.4, 0.3, 1.6, 20.0]), [0.0, 0.3, 2.0, 9.0])
    per_state = ActionSet.bounds([[0.0], [1.0]], [[1.0], [2.0]]).at([1], 3)
    np.testing.assert_array_equal(per_state.low, [[-np.inf, 0, -np.inf], [-np.inf, 1, -np.inf]])


def test_levels_may_leave_an_action_free():
    one = ActionSet.levels([[0.0, 0.5], None]) & ActionSet.bounds(-1, 1, 2)
    assert one.contains([0.5, 0.123])
    assert not one.contains([0.4, 0.123])


def test_joined_sets_keep_their_own_auxiliary_variables():
    rng = np.random.default_rng(2)
    d = 5
    first, second = rng.normal(size=d), rng.normal(size=d)
    one = (
        ActionSet.absolute_budget(first, 1.5)
        & ActionSet.at_most(2, np.full(d, -2.0), np.full(d, 2.0))
        & ActionSet.positive_budget(second, 1.0)
    )
    assert one.auxiliary_low.shape == (15,)
    assert one.integer == tuple(range(d + 5, d + 10))
    for target in 2 * rng.normal(size=(30, d)):
        action = one.admissible(target).astype(np.float64)
        assert np.abs(first * action).sum() <= 1.5
        assert np.maximum(second * action, 0).sum() <= 1.0
        assert (action != 0).sum() <= 2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ActionSet.bounds(0, 1), "one of them must say it"),
        (lambda: ActionSet.bounds([0, 0], [1, 1, 1]), "must agree on the number of actions"),
        (lambda: ActionSet.bounds([0, 2], [1, 1]), "low = 2 exceeds high"),
        (lambda: ActionSet.bounds([0, np.nan], [1, 1]), "low holds nan"),
        (lambda: ActionSet.bounds("left", 1, 2), "must be a number"),
        (lambda: ActionSet.budget([1, np.inf], 1), "weights holds inf"),
        (lambda: ActionSet.budget(1.0, 1), r"weights has shape \(\)"),
        (lambda: ActionSet.budget([[1.0], [1.0]], [1, 2, 3]), "different numbers of observations: weights for 2"),
        (lambda: ActionSet.budget([1, 1], [[1, 1]]), "one number or"),
        (lambda: ActionSet.absolute_budget([1, 1], -1), "limit = -1 must not be negative"),
        (lambda: ActionSet.positive_budget([1, 1], [1, -2]), "limit = -2 must not be negative"),
        (lambda: ActionSet.linear([1.0, 1.0], 0, 1), "rows has shape"),
        (lambda: ActionSet.linear([[1.0, np.nan]], 0, 1), "not finite"),
        (lambda: ActionSet.linear([[1.0, 1.0]]), "low, high or both"),
        (lambda: ActionSet.linear([[1.0, 1.0]], [0, 0], [1, 1]), "for 1 rows"),
        (lambda: ActionSet.linear([[1.0, 1.0]], 2, 1), "no action could satisfy"),
        (lambda: ActionSet.simplex(0), "size = 0 must be a whole number, at least 1"),
        (lambda: ActionSet.simplex(2, -1), "total = -1"),
        (lambda: ActionSet.rate_limit(np.zeros(5), slice(4, 4), 0.1), "picks no number"),
        (lambda: ActionSet.rate_limit(np.zeros(5), [1, 7], 0.1), "below 5"),
        (lambda: ActionSet.rate_limit(np.zeros(5), 3, 0.1), "one per action"),
        (lambda: ActionSet.rate_limit(np.zeros(5), slice(0, 2), -0.1), "step = -0.1"),
        (lambda: ActionSet.rate_limit(np.zeros(5), slice(0, 2), [1, 1, 1]), "step has 3 numbers for 2"),
        (lambda: ActionSet.at_most(4, [-1, -1], [1, 1]), "between 0 and 2"),
        (lambda: ActionSet.at_most(1.5, [-1, -1], [1, 1]), "whole number"),
        (lambda: ActionSet.at_most(1, [0.5, -1], [1, 1]), "low = 0.5 must not be above 0"),
        (lambda: ActionSet.at_most(1, [-1, -1], [1, -0.5]), "high = -0.5 must not be below 0"),
        (lambda: ActionSet.at_most(1, [-1, -1], [1, np.inf]), "finite"),
        (lambda: ActionSet.at_most(1, [-1, -1], [1]), "one per action"),
        (lambda: ActionSet.one_of(True), "size = True"),
        (lambda: ActionSet.whole(2, [2]), "from 0 to 1"),
        (lambda: ActionSet.levels([]), "values is empty"),
        (lambda: ActionSet.levels([[1], []]), r"values\[1\] is empty"),
        (lambda: ActionSet.levels([[1, np.nan]]), r"values\[0\] holds nan"),
        (lambda: ActionSet.off_or_between([2, 3], [1, 4]), "low = 2 exceeds high"),
        (lambda: ActionSet.off_or_between([2, 3], [4]), "one per action"),
        (lambda: ActionSet.whole(2).at([0], 3), "2 different places"),
        (lambda: ActionSet.whole(2).at([0, 3], 3), "2 different places"),
        (lambda: ActionSet.whole(2).at([1, 1], 3), "2 different places"),
        (lambda: ActionSet.whole(2) & ActionSet.whole(3), "over 2 and 3 actions"),
        (
            lambda: ActionSet.budget(np.ones((2, 3)), 1) & ActionSet.budget(np.ones((4, 3)), 1),
            "for 2 and 4 states",
        ),
        (lambda: ActionSet.whole(2).project([0.0]), "actions have 2 numbers"),
        (lambda: ActionSet.budget(np.ones((2, 3)), 1).project(np.zeros((4, 3))), "for each of 2 states"),
        (lambda: ActionSet.whole(2).project([0.3, 0.4]), "without bounds"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(make, words):
    with pytest.raises(CaqlError, match=words):
        make()
