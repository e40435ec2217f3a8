"""What is measured about max-Q: the arithmetic of the timings, and what counts as a state."""

import jax
import numpy as np
import pytest

from caql.actions import ActionSet
from caql.agents import measurement
from caql.agents.measurement import SolveTimes, shortfalls, solve_times
from caql.maxq.gradient_ascent import GradientAscent
from caql.maxq.problem import Problem, Solution, Status
from caql.networks import fold_state


class Ticks:
    """A clock that a solve moves forward by as many seconds as its problem says."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(measurement.time, "perf_counter", lambda: self.now)

    def solve(self, problem, key):
        self.now += problem["seconds"]
        status = np.array([Status.OPTIMAL] * problem["solved"] + [Status.SKIPPED] * (4 - problem["solved"]))
        return Solution(np.zeros((4, 1)), np.arange(4.0), np.zeros(4), status, np.zeros(4))


def test_times_are_per_minibatch_and_per_solved_state(monkeypatch):
    ticks, times = Ticks(monkeypatch), SolveTimes()
    for seconds, solved in ((1.0, 4), (3.0, 2), (2.0, 0)):
        solution = times.time(ticks.solve, {"seconds": seconds, "solved": solved}, None)
    np.testing.assert_array_equal(solution.values, np.arange(4.0))
    found = times.statistics()
    assert found["solve_seconds"] == pytest.approx(2.0)
    # 250, 1500 and, where every state was skipped, 2000 ms a state.
    assert found["solve_ms"] == pytest.approx(1500.0)
    assert found["solve_ms_std"] == pytest.approx(np.std([250.0, 1500.0, 2000.0]))


def test_the_first_call_of_a_solver_is_not_timed(monkeypatch):
    ticks = Ticks(monkeypatch)
    seconds = iter([100.0, 1.0, 2.0])
    found = solve_times(
        lambda problem, key: ticks.solve(problem | {"seconds": next(seconds)}, key),
        [{"solved": 4}, {"solved": 4}],
        None,
    )
    assert found["solve_seconds"] == pytest.approx(1.5)


def test_an_audit_is_over_the_admissible_actions_and_leaves_out_empty_sets():
    # Q = a0 + 2 a1: the maximum under a0 + a1 <= limit is 2 + limit - 1, and the warm start is worth 0.
    network = fold_state(((np.array([[0.0], [1.0], [2.0]]), np.zeros(1)),), np.zeros((3, 1)))
    limit = np.array([0.5, 0.0, -5.0])
    action_set = ActionSet.bounds(-1, 1, 2) & ActionSet.budget(np.ones((3, 2)), limit)
    problem = Problem(network, action_set, np.zeros((3, 2), np.float32))
    found = shortfalls(GradientAscent().solve, problem, jax.random.key(0))
    assert found["audit_action_shortfall"] == pytest.approx(np.mean(1 + limit[:2]), abs=1e-4)
    assert -1e-5 <= found["audit_solver_shortfall"] <= found["audit_solver_worst"] < 0.2
    assert shortfalls(GradientAscent().solve, problem._replace(action_set=action_set[[2, 2, 2]]), None) == {}
