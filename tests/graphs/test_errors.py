"""Everything that a lowered expression leaves out is in its error: each term by hand, and whole networks by samples."""

from dataclasses import replace

import numpy as np
import pytest

from caql.actions import ActionSet
from caql.graphs.expressions import Expression, apply, exact
from caql.graphs.layers import HiddenLayers
from caql.graphs.lowering import lower
from caql.graphs.objective import Objective
from caql.graphs.operations import Multiply
from caql.graphs.units import Block, make_layer
from tests.graphs.networks import ACTIONS, SMOOTH, STATES, mlp, of_action_alone

BOX = ActionSet.box(-np.ones(2), np.ones(2))


def one_action(bias: float = 0.0) -> Expression:
    """bias + a_0, with two generators and an error: off by at most 3.5."""
    x = exact(np.array([[bias]]), np.array([[1.0], [0.0]]), np.ones(2))
    return replace(x, generators=np.array([[1.0], [-2.0]]), error=np.array([[0.5]]))


def test_the_spread_is_the_error_and_every_generator() -> None:
    assert one_action().spread == 3.5


def test_a_negative_factor_leaves_no_negative_error() -> None:
    scaled = apply(Multiply(), [one_action(), np.full((1, 1), -2.0)], np.ones(2))
    np.testing.assert_allclose(scaled.error, 1.0, rtol=1e-12)
    np.testing.assert_array_equal(scaled.generators, [[-2.0], [4.0]])
    assert scaled.error > 1.0  # the rounding of the product as well


def test_an_interval_holds_the_value_and_not_only_its_affine_part() -> None:
    lower, upper = HiddenLayers(BOX, 2, "interval").interval(one_action(10.0))
    np.testing.assert_allclose([lower, upper], [[[10 - 1 - 3.5]], [[10 + 1 + 3.5]]])


@pytest.mark.parametrize(("bias", "spread"), [(9.0, 3.5), (-9.0, 0.0), (0.0, 3.5), (3.0, 3.5), (-3.0, 3.5)])
def test_a_relu_passes_the_spread_on_unless_it_is_surely_inactive(bias: float, spread: float) -> None:
    """Up to the spread beyond the kink the affine part says nothing sure."""
    (after,) = make_layer(HiddenLayers(BOX, 2, "interval"), [Block(one_action(bias), np.zeros((1, 1)))])
    np.testing.assert_allclose(after.spread, [[spread]], atol=1e-12)
    assert len(after.generators) == 2
    assert after.generators.any() == (bias == 9.0)


@pytest.mark.parametrize("name", [*SMOOTH, "kinks after it"])
def test_smooth_networks_are_the_graph_to_their_error(name: str) -> None:
    rng = np.random.default_rng(0)
    for seed in range(3):
        network = of_action_alone(seed) if name == "kinks after it" else mlp(SMOOTH[name], seed)
        objective, state = Objective.of(network), rng.normal(size=(1, STATES))
        for radius in (1.0, 0.1):
            box = ActionSet.box(np.full(ACTIONS, 0.2 - radius), np.full(ACTIONS, 0.2 + radius))
            lowered, error = lower(objective, state, box)
            actions = rng.uniform(box.low, box.high, (500, ACTIONS))
            line = lowered.first_bias + actions @ lowered.action_weights
            for weights, bias in lowered.later:
                line = np.maximum(line, 0.0) @ weights + bias
            values = objective.values(np.repeat(state, 500, axis=0), actions)
            assert 0.0 < np.abs(line[:, 0] - values).max() <= error
