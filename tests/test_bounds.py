"""Bounds: closed forms, the appendix's recursion written out, and random networks against sampled actions."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caql import bounds
from caql.actions import ActionSet
from caql.networks import FoldedNetwork

from .maxq.sets import random_sets

FOUR = pytest.mark.parametrize("method", bounds.METHODS)


def random_network(seed: int, sizes: tuple[int, ...], rows: int, scale: float = 1.0) -> FoldedNetwork:
    rng = np.random.default_rng(seed)
    layers = [
        (scale * rng.normal(size=s) * np.sqrt(2 / s[0]), 0.3 * rng.normal(size=s[1])) for s in itertools.pairwise(sizes)
    ]
    return FoldedNetwork(rng.normal(size=(rows, sizes[1])), layers[0][0], tuple(layers[1:]))


def random_box(seed: int, shape: tuple[int, ...]) -> ActionSet:
    """Asymmetric, with about one side in four a single point."""
    rng = np.random.default_rng(seed)
    centre, radius = rng.normal(size=shape), rng.exponential(size=shape) * (rng.random(shape) > 0.25)
    return ActionSet.box(centre - radius, centre + radius)


def preactivations(network: FoldedNetwork, actions: Any) -> list[Any]:
    found = [actions @ network.action_weights + network.first_bias]
    for weights, bias in network.later:
        found.append(np.maximum(found[-1], 0) @ weights + bias)
    return found


def one_neuron(output: float) -> FoldedNetwork:
    """Q(a) = output * [a]+."""
    return FoldedNetwork(np.zeros((1, 1)), np.ones((1, 1)), ((np.full((1, 1), output), np.zeros(1)),))


@pytest.mark.parametrize(
    ("method", "rising", "falling"),
    [
        # On a in [-1, 3] the chord of [a]+ is 3/4 (a + 1).  -[a]+ is at most 0; the dual's parallel through the
        # origin gives 3/4 at a = -1, the adaptive slope (3 > 1, so one) gives 1.
        ("interval", 3.0, 0.0),
        ("dual", 3.0, 0.75),
        ("backward", 3.0, 1.0),
        ("tightest", 3.0, 0.0),
    ],
)
def test_one_neuron_by_hand(method: bounds.Method, rising: float, falling: float) -> None:
    box = ActionSet.box(np.array([-1.0]), np.array([3.0]))
    assert bounds.upper_bound(one_neuron(1.0), box, method) == pytest.approx([rising])
    assert bounds.upper_bound(one_neuron(-1.0), box, method) == pytest.approx([falling])


def test_the_adaptive_slope_is_zero_where_the_neuron_is_mostly_dead() -> None:
    box = ActionSet.box(np.array([-3.0]), np.array([1.0]))
    assert bounds.backward_bound(one_neuron(-1.0), box) == pytest.approx([0.0])
    assert bounds.dual_bound(one_neuron(-1.0), box) == pytest.approx([0.75])


def appendix_c(layers: list[tuple[Any, Any]], c: Any, centre: Any, radius: Any, ranges: list[tuple[Any, Any]]) -> float:
    """max c' z_K by the appendix's recursion, neuron by neuron: nu_K = -c, nu_j = D_j W_j nu_{j+1}."""
    nu, total = -c, 0.0
    for (weights, bias), (lower, upper) in zip(reversed(layers[1:]), reversed(ranges), strict=True):
        total -= nu @ bias
        passed = weights @ nu
        nu = np.zeros(len(lower))
        for s in range(len(lower)):
            if lower[s] >= 0:
                nu[s] = passed[s]
            elif upper[s] > 0:
                nu[s] = passed[s] * upper[s] / (upper[s] - lower[s])
                total += lower[s] * min(nu[s], 0.0)
    weights, bias = layers[0]
    return total - nu @ bias - (weights @ nu) @ centre + radius @ np.abs(weights @ nu)


@pytest.mark.parametrize("sizes", [(3, 1), (2, 5, 1), (3, 8, 6, 1), (2, 6, 5, 4, 1)])
def test_dual_is_the_recursion_of_appendix_c(sizes: tuple[int, ...]) -> None:
    network, box = random_network(1, sizes, rows=4), random_box(2, (sizes[0],))
    layers = [(network.action_weights, None), *network.later]
    for row in range(4):
        layers[0] = (network.action_weights, network.first_bias[row])
        ranges: list[tuple[Any, Any]] = []
        for depth in range(1, len(layers) + 1):
            units = np.eye(len(layers[depth - 1][1]))
            upper = [appendix_c(layers[:depth], unit, box.centre, box.radius, ranges) for unit in units]
            lower = [-appendix_c(layers[:depth], -unit, box.centre, box.radius, ranges) for unit in units]
            ranges.append((np.array(lower), np.array(upper)))
        for (lower, upper), (low, high) in zip(bounds.layer_bounds(network, box, "dual"), ranges, strict=True):
            np.testing.assert_allclose(lower[row], low, atol=1e-12)
            np.testing.assert_allclose(upper[row], high, atol=1e-12)
        assert bounds.dual_bound(network, box)[row] == pytest.approx(ranges[-1][1][0])


SIZES = st.lists(st.integers(1, 7), min_size=0, max_size=4)


@FOUR
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    d=st.integers(1, 4),
    hidden=SIZES,
    scale=st.sampled_from([1e-3, 1.0, 30.0]),
    shared=st.booleans(),
)
def test_no_sampled_neuron_leaves_its_bounds(
    method: bounds.Method, seed: int, d: int, hidden: list[int], scale: float, shared: bool
) -> None:
    network = random_network(seed, (d, *hidden, 1), rows=3, scale=scale)
    box = random_box(seed + 1, (d,) if shared else (3, d))
    unit = np.random.default_rng(seed + 2).random((200, 3, d))
    # Corners, where a linear bound is tight, as well as the inside.
    unit[:100] = np.round(unit[:100])
    actions = box.low + unit * (box.high - box.low)
    found = bounds.layer_bounds(network, box, method)
    for heights, (lower, upper) in zip(preactivations(network, actions), found, strict=True):
        # Bounds are rounded to nearest: a wide one is off by more than a narrow one.
        slack = 1e-9 * (1 + max(np.abs(numbers).max() for numbers in (heights, lower, upper)))
        assert (heights >= lower - slack).all()
        assert (heights <= upper + slack).all()
    assert len(bounds.preactivation_bounds(network, box, method)) == len(hidden)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), d=st.integers(1, 4), hidden=SIZES)
def test_tightest_is_never_looser_than_interval_and_layers_stay_ordered(seed: int, d: int, hidden: list[int]) -> None:
    network, box = random_network(seed, (d, *hidden, 1), rows=3), random_box(seed + 1, (d,))
    tightest = bounds.layer_bounds(network, box, "tightest")
    for (lower, upper), (low, high) in zip(tightest, bounds.layer_bounds(network, box, "interval"), strict=True):
        assert (lower >= low - 1e-9).all()
        assert (upper <= high + 1e-9).all()
        assert (lower <= upper).all()


def test_the_linear_bounds_beat_intervals_on_deep_networks() -> None:
    network, box = random_network(3, (3, 32, 16, 1), rows=64), ActionSet.box(-np.ones(3), np.ones(3))
    interval, dual, backward, tightest = (bounds.upper_bound(network, box, m).mean() for m in bounds.METHODS)
    assert tightest < backward < dual < interval


@FOUR
def test_a_single_action_leaves_no_gap(method: bounds.Method) -> None:
    network, point = random_network(4, (3, 9, 7, 1), rows=5), np.array([0.3, -0.2, 0.9])
    found = bounds.upper_bound(network, ActionSet.box(point, point), method)
    np.testing.assert_allclose(found, preactivations(network, point)[-1][:, 0], rtol=1e-12)


@FOUR
@pytest.mark.parametrize("sizes", [(3, 1), (3, 9, 1), (3, 9, 7, 1), (2, 6, 5, 4, 1)])
def test_traced_in_float32_it_is_the_same_bound(method: bounds.Method, sizes: tuple[int, ...]) -> None:
    network, box = random_network(5, sizes, rows=6), random_box(6, (sizes[0],))
    traced = jax.jit(bounds.upper_bound, static_argnums=2)
    single = jax.tree.map(lambda array: jnp.asarray(array, jnp.float32), (network, box))
    found = traced(*single, method)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, bounds.upper_bound(network, box, method), rtol=1e-4, atol=1e-5)


@FOUR
def test_one_box_per_state_is_solved_per_state(method: bounds.Method) -> None:
    network, box = random_network(7, (2, 8, 6, 1), rows=3), random_box(8, (3, 2))
    together = bounds.upper_bound(network, box, method)
    for row in range(3):
        alone = network._replace(first_bias=network.first_bias[row : row + 1])
        np.testing.assert_allclose(
            bounds.upper_bound(alone, ActionSet.box(box.low[row], box.high[row]), method), together[row]
        )


def test_the_dual_builds_no_square_tensor_per_state() -> None:
    network = jax.tree.map(jnp.asarray, random_network(9, (3, 32, 16, 1), rows=64))
    box = ActionSet.box(-jnp.ones(3), jnp.ones(3))
    text = str(jax.make_jaxpr(bounds.dual_bound)(network, box))
    assert "[64,3,16]" in text
    assert "[64,32,16]" not in text
    assert "[64,16,32]" not in text


@FOUR
@pytest.mark.parametrize("shape", [(2, 2, 0, ()), (4, 6, 0, ()), (3, 4, 2, (3,)), (2, 2, 0, (0, 1))], ids=str)
def test_bounds_hold_over_action_sets_and_use_their_rows(method: bounds.Method, shape: Any) -> None:
    d, m, k, integer = shape
    rng = np.random.default_rng(0)
    found = random_sets(rng, 40, d, m, k, integer)
    filled = np.flatnonzero(~found.empty)
    action_set = found.action_set[filled]
    network = random_network(1, (d, 8, 6, 1), rows=len(filled))
    layers = bounds.layer_bounds(network, action_set, method)
    for _ in range(10):
        actions = action_set.project(3 * rng.normal(size=(len(filled), d)))
        for heights, (lower, upper) in zip(preactivations(network, actions), layers, strict=True):
            slack = 1e-7 * (1 + np.abs(heights).max())
            assert (heights >= lower - slack).all()
            assert (heights <= upper + slack).all()
    box = ActionSet.box(action_set.low, action_set.high)
    loose = bounds.upper_bound(network, box, method)
    tight = layers[-1][1][:, 0]
    assert np.median(tight - loose) <= 0
    assert (tight < loose - 1e-3).mean() > 0.2
    traced = jax.jit(bounds.upper_bound, static_argnums=2)(*jax.tree.map(jnp.asarray, (network, action_set)), method)
    np.testing.assert_allclose(traced, tight, rtol=1e-3, atol=1e-3)
