import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caql.networks import forward, init_layers
from caql.optimisers import FlatNetwork, adam, begin, descend, soft_update


def test_a_vector_holds_weights_then_bias_layer_by_layer():
    network = FlatNetwork((2, 1, 3))
    assert network.size == 9
    (first, first_bias), (second, second_bias) = network.layers(np.arange(9.0))
    np.testing.assert_array_equal(first, [[0], [1]])
    np.testing.assert_array_equal(first_bias, [2])
    np.testing.assert_array_equal(second, [[3, 4, 5]])
    np.testing.assert_array_equal(second_bias, [6, 7, 8])


def test_flatten_undoes_layers():
    layers = init_layers(jax.random.key(0), (4, 7, 3, 2))
    network = FlatNetwork((4, 7, 3, 2))
    vector = network.flatten(layers)
    assert vector.shape == (network.size,)
    states = jax.random.normal(jax.random.key(1), (5, 4))
    np.testing.assert_array_equal(forward(network.layers(vector), states), forward(layers, states))


def test_host_and_device_slices_agree():
    network = FlatNetwork((3, 4, 2))
    vector = network.init(jax.random.key(2))
    for device, host in zip(network.layers(vector), network.layers(np.array(vector)), strict=True):
        np.testing.assert_array_equal(device[0], host[0])
        np.testing.assert_array_equal(device[1], host[1])


def test_descend_takes_adams_steps():
    """Two steps by hand on sum(v^2 / 2) from (3, -1): the first is the rate itself, against the gradient's sign."""
    optimiser = adam(0.1)
    learned = begin(optimiser, jnp.array([3.0, -1.0]))

    def loss(vector):
        return jnp.sum(vector**2) / 2, "extra"

    learned, value, extra = descend(optimiser, learned, lambda vector: (loss(vector)[0], vector))
    assert value == pytest.approx(5.0)
    np.testing.assert_allclose(extra, [3.0, -1.0])
    np.testing.assert_allclose(learned.vector, [2.9, -0.9], rtol=1e-6)

    mean = (0.9 * 0.1 * 3.0 + 0.1 * 2.9) / (1 - 0.9**2)
    square = (0.999 * 0.001 * 9.0 + 0.001 * 2.9**2) / (1 - 0.999**2)
    learned, _, _ = descend(optimiser, learned, lambda vector: (loss(vector)[0], None))
    assert learned.vector[0] == pytest.approx(2.9 - 0.1 * mean / np.sqrt(square), rel=1e-5)


def test_adam_has_the_usual_decay_rates():
    """One gradient of 1 and then none: the step dies with the mean of the gradients, 0.9, and revives by 0.999."""
    optimiser = adam(0.1)
    learned = begin(optimiser, jnp.array([0.0]))
    mean, square, expected = 0.0, 0.0, 0.0
    for step, gradient in enumerate([1.0] + [0.0] * 30, 1):
        learned, _, _ = descend(optimiser, learned, lambda vector, g=gradient: (g * vector[0], None))
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        expected -= 0.1 * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
        assert learned.vector[0] == pytest.approx(expected, rel=1e-4), step


def test_a_target_that_has_arrived_stays():
    vector = jax.random.normal(jax.random.key(0), (1000,))
    np.testing.assert_array_equal(soft_update(vector, vector, 0.001), vector)


def test_soft_update_moves_the_target_by_the_rate():
    moved = soft_update(jnp.array([0.0, 10.0]), jnp.array([1.0, 20.0]), 0.25)
    np.testing.assert_allclose(moved, [0.25, 12.5])
