"""The policies on the host, by hand on networks of one hidden unit and the range [-1, 3] x [0, 1]."""

import math

import numpy as np
import pytest

from caql.actions import make_box
from caql.agents.policies import (
    DeterministicPolicy,
    GaussianPolicy,
    HostNetwork,
    SolverPolicy,
    SquashedGaussianPolicy,
    head,
)

BOX = make_box([-1.0, 0.0], [3.0, 1.0])


def layers(*last_bias):
    """hidden = relu(2 x - 1); output j = (j + 1) * hidden + last_bias[j]."""
    size = len(last_bias)
    first = np.array([[2.0]], np.float32), np.array([-1.0], np.float32)
    return first, (np.arange(1.0, size + 1, dtype=np.float32)[None], np.array(last_bias, np.float32))


def state(x):
    return np.array([x], np.float32)


def test_the_host_network_by_hand():
    network = HostNetwork(layers(0.5, -1.0))
    np.testing.assert_allclose(network(state(2.0)), [3.5, 5.0])
    np.testing.assert_allclose(network(state(0.0)), [0.5, -1.0])
    np.testing.assert_allclose(network(np.array([[2.0], [0.0]])), [[3.5, 5.0], [0.5, -1.0]])
    assert network(np.array([2.0], np.float64)).dtype == np.float32


def test_a_head_is_some_of_the_outputs():
    np.testing.assert_allclose(HostNetwork(head(layers(0.5, -1.0, 7.0), slice(1, 3)))(state(2.0)), [5.0, 16.0])


def test_deterministic_by_tanh_or_by_clip():
    sigma = np.array([0.5, 2.0], np.float32)
    squashed = DeterministicPolicy(layers(0.25, -0.5), BOX, sigma)
    expected = [1 + 2 * math.tanh(0.25), 0.5 + 0.5 * math.tanh(-0.5)]
    np.testing.assert_allclose(squashed.act(state(0.0)), expected, rtol=1e-6)
    np.testing.assert_allclose(
        squashed.explore(state(0.0), np.array([-1.0, 0.1])), [expected[0] - 0.5, expected[1] + 0.2]
    )
    for squash in ("clip", "straight_through"):
        clipped = DeterministicPolicy(layers(0.25, -0.5), BOX, sigma, squash)
        np.testing.assert_allclose(clipped.act(state(0.0)), [0.25, 0.0])
        np.testing.assert_allclose(clipped.act(state(2.0)), [3.0, 1.0])


def test_a_gaussian_explores_in_half_widths_of_the_range():
    policy = GaussianPolicy(layers(0.25, -0.5, math.log(0.1), math.log(0.2)), BOX, (-5.0, 0.5))
    greedy = [1 + 2 * math.tanh(0.25), 0.5 + 0.5 * math.tanh(-0.5)]
    np.testing.assert_allclose(policy.act(state(0.0)), greedy, rtol=1e-6)
    explored = policy.explore(state(0.0), np.array([1.0, -1.0], np.float32))
    np.testing.assert_allclose(explored, [greedy[0] + 2 * 0.1, greedy[1] - 0.5 * 0.2], rtol=1e-5)
    # Far up the log deviations reach their limit, exp(0.5) half-widths.
    wide = GaussianPolicy(layers(0.0, 0.0, 9.0, 9.0), BOX, (-5.0, 0.5))
    explored = wide.explore(state(0.0), np.array([0.1, -0.1], np.float32))
    np.testing.assert_allclose(explored, [1 + 0.2 * math.exp(0.5), 0.5 - 0.05 * math.exp(0.5)], rtol=1e-5)


def test_a_squashed_gaussian_adds_its_noise_before_tanh():
    policy = SquashedGaussianPolicy(layers(0.25, -0.5, math.log(0.1), -50.0), BOX, (-20.0, 2.0))
    np.testing.assert_allclose(
        policy.act(state(0.0)), [1 + 2 * math.tanh(0.25), 0.5 + 0.5 * math.tanh(-0.5)], rtol=1e-6
    )
    explored = policy.explore(state(0.0), np.array([2.0, 1e6], np.float32))
    expected = [1 + 2 * math.tanh(0.25 + 0.2), 0.5 + 0.5 * math.tanh(-0.5 + 1e6 * math.exp(-20))]
    np.testing.assert_allclose(explored, expected, rtol=1e-5)


def test_the_solver_acts_for_one_state_or_many_and_explores_within_the_range():
    asked = []

    def maximisers(states):
        asked.append(states.shape)
        return np.tile(np.array([[2.5, 2.0]], np.float32), (len(states), 1))

    policy = SolverPolicy(maximisers, BOX, np.array([1.0, 0.25], np.float32))
    np.testing.assert_allclose(policy.act(state(0.0)), [2.5, 1.0])
    np.testing.assert_allclose(policy.act(np.zeros((3, 1))), [[2.5, 1.0]] * 3)
    assert asked == [(1, 1), (3, 1)]
    np.testing.assert_allclose(policy.explore(state(0.0), np.array([-1.0, -1.0])), [1.5, 0.75])
    np.testing.assert_allclose(policy.explore(state(0.0), np.array([9.0, 9.0])), [3.0, 1.0])


@pytest.mark.parametrize("make", [DeterministicPolicy, SquashedGaussianPolicy, GaussianPolicy])
def test_rounding_never_leaves_the_box(make):
    """In float32 centre + radius is above 0.8, 0.4 and 0.4 here: an action squashed to its edge rounds past it."""
    low, high = np.float32([0.6, 0.3, -0.7]), np.float32([0.8, 0.4, 0.4])
    assert ((low + high) / 2 + (high - low) / 2 > high).all()
    box = make_box(low, high)
    last = np.zeros((1, 6), np.float32), np.float32([99.0, 99.0, 99.0, 0, 0, 0])
    first = np.zeros((1, 1), np.float32), np.zeros(1, np.float32)
    network = (first, last) if make is not DeterministicPolicy else head((first, last), slice(3))
    policy = make(network, box, np.zeros(3, np.float32) if make is DeterministicPolicy else (-5.0, 2.0))
    assert (policy.act(state(0.0)) <= high).all()
    assert (policy.act(state(0.0)) > high - 1e-5).all()
