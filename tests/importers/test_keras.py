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


@pytest.mark.parametrize(
    "name", ["hard_sigmoid", "hard_silu", "mish", "softsign", "log_sigmoid", "tanh_shrink", "celu"]
)
def test_more_activations(name: str) -> None:
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(6, activation=name), keras.layers.Dense(1)])
    np.testing.assert_allclose(network(model).evaluate(X[:, :0], X), model(X), rtol=1e-4, atol=1e-5)


PICTURE = np.random.default_rng(1).normal(size=(3, 5, 6, 4)).astype(np.float32)
ON_PICTURES = {
    "convolution": [("Conv2D", {"filters": 6, "kernel_size": (2, 3), "strides": 2, "padding": "same", "groups": 2})],
    "dilated": [("Conv2D", {"filters": 3, "kernel_size": 2, "dilation_rate": 2, "activation": "relu"})],
    "one axis": [("Reshape", {"target_shape": (-1, 8)}), ("Conv1D", {"filters": 2, "kernel_size": 3}),
                 ("MaxPooling1D", {})],
    "pooling": [("MaxPooling2D", {"pool_size": (2, 3), "strides": 1, "padding": "same"}),
                ("AveragePooling2D", {"pool_size": 2, "padding": "same"})],
    "all of it": [("ZeroPadding2D", {"padding": ((1, 0), (2, 1))}), ("GlobalAveragePooling2D", {"keepdims": True})],
    "the largest": [("PReLU", {"shared_axes": [1, 2], "alpha_initializer": "random_normal"}),
                    ("GlobalMaxPooling2D", {}), ("ELU", {"alpha": 0.7})],
    "moved": [("Permute", {"dims": (3, 1, 2)}), ("Rescaling", {"scale": 0.5, "offset": 1.0}), ("Flatten", {})],
    "of the state": [("LayerNormalization", {}), ("Softmax", {}), ("Flatten", {})],
}  # fmt: skip


@pytest.mark.parametrize("name", ON_PICTURES)
def test_layers_on_pictures(name: str) -> None:
    made = [getattr(keras.layers, kind)(**settings) for kind, settings in ON_PICTURES[name]]
    model = keras.Sequential([keras.Input(PICTURE.shape[1:]), *made])
    flat = PICTURE.reshape(3, -1)
    expected = np.asarray(model(PICTURE)).reshape(3, -1)
    np.testing.assert_allclose(network(model).evaluate(flat[:, :0], flat), expected, rtol=1e-4, atol=1e-5)


def test_functions_of_tensors_and_models_in_models() -> None:
    """`x + 1` has one tensor and one number: it must not be taken for the layer Add of one tensor."""
    first = keras.Input((5,), name="x")
    inner = keras.Sequential([keras.Input((5,)), keras.layers.Dense(5, activation="relu"), keras.layers.Dense(5)])
    value = 2.0 - inner(first + 1.0) * 0.5
    value = keras.ops.maximum(value, -inner(value)) / 4.0
    average = keras.layers.Average()([value, abs(first)])
    statistics = keras.layers.Normalization(mean=[0.1, 0.2, 0.3, 0.4, 0.5], variance=[1.0, 2.0, 3.0, 4.0, 5.0])
    model = keras.Model(first, statistics(average))
    np.testing.assert_allclose(network(model).evaluate(X[:, :0], X), model(X), rtol=1e-4, atol=1e-5)
    with pytest.raises(CaqlError, match="cannot be read; known functions are Add"):
        network(keras.Model(first, keras.ops.cumsum(first, axis=1)))


def test_what_cannot_be_read_is_named() -> None:
    with pytest.raises(CaqlError, match="is not built"):
        network(keras.Sequential([keras.layers.Dense(1)]))
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3), keras.layers.UnitNormalization()])
    with pytest.raises(CaqlError, match="UnitNormalization\\) cannot be read; known are Dense"):
        network(model)
    causal = keras.layers.Conv1D(2, 2, padding="causal")
    with pytest.raises(CaqlError, match="has padding 'causal'; right would be 'valid' or 'same'"):
        network(keras.Sequential([keras.Input((5, 2)), causal]))
    square = keras.layers.Dense(3, activation=lambda x: x * x)
    with pytest.raises(CaqlError, match="'<lambda>' is a function that does not compute any of relu"):
        network(keras.Sequential([keras.Input((5,)), square]))
    flat = keras.layers.Flatten(data_format="channels_first")
    with pytest.raises(CaqlError, match="right would be data_format='channels_last'"):
        network(keras.Sequential([keras.Input((2, 3)), flat, keras.layers.Dense(1)]))
