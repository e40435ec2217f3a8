"""scikit-learn's `MLPRegressor`: `coefs_` and `intercepts_` of a fitted one."""

from __future__ import annotations

from typing import Any

from caql.errors import CaqlError
from caql.graphs import Network
from caql.importers.parameters import as_array, chain

OPTIONS: tuple[str, ...] = ()


def read(model: Any) -> Network:
    """The network of a fitted regressor."""
    if not hasattr(model, "coefs_"):
        right = "right would be a fitted MLPRegressor"
        raise CaqlError(f"the {type(model).__name__} has no layers (coefs_); {right}")
    if model.out_activation_ != "identity":
        raise CaqlError(f"the {type(model).__name__} ends in {model.out_activation_}; right would be an MLPRegressor")
    layers = [
        (as_array(f"coefs_[{k}]", weights), as_array(f"intercepts_[{k}]", bias))
        for k, (weights, bias) in enumerate(zip(model.coefs_, model.intercepts_, strict=True))
    ]
    return chain(layers, model.activation)
