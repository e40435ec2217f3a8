import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caql.actions import make_box, squash
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
