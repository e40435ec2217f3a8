"""Twin critics by hand: Q_1(x, a) = 3 relu(x + 2 a + 1) - 1 and Q_2(x, a) = relu(x + a)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caql.agents.twin_critics import TwinCritics
from caql.replay import Batch

CRITICS = jnp.array([[1.0, 2.0, 1.0, 3.0, -1.0], [1.0, 1.0, 0.0, 1.0, 0.0]])
TWINS = TwinCritics((2, 1, 1))
STATES, ACTIONS = jnp.array([[2.0], [0.0]]), jnp.array([[1.0], [-1.0]])


def test_values_and_the_smaller_of_them():
    np.testing.assert_allclose(TWINS.values(CRITICS, STATES, ACTIONS), [[14, -1], [3, 0]])
    np.testing.assert_allclose(TWINS.smaller_value(CRITICS, STATES, ACTIONS), [3, -1])


def test_the_loss_adds_the_two_mean_squares():
    loss, mean = TWINS.loss(CRITICS, Batch(STATES, ACTIONS, None, None, None), jnp.array([12.0, 3.0]))
    assert loss == pytest.approx((2**2 + 4**2) / 2 + (9**2 + 3**2) / 2)
    assert mean == pytest.approx((14 - 1 + 3 + 0) / 4)


def test_the_two_begin_apart():
    critics = TWINS.init(jax.random.split(jax.random.key(0), 2))
    assert critics.shape == (2, 5)
    assert not np.array_equal(*critics)
    np.testing.assert_array_equal(critics[1], TWINS.network.init(jax.random.split(jax.random.key(0), 2)[1]))
