"""`maximize`: what it accepts, and one clear sentence for everything it does not."""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import pytest

import caql
from caql.actions import ActionSet
from caql.errors import CaqlError, CaqlWarning
from caql.maxq.exact.solver import Exact
from caql.maxq.maximize import maximize
from caql.maxq.mip.solver import Mip
from caql.maxq.problem import Problem, Solution, Status
from caql.maxq.solvers import BACKENDS, SOLVERS, make_solver
from caql.networks import folded_value

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
        ({"solver": "ga", "time_limit": 1.0}, "time_limit = 1.0 has no meaning for solver 'ga'"),
        ({"node_limit": 5}, "node_limit = 5 has no meaning for solver 'highs'"),
        ({"time_limit": 0.0}, "time_limit = 0.0 must be"),
        ({"time_limit": "long"}, "time_limit = 'long' must be a number"),
        ({"rows": 3}, "rows must be a pair: a matrix (m, 2)"),
        ({"rows": (np.ones((1, 3)), np.ones(1))}, "rows has a matrix of shape (1, 3)"),
        ({"rows": (np.ones((2, 2)), np.ones(1))}, "right-hand side of shape (1,)"),
        ({"rows": (np.ones((2, 1, 2)), np.ones(1))}, "right would be (m, 2) or (3, m, 2)"),
        ({"rows": (np.ones((1, 2)), [np.nan])}, "rows[1] holds nan"),
        ({"equalities": (np.ones(2), np.ones(1))}, "equalities has a matrix of shape (2,)"),
        ({"rows": (np.ones((1, 2)), [np.inf])}, "rows[1] holds inf at index (0,); every entry must be finite"),
        ({"rows": (np.full((3, 1, 2), np.nan), np.ones(1))}, "rows[0] holds nan at index (0, 0, 0)"),
        ({"rows": ("a", "b")}, "rows[0] must be an array of numbers"),
        ({"rows": (np.ones((1, 2)), np.ones(()))}, "right-hand side of shape ()"),
        ({"rows": (np.ones((1, 2)), np.ones((2, 1)))}, "and (m,) or (3, m)"),
        ({"equalities": 3}, "equalities must be a pair: a matrix (m, 2)"),
        ({"equalities": (np.ones((1, 3)), np.ones(1))}, "equalities has a matrix of shape (1, 3)"),
        ({"equalities": (np.ones((1, 2)), [-np.inf])}, "equalities[1] holds -inf"),
        ({"integer": [2]}, "integer must be a list of action indices, whole numbers from 0 to 1; got 2"),
        ({"integer": [-1]}, "whole numbers from 0 to 1; got -1"),
        ({"integer": [0.5]}, "whole numbers from 0 to 1; got 0.5"),
        ({"integer": [True, False]}, "whole numbers from 0 to 1; got True"),
        ({"integer": 1}, "integer must be a list of action indices, whole numbers from 0 to 1; got shape ()"),
        ({"integer": [[0], [0, 1]]}, "got lists of different lengths"),
        ({"integer": [[0], [1]]}, "got shape (2, 1)"),
        ({"integer": [[0], [1], [0]]}, "integer is [1] at state 1 and [0] at state 0"),
        ({"integer": np.full(2000, 7)}, "got 7"),
        ({"solver": "ga", "integer": [0]}, "solver 'ga' does not take whole-numbered actions"),
        ({"solver": "cem", "integer": [0]}, "solver 'cem' does not take whole-numbered actions"),
        ({"threads": 0}, "threads = 0 must be a whole number, at least 1"),
        ({"threads": 1.5}, "threads = 1.5 must be a whole number"),
        ({"threads": 10**9}, "threads = 1000000000 must be a whole number, at least 1 and at most 1024"),
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


@pytest.mark.parametrize("name", SOLVERS)
def test_every_name_makes_a_solver(name: str) -> None:
    solver = make_solver(name)
    assert solver.name == ("mip" if name in BACKENDS else name)
    assert getattr(solver, "backend", name) in (name, "scip")
    if name in BACKENDS:
        assert solver == Mip(name)


class Recording(Exact):
    """Keeps the problem that it is asked."""

    accepts_rows = accepts_integers = True
    asked: list[Any] = []  # noqa: RUF012 - the list is the point

    def solve(self, problem: Any, key: Any = None) -> Any:
        self.asked.append(problem.action_set)
        return super().solve(
            problem._replace(action_set=ActionSet.box(problem.action_set.low, problem.action_set.high))
        )


def test_rows_and_equalities_become_one_action_set() -> None:
    matrix, per_state = np.array([[1.0, 2.0]]), np.arange(6.0).reshape(3, 1, 2)
    maximize(**{**GOOD, "solver": Recording()}, rows=(matrix, [3.0]), equalities=(-matrix, [4.0]), integer=[1, 0])
    action_set = Recording.asked[-1]
    np.testing.assert_array_equal(action_set.rows, [[1.0, 2.0], [-1.0, -2.0]])
    np.testing.assert_array_equal(action_set.row_low, [-np.inf, 4.0])
    np.testing.assert_array_equal(action_set.row_high, [3.0, 4.0])
    assert action_set.integer == (0, 1)
    maximize(**{**GOOD, "solver": Recording()}, rows=(per_state, [3.0]), equalities=(matrix, [[4.0], [5.0], [6.0]]))
    action_set = Recording.asked[-1]
    np.testing.assert_array_equal(action_set.rows[2], [[4.0, 5.0], [1.0, 2.0]])
    np.testing.assert_array_equal(action_set.row_low[2], [-np.inf, 6.0])
    np.testing.assert_array_equal(action_set.row_high, [[3.0, 4.0], [3.0, 5.0], [3.0, 6.0]])
    maximize(**{**GOOD, "solver": Recording()})
    assert Recording.asked[-1].is_box


def test_whole_numbers_may_be_said_for_each_state() -> None:
    whole = maximize(**GOOD, integer=[1])
    np.testing.assert_array_equal(whole.actions[:, 1], np.round(whole.actions[:, 1]))
    np.testing.assert_array_equal(maximize(**GOOD, integer=[[1], [1], [1]]).actions, whole.actions)


@pytest.mark.parametrize("solver", ["highs", "ga", "cem"])
def test_every_action_satisfies_the_rows_in_float64(solver: str) -> None:
    matrix, side = np.array([[0.7, 0.3], [-0.1, 1.0 / 3.0]]), np.array([[0.1, 0.05], [-0.3, 0.2], [0.4, -0.1]])
    found = maximize(**{**GOOD, "solver": solver}, rows=(matrix, side))
    assert (found.actions @ matrix.T <= side).all()
    assert (np.abs(found.actions) <= 1).all()
    proved = maximize(**GOOD, rows=(matrix, side))
    assert (found.values <= proved.upper).all()
    assert (found.values < maximize(**GOOD).values + 1e-4).all()


@pytest.mark.parametrize("solver", ["highs", "ga"])
def test_an_empty_set_has_its_own_status_and_says_which_rows_conflict(solver: str) -> None:
    # Interval arithmetic alone does not see the conflict: it takes both rows at once.
    matrix, side = np.array([[1.0, 1.0], [-1.0, -1.0]]), np.array([[1.0, 0.0], [0.5, -0.6], [1.0, 1.0]])
    words = r"of 3 states, 1 without an admissible action, the first of them state 1 \(.*row 0: .* <= 0.5; row 1: "
    with pytest.warns(CaqlWarning, match=words) as caught:
        found = maximize(**{**GOOD, "solver": solver}, rows=(matrix, side))
    assert len(caught) == 1
    assert (found.status == Status.INFEASIBLE).tolist() == [False, True, False]
    assert found.values[1] == found.upper[1] == -np.inf
    assert np.isfinite(found.values[[0, 2]]).all()


def test_a_limit_that_was_hit_is_said_once() -> None:
    arguments = {**GOOD, "solver": "exact", "tolerance": 1e-9}
    with pytest.warns(CaqlWarning, match=r"of 3 states, \d stopped at node_limit = 1 \(raise it\)") as caught:
        found = maximize(**arguments, node_limit=1)
    assert len(caught) == 1
    assert (found.status == Status.LIMIT).any()
    with pytest.warns(CaqlWarning, match=r"stopped at time_limit = 1e-09 s \(raise it\)"):
        maximize(**arguments, time_limit=1e-9)
    with pytest.warns(CaqlWarning, match="could not be proved to this tolerance"):
        maximize(**{**arguments, "tolerance": 0.0})


def test_the_names_a_user_needs_are_exported() -> None:
    assert caql.Status is Status
    assert issubclass(caql.Interrupted, KeyboardInterrupt)
    assert issubclass(caql.CaqlWarning, UserWarning)


def test_exact_is_the_default_and_takes_threads() -> None:
    found = maximize(LAYERS, -1.0, 1.0, STATES, threads=2)
    assert (found.status == Status.OPTIMAL).all()
    np.testing.assert_allclose(found.values, maximize(**GOOD).values, atol=2e-4)


def test_a_backends_name_leaves_no_backend_to_choose() -> None:
    with pytest.raises(CaqlError, match="solver 'highs' has no setting 'backend'"):
        make_solver("highs", backend="scip")
    assert make_solver("mip", backend="highs") == make_solver("highs")


@dataclasses.dataclass(frozen=True)
class Claiming:
    """A search that calls a gap of one optimal."""

    name: ClassVar[str] = "claiming"
    traceable: ClassVar[bool] = True
    accepts_rows: ClassVar[bool] = False
    accepts_integers: ClassVar[bool] = False

    def solve(self, problem: Problem, key: Any) -> Solution:
        del key
        rows = problem.network.first_bias.shape[0]
        actions = jnp.zeros((rows, problem.network.action_weights.shape[0]))
        values = folded_value(problem.network, actions)
        return Solution(actions, values, values + 1.0, jnp.zeros(rows, jnp.int8), jnp.ones(rows, jnp.int32))


def test_a_proof_that_does_not_hold_in_float64_is_not_called_optimal() -> None:
    found = maximize(**{**GOOD, "solver": Claiming()}, tolerance=0.5)
    assert found.status.tolist() == [Status.LIMIT] * 3
    found = maximize(**{**GOOD, "solver": Claiming()}, tolerance=1.5)
    assert found.status.tolist() == [Status.OPTIMAL] * 3
