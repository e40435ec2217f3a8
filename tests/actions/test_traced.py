"""Projection inside jit: admissible, close to the closest point, exact where it can be; over the random sets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caql.actions import ActionSet, make_box
from caql.errors import CaqlError

from ..maxq.sets import random_sets

SHAPES = [(2, 2, 0), (4, 6, 0), (3, 4, 2)]
by_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
WITH_INTERIOR = ("feasible", "redundant", "zero row", "parallel")


@jax.jit
def projected(action_set, actions):
    project = action_set.projector()
    return project(actions), project.empty


def answers(shape, states=120):
    d, m, k = shape
    rng = np.random.default_rng(list(shape))
    found = random_sets(rng, states, d, m, k)
    targets = 1.5 * rng.normal(size=(states, d))
    actions, empty = projected(found.action_set.map(jnp.asarray), jnp.asarray(targets))
    return found, targets, np.asarray(actions, np.float64), np.asarray(empty)


@by_shape
def test_the_result_is_admissible_and_nearly_the_closest(shape):
    found, targets, actions, _ = answers(shape)
    filled = np.flatnonzero(~found.empty)
    inside = found.action_set[filled]
    outside = np.abs(inside.project(actions[filled]) - actions[filled]).max(axis=1)
    closest = np.linalg.norm(inside.project(targets[filled]) - targets[filled], axis=1)
    further = np.linalg.norm(actions[filled] - targets[filled], axis=1) - closest
    kinds = np.array(found.kinds)[filled]
    good = np.isin(kinds, WITH_INTERIOR)
    assert outside[good].max() < 1e-5
    assert np.median(further[good]) < 0.01
    assert np.quantile(further[good], 0.9) < 0.3
    # Without an interior nothing is certain, and most come out right.
    assert np.median(outside) < 1e-6
    assert np.quantile(outside, 0.95) < 1e-3
    equal = kinds == "equality"
    assert outside[equal].max() < 1e-4
    box = found.action_set[filled]
    assert (actions[filled] >= box.low - 1e-6).all()
    assert (actions[filled] <= box.high + 1e-6).all()


@by_shape
def test_empty_sets_are_flagged_and_no_others(shape):
    found, _, _, empty = answers(shape)
    assert not (empty & ~found.empty).any()
    assert empty[found.empty].mean() > 0.9


@by_shape
def test_an_admissible_action_stays_as_it_is(shape):
    found, targets, _, _ = answers(shape)
    states = np.flatnonzero(np.isin(found.kinds, ("feasible", "redundant")))
    inner, rng = found.action_set[states], np.random.default_rng(0)
    middle = np.mean([inner.project(9 * rng.normal(size=(len(states), shape[0]))) for _ in range(6)], axis=0)
    given = targets.astype(np.float32)
    given[states] = 0.5 * inner.project(targets[states]) + 0.5 * middle
    back, _ = projected(found.action_set.map(jnp.asarray), jnp.asarray(given))
    wide = inner.tightened().radius > 1e-3
    same = (np.asarray(back)[states] == given[states]) | ~wide
    assert same.all(axis=1).mean() > 0.8


def test_a_box_is_clipped_to_the_bit():
    box = make_box([-1.0, 0.1], [0.3, 0.7])
    given = jax.random.normal(jax.random.key(0), (40, 2))
    found, empty = projected(box, given)
    np.testing.assert_array_equal(found, jnp.clip(given, box.low, box.high))
    assert not np.asarray(empty).any()
    np.testing.assert_array_equal(box.project(given), found)


def test_leading_axes_and_a_shared_set():
    one = (ActionSet.bounds(-1, 1, 3) & ActionSet.budget([1.0, 1.0, 1.0], 1.0)).map(jnp.asarray)
    given = 2 * jax.random.normal(jax.random.key(1), (5, 7, 3))
    found, samples = jax.jit(lambda s, a: (s.project(a), s.sample(jax.random.key(2), 50)))(one, given)
    assert found.shape == (5, 7, 3)
    np.testing.assert_allclose(found, one.on_host().project(np.asarray(given)), atol=2e-3)
    assert samples.shape == (50, 3)
    assert float(samples.sum(axis=-1).max()) <= 1 + 1e-5


def test_whole_numbers_are_refused_by_name():
    with pytest.raises(CaqlError, match="exact or mip"):
        ActionSet.one_of(3).map(jnp.asarray).project(jnp.zeros(3))
