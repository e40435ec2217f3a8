"""Keras models become networks that compute the same."""

import os

import numpy as np
import pytest

from caql import network
from caql.errors import CaqlError

os.environ.setdefault("KERAS_BACKEND", "jax")
keras = pytest.importorskip("keras")
X = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)


def test_a_sequential_model() -> None:
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((5,)),
            layers.Dense(6, activation="relu"),
            layers.BatchNormalization(),
            layers.Dense(6),
            layers.LeakyReLU(negative_slope=0.1),
            layers.Dropout(0.5),
            layers.Dense(4, activation="tanh"),
            layers.Activation("silu"),
            layers.Dense(2),
        ]
    )
    np.testing.assert_allclose(network(model).evaluate(X[:, :0], X), model.predict(X, verbose=0), rtol=1e-4, atol=1e-5)


def test_a_functional_model() -> None:
    layers = keras.layers
    state, action = keras.Input((3,), name="state"), keras.Input((2,), name="action")
    hidden = layers.Dense(6, activation="relu")(layers.Concatenate()([state, action]))
    hidden = layers.Add()([hidden, layers.Dense(6, activation="relu")(hidden)])
    values = [layers.Dense(1)(hidden), layers.Dense(1)(hidden)]
    model = keras.Model([state, action], layers.Minimum()(values))
    found = network(model)
    assert found.action == 1
    expected = model.predict([X[:, :3], X[:, 3:]], verbose=0)
    np.testing.assert_allclose(found.evaluate(X[:, :3], X[:, 3:]), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["leaky_relu", "gelu", "elu", "selu", "softplus", "relu6", "sigmoid", "linear"])
def test_activations_by_name_are_those_of_keras(name: str) -> None:
    """Its leaky_relu has a slope of 0.2, where torch's has 0.01."""
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(6, activation=name), keras.layers.Dense(1)])
    np.testing.assert_allclose(network(model).evaluate(X[:, :0], X), model.predict(X, verbose=0), rtol=1e-4, atol=1e-5)


def test_what_cannot_be_read_is_named() -> None:
    with pytest.raises(CaqlError, match="is not built"):
        network(keras.Sequential([keras.layers.Dense(1)]))
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3), keras.layers.LayerNormalization()])
    with pytest.raises(CaqlError, match="LayerNormalization\\) cannot be read"):
        network(model)
    square = keras.layers.Dense(3, activation=lambda x: x * x)
    with pytest.raises(CaqlError, match="'<lambda>' is a function that does not compute any of relu"):
        network(keras.Sequential([keras.Input((5,)), square]))
    flat = keras.layers.Flatten(data_format="channels_first")
    with pytest.raises(CaqlError, match="right would be data_format='channels_last'"):
        network(keras.Sequential([keras.Input((2, 3)), flat, keras.layers.Dense(1)]))
