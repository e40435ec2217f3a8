"""exact over action sets of every awkward kind, against an independent model; status, action and bound of each row."""

import itertools

import jax
import numpy as np
import pytest

from caql.actions import ActionSet
from caql.maxq.exact.solver import Exact
from caql.maxq.problem import Problem, Status
from caql.networks import folded_value

from ..sets import best_action, random_network, random_sets

SHAPES = [
    # actions, rows, auxiliary variables, whole numbers, hidden layers
    (1, 1, 0, (), (6,)),
    (2, 3, 0, (), (8, 6)),
    (4, 8, 0, (), (8, 6)),
    (3, 4, 2, (), (8, 4)),
    (2, 2, 0, (0, 1), (8, 6)),
    (3, 3, 0, (2,), (6, 4)),
    (2, 3, 2, (2, 3), (6, 4)),
    (2, 3, 2, (0, 3), (6,)),
    (2, 3, 0, (), ()),
]


def check(shape, seed, states, tolerance=1e-6, **settings):
    """Solve a batch with one set per state and hold each row against the oracle."""
    d, m, k, integer, hidden = shape
    rng = np.random.default_rng([seed, d, m, k])
    found, network = random_sets(rng, states, d, m, k, integer), random_network(rng, states, d, hidden)
    action_set = found.action_set
    solution = Exact(**settings).solve(Problem(network, action_set, tolerance=tolerance))
    for state in range(states):
        said = (found.kinds[state], Status(int(solution.status[state])).name, shape, seed, state)
        truth = best_action(network, action_set, state)
        assert (truth is None) == found.empty[state], said
        if found.empty[state]:
            assert solution.status[state] == Status.INFEASIBLE, said
            assert solution.values[state] == solution.upper[state] == -np.inf
            continue
        assert solution.status[state] == Status.OPTIMAL, said
        slack = 1e-6 * (1 + abs(truth[0]))
        assert abs(solution.values[state] - truth[0]) <= slack, (said, solution.values[state], truth)
        assert solution.upper[state] >= truth[0] - slack, said
        assert solution.upper[state] - solution.values[state] <= tolerance
        one, action = action_set[state], solution.actions[state]
        single = network._replace(first_bias=network.first_bias[state])
        assert solution.values[state] == pytest.approx(folded_value(single, action), abs=1e-12), said
        flat = found.kinds[state] in ("flat", "point", "degenerate", "parallel", "equality")
        assert one.contains(action) or flat, (said, action)
        assert np.abs(one.project(action) - action).max() <= 1e-7, said


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_against_an_independent_model(shape):
    check(shape, 0, 40)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("seed", range(1, 21))
def test_against_an_independent_model_at_length(shape, seed):
    check(shape, seed, 40)


def small(states=16, d=3, hidden=(8, 6), seed=5):
    return random_network(np.random.default_rng(seed), states, d, hidden)


def test_whole_numbers_by_enumeration():
    network = small()
    action_set = ActionSet.box(np.array([-2.0, -1.5, 0.2]), np.array([2.0, 3.7, 2.9]))
    action_set = action_set & ActionSet.whole(3) & ActionSet.budget([1.0, -2.0, 1.0], 3.0)
    grid = np.array([a for a in itertools.product(range(-2, 3), range(-1, 4), (1, 2)) if a[0] - 2 * a[1] + a[2] <= 3])
    solution = Exact().solve(Problem(network, action_set))
    for state in range(16):
        values = folded_value(network._replace(first_bias=network.first_bias[state]), grid.astype(float))
        assert solution.status[state] == Status.OPTIMAL
        assert solution.values[state] == pytest.approx(values.max(), abs=1e-6)
        assert (grid == solution.actions[state]).all(axis=1).any()


def test_whole_numbers_far_from_zero():
    """Sides near 2^30: one more or less is still told apart."""
    network = small(d=1)._replace(action_weights=np.full((1, 8), 0.25))
    base = 2.0**30
    network = network._replace(first_bias=network.first_bias - 0.25 * base)
    action_set = ActionSet.box(np.array([base - 3.0]), np.array([base + 2.0])) & ActionSet.whole(1)
    solution = Exact().solve(Problem(network, action_set, tolerance=1e-2))
    for state in range(16):
        one = network._replace(first_bias=network.first_bias[state])
        values = folded_value(one, np.arange(base - 3, base + 3)[:, None])
        assert solution.values[state] >= values.max() - 1e-2
        assert solution.actions[state, 0] in np.arange(base - 3, base + 3)


def test_one_set_for_all_states_is_the_same_as_one_each():
    network, rng = small(), np.random.default_rng(0)
    rows = rng.normal(size=(4, 3))
    shared = ActionSet.box(-np.ones(3), np.ones(3)) & ActionSet.linear(rows, high=np.full(4, 0.3))
    one = Exact().solve(Problem(network, shared))
    each = Exact().solve(Problem(network, shared.per_state(16)))
    for a, b in zip(one, each, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("shape", [SHAPES[2], SHAPES[6]], ids=str)
def test_the_same_for_any_number_of_threads(shape):
    d, m, k, integer, hidden = shape
    rng = np.random.default_rng(3)
    found, network = random_sets(rng, 48, d, m, k, integer), random_network(rng, 48, d, hidden)
    alone, together = (Exact(threads=threads).solve(Problem(network, found.action_set)) for threads in (1, 4))
    for a, b in zip(alone, together, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_inside_jit(shape):
    """The same maxima in float32, proofs rounded outwards, empty sets flagged."""
    d, m, k, integer, hidden = shape
    rng = np.random.default_rng(7)
    found, network = random_sets(rng, 40, d, m, k, integer), random_network(rng, 40, d, hidden)
    # What is not empty has a point to spare, so that rounding to float32 leaves one.
    wide = np.isin(found.kinds, ("feasible", "redundant", "zero row")) | found.empty
    problem = Problem(network, found.action_set, tolerance=1e-4, mask=wide)
    single = jax.tree.map(lambda array: np.asarray(array, np.float32), problem._replace(mask=None))
    single = single._replace(mask=wide)
    call = Exact().inside_jit()
    assert call is not None
    inside = jax.jit(lambda problem: call(problem, None))(single)
    outside = Exact().solve(jax.tree.map(np.asarray, single))
    np.testing.assert_array_equal(inside.status == Status.INFEASIBLE, found.empty)
    np.testing.assert_array_equal(inside.status == Status.SKIPPED, ~wide)
    solved = np.asarray(inside.status) == Status.OPTIMAL
    assert solved.sum() >= 0.9 * (wide & ~found.empty).sum()
    np.testing.assert_allclose(inside.values[solved], outside.values[solved], rtol=1e-5, atol=2e-4)
    assert (np.asarray(inside.upper, np.float64)[solved] >= outside.values[solved] - 1e-12).all()
    actions = np.asarray(inside.actions, np.float64)[solved]
    assert np.abs(found.action_set[solved].project(actions) - actions).max() <= 1e-5


def test_a_warm_start_outside_the_set_is_not_an_answer():
    network = small()
    action_set = ActionSet.box(-np.ones(3), np.ones(3)) & ActionSet.budget([1.0, 1.0, 1.0], -1.0)
    start = np.ones((16, 3))
    solution = Exact(node_limit=1).solve(Problem(network, action_set, warm_start=start, tolerance=1e-9))
    assert action_set.contains(solution.actions).all()
    assert (solution.upper >= solution.values).all()


def test_rows_that_are_not_numbers_fail_their_states_only():
    network = small()
    action_set = (ActionSet.box(-np.ones(3), np.ones(3)) & ActionSet.budget([1.0, 1.0, 1.0], 0.5)).per_state(16)
    rows, high = np.array(action_set.rows), np.array(action_set.row_high)
    rows[3, 0, 1], high[5, 0] = np.nan, np.nan
    broken = ActionSet(action_set.low, action_set.high, rows, action_set.row_low, high, *[np.empty((16, 0))] * 2)
    solution = Exact().solve(Problem(network, broken))
    expected = np.zeros(16)
    expected[[3, 5]] = Status.FAILED
    np.testing.assert_array_equal(solution.status, expected)
    assert np.isinf(solution.upper[[3, 5]]).all()


def test_an_auxiliary_variable_without_bounds_of_its_own():
    """t >= |a_0| with nothing above t but a row; without that row the set is not bounded, and the state fails."""
    network = small(d=1)
    rows = np.array([[1.0, -1.0], [-1.0, -1.0], [0.0, 1.0]])
    sides = np.full(3, -np.inf), np.array([0.0, 0.0, 0.25])
    bounds = np.array([-1.0]), np.array([1.0])
    endless = np.array([-np.inf]), np.array([np.inf])
    solution = Exact().solve(Problem(network, ActionSet(*bounds, rows, *sides, *endless)))
    box = Exact().solve(Problem(network, ActionSet.box(np.array([-0.25]), np.array([0.25]))))
    np.testing.assert_allclose(solution.values, box.values, atol=2e-6)
    assert (np.abs(solution.actions) <= 0.25).all()


def test_hard_for_rounding():
    """A point that rounding keeps outside of a row is brought in, and the row then holds without a tolerance."""
    rng = np.random.default_rng(2)
    network = random_network(rng, 300, 3, (8, 6))
    rows = rng.normal(size=(300, 4, 3)) * 10.0 ** rng.integers(-6, 6, (300, 4, 1))
    inside = rng.uniform(-0.5, 0.5, (300, 3))
    high = np.einsum("smd,sd->sm", rows, inside) + np.abs(rows).sum(axis=2) * 0.1
    nothing = np.empty((300, 0))
    low, up = np.full((300, 3), -1.0), np.full((300, 3), 1.0)
    action_set = ActionSet(low, up, rows, np.full((300, 4), -np.inf), high, nothing, nothing)
    solution = Exact().solve(Problem(network, action_set))
    assert (solution.status == Status.OPTIMAL).all()
    assert (np.einsum("smd,sd->sm", rows, solution.actions) <= high).all()
    assert action_set.contains(solution.actions).all()
