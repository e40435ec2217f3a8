"""The exact solver inside jit against the same solver called from Python, on the same float32 numbers."""

import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caql.actions import ActionSet
from caql.maxq.exact.solver import Exact
from caql.maxq.exact.xla_call import solve
from caql.maxq.maximize import maximize
from caql.maxq.problem import Problem, Status
from caql.maxq.solvers import inside_jit, make_solver
from caql.networks import FoldedNetwork

from ..problems import ALL_PROBLEMS, Case, he_layers


def single(values) -> jnp.ndarray:
    return jnp.asarray(np.asarray(values, np.float32))


def in_float32(case: Case, **changes) -> Problem:
    network = jax.tree.map(single, case.folded)
    shape = (len(case.folded.first_bias), case.actions)
    box = ActionSet.box(
        *(single(np.broadcast_to(np.asarray(side, np.float64), shape)) for side in (case.low, case.high))
    )
    return Problem(network, box, tolerance=float(np.float32(case.tolerance)))._replace(**changes)


def inside(problem: Problem, **settings):
    return jax.device_get(jax.jit(partial(solve, Exact(**settings)))(problem, None))


def unproved_by_rounding(found, problem: Problem) -> np.ndarray:
    """Where the float32 numbers are further apart than asked for."""
    gap = found.upper.astype(np.float64) - found.values.astype(np.float64)
    tolerance, relative = (np.float32(each) for each in (problem.tolerance, problem.relative_tolerance))
    return ~(gap <= np.maximum(tolerance, relative * np.abs(found.values)))


@pytest.mark.parametrize("case", ALL_PROBLEMS, ids=lambda case: case.name)
def test_answers_as_outside(case):
    problem = in_float32(case)
    found, expected = inside(problem), Exact().solve(problem)
    np.testing.assert_array_equal(found.status[unproved_by_rounding(found, problem)], Status.LIMIT)
    np.testing.assert_array_equal(found.status, np.where(unproved_by_rounding(found, problem), 2, expected.status))
    np.testing.assert_array_equal(found.work, expected.work)
    np.testing.assert_array_equal(found.actions, expected.actions.astype(np.float32))
    np.testing.assert_array_equal(found.values, expected.values.astype(np.float32))
    assert (found.upper >= expected.upper).all()
    np.testing.assert_allclose(found.upper, expected.upper, rtol=2e-7, atol=1e-40)


MEDIUM = Case("medium", he_layers(3, (2 + 3, 16, 8, 1)), -1.0, 1.0, np.random.default_rng(3).normal(size=(24, 2)))


def test_options_reach_the_solver():
    problem = in_float32(MEDIUM)
    mask = np.arange(24) % 3 == 0
    masked = inside(problem._replace(mask=jnp.asarray(mask)))
    assert (masked.status[~mask] == Status.SKIPPED).all()
    assert np.isin(masked.status[mask], [Status.OPTIMAL, Status.LIMIT]).all()
    assert (masked.work[mask] > 0).all()
    loose = inside(problem._replace(tolerance=0.0, relative_tolerance=single(np.where(mask, 1e-6, 10.0))))
    assert (loose.work[~mask] <= 1).all()
    assert loose.work[mask].mean() > 1
    limited = inside(problem._replace(tolerance=1e-7), node_limit=1)
    assert (limited.status == Status.LIMIT).any()
    assert (limited.upper >= inside(problem).values).all()


def test_threads_inside_jit_do_not_matter():
    problem = in_float32(MEDIUM, tolerance=1e-6)
    for one, two in zip(inside(problem, threads=1), inside(problem, threads=3), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("field", ["action_weights", "later"])
def test_a_non_finite_weight_fails_every_row(field):
    problem = in_float32(MEDIUM)
    poisoned = jax.tree.map(lambda values: values.at[(0,) * values.ndim].set(jnp.nan), getattr(problem.network, field))
    found = inside(problem._replace(network=problem.network._replace(**{field: poisoned})))
    assert (found.status == Status.FAILED).all()
    assert np.isnan(found.values).all()
    assert np.isposinf(found.upper).all()
    assert (np.abs(found.actions) <= 1).all()


def test_a_bad_row_leaves_the_others_as_they_are():
    problem, good = in_float32(MEDIUM), inside(in_float32(MEDIUM))
    bias = problem.network.first_bias.at[5, 0].set(jnp.nan)
    box = ActionSet.box(problem.action_set.low.at[7, 1].set(jnp.nan), problem.action_set.high.at[9, 2].set(-2.0))
    guess = single(np.zeros((24, 3))).at[11, 0].set(jnp.nan)
    bad = Problem(
        problem.network._replace(first_bias=bias), box, guess, single(np.where(np.arange(24) == 13, np.nan, 1e-5))
    )
    found = inside(bad)
    assert (found.status[[5, 7, 11, 13]] == Status.FAILED).all()
    assert np.isnan(found.values[[5, 7, 11, 13]]).all()
    assert np.isposinf(found.upper[[5, 7, 11, 13]]).all()
    assert found.status[9] == Status.INFEASIBLE
    assert np.isneginf(found.upper[9])
    assert np.isfinite(found.actions).all()
    others = np.setdiff1d(np.arange(24), [5, 7, 9, 11, 13])
    for name in ("status", "values", "upper", "actions"):
        np.testing.assert_array_equal(getattr(found, name)[others], getattr(good, name)[others])


def test_optimal_means_within_the_tolerance_in_the_numbers_returned():
    """Thousands of states: no upper bound is below the truth, and no gap above the tolerance is called optimal."""
    states = np.random.default_rng(4).normal(size=(3000, 2))
    case = Case("many", he_layers(3, (2 + 3, 16, 8, 1)), -1.0, 1.0, states, 1e-6)
    problem = in_float32(case)
    for changes in ({"tolerance": 1e-6}, {"tolerance": 0.0, "relative_tolerance": 1e-3}):
        asked = problem._replace(**changes)
        found, truth = inside(asked), Exact().solve(asked._replace(tolerance=1e-9, relative_tolerance=0.0))
        assert found.upper.dtype == np.float32
        assert (found.upper >= truth.values).all()
        optimal = found.status == Status.OPTIMAL
        np.testing.assert_array_equal(found.status[unproved_by_rounding(found, asked)], Status.LIMIT)
        relative = np.float32(asked.relative_tolerance) * np.abs(found.values)
        assert (
            (found.upper - found.values)[optimal] <= np.maximum(np.float32(asked.tolerance), relative)[optimal]
        ).all()
        assert 0 < optimal.sum() < len(optimal)


def test_no_states_have_no_maxima():
    problem = in_float32(MEDIUM)
    network = problem.network._replace(first_bias=problem.network.first_bias[:0])
    box = ActionSet.box(problem.action_set.low[0], problem.action_set.high[0])
    assert inside(Problem(network, box)).values.shape == (0,)


def test_a_network_without_hidden_layers():
    bias, weights = single([[1.0], [2.0]]), single([[1.0], [-3.0]])
    found = inside(Problem(FoldedNetwork(bias, weights, ()), ActionSet.box(single([-1.0, -1.0]), single([1.0, 2.0]))))
    np.testing.assert_allclose(found.values, [5.0, 6.0])


def test_a_scan_solves_a_different_problem_each_time():
    problem = in_float32(MEDIUM)
    shifts = jnp.arange(5, dtype=jnp.float32) / 10

    @jax.jit
    def scan(shifts):
        def one(carry, shift):
            network = problem.network._replace(first_bias=problem.network.first_bias + shift)
            return carry, solve(Exact(), problem._replace(network=network), None).values

        return jax.lax.scan(one, 0.0, shifts)[1]

    (weights, bias), *later = MEDIUM.layers
    for shift, values in zip(np.asarray(shifts), np.asarray(scan(shifts)), strict=True):
        moved = [(weights, bias + shift), *later]
        expected = maximize(moved, -1.0, 1.0, MEDIUM.states, tolerance=MEDIUM.tolerance).values
        np.testing.assert_allclose(values, expected, atol=1e-4)


def test_which_solvers_run_inside_jit():
    assert inside_jit(make_solver("ga")) is not None
    assert inside_jit(make_solver("exact")) is not None
    assert inside_jit(make_solver("mip")) is None
    assert inside_jit(make_solver("highs")) is None


def another_process(code: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("interface.VERSION = (0, 99)", "it refuses version 0.99"),
        ("interface.SIZES['XLA_FFI_Buffer'] = 56", "XLA_FFI_Buffer has 48 bytes, not 56"),
        ("interface.SIZES['XLA_FFI_CallFrame'] += 8", "XLA_FFI_CallFrame has 168 bytes, not 176"),
    ],
)
def test_another_xla_is_noticed_once_and_the_host_solves(change, sentence):
    done = another_process(
        "import caql.maxq.exact.xla_interface as interface\n"
        f"{change}\n"
        "from caql.agents.caql import CAQLConfig\n"
        "from caql.config import RunConfig\n"
        "from caql.maxq.solvers import inside_jit, make_solver\n"
        "from caql.runs.training import Training\n"
        "exact = make_solver('exact', threads=1)\n"
        "assert inside_jit(exact) is None and inside_jit(exact) is None\n"
        "small = dict(train_steps=4, steps_per_epoch=2, episode_steps=10, warm_up=20, batch_size=4, evaluate_every=0)\n"
        "agent = CAQLConfig(hidden=(4, 4), action_hidden=(4, 4), solver=exact)\n"
        "training = Training(RunConfig('Pendulum', agent=agent, **small))\n"
        "for _ in training.epochs(): pass\n"
        "print(training.train_step)\n"
    )
    assert done.stdout.split() == ["4"]
    lines = [line for line in done.stderr.splitlines() if line.startswith("caql: jax")]
    assert len(lines) == 1
    assert sentence in lines[0]
    assert "the solver runs outside jit" in lines[0]
