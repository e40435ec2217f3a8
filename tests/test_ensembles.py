"""The minimum and the mean of networks as one network: against their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caql.ensembles import combined
from caql.errors import CaqlError
from caql.maxq.maximize import maximize
from caql.networks import forward, init_layers
from tests.maxq.problems import he_layers

INPUTS = 5


def members(count, hidden, dtype=np.float64):
    """Networks of different widths whose values cross each other."""
    return [
        [
            (w.astype(dtype), b.astype(dtype))
            for w, b in he_layers(seed, (INPUTS, *(n + seed % 2 for n in hidden), 1), 2.0)
        ]
        for seed in range(count)
    ]


def value(layers, inputs):
    hidden = inputs
    for weights, bias in layers[:-1]:
        hidden = np.maximum(hidden @ weights + bias, 0)
    return (hidden @ layers[-1][0] + layers[-1][1])[:, 0]


@pytest.mark.parametrize("hidden", [(), (6,), (7, 4)])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_the_combination_is_what_it_says(count, hidden):
    networks = members(count, hidden)
    inputs = np.random.default_rng(0).normal(size=(500, INPUTS))
    values = np.stack([value(layers, inputs) for layers in networks])
    if count > 1:
        assert len(set(values.argmin(axis=0))) == count
    np.testing.assert_allclose(value(combined(networks, "min"), inputs), values.min(axis=0), atol=1e-12)
    np.testing.assert_allclose(value(combined(networks, "mean"), inputs), values.mean(axis=0), atol=1e-12)


def test_float32_and_jax_stay_what_they_are():
    networks = members(3, (6, 5), np.float32)
    for layers in (combined(networks, "min"), combined(networks, "mean")):
        assert all(isinstance(part, np.ndarray) and part.dtype == np.float32 for layer in layers for part in layer)
    traced = [init_layers(jax.random.key(seed), (INPUTS, 6, 5, 1)) for seed in range(3)]
    inputs = jax.random.normal(jax.random.key(9), (64, INPUTS))
    expected = jnp.stack([forward(layers, inputs)[:, 0] for layers in traced])
    for combine, of in (("min", jnp.min), ("mean", jnp.mean)):
        found = jax.jit(lambda networks, combine=combine: combined(networks, combine))(traced)
        assert all(part.dtype == jnp.float32 for layer in found for part in layer)
        np.testing.assert_allclose(forward(found, inputs)[:, 0], of(expected, axis=0), atol=1e-6)


def test_the_maximum_of_a_minimum_is_proved():
    """Two tents, 1 - |a - 0.5| and 2 - |a + 0.5|, whose minimum is largest where they cross or at the lower's top."""

    def tent(top, height):
        return [
            (np.array([[1.0, -1.0]]), np.array([-top, top])),
            (np.array([[-1.0], [-1.0]]), np.array([height])),
        ]

    found = maximize(combined([tent(0.5, 1.0), tent(-0.5, 2.0)]), -2.0, 2.0)
    assert found.values[0] == pytest.approx(1.0, abs=1e-4)
    assert found.upper[0] == pytest.approx(1.0, abs=2e-4)
    crossing = maximize(combined([tent(0.5, 1.0), tent(-0.5, 1.0)]), -2.0, 2.0)
    assert crossing.actions[0, 0] == pytest.approx(0.0, abs=1e-4)
    assert crossing.values[0] == pytest.approx(0.5, abs=1e-4)


@pytest.mark.parametrize(
    ("networks", "combine", "message"),
    [
        ([], "min", "networks is empty"),
        (members(2, (6,)), "max", r"combine = 'max' must be 'min' or 'mean'"),
        ([he_layers(0, (5, 4, 1)), he_layers(1, (6, 4, 1))], "min", r"networks\[1\] has 6 inputs.*the 5 inputs"),
        ([he_layers(0, (5, 4, 1)), he_layers(1, (5, 4, 4, 1))], "mean", r"networks\[1\] .* 3 layers"),
        ([he_layers(0, (5, 4, 2)), he_layers(1, (5, 4, 2))], "min", r"networks\[0\] .* 2 outputs.*one output"),
    ],
)
def test_networks_that_do_not_fit_are_named(networks, combine, message):
    with pytest.raises(CaqlError, match=message):
        combined(networks, combine)
