"""DDPG by hand, on a network of one hidden unit and the lopsided range [-1, 3]."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caql.actions import make_box
from caql.agents.agent import Spec
from caql.agents.ddpg import DDPG, DDPGConfig
from caql.errors import CaqlError
from caql.replay import Batch

SPEC = Spec(1, make_box([-1.0], [3.0]))
# pi(x) = 1 + 2 tanh(relu(2 x) / 2); Q(x, a) = 3 relu(x + 2 a + 1) - 1.
ACTOR = jnp.array([2.0, 0.0, 0.5, 0.0])
CRITIC = jnp.array([1.0, 2.0, 1.0, 3.0, -1.0])
ACTION_AT_1 = 1 + 2 * math.tanh(1.0)
VALUE_AT_1 = 3 * (1 + 2 * ACTION_AT_1 + 1) - 1


def agent(**settings):
    return DDPG(DDPGConfig(hidden=(1,), **settings), SPEC)


def by_hand(ddpg):
    state = ddpg.init(jax.random.key(0))
    return state._replace(
        actor=state.actor._replace(vector=ACTOR + 0),
        actor_target=ACTOR + 0,
        critic=state.critic._replace(vector=CRITIC + 0),
        critic_target=CRITIC + 0,
    )


def batch(rows):
    states, actions, rewards, next_states, continues = (jnp.array(column) for column in zip(*rows, strict=True))
    return Batch(states[:, None], actions[:, None], rewards, next_states[:, None], continues)


def test_labels_bootstrap_from_the_target_actor_unless_the_task_ended():
    ddpg = agent(discount=0.9)
    targets = ddpg.labels(by_hand(ddpg), batch([(0.0, 0.0, 5.0, 1.0, 1.0), (0.0, 0.0, 5.0, 1.0, 0.0)]))
    np.testing.assert_allclose(targets, [5 + 0.9 * VALUE_AT_1, 5.0], rtol=1e-6)


def test_labels_use_the_target_networks_not_the_current_ones():
    ddpg = agent(discount=0.9)
    state = by_hand(ddpg)
    rows = batch([(0.0, 0.0, 5.0, 1.0, 1.0)])
    moved = state._replace(actor=state.actor._replace(vector=-ACTOR), critic=state.critic._replace(vector=CRITIC * 7))
    np.testing.assert_array_equal(ddpg.labels(state, rows), ddpg.labels(moved, rows))
    assert not np.array_equal(ddpg.labels(state, rows), ddpg.labels(state._replace(critic_target=CRITIC * 7), rows))
    assert not np.array_equal(ddpg.labels(state, rows), ddpg.labels(state._replace(actor_target=-ACTOR), rows))


def test_critic_loss_is_the_mean_squared_difference():
    # Q(2, 1) = 3 * 5 - 1 = 14 and Q(0, -1) = 3 * 0 - 1 = -1.
    loss, mean = agent().critic_loss(
        CRITIC, batch([(2.0, 1.0, 0.0, 0.0, 1.0), (0.0, -1.0, 0.0, 0.0, 1.0)]), jnp.array([12.0, 3.0])
    )
    assert loss == pytest.approx((2**2 + 4**2) / 2)
    assert mean == pytest.approx((14 - 1) / 2)


def test_actor_loss_is_minus_the_value_of_its_action():
    loss, _ = agent().actor_loss(ACTOR, CRITIC, batch([(1.0, 0.0, 0.0, 0.0, 1.0)]))
    assert loss == pytest.approx(-VALUE_AT_1, rel=1e-6)


def test_the_penalty_on_saturation_by_hand():
    # The outputs before tanh at the states 1, 4 and 5 are 1, 4 and 5: beyond 3 by 0, 1 and 2.
    rows = batch([(1.0, 0.0, 0.0, 0.0, 1.0), (4.0, 0.0, 0.0, 0.0, 1.0), (5.0, 0.0, 0.0, 0.0, 1.0)])
    plain, penalised = (
        agent(**settings).actor_loss(ACTOR, CRITIC, rows)[0] for settings in ({}, {"saturation_penalty": 0.5})
    )
    assert penalised - plain == pytest.approx(0.5 * (0 + 1 + 4) / 3, rel=1e-4)


def test_one_update_descends_and_moves_the_targets():
    ddpg = agent(critic_learning_rate=0.01, actor_learning_rate=0.02, target_rate=0.25)
    rows = batch([(1.0, 0.0, 5.0, 1.0, 1.0)])
    state, statistics = ddpg.update(by_hand(ddpg), jax.tree.map(lambda column: column[None], rows), jax.random.key(0))
    # Q(1, 0) = 5 is below its target, so Adam's first step raises the value: + rate wherever the gradient is not zero.
    target = 5 + 0.99 * VALUE_AT_1
    critic = np.array([1.01, 2.0, 1.01, 3.01, -0.99])
    np.testing.assert_allclose(state.critic.vector, critic, atol=1e-6)
    np.testing.assert_allclose(state.critic_target, CRITIC + 0.25 * (critic - CRITIC), atol=1e-6)
    # The value rises with the action and the action with every actor parameter.
    actor = ACTOR + 0.02
    np.testing.assert_allclose(state.actor.vector, actor, atol=1e-6)
    np.testing.assert_allclose(state.actor_target, ACTOR + 0.25 * (actor - ACTOR), atol=1e-6)
    assert statistics["loss"] == pytest.approx((5 - target) ** 2, rel=1e-5)
    assert statistics["q_mean"] == pytest.approx(5.0)
    # The actor climbs the critic that has just moved: 3.01 relu(1.01 + 2 a + 1.01) - 0.99.
    assert statistics["actor_loss"] == pytest.approx(-(3.01 * (2.02 + 2 * ACTION_AT_1) - 0.99), rel=1e-5)


def test_an_epoch_is_its_minibatches_one_after_another():
    ddpg = agent()
    rng = np.random.default_rng(0)

    def column(*shape):
        return rng.standard_normal((3, 8, *shape)).astype(np.float32)

    batches = Batch(column(1), column(1), column(), column(1), np.ones((3, 8), np.float32))
    together, _ = ddpg.update(ddpg.init(jax.random.key(1)), batches, jax.random.key(0))
    apart = ddpg.init(jax.random.key(1))
    for step in range(3):
        apart, _ = ddpg.update(apart, batches.pick(slice(step, step + 1)), jax.random.key(0))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), together, apart)


def test_the_host_policy_is_the_actor():
    ddpg = agent()
    state = by_hand(ddpg)
    states = np.linspace(-2, 2, 9, dtype=np.float32)[:, None]
    np.testing.assert_allclose(ddpg.policy(state, 0).act(states), ddpg.action(state.actor.vector, states), atol=1e-6)
    assert ddpg.policy(state, 0).act(np.ones(1, np.float32))[0] == pytest.approx(ACTION_AT_1)


def test_learns_a_bandit():
    """One step, reward -(a - a*(x))^2: the actor finds a*(x) = 1 + x in [-1, 3]."""
    ddpg = DDPG(DDPGConfig(hidden=(16, 16), critic_learning_rate=0.01, actor_learning_rate=0.003), SPEC)
    rng = np.random.default_rng(0)
    state = ddpg.init(jax.random.key(0))
    for _ in range(30):
        states = rng.uniform(-1, 1, (20, 64, 1)).astype(np.float32)
        actions = rng.uniform(-1, 3, (20, 64, 1)).astype(np.float32)
        rewards = -((actions - 1 - states)[..., 0] ** 2)
        batches = Batch(states, actions, rewards, states, np.zeros_like(rewards))
        state, _ = ddpg.update(state, batches, jax.random.key(0))
    states = np.linspace(-0.9, 0.9, 7, dtype=np.float32)[:, None]
    np.testing.assert_allclose(ddpg.policy(state, 0).act(states), 1 + states, atol=0.3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden": ()}, r"hidden = \(\) must be a tuple of at least one positive whole number"),
        ({"hidden": (32, 0)}, r"hidden = \(32, 0\) must be"),
        ({"discount": 1.0}, r"discount = 1.0 must be at least 0 and less than 1"),
        ({"target_rate": 0.0}, r"target_rate = 0.0 must be more than 0 and at most 1"),
        ({"critic_learning_rate": -0.1}, r"critic_learning_rate = -0.1 must be a positive finite number"),
        ({"actor_learning_rate": math.nan}, r"actor_learning_rate = nan must be a positive finite number"),
        ({"saturation_penalty": -1.0}, r"saturation_penalty = -1.0 must be a finite number, at least 0"),
    ],
)
def test_bad_settings_are_rejected_by_name(settings, message):
    with pytest.raises(CaqlError, match=message):
        DDPGConfig(**settings)
