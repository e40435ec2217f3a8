"""One table of problems x every solver: what all of them promise, and how their answers must relate.

ga, cem <= exact = scip = highs (= gurobi = cplex where installed) <= every bound.
"""

from functools import cache
from importlib.util import find_spec

import jax
import numpy as np
import pytest

from caql.actions import ActionSet
from caql.bounds import METHODS, upper_bound
from caql.errors import CaqlError
from caql.maxq.maximize import maximize
from caql.maxq.mip import backends
from caql.maxq.problem import Problem, Solution, Status
from caql.maxq.solvers import BACKENDS, SOLVERS, make_solver, proves
from caql.networks import folded_value

from .problems import ALL_PROBLEMS, PROBLEMS, Case, enumerated_maximum, he_layers

PROVING = [name for name in SOLVERS if proves(name) and name != "mip"]
SEARCHING = [name for name in SOLVERS if not proves(name)]
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
    np.testing.assert_allclose(solution.values, folded_value(network, solution.actions), rtol=1e-12, atol=1e-300)
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
    centre = folded_value(case.folded, (low + high) / 2)
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


def test_the_registry_knows_every_backend() -> None:
    assert tuple(backends.BACKENDS) == BACKENDS


BAD = 2
"""The row that is spoilt."""


def spoilt(part: str, value: float) -> tuple[Problem, Problem]:
    """A good problem in float32, and the same with one bad number in one row."""
    case = PROBLEMS[1]
    rows, d = len(case.folded.first_bias), case.actions
    network = jax.tree.map(lambda array: np.asarray(array, np.float32), case.folded)
    arrays = {
        "first_bias": network.first_bias.copy(),
        "low": np.full((rows, d), -1.0, np.float32),
        "high": np.ones((rows, d), np.float32),
        "warm_start": np.zeros((rows, d), np.float32),
        "tolerance": np.full(rows, 1e-4, np.float32),
    }

    def problem() -> Problem:
        box = ActionSet.box(arrays["low"].copy(), arrays["high"].copy())
        folded = network._replace(first_bias=arrays["first_bias"].copy())
        return Problem(folded, box, arrays["warm_start"].copy(), arrays["tolerance"].copy())

    good = problem()
    arrays[part][(BAD, 0)[: arrays[part].ndim]] = value
    return good, problem()


@pytest.mark.parametrize(
    ("part", "value", "status"),
    [
        ("first_bias", np.nan, Status.FAILED),
        ("first_bias", np.inf, Status.FAILED),
        ("low", np.nan, Status.FAILED),
        ("low", -np.inf, Status.FAILED),
        ("high", np.inf, Status.FAILED),
        ("warm_start", np.nan, Status.FAILED),
        ("tolerance", np.nan, Status.FAILED),
        ("low", 2.0, Status.INFEASIBLE),
    ],
)
@solvers(PROVING + SEARCHING)
def test_a_bad_row_is_flagged_and_the_others_are_solved(solver: str, part: str, value: float, status: Status) -> None:
    good, bad = spoilt(part, value)
    chosen, key = make_solver(solver), jax.random.key(0)
    expected, found = (jax.tree.map(np.asarray, chosen.solve(each, key)) for each in (good, bad))
    assert found.status[BAD] == status
    assert np.isneginf(found.upper[BAD]) if status == Status.INFEASIBLE else np.isposinf(found.upper[BAD])
    assert np.isfinite(found.actions[BAD]).all()
    if part != "low" and part != "high":
        assert (np.abs(found.actions[BAD]) <= 1).all()
    others = np.arange(len(found.status)) != BAD
    assert (found.status[others] == expected.status[others]).all()
    np.testing.assert_allclose(found.values[others], expected.values[others], atol=1e-3)


@solvers(PROVING + SEARCHING)
def test_a_bad_weight_fails_every_row(solver: str) -> None:
    good, _ = spoilt("tolerance", np.nan)
    weights = np.asarray(good.network.action_weights).copy()
    weights[0, 0] = np.nan
    found = make_solver(solver).solve(
        good._replace(network=good.network._replace(action_weights=weights)), jax.random.key(0)
    )
    assert (np.asarray(found.status) == Status.FAILED).all()
    assert np.isposinf(found.upper).all()
    assert (np.abs(found.actions) <= 1).all()


@solvers(PROVING + SEARCHING)
def test_an_action_set_is_refused_rather_than_ignored(solver: str) -> None:
    case, chosen = PROBLEMS[1], make_solver(solver)
    rows = (np.ones((1, 2)), np.zeros(1))
    for arguments, accepted in (
        ({"rows": rows}, chosen.accepts_rows),
        ({"equalities": rows}, chosen.accepts_rows),
        ({"integer": [1]}, chosen.accepts_integers),
    ):
        if accepted:
            found = maximize(**case.arguments(), solver=solver, **arguments)
            assert found.values.shape == (3,)
            continue
        with pytest.raises(CaqlError, match="does not take"):
            maximize(**case.arguments(), solver=solver, **arguments)
