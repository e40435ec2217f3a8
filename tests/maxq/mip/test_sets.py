"""mip over action sets of every awkward kind, against an independent model; status, action and bound of each row."""

import importlib.util
import itertools
import logging

import numpy as np
import pytest

from caql.actions import ActionSet
from caql.maxq.mip.solver import Mip
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
BACKENDS = {"scip": "pyscipopt", "highs": "highspy", "gurobi": "gurobipy", "cplex": "cplex"}
every_backend = pytest.mark.parametrize(
    "backend",
    [
        pytest.param(name, marks=pytest.mark.skipif(not importlib.util.find_spec(package), reason="optional"))
        for name, package in BACKENDS.items()
    ],
)


def check(shape, seed, backend, states, tolerance=1e-6, **settings):
    """Solve a batch with one set per state and hold each row against the oracle."""
    d, m, k, integer, hidden = shape
    rng = np.random.default_rng([seed, d, m, k])
    found, network = random_sets(rng, states, d, m, k, integer), random_network(rng, states, d, hidden)
    action_set = found.action_set
    solution = Mip(backend, **settings).solve(Problem(network, action_set, tolerance=tolerance))
    for state in range(states):
        said = (found.kinds[state], Status(int(solution.status[state])).name, seed, state)
        truth = best_action(network, action_set, state)
        assert (truth is None) == found.empty[state], said
        if found.empty[state]:
            assert solution.status[state] == Status.INFEASIBLE, said
            assert solution.values[state] == solution.upper[state] == -np.inf
            continue
        assert solution.status[state] == Status.OPTIMAL, said
        slack = 1e-5 * (1 + abs(truth[0]))
        assert abs(solution.values[state] - truth[0]) <= slack, said
        assert solution.upper[state] >= truth[0] - slack, said
        assert solution.upper[state] - solution.values[state] <= tolerance
        one, action = action_set[state], solution.actions[state]
        single = network._replace(first_bias=network.first_bias[state])
        assert solution.values[state] == pytest.approx(float(folded_value(single, action)), rel=1e-12)
        flat = found.kinds[state] in ("flat", "point", "degenerate", "parallel", "equality")
        assert one.contains(action) or flat, (said, action)
        assert np.abs(one.project(action) - action).max() <= 1e-7, said


@every_backend
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_agrees_with_an_independent_model(backend, shape):
    check(shape, 0, backend, states=12)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("seed", range(1, 13))
def test_it_agrees_on_thousands(shape, seed):
    check(shape, seed, "highs", states=30)


def test_cuts_and_loose_bounds_change_nothing():
    check(SHAPES[2], 20, "highs", 8, cut_rounds=3)
    check(SHAPES[3], 21, "highs", 8, cut_rounds=3, bounds="interval")


@pytest.mark.parametrize("hidden", [(6,), (6, 4)])
def test_whole_numbers_by_enumeration(hidden):
    rng = np.random.default_rng(3)
    network = random_network(rng, 6, 3, hidden)
    action_set = (
        ActionSet.bounds([-2.5, -2, -1], [2.5, 2, 3]) & ActionSet.whole(3) & ActionSet.absolute_budget([1, 1, 1], 4)
    )
    grid = np.array(list(itertools.product(range(-2, 3), range(-2, 3), range(-1, 4))), float)
    grid = grid[np.abs(grid).sum(axis=1) <= 4]
    solution = Mip("highs").solve(Problem(network, action_set, tolerance=1e-7))
    assert (solution.status == Status.OPTIMAL).all()
    best = folded_value(network, grid[:, None, :]).max(axis=0)
    np.testing.assert_allclose(solution.values, best, atol=1e-6)
    assert (solution.actions == np.round(solution.actions)).all()


def test_choices_with_parameters():
    """One of three modes, of which only the second may use more than half of the budget; by enumeration of modes."""
    rng = np.random.default_rng(4)
    network = random_network(rng, 5, 5, (8, 5))
    modes = ActionSet.one_of(3).at([0, 1, 2], 5) & ActionSet.bounds([0, 0, 0, -1, -1], [1, 1, 1, 1, 1])
    action_set = modes & ActionSet.linear([[0, -1, 0, 1, 1.0]], high=0.5)
    solution = Mip("highs").solve(Problem(network, action_set, tolerance=1e-7))
    assert (solution.status == Status.OPTIMAL).all()
    assert action_set.contains(solution.actions).all()
    best = np.full(5, -np.inf)
    for mode in range(3):
        chosen = np.eye(3)[mode]
        fixed = ActionSet.bounds([*chosen, -1, -1], [*chosen, 1, 1]) & ActionSet.budget(
            [0, 0, 0, 1, 1], 0.5 + (mode == 1)
        )
        best = np.maximum(best, Mip("highs").solve(Problem(network, fixed, tolerance=1e-7)).values)
    np.testing.assert_allclose(solution.values, best, atol=1e-6)


def test_a_warm_start_outside_the_set_is_brought_inside(caplog):
    rng = np.random.default_rng(5)
    network = random_network(rng, 3, 6, (8, 6))
    action_set = ActionSet.bounds(-1, 1, 6) & ActionSet.absolute_budget(np.ones(6), 1.0)
    start = np.full((3, 6), 0.9)
    with caplog.at_level(logging.WARNING):
        limited = Mip("highs", time_limit=1e-3).solve(Problem(network, action_set, start))
    inside = action_set.project(start)
    assert (limited.values >= folded_value(network, inside) - 1e-6).all()
    assert all(np.abs(action).sum() <= 1.0 + 1e-6 for action in limited.actions)
    solved = Mip("highs").solve(Problem(network, action_set, start, tolerance=1e-6))
    cold = Mip("highs").solve(Problem(network, action_set, tolerance=1e-6))
    np.testing.assert_allclose(solved.values, cold.values, atol=2e-6)
    assert not caplog.records


def test_masked_rows_are_skipped_even_where_the_set_is_empty():
    rng = np.random.default_rng(6)
    network = random_network(rng, 3, 2, (4,))
    action_set = ActionSet.bounds(0, 1, 2) & ActionSet.linear([[1.0, 1.0]], low=[[0.5], [3.0], [3.0]])
    solution = Mip("highs").solve(Problem(network, action_set, mask=np.array([True, False, True])))
    assert solution.status.tolist() == [Status.OPTIMAL, Status.SKIPPED, Status.INFEASIBLE]
