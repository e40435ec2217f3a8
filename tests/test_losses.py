import jax
import jax.numpy as jnp
import pytest

from caql.losses import hinge_loss, huber_loss, l1_loss, l2_loss, one_step_label


def test_the_one_step_label_by_hand_and_where_the_task_ended():
    rewards, continues, values = jnp.array([5.0, 5.0]), jnp.array([1.0, 0.0]), jnp.array([7.0, 7.0])
    assert one_step_label(rewards, 0.9, continues, values).tolist() == pytest.approx([5 + 0.9 * 7, 5.0])


def test_l2_by_hand():
    assert float(l2_loss(jnp.float32(1.0), jnp.float32(3.0))) == pytest.approx(4.0)


@pytest.mark.parametrize(("value", "label", "expected"), [(1.0, 3.0, 1 + 10 * 2), (3.0, 1.0, 3.0)])
def test_hinge_by_hand(value, label, expected):
    assert float(hinge_loss(jnp.float32(value), jnp.float32(label), 10.0)) == pytest.approx(expected)


def test_l1_by_hand():
    assert [float(l1_loss(jnp.float32(value), jnp.float32(3.0))) for value in (1.0, 4.0)] == [2.0, 1.0]


@pytest.mark.parametrize(("value", "expected", "slope"), [(3.5, 0.25, 1.0), (5.0, 4.0, 4.0), (13.0, 36.0, 4.0)])
def test_huber_by_hand_is_a_square_up_to_its_width_and_a_line_beyond(value, expected, slope):
    assert float(huber_loss(jnp.float32(value), jnp.float32(3.0), 2.0)) == pytest.approx(expected)
    assert float(jax.grad(huber_loss)(jnp.float32(value), jnp.float32(3.0), 2.0)) == pytest.approx(slope)


def test_labels_are_constants():
    for loss in (l1_loss, l2_loss, lambda v, y: hinge_loss(v, y, 2.0), lambda v, y: huber_loss(v, y, 0.5)):
        assert float(jax.grad(loss, argnums=1)(jnp.float32(1.0), jnp.float32(2.0))) == 0.0
    assert float(jax.grad(hinge_loss)(jnp.float32(1.0), jnp.float32(2.0), 3.0)) == pytest.approx(-2.0)
