"""TD3 by hand, on networks of one hidden unit and the lopsided range [-1, 3]."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caql.actions import make_box
from caql.agents.agent import Spec
from caql.agents.td3 import TD3, TD3Config
from caql.errors import CaqlError
from caql.replay import Batch

SPEC = Spec(1, make_box([-1.0], [3.0]))
# pi(x) = 1 + 2 tanh(relu(2 x) / 2); Q_1(x, a) = 3 relu(x + 2 a + 1) - 1; Q_2(x, a) = relu(x + a).
ACTOR = jnp.array([2.0, 0.0, 0.5, 0.0])
CRITICS = jnp.array([[1.0, 2.0, 1.0, 3.0, -1.0], [1.0, 1.0, 0.0, 1.0, 0.0]])
ACTION_AT_1 = 1 + 2 * math.tanh(1.0)


def first(x, a):
    return 3 * max(x + 2 * a + 1, 0) - 1


def second(x, a):
    return max(x + a, 0)


def agent(**settings):
    return TD3(TD3Config(hidden=(1,), **settings), SPEC)


def by_hand(td3):
    state = td3.init(jax.random.key(0))
    return state._replace(
        actor=state.actor._replace(vector=ACTOR + 0),
        actor_target=ACTOR + 0,
        critics=state.critics._replace(vector=CRITICS + 0),
        critics_target=CRITICS + 0,
    )


def batch(rows):
    states, actions, rewards, next_states, continues = (jnp.array(column) for column in zip(*rows, strict=True))
    return Batch(states[:, None], actions[:, None], rewards, next_states[:, None], continues)


def epoch(rows):
    return jax.tree.map(lambda column: column[None], rows)


def test_labels_take_the_smaller_critic():
    td3 = agent(discount=0.9)
    rows = batch([(0.0, 0.0, 5.0, 1.0, 1.0), (0.0, 0.0, 5.0, 1.0, 0.0)])
    np.testing.assert_allclose(
        td3.labels(by_hand(td3), rows, jnp.zeros((2, 1))), [5 + 0.9 * second(1, ACTION_AT_1), 5.0], rtol=1e-6
    )
    # Minus both: now the first is the smaller one.
    flipped = by_hand(td3)._replace(critics_target=CRITICS.at[:, 3:].multiply(-1))
    np.testing.assert_allclose(
        td3.labels(flipped, rows, jnp.zeros((2, 1)))[0], 5 - 0.9 * first(1, ACTION_AT_1), rtol=1e-6
    )


@pytest.mark.parametrize(
    ("noise", "shift"),
    [(0.1, 2 * 0.2 * 0.1), (-1.0, -2 * 0.2), (-9.0, -2 * 0.5), (9.0, 3 - ACTION_AT_1)],
    ids=["small", "unclipped", "clipped", "stopped by the range"],
)
def test_smoothing_noise_is_scaled_to_the_range_and_clipped(noise, shift):
    td3 = agent(discount=0.9)
    targets = td3.labels(by_hand(td3), batch([(0.0, 0.0, 0.0, 1.0, 1.0)]), jnp.full((1, 1), noise))
    assert targets[0] == pytest.approx(0.9 * second(1, ACTION_AT_1 + shift), rel=1e-5)


def test_critic_loss_adds_the_two_mean_squares():
    rows = batch([(2.0, 1.0, 0.0, 0.0, 1.0), (0.0, -1.0, 0.0, 0.0, 1.0)])
    # Q_1 = 14, -1; Q_2 = 3, 0.
    loss, mean = agent().twin_critics.loss(CRITICS, rows, jnp.array([12.0, 3.0]))
    assert loss == pytest.approx((2**2 + 4**2) / 2 + (9**2 + 3**2) / 2)
    assert mean == pytest.approx((14 - 1 + 3 + 0) / 4)


def test_actor_climbs_the_first_critic_alone():
    rows = batch([(1.0, 0.0, 0.0, 0.0, 1.0)])
    loss, _ = agent().actor_loss(ACTOR, CRITICS, rows)
    assert loss == pytest.approx(-first(1, ACTION_AT_1), rel=1e-6)


def test_the_penalty_on_saturation_by_hand():
    # The outputs before tanh at the states 1, 4 and 5 are 1, 4 and 5: beyond 3 by 0, 1 and 2.
    rows = batch([(1.0, 0.0, 0.0, 0.0, 1.0), (4.0, 0.0, 0.0, 0.0, 1.0), (5.0, 0.0, 0.0, 0.0, 1.0)])
    plain, penalised = (
        agent(**settings).actor_loss(ACTOR, CRITICS, rows)[0] for settings in ({}, {"saturation_penalty": 0.5})
    )
    assert penalised - plain == pytest.approx(0.5 * (0 + 1 + 4) / 3, rel=1e-4)


def test_actor_and_targets_move_every_second_step():
    td3 = agent(target_rate=0.25, critic_learning_rate=0.01, actor_learning_rate=0.02)
    rows = epoch(batch([(1.0, 0.0, 5.0, 1.0, 1.0)]))
    state, statistics = td3.update(by_hand(td3), rows, jax.random.key(0))
    np.testing.assert_array_equal(state.actor.vector, ACTOR)
    np.testing.assert_array_equal(state.actor_target, ACTOR)
    np.testing.assert_array_equal(state.critics_target, CRITICS)
    # Both Q_1(1, 0) = 5 and Q_2(1, 0) = 1 are below the target.
    np.testing.assert_allclose(
        state.critics.vector, [[1.01, 2.0, 1.01, 3.01, -0.99], [1.01, 1.0, 0.01, 1.01, 0.01]], atol=1e-6
    )
    assert statistics["actor_loss"] == 0
    assert statistics["q_mean"] == pytest.approx(3.0)

    state, statistics = td3.update(state, rows, jax.random.key(1))
    np.testing.assert_allclose(state.actor.vector, ACTOR + 0.02, atol=1e-6)
    np.testing.assert_allclose(state.actor_target, ACTOR + 0.25 * 0.02, atol=1e-6)
    np.testing.assert_allclose(state.critics_target, CRITICS + 0.25 * (state.critics.vector - CRITICS), atol=1e-6)
    assert statistics["actor_loss"] == pytest.approx(-first(1, ACTION_AT_1), rel=0.02)

    ruined = epoch(batch([(1.0, 0.0, math.nan, 1.0, 1.0)]))
    _, statistics = td3.update(by_hand(td3), ruined, jax.random.key(0))
    assert math.isnan(statistics["loss"])


def test_the_actor_climbs_the_critic_that_has_just_moved():
    td3 = agent(policy_delay=1, critic_learning_rate=0.01)
    _, statistics = td3.update(by_hand(td3), epoch(batch([(1.0, 0.0, 5.0, 1.0, 1.0)])), jax.random.key(0))
    # Adam's first step moves every parameter with a gradient by its rate: Q_1 = 3.01 relu(1.01 x + 2 a + 1.01) - 0.99.
    assert statistics["actor_loss"] == pytest.approx(-(3.01 * (2.02 + 2 * ACTION_AT_1) - 0.99), rel=1e-5)


def test_the_actors_loss_is_averaged_over_the_steps_it_moved():
    td3 = agent(policy_delay=3, critic_learning_rate=1e-9, actor_learning_rate=1e-9)
    rows = jax.tree.map(lambda column: jnp.stack([column] * 5), batch([(1.0, 0.0, 5.0, 1.0, 1.0)]))
    state, statistics = td3.update(by_hand(td3), rows, jax.random.key(0))
    assert statistics["actor_loss"] == pytest.approx(-first(1, ACTION_AT_1), rel=1e-5)
    assert state.steps == 5


def test_the_host_policy_is_the_actor():
    td3 = agent()
    state = by_hand(td3)
    states = np.linspace(-2, 2, 9, dtype=np.float32)[:, None]
    np.testing.assert_allclose(td3.policy(state, 0).act(states), td3.action(state.actor.vector, states), atol=1e-6)


def test_learns_a_bandit():
    """One step, reward -(a - a*(x))^2: the actor finds a*(x) = 1 + x in [-1, 3]."""
    td3 = TD3(TD3Config(hidden=(16, 16), critic_learning_rate=0.01, actor_learning_rate=0.003), SPEC)
    rng = np.random.default_rng(0)
    state = td3.init(jax.random.key(0))
    for _ in range(40):
        states = rng.uniform(-1, 1, (20, 64, 1)).astype(np.float32)
        actions = rng.uniform(-1, 3, (20, 64, 1)).astype(np.float32)
        rewards = -((actions - 1 - states)[..., 0] ** 2)
        batches = Batch(states, actions, rewards, states, np.zeros_like(rewards))
        state, _ = td3.update(state, batches, jax.random.key(0))
    states = np.linspace(-0.9, 0.9, 7, dtype=np.float32)[:, None]
    np.testing.assert_allclose(td3.policy(state, 0).act(states), 1 + states, atol=0.3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policy_delay": 0}, r"policy_delay = 0 must be a whole number, at least 1"),
        ({"smoothing_sigma": -1.0}, r"smoothing_sigma = -1.0 must be a finite number, at least 0"),
        ({"smoothing_clip": -0.5}, r"smoothing_clip = -0.5 must be at least 0"),
        ({"critic_learning_rate": 0.0}, r"critic_learning_rate = 0.0 must be a positive finite number"),
        ({"saturation_penalty": -1.0}, r"saturation_penalty = -1.0 must be a finite number, at least 0"),
    ],
)
def test_bad_settings_are_rejected_by_name(settings, message):
    with pytest.raises(CaqlError, match=message):
        TD3Config(**settings)


def test_labels_use_the_target_networks_not_the_current_ones():
    td3 = agent(discount=0.9)
    state, rows, still = by_hand(td3), batch([(0.0, 0.0, 5.0, 1.0, 1.0)]), jnp.zeros((1, 1))
    moved = state._replace(actor=state.actor._replace(vector=-ACTOR), critics=state.critics._replace(vector=-CRITICS))
    np.testing.assert_array_equal(td3.labels(state, rows, still), td3.labels(moved, rows, still))
    for name, value in (("actor_target", -ACTOR), ("critics_target", -CRITICS)):
        assert not np.array_equal(
            td3.labels(state, rows, still), td3.labels(state._replace(**{name: value}), rows, still)
        )
