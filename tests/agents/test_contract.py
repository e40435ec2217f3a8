"""What every agent owes the training loop, as one table of agents against one list of promises."""

import math

import jax
import numpy as np
import pytest

from caql.actions import make_box
from caql.agents.agent import Spec
from caql.agents.caql import CAQL, CAQLConfig
from caql.agents.ddpg import DDPG, DDPGConfig
from caql.agents.naf import NAF, NAFConfig
from caql.agents.policies import Exploration
from caql.agents.sac import SAC, SACConfig
from caql.agents.td3 import TD3, TD3Config
from caql.errors import CaqlError
from caql.replay import Batch

# Restricted, lopsided, all on one side of zero, and of no width at all.
SPEC = Spec(5, make_box([-0.25, -3.0, 0.1, 0.7], [0.25, 0.5, 0.3, 0.7]))
STEPS, ROWS = 3, 16

AGENTS = {
    "caql": lambda: CAQL(CAQLConfig(), SPEC),
    "caql-min": lambda: CAQL(CAQLConfig(critics=2), SPEC),
    "caql-mean": lambda: CAQL(CAQLConfig(critics=3, combine="mean"), SPEC),
    "naf": lambda: NAF(NAFConfig(), SPEC),
    "ddpg": lambda: DDPG(DDPGConfig(), SPEC),
    "td3": lambda: TD3(TD3Config(), SPEC),
    "sac": lambda: SAC(SACConfig(), SPEC),
}
BUILT = {}


@pytest.fixture(params=AGENTS)
def agent(request):
    # Kept over the whole table: an agent compiles its update once, and has no state of its own.
    if request.param not in BUILT:
        BUILT[request.param] = AGENTS[request.param]()
    return BUILT[request.param]


def transitions(seed=0, continues=1.0):
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return rng.standard_normal((STEPS, ROWS, *shape)).astype(np.float32)

    low, high = np.asarray(SPEC.action_set.low), np.asarray(SPEC.action_set.high)
    actions = rng.uniform(low, high, (STEPS, ROWS, 4)).astype(np.float32)
    return Batch(normal(5), actions, normal(), normal(5), np.full((STEPS, ROWS), continues, np.float32))


def states_everywhere(count):
    """Random states from tiny to enormous, where a network's outputs saturate any squashing."""
    rng = np.random.default_rng(1)
    return (rng.standard_normal((count, 5)) * 10.0 ** rng.uniform(-3, 4, (count, 1))).astype(np.float32)


def assert_same(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    jax.tree.map(np.testing.assert_array_equal, left, right)


def test_the_state_is_a_pytree_of_finite_arrays(agent):
    leaves = jax.tree.leaves(agent.init(jax.random.key(0)))
    assert leaves
    for leaf in leaves:
        assert isinstance(leaf, jax.Array)
        assert leaf.dtype in (np.float32, np.int32)
        assert np.isfinite(leaf).all()


def test_keys_decide_the_first_state(agent):
    assert_same(agent.init(jax.random.key(3)), agent.init(jax.random.key(3)))
    with pytest.raises(AssertionError):
        assert_same(agent.init(jax.random.key(3)), agent.init(jax.random.key(4)))


def test_update_keeps_the_state_s_shape_and_reports_scalars(agent):
    state = agent.init(jax.random.key(0))
    before = [(leaf.shape, leaf.dtype, np.array(leaf)) for leaf in jax.tree.leaves(state)]
    structure = jax.tree.structure(state)
    state, statistics = agent.update(state, transitions(), jax.random.key(1))
    assert jax.tree.structure(state) == structure
    after = jax.tree.leaves(state)
    assert [(leaf.shape, leaf.dtype) for leaf in after] == [entry[:2] for entry in before]
    assert any(not np.array_equal(leaf, entry[2]) for leaf, entry in zip(after, before, strict=True))
    assert {"loss", "q_mean"} <= set(statistics)
    for name, value in statistics.items():
        assert np.shape(value) == (), name
        assert math.isfinite(value), name


def test_update_is_deterministic_bit_for_bit(agent):
    results = [agent.update(agent.init(jax.random.key(0)), transitions(), jax.random.key(1)) for _ in range(2)]
    assert_same(*results)


def test_learning_goes_on_from_a_saved_state_bit_for_bit(agent):
    state, _ = agent.update(agent.init(jax.random.key(0)), transitions(), jax.random.key(1))
    leaves, structure = jax.tree.flatten(state)
    saved = jax.tree.unflatten(structure, [np.array(leaf) for leaf in leaves])
    straight = agent.update(state, transitions(2), jax.random.key(2))
    resumed = agent.update(jax.tree.map(jax.numpy.asarray, saved), transitions(2), jax.random.key(2))
    assert_same(straight, resumed)


def test_a_terminal_transition_ignores_its_next_state(agent):
    ended = transitions(continues=0.0)
    elsewhere = ended._replace(next_states=ended.next_states + 5)
    state, _ = agent.update(agent.init(jax.random.key(0)), ended, jax.random.key(1))
    other, _ = agent.update(agent.init(jax.random.key(0)), elsewhere, jax.random.key(1))
    first, second = agent.policy(state, 0), agent.policy(other, 0)
    probe = states_everywhere(50)
    if agent.name != "caql":  # Its action function learns at the next states, ended or not.
        np.testing.assert_array_equal(first.act(probe), second.act(probe))
    going = transitions()
    other, _ = agent.update(
        agent.init(jax.random.key(0)), going._replace(next_states=going.next_states + 5), jax.random.key(1)
    )
    assert not np.array_equal(first.act(probe), agent.policy(other, 0).act(probe))


def test_actions_stay_inside_the_box(agent):
    state, _ = agent.update(agent.init(jax.random.key(0)), transitions(), jax.random.key(1))
    policy = agent.policy(state, 0)
    states = states_everywhere(5000)
    noise = 3 * np.random.default_rng(2).standard_normal((5000, 4)).astype(np.float32)
    low, high = np.asarray(SPEC.action_set.low), np.asarray(SPEC.action_set.high)
    for actions in (policy.act(states), policy.explore(states, noise)):
        assert actions.shape == (5000, 4)
        assert actions.dtype == np.float32
        assert (actions >= low).all()
        assert (actions <= high).all()
        # The box is used, not hidden from: every side of some width sees actions beyond its middle half.
        spread = actions.max(axis=0) - actions.min(axis=0)
        assert (spread[:3] > (high - low)[:3] / 2).all()


def test_one_state_or_a_batch_of_them(agent):
    policy = agent.policy(agent.init(jax.random.key(0)), 0)
    states = np.random.default_rng(3).standard_normal((6, 5)).astype(np.float32)
    noise = np.random.default_rng(4).standard_normal((6, 4)).astype(np.float32)
    for row in range(6):
        assert policy.act(states[row]).shape == (4,)
        np.testing.assert_allclose(policy.act(states[row]), policy.act(states)[row], atol=1e-5)
        np.testing.assert_allclose(
            policy.explore(states[row], noise[row]), policy.explore(states, noise)[row], atol=1e-5
        )


def test_float64_observations_act_like_float32_ones(agent):
    policy = agent.policy(agent.init(jax.random.key(0)), 0)
    states = states_everywhere(20)
    noise = np.random.default_rng(4).standard_normal((20, 4)).astype(np.float32)
    for wide in (policy.act(states.astype(np.float64)), policy.explore(states.astype(np.float64), noise)):
        assert wide.dtype == np.float32
    np.testing.assert_array_equal(policy.act(states), policy.act(states.astype(np.float64)))
    np.testing.assert_array_equal(policy.explore(states, noise), policy.explore(states.astype(np.float64), noise))


def test_noise_makes_it_explore(agent):
    policy = agent.policy(agent.init(jax.random.key(0)), 0)
    state = np.zeros(5, np.float32)
    quiet, loud = (policy.explore(state, np.full(4, size, np.float32)) for size in (0.0, 0.5))
    np.testing.assert_array_equal(quiet, policy.act(state))
    assert (loud[:3] > quiet[:3]).all()


def test_a_policy_outlives_the_state_it_was_made_from(agent):
    state = agent.init(jax.random.key(0))
    policy = agent.policy(state, 0)
    states = states_everywhere(20)
    before = policy.act(states).copy()
    for seed in range(3):
        state, _ = agent.update(state, transitions(seed), jax.random.key(seed))
    np.testing.assert_array_equal(policy.act(states), before)
    assert not np.array_equal(agent.policy(state, 0).act(states), before)


@pytest.mark.parametrize("name", ["naf", "ddpg", "td3"])
def test_noise_decays_by_the_epoch_down_to_its_minimum(name):
    agent = AGENTS[name]()
    state = agent.init(jax.random.key(0))
    radius = np.asarray(SPEC.action_set.radius)
    np.testing.assert_allclose(agent.policy(state, 0).sigma, radius)
    np.testing.assert_allclose(agent.policy(state, 1000).sigma, 0.9995**1000 * radius, rtol=1e-5)
    np.testing.assert_allclose(agent.policy(state, 10**6).sigma, 0.01 * radius, rtol=1e-5)


def test_the_papers_noise_has_an_absolute_size():
    np.testing.assert_allclose(Exploration(relative=False).size(1, SPEC.action_set), np.full(4, 0.9995), rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sigma": -1.0}, r"sigma = -1.0 must be a finite number, at least 0"),
        ({"decay": 0.0}, r"decay = 0.0 must be more than 0 and at most 1"),
        ({"minimum": math.nan}, r"minimum = nan must be a finite number, at least 0"),
    ],
)
def test_bad_noise_is_rejected_by_name(settings, message):
    with pytest.raises(CaqlError, match=message):
        Exploration(**settings)
