"""Equinox modules and Flax parameters become networks that compute the same."""

import jax
import numpy as np
import pytest

from caql import network
from caql.errors import CaqlError

eqx = pytest.importorskip("equinox")
linen = pytest.importorskip("flax.linen")
X = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)


@pytest.mark.parametrize(
    "activation",
    [jax.nn.relu, jax.nn.tanh, jax.nn.leaky_relu, jax.nn.silu, jax.nn.softplus, jax.nn.gelu, jax.nn.hard_tanh],
)
def test_equinox(activation) -> None:
    module = eqx.nn.MLP(4, 2, 7, 2, activation=activation, key=jax.random.key(0))
    found = network(module).evaluate(X[:, :0], X)
    np.testing.assert_allclose(found, jax.vmap(module)(X), rtol=2e-5, atol=2e-6)


def test_equinox_sequential() -> None:
    keys = jax.random.split(jax.random.key(1))
    parts = [eqx.nn.Linear(4, 5, key=keys[0]), eqx.nn.Lambda(jax.nn.elu), eqx.nn.Linear(5, 1, key=keys[1])]
    module = eqx.nn.Sequential(parts)
    np.testing.assert_allclose(network(module).evaluate(X[:, :0], X), jax.vmap(module)(X), rtol=2e-5, atol=2e-6)
    with pytest.raises(CaqlError, match="equinox Conv1d cannot be read"):
        network(eqx.nn.Conv1d(1, 1, 1, key=keys[0]))


def test_a_function_is_what_it_computes_and_not_what_it_is_called() -> None:
    def relu(x):
        return 2.0 * jax.nn.relu(x)

    for function, name in ((relu, "relu"), (lambda x: x * x, "<lambda>")):
        module = eqx.nn.MLP(4, 2, 7, 1, activation=function, key=jax.random.key(0))
        with pytest.raises(CaqlError, match=f"activation = '{name}' is a function that does not compute any of relu"):
            network(module)
    with pytest.raises(CaqlError, match="cannot be evaluated"):
        network(eqx.nn.Sequential([eqx.nn.Linear(4, 2, key=jax.random.key(0)), eqx.nn.Lambda(lambda x: x[99, 99])]))


class Dense(linen.Module):
    @linen.compact
    def __call__(self, x):
        for _ in range(11):
            x = linen.relu(linen.Dense(5)(x))
        return linen.Dense(1)(x)


def test_flax() -> None:
    module = Dense()
    parameters = module.init(jax.random.key(0), X)
    found = network(parameters).evaluate(X[:, :0], X)
    np.testing.assert_allclose(found, module.apply(parameters, X), rtol=2e-5, atol=2e-6)
