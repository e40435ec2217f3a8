"""Activations beyond the usual: each by its definition, its curvature, and the proved maximum of a network of it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from caql import maximize
from caql.errors import CaqlError
from caql.graphs.builder import Builder
from caql.graphs.tangents import tangent
from caql.importers.activations import activation
from tests.graphs.networks import ACTIONS, MORE_SMOOTH, STATES, of_function

Definition = Callable[[Any], Any]
FUNCTIONS: dict[str, tuple[Callable[[Builder, int], int], Definition]] = {
    "hard_sigmoid": (activation("hard_sigmoid"), lambda x: np.clip(x / 6 + 0.5, 0, 1)),
    "hard_swish": (activation("hard_swish"), lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "celu": (
        lambda builder, x: builder.celu(x, 0.6),
        lambda x: np.where(x > 0, x, 0.6 * np.expm1(np.minimum(x, 0) / 0.6)),
    ),
    "softplus": (lambda builder, x: builder.softplus(x, 3.0), lambda x: np.log1p(np.exp(3 * x)) / 3),
    "log_sigmoid": (activation("log_sigmoid"), lambda x: -np.log1p(np.exp(-x))),
    "soft_shrink": (activation("soft_shrink"), lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0)),
    "tanh_shrink": (activation("tanh_shrink"), lambda x: x - np.tanh(x)),
    "mish": (activation("mish"), lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    "softsign": (activation("softsign"), lambda x: x / (1 + np.abs(x))),
    "sin": (activation("sin"), np.sin),
    "cos": (activation("cos"), np.cos),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_activation_is_what_it_is_defined_as(name: str) -> None:
    made, definition = FUNCTIONS[name]
    builder = Builder()
    x = builder.input((401,), "x")
    points = np.linspace(-20, 20, 401)
    (found,) = builder.evaluate({x: points[None]}, [made(builder, x)])
    np.testing.assert_allclose(found[0], definition(points), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", MORE_SMOOTH)
def test_a_line_along_it_is_as_close_as_it_says_and_its_curvature_is_a_bound(name: str) -> None:
    rng = np.random.default_rng(0)
    lower = rng.normal(size=200) * 4
    upper = lower + 10.0 ** rng.uniform(-6, 1, 200)
    slope, offset, error = tangent(MORE_SMOOTH[name], lower, upper)
    x = lower + (upper - lower) * np.linspace(0, 1, 1237)[:, None]
    assert (np.abs(MORE_SMOOTH[name].evaluate(x) - slope * x - offset).max(axis=0) <= error).all()
    grid = np.linspace(-8, 8, 160001)
    second = np.diff(MORE_SMOOTH[name].evaluate(grid), 2) / (grid[1] - grid[0]) ** 2
    assert 0.9 * MORE_SMOOTH[name].curvature <= np.abs(second).max() <= MORE_SMOOTH[name].curvature * (1 + 1e-4)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_maximum_is_proved_and_no_sample_is_above_it(name: str) -> None:
    network, rng = of_function(FUNCTIONS[name][0], 4), np.random.default_rng(0)
    state = rng.normal(size=(1, STATES))
    solution = maximize(network, -2, 2, state, tolerance=1e-2)
    assert solution.status[0] == 0
    assert solution.upper[0] - solution.values[0] <= 1e-2
    sampled = network.evaluate(state, rng.uniform(-2, 2, (4000, ACTIONS)))[:, 0]
    assert sampled.max() <= solution.upper[0]


def test_a_negative_alpha_is_named() -> None:
    with pytest.raises(CaqlError, match="alpha = -1 must be positive"):
        of_function(lambda builder, x: builder.celu(x, -1.0))
