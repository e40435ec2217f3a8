"""What the solvers on the host share."""

import numpy as np

from caql.actions import ActionSet
from caql.maxq.host import allowed_gap, conclude, first_guess
from caql.maxq.problem import Problem, Status
from caql.networks import FoldedNetwork

NETWORK = FoldedNetwork(np.zeros((3, 1)), np.ones((2, 1)), ())
BOX = ActionSet.box(-np.ones(2), np.ones(2))


def test_the_relative_gap_is_a_fraction_of_the_size_of_a_value_of_either_sign():
    problem = Problem(NETWORK, BOX, tolerance=0.1, relative_tolerance=0.01)
    np.testing.assert_allclose(allowed_gap(problem, np.array([-100.0, 2.0, 100.0])), [1.0, 0.1, 1.0])


def test_a_row_is_optimal_when_its_gap_is_closed_and_else_says_why_not():
    problem = Problem(NETWORK, BOX, tolerance=0.1, relative_tolerance=0.01)
    values, upper = np.array([-100.0, 0.0, 5.0]), np.array([-99.5, 0.2, 5.05])
    stopped = np.full(3, int(Status.LIMIT))
    found = conclude(problem, np.zeros((3, 2)), values, upper, stopped, np.zeros(3))
    assert found.status.tolist() == [Status.OPTIMAL, Status.LIMIT, Status.OPTIMAL]


def test_rows_that_cannot_be_solved_prove_nothing():
    bias = np.zeros((5, 1))
    bias[1] = np.nan
    mask = np.array([True, True, True, True, False])
    problem = Problem(NETWORK._replace(first_bias=bias), BOX, tolerance=0.1, mask=mask)
    stopped = np.array([Status.LIMIT, Status.LIMIT, Status.FAILED, Status.INFEASIBLE, Status.LIMIT], int)
    values, upper = np.array([2.0, 0.0, 0.0, 0.0, 0.0]), np.array([1.0, 0.0, 9.0, 9.0, 9.0])
    found = conclude(problem, np.zeros((5, 2)), values, upper, stopped, np.zeros(5))
    expected = [Status.OPTIMAL, Status.FAILED, Status.FAILED, Status.INFEASIBLE, Status.SKIPPED]
    assert found.status.tolist() == expected
    assert found.upper.tolist() == [2.0, np.inf, np.inf, -np.inf, 9.0]  # no bound is below the value that refutes it
    assert found.values.tolist() == [2.0, 0.0, 0.0, -np.inf, 0.0]


def test_first_guesses_are_numbers_inside_the_box():
    start = np.array([[np.nan, 5.0], [0.5, -0.5], [-np.inf, 0.0]])
    problem = Problem(NETWORK, BOX, warm_start=start)
    np.testing.assert_array_equal(first_guess(problem, BOX, 3), [[0.0, 1.0], [0.5, -0.5], [0.0, 0.0]])
