"""What is measured about max-Q: the arithmetic of the timings, and what counts as a state."""

import numpy as np
import pytest

from caql.agents import measurement
from caql.agents.measurement import SolveTimes, solve_times
from caql.maxq.problem import Solution, Status


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
