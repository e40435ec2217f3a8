"""The exact solver against an independent oracle: every activation pattern, one linear program each."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from caql.actions import ActionSet
from caql.errors import CaqlError
from caql.maxq.exact.solver import Exact
from caql.maxq.problem import Problem, Solver, Status
from caql.networks import FoldedNetwork


def random_network(rng, sizes, batch=1, scale=1.0):
    """He weights; `sizes` = (actions, hidden..., 1)."""
    layers = [
        (rng.normal(size=(m, n)) * np.sqrt(2 / m), rng.normal(size=n) * 0.5) for m, n in itertools.pairwise(sizes)
    ]
    (weights, bias), *later = layers
    if later:
        later[-1] = (later[-1][0] * scale, later[-1][1] * scale)
    else:
        weights, bias = weights * scale, bias * scale
    return FoldedNetwork(bias + 0.5 * scale**0 * rng.normal(size=(batch, len(bias))), weights, tuple(later))


def unit_box(d):
    return ActionSet.box(-np.ones(d), np.ones(d))


def q(network, actions, row=None):
    """Q in float64, by NumPy."""
    bias = np.asarray(network.first_bias, np.float64)
    hidden = actions @ np.asarray(network.action_weights, np.float64) + (bias if row is None else bias[row])
    for weights, bias in network.later:
        hidden = np.maximum(hidden, 0.0) @ np.asarray(weights, np.float64) + np.asarray(bias, np.float64)
    return hidden[..., 0]


def oracle(network, row, low, high):
    """The maximum by enumeration: descend layer by layer into every pattern that some action attains."""
    bounds = list(zip(low, high, strict=True))
    best = -np.inf

    def descend(layer, slopes, offsets, rows, limits):
        nonlocal best
        matrix, vector = (np.array(rows), np.array(limits)) if rows else (None, None)
        if layer == len(network.later):
            answer = linprog(-slopes[:, 0], A_ub=matrix, b_ub=vector, bounds=bounds, method="highs")
            if answer.status == 0:
                best = max(best, offsets[0] - answer.fun)
            return
        if rows and linprog(np.zeros(len(low)), A_ub=matrix, b_ub=vector, bounds=bounds, method="highs").status != 0:
            return
        weights, bias = network.later[layer]
        for pattern in itertools.product((False, True), repeat=slopes.shape[1]):
            active = np.array(pattern, float)
            sign = 1 - 2 * active
            more = [sign[i] * slopes[:, i] for i in range(len(active))]
            less = [-sign[i] * offsets[i] for i in range(len(active))]
            descend(
                layer + 1, (slopes * active) @ weights, (offsets * active) @ weights + bias, rows + more, limits + less
            )

    descend(0, np.asarray(network.action_weights, float), np.asarray(network.first_bias[row], float), [], [])
    return best


def check_against_oracle(network, box, tolerance=1e-7):
    low, high = (
        np.broadcast_to(side, (len(network.first_bias), len(network.action_weights))) for side in (box.low, box.high)
    )
    solution = Exact(threads=1).solve(Problem(network, box, tolerance=tolerance))
    for row in range(len(network.first_bias)):
        best = oracle(network, row, low[row], high[row])
        rounding = 1e-8 * max(1.0, abs(best))
        assert solution.status[row] == Status.OPTIMAL
        assert best - tolerance - rounding <= solution.values[row] <= best + rounding
        assert best - rounding <= solution.upper[row] <= solution.values[row] + tolerance
        assert ((solution.actions[row] >= low[row]) & (solution.actions[row] <= high[row])).all()
        np.testing.assert_allclose(q(network, solution.actions[row], row), solution.values[row], rtol=1e-12, atol=1e-12)
    return solution


@pytest.mark.parametrize(
    "sizes", [(2, 1), (1, 4, 1), (3, 5, 1), (2, 4, 3, 1), (1, 3, 3, 3, 1), (3, 3, 2, 2, 2, 1), (5, 4, 1), (2, 1, 1, 1)]
)
def test_depths_and_widths(sizes):
    rng = np.random.default_rng(sum(sizes))
    check_against_oracle(random_network(rng, sizes, batch=2), unit_box(sizes[0]))


def test_special_neurons():
    rng = np.random.default_rng(1)
    network = random_network(rng, (2, 5, 4, 1))
    (first, first_bias), (last, last_bias) = network.later
    bias = network.first_bias.copy()
    bias[0, 0] = -10.0  # dead
    bias[0, 1] = 10.0  # always active
    weights = network.action_weights.copy()
    weights[:, 3], bias[0, 3] = weights[:, 2], bias[0, 2]  # duplicates
    weights[:, 4] = 0.0  # deaf to the action
    bias[0, 4] = 0.0
    first = first.copy()
    first[:, 0] = first[:, 1]
    first_bias = first_bias.copy()
    first_bias[0] = first_bias[1]
    check_against_oracle(FoldedNetwork(bias, weights, ((first, first_bias), (last, last_bias))), unit_box(2))


def test_zero_network():
    zeros = FoldedNetwork(np.zeros((1, 3)), np.zeros((2, 3)), ((np.zeros((3, 1)), np.full(1, 2.5)),))
    solution = Exact().solve(Problem(zeros, unit_box(2)))
    assert solution.values[0] == 2.5
    assert 0.0 <= solution.upper[0] - 2.5 <= 1e-12  # the rounding that a network of this size might have


@pytest.mark.parametrize(
    ("low", "high"),
    [([-3.0, 0.5], [-1.0, 4.0]), ([0.2, -1.0], [0.2, 1.0]), ([0.3, -0.7], [0.3, -0.7]), ([-1e-4, -1e-4], [1e-4, 1e-4])],
)
def test_boxes(low, high):
    network = random_network(np.random.default_rng(5), (2, 4, 3, 1))
    check_against_oracle(network, ActionSet.box(np.array(low), np.array(high)), tolerance=1e-9)


def test_a_box_per_state():
    network = random_network(np.random.default_rng(6), (2, 4, 2, 1), batch=3)
    low = np.array([[-1.0, -1.0], [0.0, 0.5], [-2.0, 0.1]])
    check_against_oracle(network, ActionSet.box(low, low + np.array([[0.5, 2.0], [1.0, 0.0], [3.0, 0.3]])))


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_scales(scale):
    network = random_network(np.random.default_rng(7), (2, 4, 3, 1), scale=scale)
    check_against_oracle(network, unit_box(2), tolerance=1e-7 * scale)


def test_float32_weights():
    network = random_network(np.random.default_rng(8), (2, 4, 3, 1))
    single = FoldedNetwork(
        network.first_bias.astype(np.float32),
        network.action_weights.astype(np.float32),
        tuple((w.astype(np.float32), b.astype(np.float32)) for w, b in network.later),
    )
    solution = check_against_oracle(single, ActionSet.box(-np.ones(2, np.float32), np.ones(2, np.float32)))
    assert solution.values.dtype == np.float64


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    hidden=st.lists(st.integers(1, 4), min_size=0, max_size=3),
    d=st.integers(1, 3),
    sparsity=st.sampled_from([0.0, 0.5]),
)
def test_random_networks(seed, hidden, d, sparsity):
    rng = np.random.default_rng(seed)
    network = random_network(rng, (d, *hidden, 1))
    keep = rng.random(network.action_weights.shape) >= sparsity
    later = tuple((np.round(w * 4) / 4 if sparsity else w, b) for w, b in network.later)  # many exact ties
    low = rng.normal(size=d)
    check_against_oracle(
        FoldedNetwork(network.first_bias, network.action_weights * keep, later),
        ActionSet.box(low, low + rng.random(d) * 2),
    )


def medium():
    return random_network(np.random.default_rng(11), (3, 16, 12, 1), batch=6)


def test_stopped_early_it_still_brackets_the_optimum():
    network = medium()
    problem = Problem(network, unit_box(3), tolerance=1e-7)
    best = Exact().solve(problem)
    assert (best.status == Status.OPTIMAL).all()
    assert best.work.max() > 8
    previous = np.inf
    for limit in (1, 2, 3, 5, 8):
        early = Exact(node_limit=limit).solve(problem)
        assert (early.work <= limit).all()
        assert (early.values <= best.values + 1e-7).all()
        assert (early.upper >= best.values - 1e-9).all()
        assert (early.status[best.work > limit] == Status.LIMIT).all()
        assert (early.upper <= previous + 1e-9).all()
        previous = early.upper
    np.testing.assert_allclose(q(network, early.actions), early.values, rtol=1e-12)


def test_no_time_at_all():
    solution = Exact(time_limit=1e-9).solve(Problem(medium(), unit_box(3), tolerance=1e-7))
    assert (solution.work == 1).all()
    assert set(solution.status) == {Status.LIMIT}


def test_upper_bounds_the_network_on_samples():
    network = random_network(np.random.default_rng(12), (4, 24, 12, 1), batch=4)
    solution = Exact().solve(Problem(network, unit_box(4), tolerance=0.0, relative_tolerance=1e-3))
    samples = np.random.default_rng(0).uniform(-1, 1, (20_000, 1, 4))
    assert (q(network, samples) <= solution.upper).all()
    assert (solution.upper - solution.values <= 1e-3 * np.abs(solution.values)).all()


def test_the_number_of_threads_does_not_matter():
    network = random_network(np.random.default_rng(13), (3, 20, 10, 1), batch=40)
    problem = Problem(network, unit_box(3), relative_tolerance=1e-4)
    one, two, any_number = (Exact(threads=threads).solve(problem) for threads in (1, 2, None))
    for field in one._fields:
        np.testing.assert_array_equal(getattr(one, field), getattr(two, field))
        np.testing.assert_array_equal(getattr(one, field), getattr(any_number, field))


def test_tolerance_per_state_and_relative():
    network = medium()
    loose = Exact().solve(Problem(network, unit_box(3), tolerance=np.array([1e-7, 10.0, 1e-7, 10.0, 1e-7, 10.0])))
    tight = Exact().solve(Problem(network, unit_box(3), tolerance=1e-7))
    np.testing.assert_array_equal(loose.values[::2], tight.values[::2])
    assert (loose.work[1::2] == 1).all()
    relative = Exact().solve(Problem(network, unit_box(3), tolerance=0.0, relative_tolerance=1e-2))
    assert (relative.upper - relative.values <= 1e-2 * np.abs(relative.values)).all()
    assert relative.work.sum() < tight.work.sum()


def test_masked_rows_cost_nothing():
    network = medium()
    warm = np.random.default_rng(1).uniform(-2, 2, (6, 3))
    mask = np.array([True, False, True, False, False, True])
    solution = Exact().solve(Problem(network, unit_box(3), warm_start=warm, mask=mask))
    assert (solution.status[~mask] == Status.SKIPPED).all()
    assert (solution.status[mask] == Status.OPTIMAL).all()
    np.testing.assert_array_equal(solution.actions[~mask], np.clip(warm, -1, 1)[~mask])
    np.testing.assert_allclose(solution.values[~mask], q(network, np.clip(warm, -1, 1))[~mask])
    assert np.isinf(solution.upper[~mask]).all()
    assert (solution.work[~mask] == 0).all()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("action_weights", lambda p: p._replace(network=p.network._replace(action_weights=np.ones((3, 7))))),
        ("output", lambda p: p._replace(network=p.network._replace(later=((np.ones((16, 2)), np.ones(2)),)))),
        ("high", lambda p: p._replace(action_set=ActionSet.box(-np.ones(3), np.ones(2)))),
    ],
)
def test_shapes_that_do_not_fit_are_named(name, change):
    with pytest.raises(CaqlError, match=name):
        Exact().solve(change(Problem(medium(), unit_box(3))))


@pytest.mark.parametrize("settings_", [{"node_limit": 0}, {"time_limit": 0.0}, {"threads": 0}])
def test_bad_settings_are_named(settings_):
    with pytest.raises(CaqlError, match=next(iter(settings_))):
        Exact(**settings_)


def test_overflow_is_never_optimal():
    network = medium()
    later = tuple((w * 1e200, b) for w, b in network.later)
    solution = Exact().solve(Problem(network._replace(later=later), unit_box(3)))
    assert set(solution.status) == {Status.FAILED}
    assert np.isinf(solution.upper).all()
    assert (np.abs(solution.actions) <= 1.0).all()


def test_it_is_a_solver_and_compiles_nothing_at_import():
    assert isinstance(Exact(), Solver)
    code = "import sys, caql.maxq.exact.solver; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_states_have_no_maxima():
    network = FoldedNetwork(np.zeros((0, 2)), np.ones((3, 2)), ((np.ones((2, 1)), np.zeros(1)),))
    solution = Exact().solve(Problem(network, ActionSet.box(-np.ones(3), np.ones(3))))
    assert solution.actions.shape == (0, 3)
    assert solution.values.shape == solution.upper.shape == solution.status.shape == (0,)
