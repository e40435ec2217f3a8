"""A flag in memory ends the search: what is known of every row is returned, soon, and as `LIMIT`."""

import ctypes
import threading
import time

import numpy as np
import pytest

from caql.maxq.exact import solver
from caql.maxq.exact.block import Block
from caql.maxq.problem import Problem, Status

from .test_exact import medium, q, random_network, unit_box


def stop_after(monkeypatch, seconds):
    """Raise the flag of every block so long after its solver was called; returns a list that notes when."""
    solver.entry_address()  # cached from now on, so that it is never asked of the function below
    entry, raised = solver.entry(), []

    def call(address):
        words = (ctypes.c_int64 * len(Block._fields)).from_address(address)
        flag = ctypes.c_int64.from_address(Block(*words).stop)

        def stop():
            raised.append(time.monotonic())
            flag.value = 1

        if seconds == 0:
            stop()
            return entry(address)
        timer = threading.Timer(seconds, stop)
        timer.start()
        try:
            return entry(address)
        finally:
            timer.cancel()
            timer.join()

    monkeypatch.setattr(solver, "entry", lambda: call)
    return raised


def test_stopped_before_it_began(monkeypatch):
    network, warm = medium(), np.random.default_rng(1).uniform(-1, 1, (6, 3))
    mask = np.array([True, False, True, True, False, True])
    stop_after(monkeypatch, 0)
    solution = solver.Exact().solve(Problem(network, unit_box(3), warm_start=warm, mask=mask))
    assert (solution.status[mask] == Status.LIMIT).all()
    assert (solution.status[~mask] == Status.SKIPPED).all()
    np.testing.assert_array_equal(solution.actions, warm)
    np.testing.assert_allclose(solution.values, q(network, warm))
    assert np.isinf(solution.upper).all()
    assert (solution.work == 0).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_stopped_on_the_way(monkeypatch, threads):
    network = random_network(np.random.default_rng(0), (8, 48, 48, 1), batch=4)
    raised = stop_after(monkeypatch, 0.3)
    solution = solver.Exact(threads=threads).solve(Problem(network, unit_box(8), tolerance=1e-9))
    assert time.monotonic() - raised[0] < 2.0  # a node of this network takes a millisecond; the machine may be busy
    assert (solution.status == Status.LIMIT).all()
    np.testing.assert_allclose(q(network, solution.actions), solution.values, rtol=1e-9)
    assert (solution.upper >= solution.values).all()
    begun = solution.work > 0
    assert begun[0]
    assert np.isfinite(solution.upper[begun]).all()
