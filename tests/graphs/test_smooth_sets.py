"""Smooth activations over action sets: bounds and values held against samples of the set, and whole numbers against
all of them."""

import itertools
import time
from typing import Any

import numpy as np
import pytest

import caql.maxq.refinement as refinement
from caql import ActionSet, Status, maximize
from caql.errors import CaqlError, CaqlWarning
from caql.maxq.maximize import maximize_over, posed
from caql.maxq.solvers import make_solver
from tests.graphs.networks import ACTIONS, SMOOTH, STATES, mlp, of_action_alone

GAP = 2e-3
LIMIT = 2.0
TRIANGLE = {"rows": (np.array([[1.0, 1.0], [-1.0, 2.0]]), np.array([0.2, 1.5]))}
LINE = {"equalities": (np.array([[1.0, -0.5]]), np.array([0.3]))}
SETS: dict[str, dict[str, Any]] = {
    "rows": TRIANGLE,
    "equality": LINE,
    "one whole number": {"integer": [0]},
    "rows and a whole number": {**TRIANGLE, "integer": [1]},
}


def states(count: int) -> np.ndarray:
    return np.random.default_rng(3).normal(size=(count, STATES))


def network_of(name: str) -> Any:
    return of_action_alone(2) if name == "kinks after it" else mlp(SMOOTH[name], 2, (5, 4))


def sampled(kind: str) -> np.ndarray:
    """Many actions of a set: a grid of the box, of which the rows are asked; on the line, along it."""
    side = np.linspace(-LIMIT, LIMIT, 201)
    first, second = (each.ravel() for each in np.meshgrid(side, side))
    if kind == "equality":
        return np.stack([0.3 + 0.5 * side, side], axis=1)[np.abs(0.3 + 0.5 * side) <= LIMIT]
    if "whole" in kind:
        whole = int(SETS[kind]["integer"][0])
        second, first = (second, np.round(first)) if whole == 0 else (np.round(second), first)
    actions = np.stack([first, second], axis=1)
    matrix, side = SETS[kind].get("rows", (np.zeros((0, 2)), np.zeros(0)))
    return actions[(actions @ matrix.T <= side).all(axis=1)]


def set_of(kind: str) -> ActionSet:
    box = ActionSet.box(np.full(ACTIONS, -LIMIT), np.full(ACTIONS, LIMIT))
    if "rows" in SETS[kind]:
        box = box & ActionSet.linear(SETS[kind]["rows"][0], None, SETS[kind]["rows"][1])
    if "equalities" in SETS[kind]:
        box = box & ActionSet.linear(SETS[kind]["equalities"][0], *[SETS[kind]["equalities"][1]] * 2)
    return box & ActionSet.whole(ACTIONS, SETS[kind]["integer"]) if "integer" in SETS[kind] else box


@pytest.mark.parametrize("kind", SETS)
@pytest.mark.parametrize("name", [*SMOOTH, "kinks after it"])
def test_bounds_hold_over_the_set_and_values_are_reached_in_it(name: str, kind: str) -> None:
    network, at = network_of(name), states(2)
    solution = maximize(network, -LIMIT, LIMIT, states=at, tolerance=GAP, **SETS[kind])
    assert (solution.status == Status.OPTIMAL).all()
    assert (solution.upper - solution.values <= GAP).all()
    assert set_of(kind).contains(solution.actions).all()
    points = sampled(kind)
    assert len(points) > 100
    for k in range(len(at)):
        own = network.evaluate(at[[k]], solution.actions[[k]])[0, 0]
        assert solution.values[k] == pytest.approx(own, abs=1e-12)
        best = network.evaluate(at[[k]], points)[:, 0].max()
        assert best <= solution.upper[k]
        assert solution.values[k] >= best - GAP


@pytest.mark.parametrize("name", SMOOTH)
def test_whole_numbers_are_enumerated(name: str) -> None:
    network, at = network_of(name), states(2)
    every = np.array(list(itertools.product(range(-2, 3), repeat=ACTIONS)), np.float64)
    matrix, side = TRIANGLE["rows"]
    for rows in (None, TRIANGLE["rows"]):
        solution = maximize(network, -LIMIT, LIMIT, states=at, tolerance=1e-6, rows=rows, integer=[0, 1])
        inside = every if rows is None else every[(every @ matrix.T <= side).all(axis=1)]
        for k in range(len(at)):
            values = network.evaluate(at[[k]], inside)[:, 0]
            assert solution.values[k] == pytest.approx(values.max(), abs=1e-6)
            assert solution.upper[k] >= values.max()
            assert solution.actions[k].tolist() in inside.tolist()


def test_bounds_between_whole_numbers_are_moved_to_them() -> None:
    network, at = network_of("tanh"), states(1)
    solution = maximize(network, -1.7, 2.4, states=at, tolerance=1e-6, integer=[0, 1])
    every = np.array(list(itertools.product(range(-1, 3), repeat=ACTIONS)), np.float64)
    assert solution.values[0] == pytest.approx(network.evaluate(at, every)[:, 0].max(), abs=1e-6)


def test_a_minimum_over_a_set() -> None:
    network, at = network_of("silu"), states(1)
    least = maximize(network, -LIMIT, LIMIT, states=at, tolerance=GAP, minimize=True, **TRIANGLE)
    values = network.evaluate(at, sampled("rows"))[:, 0]
    assert least.lower[0] <= values.min()
    assert least.values[0] - least.lower[0] <= GAP


def test_a_set_without_actions_is_said_beside_others() -> None:
    network, at = network_of("tanh"), states(2)
    with pytest.warns(CaqlWarning, match="1 without an admissible action, the first of them state 1"):
        solution = maximize(
            network, -1, 1, states=at, tolerance=GAP, rows=(np.ones((2, 1, ACTIONS)), np.array([[0.5], [-5.0]]))
        )
    assert solution.status.tolist() == [Status.OPTIMAL, Status.INFEASIBLE]
    assert solution.values[1] == solution.upper[1] == -np.inf
    with pytest.warns(CaqlWarning, match="1 without an admissible action"):
        maximize(network, 0.2, 0.8, states=at[:1], integer=[0])


def test_a_limit_over_a_set_leaves_a_bound() -> None:
    network, at = network_of("tanh"), states(1)
    with pytest.warns(CaqlWarning, match="stopped at node_limit = 3"):
        solution = maximize(network, -LIMIT, LIMIT, states=at, tolerance=1e-6, node_limit=3, **TRIANGLE)
    assert solution.status[0] == Status.LIMIT
    assert network.evaluate(at, sampled("rows"))[:, 0].max() <= solution.upper[0]
    assert set_of("rows").contains(solution.actions).all()


def test_auxiliary_variables_and_a_guess() -> None:
    """|a0| + |a1| <= 1 needs variables that the network does not see."""
    network, at = network_of("gelu"), states(1)
    diamond = ActionSet.box(np.full(2, -LIMIT), np.full(2, LIMIT)) & ActionSet.absolute_budget(np.ones(2), 1.0)
    guess = np.array([0.4, -0.4])
    solution = maximize_over(posed(network, at).question, diamond.on_host(), make_solver("exact"), GAP, guess)
    assert solution.status[0] == Status.OPTIMAL
    assert np.abs(solution.actions[0]).sum() <= 1.0 + 1e-9
    side = np.linspace(-1, 1, 201)
    points = np.stack([each.ravel() for each in np.meshgrid(side, side)], axis=1)
    best = network.evaluate(at, points[np.abs(points).sum(axis=1) <= 1.0])[:, 0].max()
    assert best <= solution.upper[0] <= best + 2 * GAP


def test_solvers_that_prove_nothing_stay_inside_and_say_what_they_cannot() -> None:
    network, at = network_of("tanh"), states(1)
    found = maximize(network, -LIMIT, LIMIT, states=at, solver="ga", **TRIANGLE)
    assert found.status[0] == Status.CONVERGED
    assert set_of("rows").contains(found.actions).all()
    with pytest.raises(CaqlError, match=r"whole-numbered actions, only continuous ones; [a-z, ]+ does$"):
        maximize(network, -LIMIT, LIMIT, states=at, solver="ga", integer=[0])


def test_ctrl_c_leaves_admissible_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    from caql import Interrupted

    def stop(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(refinement, "lower", stop)
    with pytest.raises(Interrupted) as caught:
        maximize(network_of("tanh"), 0.5, LIMIT, states=states(3), rows=([[1.0, 1.0]], [1.2]))
    solution = caught.value.solution
    assert solution.status.tolist() == [Status.LIMIT] * 3
    assert (solution.actions.sum(axis=1) <= 1.2).all()
    assert np.isinf(solution.upper).all()


def test_a_box_gets_no_more_than_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    import caql.maxq.maximize as maximizing

    answer, given = maximizing._answer, []

    def watched(solver: Any, problem: Any) -> Any:
        given.append(solver.time_limit)
        time.sleep(0.02)
        return answer(solver, problem)

    monkeypatch.setattr(maximizing, "_answer", watched)
    with pytest.warns(CaqlWarning, match="time_limit"):
        solution = maximize(of_action_alone(2), -LIMIT, LIMIT, tolerance=1e-9, time_limit=0.3, states=states(1))
    assert (solution.status == Status.LIMIT).all()
    assert len(given) > 3
    assert max(given) <= 0.3
    assert all(later <= earlier - 0.02 or later == refinement.MOMENT for earlier, later in itertools.pairwise(given))
