import jax
import jax.numpy as jnp
import pytest

from caql.losses import action_function_loss, hinge_loss, l2_loss


def test_l2_by_hand():
    assert float(l2_loss(jnp.float32(1.0), jnp.float32(3.0))) == pytest.approx(4.0)


@pytest.mark.parametrize(("value", "label", "expected"), [(1.0, 3.0, 1 + 10 * 2), (3.0, 1.0, 3.0)])
def test_hinge_by_hand(value, label, expected):
    assert float(hinge_loss(jnp.float32(value), jnp.float32(label), 10.0)) == pytest.approx(expected)


def test_labels_are_constants():
    for loss in (l2_loss, action_function_loss, lambda v, y: hinge_loss(v, y, 2.0)):
        assert float(jax.grad(loss, argnums=1)(jnp.float32(1.0), jnp.float32(2.0))) == 0.0
    assert float(jax.grad(hinge_loss)(jnp.float32(1.0), jnp.float32(2.0), 3.0)) == pytest.approx(-2.0)
