"""`maximize`: what it accepts, and one clear sentence for everything it does not."""

from typing import Any

import numpy as np
import pytest

from caql.errors import CaqlError
from caql.maxq.maximize import maximize
from caql.maxq.mip.solver import Mip
from caql.maxq.problem import Status

from .problems import he_layers

LAYERS = he_layers(60, (2 + 2, 6, 4, 1))
STATES = np.random.default_rng(60).normal(size=(3, 2))
GOOD: dict[str, Any] = {"layers": LAYERS, "low": -1.0, "high": 1.0, "states": STATES, "solver": "highs"}


def poisoned(layer: int, part: int, value: float) -> list[tuple[Any, Any]]:
    layers = [(w.copy(), b.copy()) for w, b in LAYERS]
    layers[layer][part].flat[1 if layers[layer][part].size > 1 else 0] = value
    return layers


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": []}, "layers is empty"),
        ({"layers": 3}, "layers must be a list of (W, b) pairs"),
        ({"layers": [LAYERS[0][0]]}, "layers must be a list of (W, b) pairs"),
        ({"layers": [("a", "b")]}, "layers[0] weights must be an array of numbers"),
        ({"layers": poisoned(0, 0, np.nan)}, "layers[0] weights holds nan at index (0, 1); every entry must be finite"),
        ({"layers": poisoned(1, 1, np.inf)}, "layers[1] bias holds inf at index (1,)"),
        ({"layers": [LAYERS[0], LAYERS[2]]}, "layers[1] takes 4 inputs but layers[0] has 6 outputs"),
        ({"layers": LAYERS[:2]}, "layers ends in 4 outputs; the last layer must have exactly one"),
        (
            {"layers": [(LAYERS[0][0], LAYERS[0][1][:3]), *LAYERS[1:]]},
            "weights of shape (4, 6) and a bias of shape (3,)",
        ),
        ({"layers": [(np.ones(4), np.ones(1))]}, "weights of shape (4,)"),
        ({"layers": [(np.ones((4, 0)), np.ones(0))]}, "weights of shape (4, 0)"),
        ({"states": np.full((3, 2), np.nan)}, "states holds nan at index (0, 0)"),
        ({"states": np.zeros((3, 4))}, "states has 4 columns but the network only 4 inputs"),
        ({"states": np.zeros((1, 3, 2))}, "states has shape (1, 3, 2)"),
        ({"low": np.nan}, "low holds nan; every entry must be finite"),
        ({"high": [1.0, np.inf]}, "high holds inf at index (1,)"),
        ({"low": [0.0, 2.0]}, "low = 2.0 exceeds high = 1.0 at index (1,)"),
        (
            {"low": [-1.0] * 3},
            "low has shape (3,); with 3 state(s) and 2 action dimension(s) right would be (2,) or (3, 2)",
        ),
        ({"high": np.ones((2, 2))}, "high has shape (2, 2)"),
        ({"warm_start": [0.0]}, "warm_start has shape (1,)"),
        ({"warm_start": [0.0, np.nan]}, "warm_start holds nan"),
        ({"tolerance": -1.0}, "tolerance = -1.0 is negative"),
        ({"tolerance": np.nan}, "tolerance holds nan"),
        ({"tolerance": [1e-3, 1e-3]}, "tolerance has shape (2,); right would be one number or (3,)"),
        ({"relative_tolerance": -0.5}, "relative_tolerance = -0.5 is negative"),
        ({"solver": "exakt"}, "did you mean 'exact'"),
        ({"solver": 7}, "solver = 7 must be a solver object or one of: exact, scip"),
        ({"threads": 0}, "threads = 0 must be a whole number, at least 1"),
        ({"threads": 1.5}, "threads = 1.5 must be a whole number"),
    ],
)
def test_bad_input_is_one_sentence_that_names_it(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CaqlError) as raised:
        maximize(**{**GOOD, **changes})
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_states_are_the_first_inputs() -> None:
    together = maximize(**GOOD)
    assert together.actions.shape == (3, 2)
    weights, bias = LAYERS[0]
    for row, state in enumerate(STATES):
        folded = [(weights[2:], state @ weights[:2] + bias), *LAYERS[1:]]
        alone = maximize(folded, -1.0, 1.0, solver="highs")
        assert alone.values.shape == (1,)
        assert alone.values[0] == pytest.approx(together.values[row], abs=1e-4)


@pytest.mark.parametrize("solver", ["exact", "highs", "ga", "cem"])
def test_lists_float32_and_boxes_of_every_form_mean_the_same(solver: str) -> None:
    plain = maximize(**{**GOOD, "solver": solver})
    listed = [(w.astype(np.float32).tolist(), b.astype(np.float32).tolist()) for w, b in LAYERS]
    forms: list[tuple[Any, Any]] = [([-1, -1], 1.0), (np.full((3, 2), -1.0), [1.0, 1.0])]
    for low, high in forms:
        found = maximize(listed, low, high, STATES.tolist(), solver)
        np.testing.assert_allclose(found.values, plain.values, atol=2e-4)
        assert isinstance(found.values, np.ndarray)
        assert found.values.dtype == np.float64


def test_a_solver_object_brings_its_settings() -> None:
    found = maximize(**{**GOOD, "solver": Mip("highs", cut_rounds=2)})
    np.testing.assert_allclose(found.values, maximize(**GOOD).values, atol=1e-4)


def test_a_tolerance_per_state() -> None:
    found = maximize(**GOOD, tolerance=[1e-7, 1e6, 1e-7])
    assert (found.status == Status.OPTIMAL).all()
    assert found.work[1] == 0
    assert found.upper[1] - found.values[1] > 1e-3


def test_exact_is_the_default_and_takes_threads() -> None:
    found = maximize(LAYERS, -1.0, 1.0, STATES, threads=2)
    assert (found.status == Status.OPTIMAL).all()
    np.testing.assert_allclose(found.values, maximize(**GOOD).values, atol=2e-4)
