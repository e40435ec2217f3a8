"""SAC: its density against integration, its losses by hand, its temperature's two rules."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from caql.actions import make_box
from caql.agents.agent import Spec
from caql.agents.sac import SAC, SACConfig, log_density
from caql.errors import CaqlError
from caql.replay import Batch

SPEC = Spec(1, make_box([-1.0], [3.0]))
# Q_1(x, a) = 3 relu(x + 2 a + 1) - 1; Q_2(x, a) = relu(x + a).
CRITICS = jnp.array([[1.0, 2.0, 1.0, 3.0, -1.0], [1.0, 1.0, 0.0, 1.0, 0.0]])
MEAN, SIGMA = 0.4, 0.5


def density_at(action, mean, sigma):
    """p(u) of one action u in (-1, 1), through `log_density`."""
    raw = math.atanh(action)
    parts = (np.array([part], np.float32) for part in (math.log(sigma), (raw - mean) / sigma, raw))
    return math.exp(log_density(*parts))


def agent(**settings):
    return SAC(SACConfig(hidden=(1,), **settings), SPEC)


def by_hand(sac):
    """The policy N(0.4, 0.5) before tanh in every state, and the two critics above."""
    state = sac.init(jax.random.key(0))
    return state._replace(
        actor=state.actor._replace(vector=jnp.array([0.0, 0.0, 0.0, 0.0, MEAN, math.log(SIGMA)])),
        critics=state.critics._replace(vector=CRITICS + 0),
        critics_target=CRITICS + 0,
    )


def sampled(noise):
    """The action in [-1, 3] and its log-probability in [-1, 1], written out."""
    raw = MEAN + SIGMA * noise
    log_probability = norm.logpdf(raw, MEAN, SIGMA) - math.log(1 - math.tanh(raw) ** 2)
    return 1 + 2 * math.tanh(raw), log_probability


def batch(rows):
    states, actions, rewards, next_states, continues = (jnp.array(column) for column in zip(*rows, strict=True))
    return Batch(states[:, None], actions[:, None], rewards, next_states[:, None], continues)


def epoch(rows):
    return jax.tree.map(lambda column: column[None], rows)


@pytest.mark.parametrize(("mean", "sigma"), [(0.0, 1.0), (0.7, 0.3), (-1.5, 0.8)])
def test_the_density_integrates_to_the_gaussians_probabilities(mean, sigma):
    for low, high in ((-0.999999, 0.999999), (-0.5, 0.2), (0.6, 0.9)):
        integral, _ = quad(density_at, low, high, args=(mean, sigma), limit=200, epsabs=1e-6)
        expected = norm.cdf(math.atanh(high), mean, sigma) - norm.cdf(math.atanh(low), mean, sigma)
        assert integral == pytest.approx(expected, abs=2e-4)


def test_dimensions_are_independent():
    log_sigma, noise, raw = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    single = [float(log_density(log_sigma[i : i + 1], noise[i : i + 1], raw[i : i + 1])) for i in range(4)]
    assert float(log_density(log_sigma, noise, raw)) == pytest.approx(sum(single), rel=1e-5)


@pytest.mark.parametrize("raw", [-30.0, -9.0, 0.0, 9.0, 30.0])
def test_the_density_survives_saturation(raw):
    """1 - tanh^2 is zero in float32 from |raw| = 9 on; its true value is 4 exp(-2 |raw|) / (1 + exp(-2 |raw|))^2."""
    log_slope = math.log(4) - 2 * abs(raw) - 2 * math.log1p(math.exp(-2 * abs(raw)))
    expected = -0.5 * math.log(2 * math.pi) - log_slope
    zero = jnp.zeros(1)
    assert float(log_density(zero, zero, jnp.full(1, raw))) == pytest.approx(expected, rel=1e-5)
    slope = jax.grad(lambda r: log_density(zero, zero, r[None]))(jnp.float32(raw))
    assert slope == pytest.approx(2 * math.tanh(raw), abs=1e-5)


def test_samples_fill_the_box_as_the_density_says():
    sac = agent()
    noise = jax.random.normal(jax.random.key(0), (20_000, 1))
    actions, log_probabilities = sac.sample(by_hand(sac).actor.vector, jnp.zeros((20_000, 1)), noise)
    expected = norm.cdf(math.atanh((2 - 1) / 2), MEAN, SIGMA)
    assert np.mean(np.asarray(actions) <= 2) == pytest.approx(expected, abs=0.02)
    entropy, _ = quad(lambda u: -density_at(u, MEAN, SIGMA) * math.log(density_at(u, MEAN, SIGMA)), -0.9999, 0.9999)
    assert -np.mean(log_probabilities) == pytest.approx(entropy, abs=0.02)


def test_labels_by_hand():
    sac = agent(discount=0.9, initial_temperature=0.3)
    noise = jnp.array([[0.5], [-1.0], [0.5]])
    rows = batch([(0.0, 0.0, 5.0, 1.0, 1.0), (0.0, 0.0, 5.0, 1.0, 1.0), (0.0, 0.0, 5.0, 1.0, 0.0)])
    expected = []
    for each in (0.5, -1.0):
        action, log_probability = sampled(each)
        smaller = min(3 * (1 + 2 * action + 1) - 1, 1 + action)
        expected.append(5 + 0.9 * (smaller - 0.3 * log_probability))
    np.testing.assert_allclose(sac.labels(by_hand(sac), rows, noise), [*expected, 5.0], rtol=1e-5)


def test_critic_loss_is_half_the_sum_of_the_two_mean_squares():
    rows = batch([(2.0, 1.0, 0.0, 0.0, 1.0), (0.0, -1.0, 0.0, 0.0, 1.0)])
    loss, mean = agent().critic_loss(CRITICS, rows, jnp.array([12.0, 3.0]))
    assert loss == pytest.approx(((2**2 + 4**2) / 2 + (9**2 + 3**2) / 2) / 2)
    assert mean == pytest.approx((14 - 1 + 3 + 0) / 4)


def test_actor_loss_by_hand():
    sac = agent()
    loss, entropy = sac.actor_loss(
        by_hand(sac).actor.vector, CRITICS, jnp.float32(0.3), batch([(1.0, 0.0, 0.0, 0.0, 1.0)]), jnp.array([[0.5]])
    )
    action, log_probability = sampled(0.5)
    assert loss == pytest.approx(0.3 * log_probability - (1 + action), rel=1e-5)
    assert entropy == pytest.approx(-log_probability, rel=1e-5)


@pytest.mark.parametrize(("entropy", "slope"), [(-3.0, -2.0), (1.0, 2.0)], ids=["too low", "too high"])
def test_a_learned_temperature_follows_the_entropy(entropy, slope):
    """Descent on this slope raises the temperature while the entropy is below -1, and lowers it above."""
    loss = jax.grad(lambda scalar: agent().temperature_loss(scalar, jnp.float32(entropy))[0])
    assert loss(jnp.float32(0.7)) == pytest.approx(slope)


def test_a_decayed_temperature_falls_each_training_step():
    sac = agent(temperature="decayed", initial_temperature=0.5, temperature_decay=0.9)
    rows = jax.tree.map(lambda column: jnp.stack([column] * 4), batch([(1.0, 0.0, 0.0, 0.0, 1.0)]))
    state, statistics = sac.update(by_hand(sac), rows, jax.random.key(0))
    assert statistics["temperature"] == pytest.approx(0.5 * np.mean(0.9 ** np.arange(4)), rel=1e-5)
    assert sac.temperature(state) == pytest.approx(0.5 * 0.9**4, rel=1e-5)
    long_run = state._replace(steps=jnp.int32(200_000))
    paper = agent(temperature="decayed", temperature_decay=0.99995)
    assert paper.temperature(long_run) == pytest.approx(0.99995**200_000, rel=1e-4)


def test_the_target_entropy_is_minus_the_action_size():
    assert SAC(SACConfig(), Spec(2, make_box([-1.0] * 3, [1.0] * 3))).target_entropy == -3


def test_one_update_by_hand():
    sac = agent(
        target_rate=0.25,
        critic_learning_rate=0.01,
        initial_temperature=0.3,
        temperature_learning_rate=0.02,
        target_entropy=5.0,
    )
    state, statistics = sac.update(by_hand(sac), epoch(batch([(1.0, 0.0, 50.0, 1.0, 1.0)])), jax.random.key(0))
    # Both Q_1(1, 0) = 5 and Q_2(1, 0) = 1 are far below the target.
    moved = np.array([[1.01, 2.0, 1.01, 3.01, -0.99], [1.01, 1.0, 0.01, 1.01, 0.01]])
    np.testing.assert_allclose(state.critics.vector, moved, atol=1e-6)
    np.testing.assert_allclose(state.critics_target, CRITICS + 0.25 * (moved - CRITICS), atol=1e-6)
    # Adam's first step on the logarithm is its rate, upwards: the entropy is below 5.
    assert statistics["temperature"] == pytest.approx(0.3, rel=1e-6)
    assert state.log_temperature.vector == pytest.approx(math.log(0.3) + 0.02, rel=1e-4)
    assert state.steps == 1
    # The actor learns from the critics that have just moved.
    noise = jax.random.normal(jax.random.key(0), (1, 2, 1, 1))[0, 1]
    rows, actor = batch([(1.0, 0.0, 50.0, 1.0, 1.0)]), by_hand(sac).actor.vector
    new, old = (sac.actor_loss(actor, critics, jnp.float32(0.3), rows, noise)[0] for critics in (moved, CRITICS))
    assert statistics["actor_loss"] == pytest.approx(float(new), rel=1e-6)
    assert abs(float(new) - float(old)) > 0.01


def test_the_host_policy_is_the_actor():
    sac = SAC(SACConfig(hidden=(8, 4)), Spec(3, make_box([-0.2, 1.0], [0.7, 9.0])))
    state = sac.init(jax.random.key(0))
    rng = np.random.default_rng(0)
    states, noise = (rng.standard_normal((16, size)).astype(np.float32) for size in (3, 2))
    policy = sac.policy(state, 0)
    np.testing.assert_allclose(
        policy.explore(states, noise), sac.sample(state.actor.vector, states, noise)[0], atol=1e-5
    )
    np.testing.assert_array_equal(policy.act(states), policy.explore(states, np.zeros((16, 2), np.float32)))


def test_learns_a_bandit():
    """One step, reward -(a - a*(x))^2: the mean finds a*(x) = 1 + x in [-1, 3]."""
    sac = SAC(SACConfig(hidden=(16, 16), critic_learning_rate=0.01, actor_learning_rate=0.003), SPEC)
    rng = np.random.default_rng(0)
    state = sac.init(jax.random.key(0))
    for step in range(40):
        states = rng.uniform(-1, 1, (20, 64, 1)).astype(np.float32)
        actions = rng.uniform(-1, 3, (20, 64, 1)).astype(np.float32)
        rewards = -((actions - 1 - states)[..., 0] ** 2)
        batches = Batch(states, actions, rewards, states, np.zeros_like(rewards))
        state, _ = sac.update(state, batches, jax.random.key(step))
    states = np.linspace(-0.9, 0.9, 7, dtype=np.float32)[:, None]
    np.testing.assert_allclose(sac.policy(state, 0).act(states), 1 + states, atol=0.3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": "fixed"}, r"temperature = 'fixed' must be 'learned' or 'decayed'"),
        ({"initial_temperature": 0.0}, r"initial_temperature = 0.0 must be a positive finite number"),
        ({"temperature_decay": 1.5}, r"temperature_decay = 1.5 must be more than 0 and at most 1"),
        ({"temperature_learning_rate": -1.0}, r"temperature_learning_rate = -1.0 must be a positive finite number"),
        ({"target_entropy": math.inf}, r"target_entropy = inf must be a finite number or None"),
    ],
)
def test_bad_settings_are_rejected_by_name(settings, message):
    with pytest.raises(CaqlError, match=message):
        SACConfig(**settings)
