"""The MIP backends: options, limits, broken backends, and what their rows' status then says."""

import importlib.util
import logging
from typing import Any

import numpy as np
import pytest

from caql.actions import ActionSet
from caql.bounds import upper_bound
from caql.errors import CaqlError
from caql.maxq.mip import backends
from caql.maxq.mip.backends import Answer
from caql.maxq.mip.solver import Mip
from caql.maxq.problem import Problem, Solver, Status
from caql.networks import FoldedNetwork, folded_value

from ..problems import PROBLEMS, Case, he_layers

BACKENDS = {"scip": "pyscipopt", "highs": "highspy", "gurobi": "gurobipy", "cplex": "cplex"}

every_backend = pytest.mark.parametrize(
    "backend",
    [
        pytest.param(name, marks=pytest.mark.skipif(not importlib.util.find_spec(package), reason="optional"))
        for name, package in BACKENDS.items()
    ],
)

MIDDLING = Case("middling", he_layers(50, (3 + 3, 16, 10, 1)), -1.0, 1.0, np.random.default_rng(50).normal(size=(3, 3)))
HARD = Case("hard", he_layers(51, (6, 48, 48, 1)), -1.0, 1.0)


def problem(case: Case, **changes: Any) -> Problem:
    box = ActionSet.box(np.full(case.actions, case.low), np.full(case.actions, case.high))
    return Problem(**{"network": case.folded, "action_set": box, "tolerance": 1e-6, **changes})


TRUTH = Mip("highs", bounds="interval").solve(problem(MIDDLING, tolerance=1e-8))


@every_backend
@pytest.mark.parametrize(
    "settings",
    [{"bounds": "interval"}, {"bounds": "dual"}, {"bounds": "tightest"}, {"cut_rounds": 4}, {"threads": 2}],
    ids=str,
)
def test_options_change_the_work_and_not_the_answer(backend: str, settings: dict[str, Any]) -> None:
    found = Mip(backend, **settings).solve(problem(MIDDLING))
    assert (found.status == Status.OPTIMAL).all()
    np.testing.assert_allclose(found.values, TRUTH.values, atol=1e-6)
    assert (found.upper >= TRUTH.values - 1e-7).all()


@every_backend
def test_stopped_early_value_and_upper_bracket_the_maximum(backend: str) -> None:
    limited = Mip(backend, time_limit=0.3).solve(problem(HARD))
    assert limited.status.tolist() == [Status.LIMIT] or backend in ("gurobi", "cplex")
    assert limited.upper[0] >= limited.values[0]
    # The gap is real: a random search finds nothing above the bound, and the value is one that it can trust.
    samples = np.random.default_rng(0).uniform(-1, 1, (4000, 1, 6))
    assert folded_value(HARD.folded, samples).max() <= limited.upper[0]
    assert limited.values[0] == pytest.approx(folded_value(HARD.folded, limited.actions)[0], rel=1e-12)


@every_backend
def test_the_warm_start_is_handed_over(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    original = backends.BACKENDS[backend]

    def spy(model: Any, limits: Any, start: Any) -> Answer:
        given.append(model.action(start))
        return original(model, limits, start)

    monkeypatch.setitem(backends.BACKENDS, backend, spy)
    found = Mip(backend).solve(problem(MIDDLING, warm_start=TRUTH.actions))
    np.testing.assert_allclose(given, TRUTH.actions, atol=1e-12)
    np.testing.assert_allclose(found.values, TRUTH.values, atol=1e-6)


@every_backend
def test_a_hopeless_time_limit_keeps_the_warm_start(backend: str) -> None:
    start = np.random.default_rng(1).uniform(-1, 1, (1, 6))
    found = Mip(backend, time_limit=1e-3).solve(problem(HARD, warm_start=start))
    assert found.values[0] >= folded_value(HARD.folded, start)[0]
    assert found.status[0] != Status.OPTIMAL
    assert found.upper[0] > found.values[0]


def breaking(model: Any, limits: Any, start: Any) -> Answer:
    raise RuntimeError("licence expired")


def lying(model: Any, limits: Any, start: Any) -> Answer:
    """A backend whose point is outside the box and whose bound lies below a value that exists."""
    return Answer(np.full(len(model.objective), 3.0), -1e9, 1)


def idle(model: Any, limits: Any, start: Any) -> Answer:
    """A backend that comes back with the middle of the box."""
    return Answer(model.point(np.zeros(6)), np.inf, 1)


def test_a_worse_point_does_not_replace_the_warm_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backends.BACKENDS, "scip", idle)
    actions = np.random.default_rng(2).uniform(-1, 1, (100, 6))
    good = actions[[np.argmax(folded_value(HARD.folded, actions))]]
    assert folded_value(HARD.folded, good)[0] > folded_value(HARD.folded, np.zeros((1, 6)))[0]
    found = Mip("scip").solve(problem(HARD, warm_start=good))
    np.testing.assert_array_equal(found.actions, good)
    cold = Mip("scip").solve(problem(HARD))
    np.testing.assert_allclose(cold.actions, 0, atol=1e-12)


def without_solution(model: Any, limits: Any, start: Any) -> Answer:
    return Answer(None, np.inf, 0)


def test_a_broken_backend_flags_its_rows(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setitem(backends.BACKENDS, "scip", breaking)
    start = np.full((3, 3), 7.0)
    with caplog.at_level(logging.WARNING):
        found = Mip("scip").solve(problem(MIDDLING, warm_start=start))
    assert found.status.tolist() == [Status.FAILED] * 3
    np.testing.assert_array_equal(found.actions, np.ones((3, 3)))
    np.testing.assert_allclose(found.values, folded_value(MIDDLING.folded, np.ones((3, 3))))
    assert (found.upper >= TRUTH.values).all()
    assert "licence expired" in caplog.text


def test_one_broken_state_leaves_the_others_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = backends.BACKENDS["highs"], []

    def second_time_unlucky(model: Any, limits: Any, start: Any) -> Answer:
        calls.append(model)
        return breaking(model, limits, start) if len(calls) == 2 else original(model, limits, start)

    monkeypatch.setitem(backends.BACKENDS, "highs", second_time_unlucky)
    found = Mip("highs").solve(problem(MIDDLING))
    assert found.status.tolist() == [Status.OPTIMAL, Status.FAILED, Status.OPTIMAL]
    np.testing.assert_allclose(found.values[[0, 2]], TRUTH.values[[0, 2]], atol=1e-6)


def test_a_refuted_bound_is_never_called_optimal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backends.BACKENDS, "scip", lying)
    found = Mip("scip").solve(problem(MIDDLING))
    assert found.status.tolist() == [Status.FAILED] * 3
    assert (found.upper >= TRUTH.values).all()
    assert (np.abs(found.actions) <= 1).all()
    np.testing.assert_allclose(found.values, folded_value(MIDDLING.folded, found.actions))


def test_no_solution_falls_back_on_the_centre(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backends.BACKENDS, "scip", without_solution)
    found = Mip("scip").solve(problem(MIDDLING))
    assert found.status.tolist() == [Status.LIMIT] * 3
    np.testing.assert_array_equal(found.actions, np.zeros((3, 3)))
    assert np.isfinite(found.upper).all()


@pytest.mark.filterwarnings("error")
def test_a_diverged_network_fails_instead_of_raising() -> None:
    network = MIDDLING.folded
    bias = network.first_bias.copy()
    bias[1] = np.nan
    found = Mip("highs").solve(problem(MIDDLING, network=network._replace(first_bias=bias)))
    assert found.status.tolist() == [Status.OPTIMAL, Status.FAILED, Status.OPTIMAL]
    assert np.isfinite(found.actions).all()


def test_masked_rows_are_skipped_and_admissible() -> None:
    found = Mip("highs").solve(problem(MIDDLING, mask=np.array([True, False, True])))
    assert found.status.tolist() == [Status.OPTIMAL, Status.SKIPPED, Status.OPTIMAL]
    assert found.work[1] == 0
    np.testing.assert_allclose(found.values, folded_value(MIDDLING.folded, found.actions))
    assert found.upper[1] >= TRUTH.values[1]


def test_tolerances_may_differ_from_state_to_state() -> None:
    tolerance = np.array([1e-6, 1e3, 1e-6])
    found = Mip("highs").solve(problem(MIDDLING, tolerance=tolerance))
    assert (found.status == Status.OPTIMAL).all()
    assert found.work[1] == 0
    np.testing.assert_allclose(found.values[[0, 2]], TRUTH.values[[0, 2]], atol=1e-6)


def test_an_affine_network_needs_no_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backends.BACKENDS, "scip", breaking)
    found = Mip("scip").solve(problem(PROBLEMS[0]))
    assert (found.status == Status.OPTIMAL).all()
    np.testing.assert_array_equal(found.actions, np.sign(np.repeat(PROBLEMS[0].folded.action_weights.T, 3, 0)))


@pytest.mark.parametrize(("backend", "extra"), [("gurobi", "gurobi"), ("cplex", "cplex"), ("scip", "mip")])
def test_a_missing_backend_says_how_to_install_it(backend: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CaqlError, match=rf'not installed: pip install "caql\[{extra}\]"'):
        Mip(backend).solve(problem(MIDDLING))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"backend": "gurobo"}, "did you mean 'gurobi'"),
        ({"bounds": "duel"}, "did you mean 'dual'"),
        ({"time_limit": 0.0}, "time_limit = 0.0 must be a positive"),
        ({"time_limit": float("nan")}, "time_limit = nan"),
        ({"threads": 0}, "threads = 0 must be a whole number, at least 1"),
        ({"threads": 10**9}, "at most 1024"),
        ({"cut_rounds": -1}, "cut_rounds = -1"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(CaqlError) as raised:
        Mip(**settings)
    assert message in str(raised.value)


def test_it_is_a_solver_whose_settings_are_its_fields() -> None:
    assert isinstance(Mip(), Solver)
    assert Mip(backend="highs") == Mip(backend="highs")
    assert hash(Mip()) == hash(Mip())
    assert isinstance(problem(MIDDLING).network, FoldedNetwork)


def test_a_worse_bound_than_the_one_at_hand_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backends.BACKENDS, "scip", lambda *_: Answer(None, 1e9, 0))
    found = Mip("scip").solve(problem(MIDDLING))
    at_hand = upper_bound(MIDDLING.folded, problem(MIDDLING).action_set, "backward")
    np.testing.assert_allclose(found.upper, at_hand)
