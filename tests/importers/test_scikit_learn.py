"""scikit-learn's regressors become networks that compute the same."""

import warnings

import numpy as np
import pytest

from caql import network
from caql.errors import CaqlError

neural_network = pytest.importorskip("sklearn.neural_network")
X = np.random.default_rng(0).normal(size=(30, 4))


@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic", "identity"])
def test_a_fitted_regressor(activation: str) -> None:
    model = neural_network.MLPRegressor(hidden_layer_sizes=(6, 5), activation=activation, max_iter=3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, X[:, 0] * X[:, 1])
    np.testing.assert_allclose(network(model).evaluate(X[:, :0], X)[:, 0], model.predict(X), rtol=1e-12)


def test_others_are_named() -> None:
    with pytest.raises(CaqlError, match="has no layers"):
        network(neural_network.MLPRegressor())
