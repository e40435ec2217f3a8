"""Certificates of whole problems against an oracle without rounding, at tolerances near rounding; and no giving up."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from caql.actions import ActionSet
from caql.errors import CaqlWarning
from caql.maxq.exact.solver import Exact
from caql.maxq.maximize import maximize
from caql.maxq.problem import Problem, Status

from .fuzz import KINDS, exact_maximum, exact_value, magnitude, network

NETWORKS = Path(__file__).parent.parent / "cases"
BATCH = 8


def solved_file(name, tolerance):
    """A recorded network solved."""
    stored = np.load(NETWORKS / f"{name}.npz")
    layers = [(stored[f"W{k}"], stored[f"b{k}"]) for k in range(sum(key.startswith("W") for key in stored))]
    return maximize(layers, stored["low"], stored["high"], states=stored.get("states"), tolerance=tolerance)


@pytest.mark.parametrize(
    ("name", "tolerance", "value"), [("gives-up-early", 1e-6, -0.26877329), ("tied", 1e-8, -0.85497947)]
)
def test_it_does_not_give_up(name, tolerance, value):
    """Rows that were let go with half of their violation left kept these two from being solved."""
    solution = solved_file(name, tolerance)
    assert solution.status[0] == Status.OPTIMAL
    assert solution.values[0] == pytest.approx(value, abs=tolerance)
    assert solution.upper[0] - solution.values[0] <= tolerance


def test_weights_that_cancel_are_not_proved():
    """Weights near 1e12: float64 finds 308,564, and in exact arithmetic the maximum is 539,187."""
    with pytest.warns(CaqlWarning, match="could not be proved"):
        solution = solved_file("cancelling", 1e-4)
    assert solution.status[0] == Status.LIMIT
    assert 539_187.0 <= solution.upper[0] < 1e8


def solve(rng, kind, d, tolerance):
    """A batch of small networks of a kind, at a tolerance relative to their magnitude."""
    hidden = rng.integers(1, 9 if d > 1 else 5, rng.integers(1, 4)).tolist()
    folded = network(rng, kind, (d, *hidden, 1), BATCH)
    low, high = -np.ones(d) * rng.choice([1.0, 0.5, 0.0]), np.ones(d)
    size = magnitude(folded, low, high)
    gap = tolerance * np.maximum(size, 1e-200)
    solution = Exact(threads=1).solve(Problem(folded, ActionSet.box(low, high), tolerance=gap))
    proved = solution.status == Status.OPTIMAL
    assert (solution.upper[proved] - solution.values[proved] <= gap[proved]).all()
    assert (solution.upper >= solution.values).all()
    return folded, low, high, size, solution


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tolerance", [1e-9, 1e-13])
def test_the_bound_of_one_action_against_exact_arithmetic(kind, tolerance):
    """Every bound, proved or not, is at least the true maximum; the tolerance is met, or below rounding."""
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(15):
        folded, low, high, size, solution = solve(rng, kind, 1, tolerance)
        assert tolerance < 1e-12 or (solution.status == Status.OPTIMAL).all()
        for row in range(BATCH):
            best = exact_maximum(folded, row, low[0], high[0])
            assert best <= Fraction(float(solution.upper[row]))
            assert float(best) - solution.values[row] <= 1e-9 * size[row]
            assert solution.upper[row] - float(best) <= 1e-9 * size[row] + 1e-200


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_solved(kind):
    """Several actions: proved everywhere, and no action of many beats the bound, in exact arithmetic."""
    rng = np.random.default_rng(100 + KINDS.index(kind))
    for _ in range(25):
        d = int(rng.integers(2, 5))
        folded, low, high, _, solution = solve(rng, kind, d, 1e-8)
        assert (solution.status == Status.OPTIMAL).all()
        for row in range(BATCH):
            assert exact_value(folded, row, solution.actions[row]) <= Fraction(float(solution.upper[row]))
        row, axis = int(rng.integers(BATCH)), int(rng.integers(d))
        others = np.delete(solution.actions[row], axis)
        assert exact_maximum(folded, row, low[axis], high[axis], axis, others) <= Fraction(float(solution.upper[row]))
