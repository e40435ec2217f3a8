"""The exact solver inside jit against the same solver called from Python, on the same float32 numbers."""

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


@pytest.mark.parametrize("case", ALL_PROBLEMS, ids=lambda case: case.name)
def test_answers_as_outside(case):
    problem = in_float32(case)
    found, expected = inside(problem), Exact().solve(problem)
    np.testing.assert_array_equal(found.status, expected.status)
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
    assert (masked.status[mask] == Status.OPTIMAL).all()
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


@pytest.mark.parametrize("field", ["first_bias", "action_weights", "later"])
def test_non_finite_numbers_fail_every_row(field):
    problem = in_float32(MEDIUM)
    poisoned = jax.tree.map(lambda values: values.at[(0,) * values.ndim].set(jnp.nan), getattr(problem.network, field))
    found = inside(problem._replace(network=problem.network._replace(**{field: poisoned})))
    assert (found.status == Status.FAILED).all()
    assert np.isnan(found.values).all()
    assert np.isposinf(found.upper).all()


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
