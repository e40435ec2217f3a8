"""NAF: its quadratic by hand, and its analytic maximum against brute force."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from caql.actions import make_box
from caql.agents.agent import Spec
from caql.agents.naf import NAF, NAFConfig
from caql.errors import CaqlError
from caql.networks import forward
from caql.replay import Batch


def constant_network(naf, outputs):
    """Parameters whose outputs are `outputs` in every state."""
    *hidden, (weights, _) = naf.network.layers(naf.init(jax.random.key(0)).network.vector)
    return naf.network.flatten((*hidden, (jnp.zeros_like(weights), jnp.array(outputs))))


def test_the_quadratic_by_hand():
    naf = NAF(NAFConfig(hidden=(2,)), Spec(1, make_box([-1.0, 0.0], [3.0, 1.0])))
    # V = 7, raw centre (0, atanh 0.5), L = [[2, 0], [3, 1]]; the entry above the diagonal must not count.
    vector = constant_network(naf, [7.0, 0.0, math.atanh(0.5), math.log(2.0), 99.0, 3.0, 0.0])
    states = jnp.zeros((1, 1))
    np.testing.assert_allclose(naf.greedy(vector, states), [[1.0, 0.75]], rtol=1e-6)
    assert naf.values(naf.quadratic(vector, states), jnp.array([[1.0, 0.75]]))[0] == pytest.approx(7.0)
    # At (2, 1): u - m = (0.5, 0.5), L^T (u - m) = (2 * 0.5 + 3 * 0.5, 0.5), half its square is 3.25.
    assert naf.values(naf.quadratic(vector, states), jnp.array([[2.0, 1.0]]))[0] == pytest.approx(
        7 - (2.5**2 + 0.5**2) / 2
    )


def test_labels_bootstrap_from_the_maximum_unless_the_task_ended():
    naf = NAF(NAFConfig(hidden=(2,), discount=0.9), Spec(1, make_box([-1.0], [3.0])))
    vector = constant_network(naf, [7.0, 0.3, 0.0])
    zeros = jnp.zeros((2, 1))
    batch = Batch(zeros, zeros, jnp.array([1.0, 1.0]), zeros, jnp.array([1.0, 0.0]))
    np.testing.assert_allclose(naf.labels(vector, batch), [1 + 0.9 * 7, 1.0], rtol=1e-6)


def test_loss_is_the_mean_squared_difference():
    naf = NAF(NAFConfig(hidden=(2,)), Spec(1, make_box([-1.0], [3.0])))
    vector = constant_network(naf, [7.0, 0.0, math.log(2.0)])
    # In units of the radius 2 around the centre 1: u = 0 and u = 1; Q = 7 and 7 - 2^2 / 2 = 5.
    batch = Batch(jnp.zeros((2, 1)), jnp.array([[1.0], [3.0]]), None, None, None)
    loss, mean = naf.loss(vector, batch, jnp.array([6.0, 8.0]))
    assert loss == pytest.approx((1**2 + 3**2) / 2, rel=1e-6)
    assert mean == pytest.approx(6.0)


def test_saturated_outputs_are_penalised():
    naf = NAF(NAFConfig(hidden=(2,), saturation_penalty=0.5), Spec(1, make_box([-1.0, 0.0], [3.0, 1.0])))
    # Centres before tanh -5 (2 too far) and 1; log-diagonal 2 and -4 (1 too far); the unused entry must not count.
    vector = constant_network(naf, [7.0, -5.0, 1.0, 2.0, 99.0, 0.0, -4.0])
    action = naf.greedy(vector, jnp.zeros((1, 1)))
    batch = Batch(jnp.zeros((1, 1)), action, None, None, None)
    loss, _ = naf.loss(vector, batch, jnp.array([7.0]))
    assert loss == pytest.approx(0.5 * (2**2 + 1**2), rel=1e-4)


def test_a_curvature_that_would_overflow_stays_at_its_limit_and_comes_back():
    """exp(100) is infinite in float32: a state far from all others would end the run."""
    naf = NAF(NAFConfig(hidden=(2,), saturation_penalty=0.0), Spec(1, make_box([-1.0], [1.0])))
    vector = constant_network(naf, [7.0, 0.0, 100.0])
    quadratic = naf.quadratic(vector, jnp.zeros((1, 1)))
    np.testing.assert_allclose(quadratic.factor, [[[np.exp(3)]]], rtol=1e-6)
    batch = Batch(jnp.zeros((1, 1)), jnp.ones((1, 1)), None, None, None)
    gradient = jax.grad(lambda vector: naf.loss(vector, batch, jnp.array([7.0]))[0])(vector)
    # Q = 7 - e^6 / 2, so the loss is e^12 / 4 and rises by e^12 with the logarithm of the diagonal.
    bias = naf.network.layers(gradient)[-1][1]
    assert bias[2] == pytest.approx(np.exp(12), rel=1e-5)


def test_the_penalty_brings_dead_outputs_back_to_life():
    """From tanh(-20) and exp(-20), whose gradients vanish, although the best action is elsewhere."""
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 3, (250, 64, 1)).astype(np.float32)
    states = np.ones_like(actions)
    rewards = -((actions - 2)[..., 0] ** 2)
    outputs = {}
    for penalty in (0.0, 1.0):
        config = NAFConfig(hidden=(8,), q_learning_rate=0.02, saturation_penalty=penalty)
        naf = NAF(config, Spec(1, make_box([-1.0], [3.0])))
        state = naf.init(jax.random.key(0))
        state = state._replace(network=state.network._replace(vector=constant_network(naf, [0.0, -20.0, -20.0])))
        for _ in range(4):
            batches = Batch(states, actions, rewards, states, np.zeros_like(rewards))
            state, _ = naf.update(state, batches, jax.random.key(0))
        outputs[penalty] = forward(naf.network.layers(state.network.vector), jnp.ones(1))[1:]
    np.testing.assert_allclose(outputs[0.0], [-20, -20], atol=1)
    assert np.abs(outputs[1.0]).max() < 3.3


def test_an_update_learns_labels_of_the_target_network():
    naf = NAF(NAFConfig(hidden=(2,), discount=0.9), Spec(1, make_box([-1.0], [3.0])))
    state = naf.init(jax.random.key(0))
    state = state._replace(
        network=state.network._replace(vector=constant_network(naf, [3.0, 0.0, 0.0])),
        target=constant_network(naf, [7.0, 0.0, 0.0]),
    )
    zeros = jnp.zeros((1, 1, 1))
    # At the centre Q = V = 3; the label is 1 + 0.9 * 7.
    batches = Batch(zeros, zeros + 1, jnp.ones((1, 1)), zeros, jnp.ones((1, 1)))
    _, statistics = naf.update(state, batches, jax.random.key(0))
    assert statistics["loss"] == pytest.approx((1 + 0.9 * 7 - 3) ** 2, rel=1e-5)


def test_one_update_moves_the_target_by_the_rate():
    naf = NAF(NAFConfig(hidden=(3,), target_rate=0.25), Spec(2, make_box([-1.0], [3.0])))
    state = naf.init(jax.random.key(0))
    before = np.array(state.target)
    ones = np.ones((1, 4, 2), np.float32)
    batches = Batch(ones, ones[..., :1], ones[..., 0], ones, ones[..., 0])
    state, statistics = naf.update(state, batches, jax.random.key(0))
    assert np.abs(state.network.vector - before).max() == pytest.approx(0.001, rel=1e-3)
    np.testing.assert_allclose(state.target, before + 0.25 * (state.network.vector - before), atol=1e-7)
    assert set(statistics) == {"loss", "q_mean"}


@pytest.mark.parametrize("seed", range(5))
def test_nothing_on_a_grid_beats_the_maximiser(seed):
    spec = Spec(3, make_box([-0.2, 1.0], [0.7, 9.0]))
    naf = NAF(NAFConfig(hidden=(8, 8)), spec)
    vector = 1.5 * naf.init(jax.random.key(seed)).network.vector
    states = jax.random.normal(jax.random.key(100 + seed), (4, 3))
    grid = np.stack(np.meshgrid(*np.linspace(spec.action_set.low, spec.action_set.high, 101).T), axis=-1).reshape(-1, 2)
    best = naf.greedy(vector, states)
    assert np.asarray(spec.action_set.contains(best)).all()
    quadratic = naf.quadratic(vector, states)
    tops = naf.values(quadratic, best)
    np.testing.assert_allclose(tops, quadratic.maximum, atol=1e-4)
    everywhere = jax.jit(jax.vmap(naf.values, (None, 0)))(quadratic, grid[:, None])
    for row, top in enumerate(np.asarray(tops)):
        values = np.asarray(everywhere[:, row])
        assert values.max() <= top + 1e-4
        # The best of the grid stands within one cell of the maximiser along the quadratic's steepest axis.
        factor = np.asarray(quadratic.factor[row])
        cell = np.linalg.norm(np.array([1 / 101, 1 / 101]))
        assert top - values.max() <= np.linalg.norm(factor, 2) ** 2 * (2 * cell) ** 2 / 2 + 1e-4


def test_a_box_constrained_optimiser_finds_the_same_action():
    spec = Spec(3, make_box([-2.0, 0.5, -0.1], [0.0, 0.6, 4.0]))
    naf = NAF(NAFConfig(hidden=(8, 8)), spec)
    vector = 2 * naf.init(jax.random.key(3)).network.vector
    state = jax.random.normal(jax.random.key(4), (1, 3))
    box = spec.action_set
    value = jax.jit(
        jax.value_and_grad(
            lambda unit: -naf.values(naf.quadratic(vector, state), (box.centre + box.radius * unit)[None])[0]
        )
    )

    def objective(unit):
        loss, gradient = value(jnp.asarray(unit, jnp.float32))
        return float(loss), np.asarray(gradient, np.float64)

    found = minimize(objective, np.full(3, 0.9), jac=True, bounds=[(-1, 1)] * 3, method="L-BFGS-B")
    action = box.centre + box.radius * found.x
    np.testing.assert_allclose(action, naf.greedy(vector, state)[0], atol=2e-3)


def test_a_side_of_no_width_is_harmless():
    naf = NAF(NAFConfig(hidden=(4,)), Spec(2, make_box([-1.0, 0.5], [1.0, 0.5])))
    vector = naf.init(jax.random.key(0)).network.vector
    states, actions = jnp.ones((1, 2)), jnp.array([[0.3, 0.5]])
    gradient = jax.grad(lambda v: naf.values(naf.quadratic(v, states), actions)[0])(vector)
    assert np.isfinite(gradient).all()
    assert naf.greedy(vector, states)[0, 1] == 0.5


def test_the_host_policy_is_the_maximiser():
    naf = NAF(NAFConfig(hidden=(8, 4)), Spec(3, make_box([-0.2, 1.0], [0.7, 9.0])))
    state = naf.init(jax.random.key(0))
    states = np.random.default_rng(0).standard_normal((16, 3)).astype(np.float32)
    np.testing.assert_allclose(naf.policy(state, 0).act(states), naf.greedy(state.network.vector, states), atol=1e-5)


def test_learns_a_bandit():
    """One step, reward -(a - a*(x))^2: the centre finds a*(x) = 1 + x in [-1, 3]."""
    spec = Spec(1, make_box([-1.0], [3.0]))
    naf = NAF(NAFConfig(hidden=(16, 16), q_learning_rate=0.01), spec)
    rng = np.random.default_rng(0)
    state = naf.init(jax.random.key(0))
    for _ in range(20):
        states = rng.uniform(-1, 1, (20, 64, 1)).astype(np.float32)
        actions = rng.uniform(-1, 3, (20, 64, 1)).astype(np.float32)
        rewards = -((actions - 1 - states)[..., 0] ** 2)
        batches = Batch(states, actions, rewards, states, np.zeros_like(rewards))
        state, statistics = naf.update(state, batches, jax.random.key(0))
    states = np.linspace(-0.9, 0.9, 7, dtype=np.float32)[:, None]
    np.testing.assert_allclose(naf.policy(state, 0).act(states), 1 + states, atol=0.1)
    # The reward is a quadratic of the action, so that this Q-function can represent it exactly.
    assert statistics["loss"] < 0.05


def test_bad_settings_are_rejected_by_name():
    with pytest.raises(CaqlError, match=r"q_learning_rate = 0.0 must be a positive finite number"):
        NAFConfig(q_learning_rate=0.0)
    with pytest.raises(CaqlError, match=r"saturation_penalty = -1.0 must be a finite number, at least 0"):
        NAFConfig(saturation_penalty=-1.0)
