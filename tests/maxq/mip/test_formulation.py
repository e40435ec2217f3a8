"""The model as arrays: it holds exactly the network's graph, is small, well scaled and quick to build."""

import time
from typing import Any

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from caql.actions import ActionSet
from caql.bounds import METHODS, layer_bounds
from caql.maxq.mip.formulation import Model, formulate, ideal_cuts, tighten
from caql.networks import folded_value

from ..problems import ALL_PROBLEMS, PROBLEMS, Case, he_layers
from ..sets import random_network, random_sets


def box_of(case: Case) -> ActionSet:
    return ActionSet.box(
        *(
            np.full(case.actions, side) if np.ndim(side) == 0 else np.asarray(side, np.float64)
            for side in (case.low, case.high)
        )
    )


def model_of(case: Case, method: Any = "backward", row: int = 0) -> Model:
    box = box_of(case)
    return formulate(case.folded, box, layer_bounds(case.folded, box, method), row)


def relaxation(model: Model) -> Any:
    rows = np.vstack([model.rows, -model.rows])
    sides = np.hstack([model.row_upper, -model.row_lower])
    kept = np.isfinite(sides)
    bounds = list(zip(model.lower, model.upper, strict=True))
    found = linprog(-model.objective, rows[kept], sides[kept], bounds=bounds)
    assert found.status == 0
    return found.x


def objective(model: Model, point: Any) -> float:
    return model.unit * (float(model.objective @ point) + model.offset)


def holds(model: Model, point: Any, slack: float = 1e-9) -> bool:
    heights = model.rows @ point
    inside = (point >= model.lower - slack).all() and (point <= model.upper + slack).all()
    return bool(inside and (heights >= model.row_lower - slack).all() and (heights <= model.row_upper + slack).all())


@pytest.mark.parametrize("case", ALL_PROBLEMS, ids=lambda case: case.name)
@pytest.mark.parametrize("method", METHODS)
def test_every_action_is_a_point_of_the_model_with_its_q_value(case: Case, method: Any) -> None:
    rng = np.random.default_rng(0)
    for row in range(len(case.folded.first_bias)):
        model = model_of(case, method, row)
        low, high = (
            np.broadcast_to(side[row] if np.ndim(side) == 2 else side, case.actions)
            for side in (box_of(case).low, box_of(case).high)
        )
        for unit in [np.zeros(case.actions), np.ones(case.actions), *rng.random((4, case.actions))]:
            action = low + unit * (high - low)
            point = model.point(action)
            assert holds(model, point)
            np.testing.assert_allclose(model.action(point), action, rtol=1e-12, atol=1e-15)
            network = case.folded._replace(first_bias=case.folded.first_bias[row])
            scale = 1e-9 * (model.unit + abs(objective(model, point)))
            assert objective(model, point) == pytest.approx(float(folded_value(network, action)), abs=scale)


def test_a_wrong_phase_is_not_a_point_of_the_model() -> None:
    case = PROBLEMS[2]
    model = model_of(case)
    point = model.point(np.array([0.1, -0.4, 0.7]))
    assert len(model.neurons.phases) > 4
    for phase in model.neurons.phases:
        flipped = point.copy()
        flipped[phase] = 1 - flipped[phase]
        assert not holds(model, flipped)


def test_a_phase_caps_the_output_of_its_neuron_in_the_relaxation_too() -> None:
    case = PROBLEMS[2]
    model = model_of(case)
    point = model.point(np.array([0.1, -0.4, 0.7]))
    active = np.flatnonzero(point[model.neurons.outputs] > 1e-3)
    assert len(active) > 2
    for neuron in active:
        half = point.copy()
        half[model.neurons.phases[neuron]] = point[model.neurons.outputs[neuron]] / 2
        assert not holds(model, half)


def test_stable_neurons_take_no_columns() -> None:
    for name, count in (("dead first layer", 0), ("a single admissible action", 0), ("zero weights", 0)):
        case = next(c for c in PROBLEMS if c.name == name)
        model = model_of(case)
        assert len(model.neurons.bias) == count
        assert model.rows.shape == (3 * count, case.actions + 2 * count)
    case = next(c for c in PROBLEMS if c.name == "the paper's 32 x 16")
    lower, upper = (
        np.concatenate([pair[side][0] for pair in layer_bounds(case.folded, box_of(case), "tightest")[:-1]])
        for side in (0, 1)
    )
    model = model_of(case, "tightest")
    assert 0 < len(model.neurons.bias) == np.sum((lower < 0) & (upper > 0)) < 48
    assert model.integrality.sum() == len(model.neurons.bias)


@pytest.mark.parametrize(
    "name", ["large scale", "tiny scale", "large hidden units", "tiny hidden units", "a tiny box around a kink"]
)
def test_the_model_is_scaled_whatever_the_network(name: str) -> None:
    model = model_of(next(c for c in PROBLEMS if c.name == name))
    assert np.abs(model.objective).max() == pytest.approx(1.0)
    assert 0.1 < np.abs(model.rows).max() < 1e3
    assert np.abs(model.lower).max() <= 1.0
    assert np.abs(model.upper).max() <= 1.0


def test_sparse_rows_are_the_dense_ones() -> None:
    model = model_of(PROBLEMS[2])
    starts, columns, values = model.sparse_rows()
    dense = np.zeros_like(model.rows)
    for row in range(len(model.rows)):
        entries = slice(starts[row], starts[row + 1])
        dense[row, columns[entries]] = values[entries]
    np.testing.assert_array_equal(dense, model.rows)
    assert (values != 0).all()


def test_cuts_hold_for_every_action_and_lower_the_relaxation() -> None:
    case = Case("cut", he_layers(40, (4, 14, 8, 1)), -1.0, 1.0)
    plain = model_of(case)
    cut = tighten(plain, relaxation, rounds=8)
    assert len(cut.rows) > len(plain.rows)
    before, after = (objective(model, relaxation(model)) for model in (plain, cut))
    rng = np.random.default_rng(1)
    actions = np.concatenate([rng.uniform(-1, 1, (2000, 4)), np.sign(rng.normal(size=(200, 4)))])
    points = np.array([cut.point(action) for action in actions])
    assert (points @ cut.rows.T <= cut.row_upper + 1e-9).all()
    assert (
        folded_value(case.folded._replace(first_bias=case.folded.first_bias[0]), actions).max() < after < before - 1e-3
    )


def test_separation_finds_the_most_violated_of_all_subsets() -> None:
    """Against the definition: every subset of one neuron's inputs, at random points."""
    case = Case("subsets", he_layers(41, (4, 3, 1)), -1.0, [1.0, 0.5, 2.0, 1.0])
    model = model_of(case, "interval")
    neurons, rng = model.neurons, np.random.default_rng(2)
    assert len(neurons.bias)
    checked = 0
    for _ in range(50):
        point = rng.uniform(model.lower, model.upper)
        rows, _, limits = ideal_cuts(model, point, violation=-np.inf)
        size = np.maximum(neurons.upper, -neurons.lower)
        for k, (w, b) in enumerate(zip(neurons.weights[:, :4], neurons.bias, strict=True)):
            x, zeta = point[:4], point[neurons.phases[k]]
            least = np.where(w >= 0, model.lower[:4], model.upper[:4])
            most = np.where(w >= 0, model.upper[:4], model.lower[:4])
            sides = []
            for subset in range(16):
                chosen = np.array([subset >> i & 1 for i in range(4)], bool)
                sides.append((w * (x - least * (1 - zeta)))[chosen].sum() + (b + (w * most)[~chosen].sum()) * zeta)
            violation = point[neurons.outputs[k]] * neurons.upper[k] - min(sides)
            assert (rows[k] @ point - limits[k]) * size[k] == pytest.approx(violation)
            checked += 1
    assert checked >= 50


def test_one_neuron_with_all_its_cuts_is_integral() -> None:
    """The ideal formulation's claim: for one neuron, the relaxation's vertices are integer."""
    rng = np.random.default_rng(3)
    case = Case("one neuron", [(rng.normal(size=(3, 1)), np.array([0.1])), (np.ones((1, 1)), np.zeros(1))], -1.0, 1.0)
    model = model_of(case)
    for _ in range(20):
        tilted = Model(**{**vars(model), "objective": rng.normal(size=len(model.objective)) * [1, 1, 1, 2, 0.5]})
        point = relaxation(tighten(tilted, relaxation, rounds=50))
        phase = point[model.neurons.phases[0]]
        assert min(phase, 1 - phase) < 1e-6


def test_rows_and_whole_numbers_join_the_model() -> None:
    case = Case("joint", he_layers(42, (3, 8, 5, 1)), [-2.0, -1.0, -1.5], [2.0, 1.0, 1.5])
    network = case.folded
    action_set = box_of(case) & ActionSet.budget([0.0, 1.0, 1.0], 0.5) & ActionSet.whole(3, [0])
    model = formulate(network, action_set, layer_bounds(network, action_set, "backward"), 0)
    found = milp(
        -model.objective,
        constraints=LinearConstraint(model.rows, model.row_lower, model.row_upper),
        bounds=Bounds(model.lower, model.upper),
        integrality=model.integrality,
    )
    action = model.action(found.x)
    assert action[0] == pytest.approx(np.round(action[0]))
    assert action[1] + action[2] <= 0.5 + 1e-7
    grid = np.stack(np.meshgrid(np.arange(-2, 3), np.linspace(-1, 1, 41), np.linspace(-1.5, 1.5, 61)), -1).reshape(
        -1, 3
    )
    grid = grid[grid[:, 1] + grid[:, 2] <= 0.5 + 1e-12]
    best = folded_value(network._replace(first_bias=network.first_bias[0]), grid).max()
    value = folded_value(network._replace(first_bias=network.first_bias[0]), action)
    assert best - 1e-6 <= value <= best + 0.2


@pytest.mark.parametrize("shape", [(3, 4, 0, ()), (3, 4, 2, ()), (2, 3, 3, (0, 3))], ids=str)
def test_every_admissible_action_is_a_point_of_the_model_and_no_other_is(shape: Any) -> None:
    d, m, k, integer = shape
    rng = np.random.default_rng(0)
    found, network = random_sets(rng, 40, d, m, k, integer), random_network(rng, 40, d, (6, 4))
    hull = found.action_set.tightened()
    bounds = layer_bounds(network, hull, "backward")
    outside = 0
    for state in np.flatnonzero(~found.empty).tolist():
        model, one = formulate(network, hull, bounds, state), found.action_set[state]
        inside = one.closest(rng.normal(size=d))
        point = model.point(inside)
        assert holds(model, point, 1e-8)
        np.testing.assert_allclose(model.action(point), inside[:d], atol=1e-9)
        single = network._replace(first_bias=network.first_bias[state])
        assert objective(model, point) == pytest.approx(float(folded_value(single, inside[:d])), abs=1e-7)
        assert np.abs(model.rows).max() < 1e3
        elsewhere = rng.uniform(hull.low[state], hull.high[state])
        values = np.concatenate([elsewhere, inside[d:]])
        heights = one.rows @ values
        off = max(0.0, (one.row_low - heights).max(), (heights - one.row_high).max())
        if off > 1e-3 and not (set(integer) & set(range(d))):
            assert not holds(model, model.point(values), 1e-6)
            outside += 1
    assert outside or integer


def test_a_neuron_that_only_rounding_makes_unstable_is_stable() -> None:
    """h in [-1e-13, 2] counts as active, and h in [-2, 1e-13] as dead: its binary could not be told from 0 or 1."""
    for shift, active in ((1.0 - 1e-13, True), (-1.0 + 1e-13, False)):
        layers = [(np.ones((1, 1)), np.array([shift])), (np.array([[2.0]]), np.zeros(1))]
        model = model_of(Case("edge", layers, -1.0, 1.0))
        assert len(model.neurons.bias) == 0
        top = model.point(np.ones(1))
        assert objective(model, top) == pytest.approx(4.0 if active else 0.0, abs=1e-9)


def test_whole_numbers_are_bounded_by_whole_numbers_inside_the_box() -> None:
    layers = he_layers(43, (2, 4, 1))
    case = Case("between", layers, [-1.5, -0.5], [2.5, 3.0])
    network, action_set = case.folded, box_of(case) & ActionSet.whole(2)
    model = formulate(network, action_set, layer_bounds(network, action_set, "interval"), 0)
    assert model.lower[:2].tolist() == [-1.0, 0.0]
    assert model.upper[:2].tolist() == [2.0, 3.0]
    assert model.integrality[:2].all()


def test_cuts_are_added_round_after_round() -> None:
    """On a problem on which the second round still finds violated cuts, and as many rounds as asked are made."""
    model = model_of(Case("rounds", he_layers(40, (4, 12, 8, 1)), -1.0, 1.0), "interval")
    calls: list[int] = []

    def counted(each: Model) -> Any:
        calls.append(len(each.rows))
        return relaxation(each)

    tighten(model, counted, rounds=3)
    assert len(calls) == 3
    assert calls[0] < calls[1] < calls[2]


def test_building_a_model_takes_less_than_a_millisecond() -> None:
    case = next(c for c in PROBLEMS if c.name == "the paper's 32 x 16")
    box = ActionSet.box(-np.ones(3), np.ones(3))
    bounds = layer_bounds(case.folded, box, "backward")
    times = []
    for _ in range(30):
        start = time.perf_counter()
        formulate(case.folded, box, bounds, 0).sparse_rows()
        times.append(time.perf_counter() - start)
    assert min(times) < 1e-3
