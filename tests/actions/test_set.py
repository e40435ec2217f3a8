import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caql.actions import ActionSet, make_box, squash
from caql.errors import CaqlError


def test_clip_contains_and_sample_agree():
    box = make_box([-1.0, 0.0], [0.5, 0.0])
    samples = box.sample(jax.random.key(0), 500)
    assert samples.shape == (500, 2)
    assert bool(box.contains(samples).all())
    assert float(samples[:, 0].min()) < -0.9
    assert float(samples[:, 0].max()) > 0.4
    assert not bool(box.contains(jnp.array([0.6, 0.0])))
    np.testing.assert_allclose(box.clip(jnp.array([9.0, -9.0])), [0.5, 0.0])


def test_squash_reaches_the_whole_box_and_keeps_a_gradient():
    box = make_box([-3.0], [1.0])
    np.testing.assert_allclose(squash(box, jnp.array([0.0])), [-1.0])
    np.testing.assert_allclose(squash(box, jnp.array([50.0])), [1.0])
    np.testing.assert_allclose(squash(box, jnp.array([-50.0])), [-3.0])
    gradient = jax.grad(lambda raw: squash(box, raw)[0])(jnp.array([3.0]))
    assert float(gradient[0]) > 0


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        ([0.0], [1.0, 2.0], "one length"),
        ([0.0], [np.inf], "high"),
        ([np.nan], [1.0], "low"),
        ([2.0], [1.0], "must not exceed"),
    ],
)
def test_bad_boxes_are_named(low, high, words):
    with pytest.raises(CaqlError, match=words):
        make_box(low, high)


def test_a_box_is_projected_by_clipping_and_nothing_else():
    box = make_box([-1.0, 0.0], [0.5, 0.1])
    given = jax.random.normal(jax.random.key(0), (50, 2))
    np.testing.assert_array_equal(box.project(given), jnp.clip(given, box.low, box.high))
    np.testing.assert_array_equal(box.project(np.asarray(given)), np.clip(np.asarray(given, float), box.low, box.high))
    assert box.tightened() is box


def test_indexing_takes_what_has_an_axis_of_states_and_leaves_the_rest():
    sets = ActionSet.budget(np.arange(6.0).reshape(3, 2), 1.0) & ActionSet.bounds(-1, 1, 2)
    assert sets.states == 3
    assert sets[1].states is None
    np.testing.assert_array_equal(sets[1].rows, [[2.0, 3.0]])
    assert sets[[2, 0]].rows[:, 0, 0].tolist() == [4.0, 0.0]
    assert sets[1].low.shape == (2,)
    written_out = sets.per_state(3)
    assert [leaf.shape[0] for leaf in jax.tree.leaves(written_out)] == [3] * 7
    np.testing.assert_array_equal(written_out[1].rows, sets[1].rows)
    np.testing.assert_allclose(written_out.project(np.ones((3, 2))), sets.project(np.ones((3, 2))))
    copies = ActionSet.budget([1.0, 1.0], 1.0).per_state(2)
    np.testing.assert_allclose(copies.project([1.0, 1.0]), [[0.5, 0.5]] * 2)
    shared = ActionSet.bounds(-1, 1, 2).per_state(4)
    assert shared.low.shape == (4, 2)
    assert shared.rows.shape == (4, 0, 2)


def test_it_travels_through_jit_as_arrays():
    one = ActionSet.at_most(1, [-1, -1], [1, 1]) & ActionSet.bounds(-1, 1, 2)
    back = jax.jit(lambda s: s.map(lambda array: 2 * array))(one)
    assert back.integer == (2, 3)
    np.testing.assert_array_equal(back.high, [2, 2])
    assert not one.is_box
    assert ActionSet.bounds(-1, 1, 2).is_box


def test_bounds_are_tightened_by_the_rows():
    one = ActionSet.bounds([0, 0], [1, 1]) & ActionSet.budget([1, 2], 0.5)
    hull = one.tightened()
    np.testing.assert_allclose(hull.low, [0, 0])
    np.testing.assert_allclose(hull.high, [0.5, 0.25])
    chained = ActionSet.bounds(0, 1, 3) & ActionSet.linear([[1, 0, 0], [-1, 1, 0], [0, -1, 1.0]], high=[0.1, 0.2, 0.3])
    np.testing.assert_allclose(chained.tightened().high, [0.1, 0.3, 0.6])
    below = ActionSet.bounds(-1, 1, 2) & ActionSet.linear([[-1.0, 0.0], [1.0, -2.0]], low=[[-0.5, 1.0]])
    np.testing.assert_allclose(below.tightened().high, [[0.5, -0.25]])
    np.testing.assert_allclose(below.tightened().low, [[-1.0, -1.0]])
    whole = ActionSet.bounds(0, 9, 2) & ActionSet.budget([2, 1], 7.5) & ActionSet.whole(2, [0])
    np.testing.assert_allclose(whole.tightened().high, [3.0, 7.5])
    endless = ActionSet.budget([1, 1], 1) & ActionSet.bounds([0, -np.inf], [np.inf, np.inf])
    np.testing.assert_allclose(endless.tightened().high, [np.inf, 1.0])
    empty = ActionSet.bounds(0, 1, 2) & ActionSet.budget([1, 1], -1)
    np.testing.assert_array_equal(empty.tightened().high, [1, 1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tightening_never_cuts_off_an_admissible_action(dtype):
    from ..maxq.sets import random_sets

    for seed, (d, m, k, integer) in enumerate([(2, 2, 0, ()), (3, 4, 0, ()), (3, 3, 2, (3,)), (2, 2, 0, (0,))]):
        found = random_sets(np.random.default_rng(seed), 40, d, m, k, integer)
        filled = found.action_set[np.flatnonzero(~found.empty)]
        hull = jax.jit(ActionSet.tightened)(filled.map(jnp.asarray)) if dtype == np.float32 else filled.tightened()
        rng = np.random.default_rng(9)
        for _ in range(5):
            points = filled.project(3 * rng.normal(size=(filled.states, d)))
            slack = 1e-5 if dtype == np.float32 else 1e-9
            assert (points >= hull.low - slack).all()
            assert (points <= hull.high + slack).all()
        assert (np.asarray(hull.high) < filled.high - 1e-3).any()
