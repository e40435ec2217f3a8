"""Closest points, membership, emptiness and rounding on the host, over random sets of every awkward kind."""

import itertools

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from caql.actions import ActionSet
from caql.errors import CaqlError

from ..maxq.sets import random_sets

SHAPES = [
    # actions, rows, auxiliary variables, whole numbers
    (1, 1, 0, ()),
    (2, 3, 0, ()),
    (4, 6, 0, ()),
    (3, 4, 2, ()),
    (6, 2, 0, ()),
    (2, 2, 0, (0, 1)),
    (3, 3, 0, (1,)),
    (2, 3, 2, (2, 3)),
    (2, 4, 3, (0, 3)),
]
by_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


def sets(shape, states=60):
    d, m, k, integer = shape
    return random_sets(np.random.default_rng([d, m, k, len(integer)]), states, d, m, k, integer)


def violation(one, action, auxiliary=()):
    """How far an action with its auxiliary variables is outside one state's set."""
    x = np.concatenate([action, auxiliary])
    low, high = np.concatenate([one.low, one.auxiliary_low]), np.concatenate([one.high, one.auxiliary_high])
    heights = one.rows @ x
    outside = [low - x, x - high, one.row_low - heights, heights - one.row_high]
    return max(0.0, max(side.max(initial=0.0) for side in outside))


def furthest(one, direction):
    """max of direction @ a over one state's set, by HiGHS."""
    n = one.size + len(one.auxiliary_low)
    cost = np.zeros(n)
    cost[: one.size] = -direction
    low, high = np.concatenate([one.low, one.auxiliary_low]), np.concatenate([one.high, one.auxiliary_high])
    whole = np.isin(np.arange(n), one.integer)
    found = milp(
        cost,
        constraints=LinearConstraint(one.rows, one.row_low, one.row_high),
        bounds=Bounds(low, high),
        integrality=whole,
    )
    return None if found.x is None else -found.fun


@by_shape
def test_emptiness_is_known(shape):
    found = sets(shape)
    for state, (kind, empty) in enumerate(zip(found.kinds, found.empty, strict=True)):
        assert (found.action_set[state].conflict() is not None) == empty, (state, kind)


@by_shape
def test_no_point_of_the_set_is_closer(shape):
    """x is the projection of p on a convex set exactly if (p - x)'(y - x) <= 0 for every y of the set."""
    found, rng = sets(shape), np.random.default_rng(1)
    for state in np.flatnonzero(~found.empty):
        one = found.action_set[int(state)]
        target = 2 * rng.normal(size=one.size) * (one.high - one.low) + one.centre
        near = one.project(target)
        assert furthest(one, np.zeros(one.size)) is not None
        if not one.integer:
            away = target - near
            assert furthest(one, away) <= away @ near + 1e-6 * (1 + np.abs(away).max())
        assert one.contains(near) or violation_by_search(one, near) < 1e-8


def violation_by_search(one, action):
    """The least violation that auxiliary variables leave, by HiGHS."""
    k = len(one.auxiliary_low)
    if not k:
        return violation(one, action)
    heights = one.rows[:, : one.size] @ action
    rows = np.hstack([one.rows[:, one.size :], -np.ones((len(one.rows), 1))])
    lower = np.hstack([one.rows[:, one.size :], np.ones((len(one.rows), 1))])
    found = milp(
        np.append(np.zeros(k), 1.0),
        constraints=[
            LinearConstraint(rows, -np.inf, one.row_high - heights),
            LinearConstraint(lower, one.row_low - heights, np.inf),
        ],
        bounds=Bounds(np.append(one.auxiliary_low, 0.0), np.append(one.auxiliary_high, np.inf)),
        integrality=np.append(np.isin(np.arange(one.size, one.size + k), one.integer), False),
    )
    return np.inf if found.x is None else max(found.x[-1], violation(ActionSet.box(one.low, one.high), action))


@pytest.mark.parametrize("shape", [s for s in SHAPES if s[3]], ids=str)
def test_whole_numbers_are_the_closest_of_all(shape):
    """Against every combination of whole numbers, each with its own continuous projection."""
    found, rng = sets(shape, 25), np.random.default_rng(2)
    for state in np.flatnonzero(~found.empty):
        one = found.action_set[int(state)]
        target = rng.normal(size=one.size) * 3
        near = one.project(target)
        assert all(near[i] == np.round(near[i]) for i in one.integer if i < one.size)
        low, high = np.concatenate([one.low, one.auxiliary_low]), np.concatenate([one.high, one.auxiliary_high])
        distances = []
        ranges = [np.arange(np.ceil(low[i]), np.floor(high[i]) + 1) for i in one.integer]
        for values in itertools.product(*ranges):
            lower, upper = low.copy(), high.copy()
            lower[list(one.integer)] = upper[list(one.integer)] = values
            d = one.size
            fixed = ActionSet(lower[:d], upper[:d], one.rows, one.row_low, one.row_high, lower[d:], upper[d:])
            if furthest(fixed, np.zeros(d)) is not None:
                distances.append(np.linalg.norm(fixed.project(target) - target))
        assert np.linalg.norm(near - target) == pytest.approx(min(distances), abs=1e-7)


@pytest.mark.parametrize("size", [10.0, 1e3, 1e6, 1e9])
def test_a_switch_that_is_all_but_off_is_tried_on(size):
    """a <= size * h with h 0 or 1: a relaxed h of 1e-7 looks off, where a is 0, but on it lets every a through."""
    nothing, whole = np.zeros(1), np.ones(1)
    one = ActionSet(nothing, whole, np.array([[1.0, -size]]), np.array([-np.inf]), nothing, nothing, whole, (1,))
    for target in (0.01, 0.5, 0.9):
        np.testing.assert_allclose(one.project([target]), [target], atol=1e-9)
    np.testing.assert_allclose(one.project([-2.0]), [0.0], atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("limit", [0.0, 1e-17, 1e-12, 1e-10, 5e-10, 1e-9, 1e-3])
def test_a_budget_of_next_to_nothing_is_not_exceeded(limit, dtype):
    """The set has no interior to round in, but a corner of the box is in it."""
    one = ActionSet.bounds(0, 1, 3) & ActionSet.budget([1, 1, 1], limit)
    for target in np.random.default_rng(0).random((40, 3)):
        given = one.admissible(target, dtype).astype(np.float64)
        assert given.min() >= 0
        assert given.sum() <= limit


@by_shape
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_handed_over_is_in_the_set_as_it_stands(shape, dtype):
    """Not violated at all where the set has an interior; within rounding where equalities leave none."""
    found, rng = sets(shape), np.random.default_rng(3)
    strict = 0
    for state in np.flatnonzero(~found.empty):
        one = found.action_set[int(state)]
        for target in 2 * rng.normal(size=(4, one.size)) + one.centre:
            action = one.admissible(target, dtype)
            assert action.dtype == dtype
            assert one.contains(action) or not has_interior(one), found.kinds[state]
            strict += has_interior(one)
            exact = action.astype(np.float64)
            assert all(exact[i] == np.round(exact[i]) for i in one.integer if i < one.size)
            # Where nothing is left between rows, the solver's own tolerance shows in float64.
            tolerance = 40 * np.finfo(dtype).eps + (1e-8 if one.integer or shape[2] else 1e-11)
            assert violation_by_search(one, exact) <= tolerance
            distance = np.linalg.norm(one.project(target) - target)
            assert np.linalg.norm(exact - target) <= distance + 1e-4
    assert strict > 50 or one.integer


def has_interior(one):
    """Whether every inequality can be met with something to spare at once, by a linear program; continuous sets."""
    if one.integer or (one.row_low == one.row_high).any():
        return False
    n = one.size + len(one.auxiliary_low)
    size = np.abs(one.rows).sum(axis=1, keepdims=True)
    used = size[:, 0] > 0
    rows = np.vstack([np.hstack([one.rows, size]), np.hstack([-one.rows, size])])
    sides = np.concatenate([one.row_high, -one.row_low])
    kept = np.isfinite(sides) & np.tile(used, 2)
    low, high = np.concatenate([one.low, one.auxiliary_low]), np.concatenate([one.high, one.auxiliary_high])
    bounds = [*zip(low, high, strict=True), (0.0, None)]
    found = linprog(np.append(np.zeros(n), -1.0), rows[kept], sides[kept], bounds=bounds) if kept.any() else None
    return found is None or (found.status == 3 or (found.status == 0 and found.x[-1] > 1e-5))


def test_an_action_inside_is_handed_over_unchanged():
    one = ActionSet.bounds(-1, 1, 3) & ActionSet.absolute_budget([1, 2, 3], 2.0)
    many = ActionSet.bounds(-1, 1, 6) & ActionSet.absolute_budget(np.arange(1, 7), 2.0)
    for each in (one, many):
        action = np.full(each.size, 0.0412, np.float32)
        np.testing.assert_array_equal(each.admissible(action), action)
        assert each.contains(action)


def test_a_diverged_actor_gets_an_admissible_action():
    one = ActionSet.bounds(-1, 1, 2) & ActionSet.budget([1, 1], 1.0)
    for action in ([np.nan, 0.5], [np.inf, -np.inf], [np.nan, np.nan]):
        assert one.contains(one.admissible(action))


def test_bounds_that_are_no_numbers_of_the_dtype_are_rounded_inwards():
    box = ActionSet.bounds([0.1, -0.7], [0.3, -0.1])
    for target in ([9, 9], [-9, -9]):
        action = box.admissible(target)
        assert box.contains(action)
        assert np.abs(action - box.project(target)).max() < 1e-7
    point = ActionSet.bounds([0.1], [0.1])
    np.testing.assert_array_equal(point.admissible([5.0]), np.array([0.1], np.float32))


def test_an_inset_point_may_be_rounded():
    one = (
        ActionSet.bounds(-1, 1, 4)
        & ActionSet.budget([0.1, 0.7, -0.3, 0.9], 0.77)
        & ActionSet.equality([1, 1, 1, 1], 0.3)
    )
    inner, rng = one.inset(np.float32), np.random.default_rng(0)
    for target in 3 * rng.normal(size=(200, 4)):
        assert one.contains(inner.project(target).astype(np.float32))
    assert inner.row_high[0] < one.row_high[0]
    assert inner.row_high[1] == one.row_high[1]
    narrow = ActionSet.bounds(-1, 1, 2) & ActionSet.linear([[1.0, 1.0]], 0.5, 0.5 + 1e-12)
    assert narrow.inset().conflict() is None


@pytest.mark.parametrize(
    ("one", "said", "unsaid"),
    [
        (
            ActionSet.bounds(0, 1, 2) & ActionSet.budget([1, 1], 5) & ActionSet.budget([-1, -1], -3),
            ["row 1: -1 a0 -1 a1 <= -3"],
            ["row 0"],
        ),
        (
            ActionSet.bounds(-9, 9, 2)
            & ActionSet.budget([1, 0], 1)
            & ActionSet.budget([0, 1], 1)
            & ActionSet.equality([1, 1], 3),
            ["row 0: 1 a0 <= 1", "row 1: 1 a1 <= 1", "row 2: 1 a0 +1 a1 = 3"],
            [],
        ),
        (
            ActionSet.bounds(0, 5, 1) & ActionSet.whole(1) & ActionSet.linear([[2.0]], 3.0, 3.0),
            ["row 0: 2 a0 = 3"],
            [],
        ),
        (
            ActionSet.bounds(0, 1, 2) & ActionSet.budget([1, 1], 1) & ActionSet.budget([-1, -1], -1 - 1e-6),
            ["row 0: 1 a0 +1 a1 <= 1", "row 1: -1 a0 -1 a1 <= -1"],
            [],
        ),
        (ActionSet.bounds(0.2, 0.8, 1) & ActionSet.whole(1), ["no whole numbers"], ["row"]),
        (ActionSet.bounds(0, 1, 1) & ActionSet.bounds(2, 3, 1), ["a0 has bounds from 2 to 1"], ["row"]),
    ],
)
def test_an_empty_set_names_the_rows_that_conflict_and_no_others(one, said, unsaid):
    sentence = one.conflict()
    for words in said:
        assert words in sentence
    for words in unsaid:
        assert words not in sentence
    for ask in (one.project, one.admissible):
        with pytest.raises(CaqlError, match="empty"):
            ask(np.zeros(one.size))


def test_the_empty_state_of_a_batch_is_named():
    one = ActionSet.bounds(0, 1, 2) & ActionSet.linear([[1.0, 1.0]], low=[[0.5], [2.5], [1.0]])
    assert "at state 1 of 3" in one.conflict()
    assert one[0].conflict() is None
    assert one[[0, 2]].conflict() is None


@pytest.mark.parametrize("shape", [s for s in SHAPES if not s[3]], ids=str)
def test_samples_are_admissible_and_spread(shape):
    found = sets(shape, 12)
    filled = found.action_set[np.flatnonzero(~found.empty)]
    samples = filled.sample(np.random.default_rng(0), 5)
    assert samples.shape == (5, filled.states, filled.size)
    for state in range(filled.states):
        for sample in samples[:, state]:
            assert violation_by_search(filled[state], sample) < 1e-8
    budget = ActionSet.bounds(-1, 1, 2) & ActionSet.budget([1, 1], 0.5)
    many = budget.sample(np.random.default_rng(0), 400)
    assert many.min() < -0.95
    assert many.max() > 0.95
    assert np.ptp(many.sum(axis=-1)) > 2


def test_an_unbounded_set_cannot_be_sampled():
    with pytest.raises(CaqlError, match="no bounds on action 1"):
        (ActionSet.bounds([0, -np.inf], [1, 1]) & ActionSet.whole(2, [0])).sample(np.random.default_rng(0), 3)


def test_a_projection_is_quick():
    """Microseconds of processor time, the best of several hundred; the bar has a margin for slow machines."""
    import time

    one = ActionSet.bounds(-1, 1, 6) & ActionSet.linear(np.random.default_rng(0).normal(size=(8, 6)), high=1.0)
    times = []
    for target in 2 * np.random.default_rng(1).normal(size=(400, 6)):
        start = time.perf_counter()
        one.project(target)
        times.append(time.perf_counter() - start)
    assert min(times) < 250e-6


def test_what_brought_an_action_into_the_set_shows_that_it_is_in_it_and_nothing_else(monkeypatch):
    one = ActionSet.bounds(-1, 1, 6) & ActionSet.absolute_budget(np.arange(1.0, 7.0), limit=3.0)
    given = one.admissible(np.full(6, 0.9))
    beyond = given + np.float32(1e-3)
    fresh = ActionSet.bounds(-1, 1, 6) & ActionSet.absolute_budget(np.arange(1.0, 7.0), limit=3.0)
    for action in (given, beyond, np.zeros(6, np.float32), np.full(6, 2.0)):
        assert bool(one.contains(action)) == bool(fresh.contains(action)), action
    assert one.contains(given)
    assert not one.contains(beyond)
    assert one.contains(np.zeros(6))
    monkeypatch.setattr("caql.actions.projection.witness", lambda *_: pytest.fail("a program was solved again"))
    assert one.contains(given)


def test_whole_auxiliary_variables_are_no_witness_unless_they_are_whole():
    one = ActionSet.at_most(1, [-1.0] * 3, [1.0] * 3)
    given = one.admissible(np.array([0.9, 0.8, 0.1]))
    assert one.contains(given)
    assert not one.contains(np.array([0.5, 0.5, 0.0]))
    one._systems[0].hints[:] = [np.array([0.5, 0.5, 0.0])]  # with these the rows hold, and nothing is switched on
    assert not one.contains(np.array([0.5, 0.5, 0.0]))


@pytest.mark.parametrize("seed", range(0, 60, 2))
def test_with_a_whole_number_the_closest_action_breaks_no_row_at_all(seed):
    """One row beside a whole number is a bound of the other action, whose division rounds."""
    rng = np.random.default_rng(seed)
    for _ in range(10):
        weights, limit = np.array([[rng.normal(), rng.uniform(0.6, 1.5)]]), rng.uniform(-0.5, 0.5)
        action_set = (
            ActionSet.bounds([-3, -2], [3, 2])
            & ActionSet.linear(weights, low=limit - 1.0, high=limit)
            & ActionSet.whole(2, [0])
        )
        for dtype in (np.float32, np.float64):
            action = action_set.admissible(4 * rng.normal(size=2), dtype)
            assert action_set.contains(action)
