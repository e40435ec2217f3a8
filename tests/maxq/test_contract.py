"""One table of problems x every solver: what all of them promise, and how their answers must relate.

ga, cem <= exact = scip = highs (= gurobi = cplex where installed) <= every bound.
"""

from functools import cache
from importlib.util import find_spec

import numpy as np
import pytest

from caql.actions import ActionSet
from caql.bounds import METHODS, upper_bound
from caql.maxq.host import evaluate
from caql.maxq.maximize import maximize
from caql.maxq.problem import Solution, Status

from .problems import ALL_PROBLEMS, PROBLEMS, Case, enumerated_maximum, he_layers

PROVING = ["exact", "highs", "scip", "gurobi", "cplex"]
SEARCHING = ["ga", "cem"]
PACKAGES = {"gurobi": "gurobipy", "cplex": "cplex"}

by_name = pytest.mark.parametrize("case", ALL_PROBLEMS, ids=lambda case: case.name)


def installed(solver: str) -> bool:
    return solver not in PACKAGES or find_spec(PACKAGES[solver]) is not None


def solvers(names: list[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "solver",
        [pytest.param(n, marks=pytest.mark.skipif(not installed(n), reason=f"{n} is optional")) for n in names],
    )


@cache
def solved(case: Case, solver: str) -> Solution:
    return maximize(**case.arguments(), solver=solver, tolerance=case.tolerance)


def sides(case: Case, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    low, high = (np.broadcast_to(np.asarray(side, np.float64), shape) for side in (case.low, case.high))
    return low, high


def rounding(case: Case) -> float:
    """What float64 may do to a value of this network, with three digits to spare."""
    return 1e-3 * case.tolerance + 1e-12 * float(np.abs(solved(case, "highs").values).max())


@by_name
@solvers(PROVING + SEARCHING)
def test_action_is_admissible_and_evaluates_to_the_value(case: Case, solver: str) -> None:
    solution, network = solved(case, solver), case.folded
    rows = len(network.first_bias)
    assert solution.actions.shape == (rows, case.actions)
    assert all(len(field) == rows for field in solution)
    low, high = sides(case, solution.actions.shape)
    assert (solution.actions >= low).all()
    assert (solution.actions <= high).all()
    np.testing.assert_allclose(solution.values, evaluate(network, solution.actions), rtol=1e-12, atol=1e-300)
    assert (solution.upper >= solution.values).all()


@by_name
@solvers(PROVING)
def test_proved_optimal_and_all_agree(case: Case, solver: str) -> None:
    solution, reference = solved(case, solver), solved(case, "highs")
    assert solution.status.tolist() == [Status.OPTIMAL] * len(solution.status)
    assert (solution.upper - solution.values <= case.tolerance).all()
    # Both brackets hold the one true maximum, so neither value may pass the other's bound.
    assert (solution.values <= reference.upper + rounding(case)).all()
    assert (reference.values <= solution.upper + rounding(case)).all()


@by_name
@solvers(SEARCHING)
def test_search_stays_below_the_proved_maximum(case: Case, solver: str) -> None:
    solution, reference = solved(case, solver), solved(case, "highs")
    low, high = sides(case, solution.actions.shape)
    centre = evaluate(case.folded, (low + high) / 2)
    single = 1e-5 * np.abs(centre).max() + rounding(case)
    assert (solution.values <= reference.upper + rounding(case)).all()
    assert (solution.values >= centre - single).all()
    assert np.isin(solution.status, [Status.CONVERGED, Status.LIMIT]).all()
    assert np.isposinf(solution.upper).all()


@by_name
@pytest.mark.parametrize("method", METHODS)
def test_bounds_lie_above_the_proved_maximum(case: Case, method: str) -> None:
    box = ActionSet.box(
        *(
            np.broadcast_to(np.asarray(side, np.float64), case.actions)
            if np.ndim(side) < 2
            else np.asarray(side, np.float64)
            for side in (case.low, case.high)
        )
    )
    bound = upper_bound(case.folded, box, method)
    assert (bound >= solved(case, "highs").values - rounding(case)).all()


TINY = [
    Case("tiny one layer", he_layers(30, (2 + 2, 8, 1)), -1.0, 1.0, np.random.default_rng(30).normal(size=(2, 2))),
    Case("tiny two layers", he_layers(31, (1 + 2, 4, 4, 1)), -1.0, 1.5, np.random.default_rng(31).normal(size=(2, 1))),
    Case(
        "tiny three layers",
        he_layers(32, (2 + 1, 3, 3, 3, 1)),
        -2.0,
        2.0,
        np.random.default_rng(32).normal(size=(2, 2)),
    ),
]


@pytest.mark.parametrize("case", TINY, ids=lambda case: case.name)
@solvers(PROVING)
def test_agrees_with_the_enumeration_of_patterns(case: Case, solver: str) -> None:
    solution, truth = solved(case, solver), enumerated_maximum(case)
    assert (solution.values <= truth + 1e-7).all()
    assert (solution.upper >= truth - 1e-7).all()
    assert (truth - solution.values <= case.tolerance).all()


@solvers(PROVING)
def test_relative_tolerance_counts_where_it_is_larger(solver: str) -> None:
    case = PROBLEMS[2]
    solution = maximize(**case.arguments(), solver=solver, tolerance=0.0, relative_tolerance=0.05)
    assert (solution.status == Status.OPTIMAL).all()
    assert (solution.upper - solution.values <= 0.05 * np.abs(solution.values)).all()
    assert (solution.upper >= solved(case, "highs").values - 1e-7).all()


@solvers(PROVING + SEARCHING)
def test_a_warm_start_is_never_lost(solver: str) -> None:
    case = PROBLEMS[2]
    best = solved(case, "highs")
    solution = maximize(**case.arguments(), solver=solver, tolerance=1e-5, warm_start=best.actions)
    assert (solution.values >= best.values - 1e-5).all()
