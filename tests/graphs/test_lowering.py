"""Lowered networks are the graphs that they come from: point by point, and at the maximum."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from caql import maximize
from caql.actions import ActionSet
from caql.errors import CaqlError
from caql.graphs.activations import LeakyRelu, Relu
from caql.graphs.chain import layers_of_network, network_of_layers
from caql.graphs.expressions import StatesDiffer
from caql.graphs.lowering import lower
from caql.graphs.objective import Objective
from caql.graphs.tangents import tangent
from caql.networks import FoldedNetwork, fold_state, folded_value
from tests.graphs.networks import ACTIONS, KINDS, PIECEWISE, SMOOTH, STATES, mlp, of_action_alone

BOX = ActionSet.box(-np.ones(ACTIONS), np.ones(ACTIONS))


def states(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, STATES))


def furthest(objective: Objective, network: FoldedNetwork, at: np.ndarray, box: ActionSet = BOX) -> float:
    rng = np.random.default_rng(1)
    worst = 0.0
    for _ in range(100):
        actions = rng.uniform(box.low, box.high, (len(at), ACTIONS))
        worst = max(worst, float(np.abs(folded_value(network, actions) - objective.values(at, actions)).max()))
    return worst


@pytest.mark.parametrize("kind", KINDS)
def test_the_lowered_network_is_the_graph_to_its_error(kind: str) -> None:
    objective = Objective.of(KINDS[kind](3))
    for at in [states(1), states(1, 1)] if kind == "encoder" else [states(4)]:
        network, error = lower(objective, at, BOX)
        assert furthest(objective, network, at) <= error < 1e-9


@given(st.sampled_from(sorted(KINDS)), st.integers(0, 10**6), st.floats(0.0, 100.0), st.floats(-50.0, 50.0))
@settings(max_examples=40, deadline=None)
def test_lowering_holds_over_any_box(kind: str, seed: int, radius: float, centre: float) -> None:
    objective = Objective.of(KINDS[kind](seed))
    box = ActionSet.box(np.full(ACTIONS, centre - radius), np.full(ACTIONS, centre + radius))
    network, error = lower(objective, states(1, seed), box)
    assert furthest(objective, network, states(1, seed), box) <= error < 1e-6


def test_a_plain_network_is_lowered_to_itself() -> None:
    rng = np.random.default_rng(0)
    layers = [(rng.normal(size=s), rng.normal(size=s[1])) for s in ((5, 8), (8, 6), (6, 1))]
    lowered, _ = lower(Objective.of(network_of_layers(layers)), states(4), BOX)
    plain = fold_state(tuple(layers), states(4))
    np.testing.assert_allclose(lowered.first_bias, plain.first_bias, rtol=1e-14)
    np.testing.assert_array_equal(lowered.action_weights, plain.action_weights)
    for (weights, bias), (expected, also) in zip(lowered.later, plain.later, strict=True):
        np.testing.assert_array_equal(weights, expected)
        np.testing.assert_array_equal(bias, also)
    for (weights, bias), (expected, also) in zip(layers_of_network(network_of_layers(layers)), layers, strict=True):
        np.testing.assert_array_equal(weights, expected)
        np.testing.assert_array_equal(bias, also)


@pytest.mark.parametrize("kind", KINDS)
def test_the_maximum_is_proved_and_no_sample_is_above_it(kind: str) -> None:
    network, at = KINDS[kind](5), states(3)
    solution = maximize(network, -1, 1, states=at)
    assert (solution.status == 0).all()
    assert (solution.upper - solution.values <= 1e-4).all()
    found = [network.evaluate(at[[k]], solution.actions[[k]])[0, 0] for k in range(3)]
    np.testing.assert_allclose(solution.values, found, rtol=1e-12)
    rng = np.random.default_rng(0)
    for k in range(3):
        sampled = network.evaluate(at[[k]], rng.uniform(-1, 1, (2000, ACTIONS)))[:, 0]
        assert sampled.max() <= solution.upper[k]
        assert sampled.max() <= solution.values[k] + 1e-4


@pytest.mark.parametrize("solver", ["highs", "ga", "cem"])
def test_other_solvers_take_lowered_networks(solver: str) -> None:
    network, at = KINDS["residual"](5), states(2)
    exact = maximize(network, -1, 1, states=at)
    other = maximize(network, -1, 1, states=at, solver=solver, tolerance=1e-4)
    assert (other.values <= exact.upper + 1e-9).all()
    np.testing.assert_allclose(other.values, exact.values, atol=1e-3 if solver == "highs" else 0.3)


def pieces_of(activation: object) -> list[tuple[float, float, float, float]]:
    """(from, to, slope, offset) of an activation by its own definition: two points of each piece."""
    ends = [-1e3, -1.0, -0.2, 0.0, 0.3, 0.6, 1.0, 1e3]
    found = []
    for low, high in itertools.pairwise(ends):
        first, last = (float(activation.evaluate(np.array([[x]]))[0, 0]) for x in (low, high))
        slope = (last - first) / (high - low)
        found.append((low, high, slope, first - slope * low))
    return found


def independent_maximum(weights: list[np.ndarray], activation: object) -> float:
    """max over the box of v' f(W a + b) as a program with one binary for every piece of every neuron, by HiGHS."""
    (inner, bias), (outer, last) = weights
    d, h = inner.shape
    pieces = pieces_of(activation)
    count, n = len(pieces), d + 2 * inner.shape[1] * len(pieces)
    at = lambda j, p: d + 2 * (j * count + p)  # noqa: E731
    objective, rows, low, high = np.zeros(n), [], [], []
    integrality = np.zeros(n)
    for j in range(h):
        split, one = np.zeros(n), np.zeros(n)
        split[:d] = inner[:, j]
        for p, (first, end, slope, offset) in enumerate(pieces):
            part, chosen = at(j, p), at(j, p) + 1
            objective[part], objective[chosen] = -slope * outer[j, 0], -offset * outer[j, 0]
            integrality[chosen], split[part], one[chosen] = 1, -1.0, 1.0
            for bound, sign in ((first, 1.0), (end, -1.0)):
                row = np.zeros(n)
                row[part], row[chosen] = sign, -sign * bound
                rows, low, high = [*rows, row], [*low, 0.0], [*high, np.inf]
        rows, low, high = [*rows, split, one], [*low, -bias[j], 1.0], [*high, -bias[j], 1.0]
    lower, upper = np.full(n, -1e3), np.full(n, 1e3)
    lower[:d], upper[:d] = -1.0, 1.0
    lower[integrality > 0], upper[integrality > 0] = 0.0, 1.0
    answer = milp(
        objective,
        constraints=LinearConstraint(np.array(rows), low, high),
        bounds=Bounds(lower, upper),
        integrality=integrality,
        options={"mip_rel_gap": 1e-9},
    )
    return float(-answer.fun + last[0])


@pytest.mark.parametrize("name", [name for name in PIECEWISE if name != "constant"])
def test_the_maximum_is_that_of_an_independent_model(name: str) -> None:
    rng = np.random.default_rng(4)
    layers = [(rng.normal(size=(3, 5)), 0.3 * rng.normal(size=5)), (rng.normal(size=(5, 1)), rng.normal(size=1))]
    network = network_of_layers(layers, PIECEWISE[name])
    solution = maximize(network, -1, 1, tolerance=1e-7)
    assert solution.values[0] == pytest.approx(independent_maximum(layers, PIECEWISE[name]), abs=1e-4)


@pytest.mark.parametrize("name", SMOOTH)
def test_a_line_along_a_smooth_activation_is_as_close_as_it_says(name: str) -> None:
    rng = np.random.default_rng(0)
    lower = rng.normal(size=200) * 4
    upper = lower + 10.0 ** rng.uniform(-6, 1, 200)
    slope, offset, error = tangent(SMOOTH[name], lower, upper)
    x = lower + (upper - lower) * np.linspace(0, 1, 1237)[:, None]
    distance = np.abs(SMOOTH[name].evaluate(x) - slope * x - offset).max(axis=0)
    assert (distance <= error).all()
    assert (error <= SMOOTH[name].curvature * (upper - lower) ** 2 / 15 + 1e-12).all()


@pytest.mark.parametrize("name", SMOOTH)
def test_the_curvature_is_a_bound(name: str) -> None:
    x = np.linspace(-8, 8, 160001)
    second = np.diff(SMOOTH[name].evaluate(x), 2) / (x[1] - x[0]) ** 2
    assert np.abs(second).max() <= SMOOTH[name].curvature * (1 + 1e-5) + 1e-5
    assert np.abs(second).max() >= SMOOTH[name].curvature * 0.9


@pytest.mark.parametrize("name", ["tanh", "gelu", "elu", "kinks after it"])
def test_smooth_networks_are_bounded_and_refined(name: str) -> None:
    network = of_action_alone(2) if name == "kinks after it" else mlp(SMOOTH[name], 2, (5, 4))
    at = states(2)
    solution = maximize(network, -1, 1, states=at, tolerance=1e-2)
    assert (solution.status == 0).all()
    assert (solution.upper - solution.values <= 1e-2).all()
    rng = np.random.default_rng(0)
    for k in range(2):
        sampled = network.evaluate(at[[k]], rng.uniform(-1, 1, (4000, ACTIONS)))[:, 0]
        assert sampled.max() <= solution.upper[k]
        assert sampled.max() <= solution.values[k] + 1e-3


def test_a_limit_is_said_and_the_bound_still_holds() -> None:
    network = mlp(SMOOTH["tanh"], 1)
    with pytest.warns(UserWarning, match="stopped at node_limit = 3"):
        solution = maximize(network, -3, 3, states=states(1), tolerance=1e-6, node_limit=3)
    assert solution.status[0] == 2
    sampled = network.evaluate(states(1), np.random.default_rng(0).uniform(-3, 3, (3000, ACTIONS)))[:, 0]
    assert sampled.max() <= solution.upper[0]


def test_outputs_and_minima() -> None:
    network, at = mlp(LeakyRelu(0.1), 3, outputs=3), states(2)
    with pytest.raises(CaqlError, match=r"has 3 outputs, q \(3\); say which: output=k"):
        maximize(network, -1, 1, states=at)
    for output, weights in ((1, [0, 1, 0]), ([1.0, -2.0, 0.5], [1, -2, 0.5])):
        largest = maximize(network, -1, 1, states=at, output=output)
        smallest = maximize(network, -1, 1, states=at, output=output, minimize=True)
        for found, bound in ((largest, largest.upper), (smallest, smallest.lower)):
            value = np.array([network.evaluate(at[[k]], found.actions[[k]])[0] @ weights for k in range(2)])
            np.testing.assert_allclose(found.values, value, rtol=1e-12)
            assert (np.abs(bound - found.values) <= 1e-4).all()
        rng = np.random.default_rng(0)
        for k in range(2):
            sampled = network.evaluate(at[[k]], rng.uniform(-1, 1, (500, ACTIONS))) @ weights
            assert smallest.lower[k] <= sampled.min() <= sampled.max() <= largest.upper[k]
    negated = maximize(network, -1, 1, states=at, output=[0.0, -1.0, 0.0])
    np.testing.assert_allclose(negated.values, -maximize(network, -1, 1, states=at, output=1, minimize=True).values,
                               atol=1e-4)  # fmt: skip


@pytest.mark.parametrize("output", [3, -1, "z", [1.0, 2.0], [np.nan, 1, 1], True, object()])
def test_a_wrong_output_is_named(output: object) -> None:
    with pytest.raises(CaqlError, match="output = "):
        maximize(mlp(Relu(), 3, outputs=3), -1, 1, states=states(1), output=output)


def test_states_that_do_not_fit_are_named() -> None:
    with pytest.raises(
        CaqlError, match=r"states has 2 columns; the network's inputs besides the action \(state\) take 3"
    ):
        maximize(KINDS["residual"](0), -1, 1, states=np.zeros((1, 2)))
    with pytest.raises(CaqlError, match="no input is left to act with"):
        maximize(mlp(Relu()), -1, 1, states=np.zeros((1, 5)))


def test_states_with_weights_of_their_own_are_lowered_one_by_one() -> None:
    objective = Objective.of(KINDS["encoder"](0))
    with pytest.raises(StatesDiffer):
        lower(objective, states(2), BOX)


def test_rows_and_whole_numbers_hold_for_lowered_networks() -> None:
    network, at = KINDS["leaky"](1), states(2)
    solution = maximize(network, -1, 1, states=at, rows=([[1.0, 1.0]], [0.2]))
    assert (solution.status == 0).all()
    assert (solution.actions.sum(axis=1) <= 0.2 + 1e-9).all()
    whole = maximize(network, -3, 3, states=at, integer=[0])
    assert (whole.status == 0).all()
    np.testing.assert_array_equal(whole.actions[:, 0], np.round(whole.actions[:, 0]))


@pytest.mark.parametrize("kind", ["encoder", "leaky"])
def test_each_state_has_its_own_actions_guess_and_tolerance(kind: str) -> None:
    network, at = KINDS[kind](6), states(ACTIONS)  # as many states as action dimensions, which could be confused
    low, high = np.array([[-1.0, 0.2], [0.5, -0.3]]), np.array([[-0.5, 0.4], [0.9, 1.0]])
    guesses, tolerance = np.array([[-0.7, 0.3], [0.6, 0.0]]), np.array([1e-3, 1e-6])
    together = maximize(network, low, high, at, warm_start=guesses, tolerance=tolerance)
    assert (together.upper - together.values <= tolerance).all()
    assert (together.actions >= low).all()
    assert (together.actions <= high).all()
    for k in range(2):
        alone = maximize(network, low[k], high[k], at[k], tolerance=1e-6)
        assert together.values[k] == pytest.approx(alone.values[0], abs=1e-3 if k == 0 else 2e-6)
    # One box for all states has as many sides as there are states here.
    shared = maximize(network, low[0], high[0], at)
    assert (shared.actions >= low[0]).all()
    assert (shared.actions <= high[0]).all()
