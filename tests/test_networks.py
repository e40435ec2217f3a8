import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caql.networks import fold_state, folded_value, forward, init_layers, q_value


@pytest.mark.parametrize("hidden", [(), (5,), (32, 16), (7, 6, 5, 4)])
def test_folding_a_state_away_does_not_change_q(hidden):
    layers = init_layers(jax.random.key(1), (11 + 3, *hidden, 1))
    states = jax.random.normal(jax.random.key(2), (9, 11))
    actions = jax.random.normal(jax.random.key(3), (9, 3))
    folded = folded_value(fold_state(layers, states), actions)
    joined = forward(layers, jnp.concatenate([states, actions], axis=1))[:, 0]
    np.testing.assert_allclose(folded, joined, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(q_value(layers, states, actions), joined, rtol=1e-5, atol=1e-6)


def test_folded_value_takes_leading_axes():
    layers = init_layers(jax.random.key(0), (4 + 2, 8, 1))
    states = jax.random.normal(jax.random.key(1), (5, 4))
    actions = jax.random.normal(jax.random.key(2), (3, 5, 2))
    values = folded_value(fold_state(layers, states), actions)
    assert values.shape == (3, 5)
    np.testing.assert_allclose(values[2], q_value(layers, states, actions[2]), rtol=1e-5, atol=1e-6)


def test_hand_computed_network():
    layers = (
        (jnp.array([[1.0, -1.0], [2.0, 1.0]]), jnp.array([0.0, 0.5])),
        (jnp.array([[3.0], [-1.0]]), jnp.array([0.25])),
    )
    # x = 1, a = 0.5: hidden (1 + 1, -1 + 0.5 + 0.5) = (2, 0) -> 3 * 2 - 0 + 0.25.
    assert float(q_value(layers, jnp.array([1.0]), jnp.array([0.5]))) == pytest.approx(6.25)


def test_every_array_is_drawn_apart():
    (first, first_bias), (second, second_bias) = init_layers(jax.random.key(0), (5, 5, 5))
    assert not np.array_equal(first, second)
    draws = [*first, first_bias, *second, second_bias]
    assert len({tuple(draw.tolist()) for draw in draws}) == len(draws)
    # The first numbers of two draws from one key would be the same.
    assert first[0, 0] != first_bias[0]
    alone = init_layers(jax.random.key(0), (1, 4, 1))[0]
    assert not np.array_equal(alone[0][0], alone[1])


def test_initial_weights_lie_within_one_over_root_fan_in():
    (first, bias), _ = init_layers(jax.random.key(0), (25, 400, 1))
    assert float(jnp.abs(first).max()) <= 0.2
    assert float(jnp.abs(first).max()) > 0.19
    assert float(jnp.abs(bias).max()) <= 0.2
