"""Every agent over action sets: what reaches the environment is admissible, and is what is learned from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caql import CAQL, DDPG, NAF, SAC, TD3
from caql.action_sets import StateSets, stacked
from caql.actions import ActionSet, make_box
from caql.agents import caql, ddpg, naf, sac, td3
from caql.agents.agent import Spec
from caql.agents.policies import EpsilonGreedy, Exploration, RadialPolicy
from caql.agents.radial import radial
from caql.environments import make_task
from caql.errors import CaqlError
from caql.replay import Batch
from tests.budgeted import Budgeted, EveryKind, Mixed

LOOP = {"warm_up": 20, "steps_per_epoch": 2, "batch_size": 4, "replay_size": 60}
HIGHS = {"solver": "mip", "backend": "highs", "hidden": (3,), "action_hidden": (3,)}
AGENTS = {
    "caql-exact": lambda env: CAQL("MlpPolicy", env, solver="exact", hidden=(4,), action_hidden=(4,), **LOOP),
    "caql-ga": lambda env: CAQL("MlpPolicy", env, hidden=(4,), action_hidden=(4,), **LOOP),
    "caql-radial": lambda env: CAQL("MlpPolicy", env, hidden=(4,), action_hidden=(4,), squash="radial", **LOOP),
    "caql-mip": lambda env: CAQL("MlpPolicy", env, **HIGHS, **LOOP),
    "qt-opt": lambda env: CAQL("MlpPolicy", env, solver="cem", action_function="none", hidden=(4,), **LOOP),
    "naf": lambda env: NAF("MlpPolicy", env, hidden=(4,), **LOOP),
    "ddpg": lambda env: DDPG("MlpPolicy", env, hidden=(4,), **LOOP),
    "td3": lambda env: TD3("MlpPolicy", env, hidden=(4,), **LOOP),
    "sac": lambda env: SAC("MlpPolicy", env, hidden=(4,), **LOOP),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", AGENTS)
def test_no_action_of_whole_episodes_breaks_the_set(name, dtype):
    env = Budgeted(dtype)
    model = AGENTS[name](env)
    model.learn(75)
    model.training.evaluate(1, 0)
    observation, _ = env.reset(seed=1)
    for _ in range(5):
        observation, *_ = env.step(model.predict(observation)[0])
        observation, *_ = env.step(model.predict(observation, deterministic=False)[0])
    assert env.taken > 75 + 10
    assert env.violations == 0
    assert model.train_step >= 6


RELAXED = {"relaxed": True, "hidden": (4,), "action_hidden": (4,)}
ON_WHOLE_NUMBERS = {name: AGENTS[name] for name in ("caql-exact", "caql-mip", "naf", "ddpg", "td3", "sac")} | {
    "caql-ga": lambda env: CAQL("MlpPolicy", env, **RELAXED, **LOOP),
    "qt-opt": lambda env: CAQL("MlpPolicy", env, solver="cem", **RELAXED, **LOOP),
}
"""Every agent that takes whole numbers; ga and cem with them relaxed, radial squashing not at all."""


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ON_WHOLE_NUMBERS)
def test_no_action_of_whole_episodes_breaks_any_kind_of_limit(name, dtype):
    env = EveryKind(dtype)
    model = ON_WHOLE_NUMBERS[name](env)
    model.learn(50)
    model.training.evaluate(1, 0)
    assert env.taken == 75
    assert set(env.violations.values()) == {0}, env.violations
    assert model.training.task.actions.counted == {"actions": 75, "violations": 0}


def test_a_violation_would_be_counted(monkeypatch):
    env = EveryKind()
    task = make_task(env)
    task.reset(seed=0)
    inside = task.actions.admissible(np.zeros(7))
    for moved, sentence in ((0, "equality"), (3, "whole"), (4, "rate")):
        outside = inside.copy()
        outside[moved] += 0.375
        monkeypatch.setattr(task.actions, "admissible", lambda action, outside=outside: outside)
        before = env.violations.get(sentence, 0)
        task.actions.see(env.x.copy(), env.x)
        task.step(np.zeros(7))
        assert env.violations[sentence] == before + 1
        task.reset(seed=0)
    assert task.actions.take_counted() == {"actions": 3, "violations": 3}
    assert task.actions.counted == {"actions": 0, "violations": 0}


def test_the_replay_buffer_holds_what_was_executed_and_the_sets_of_both_states():
    env = Budgeted()
    model = AGENTS["ddpg"](env)
    model.learn(50)
    data = model.training.replay.data.pick(slice(50))
    for state, action, sets in (
        (data.states, data.actions, data.sets),
        (data.next_states, None, data.next_sets),
    ):
        for row in range(50):
            if action is None and data.continues[row] == 0:
                continue  # nothing is asked about the actions after the end
            wanted = make_task(env).set_at(state[row])
            for column, array in sets.items():
                np.testing.assert_allclose(array[row], getattr(wanted, column), rtol=1e-6)
            if action is not None:
                assert wanted.contains(action[row])
    pushed = np.abs(data.states[:, 1:4] * data.actions).sum(axis=1) / data.states[:, 4]
    assert (pushed > 0.99).mean() > 0.5  # at first the noise is as wide as the box: most of it is projected


@pytest.mark.parametrize("kind", [tuple, dict])
def test_choices_with_numbers_come_through_training_in_the_environments_own_form(kind):
    env = Mixed(kind)
    model = CAQL("MlpPolicy", env, **HIGHS, **(LOOP | {"warm_up": 10}))
    model.learn(30)
    assert set(env.picked) == {1, 2, 3}
    actions = model.training.replay.data.actions[:30]
    assert actions.shape == (30, 5)
    np.testing.assert_array_equal(actions[:, :3], np.eye(3)[np.array(env.picked) - 1])
    greedy, _ = model.predict(np.zeros(2))
    assert env.action_space.contains(greedy)
    batch, _ = model.predict(np.zeros((2, 2)))
    assert [env.action_space.contains(each) for each in batch] == [True, True]
    certificate = model.certify(np.zeros(2), solver=model.config.agent.solver)
    assert certificate.gap <= 1e-4
    assert sorted(certificate.action[:3]) == [0, 0, 1]


@pytest.mark.parametrize("name", ["naf", "ddpg", "td3", "sac"])
def test_the_baselines_take_choices_by_projection(name):
    env = Mixed()
    AGENTS[name](env).learn(30)
    assert len(env.picked) == 30


def test_a_discrete_space_is_double_dqn_with_a_proved_maximum():
    model = CAQL("MlpPolicy", "CartPole-v1", **HIGHS, **LOOP)
    model.learn(30)
    states = np.random.default_rng(0).normal(0, 0.3, (20, 4)).astype(np.float32)
    layers = model.q_layers()

    def q(choice):
        hidden = np.concatenate([states, np.tile(np.eye(2)[choice], (20, 1))], axis=1)
        for weights, bias in layers[:-1]:
            hidden = np.maximum(hidden @ weights + bias, 0)
        return (hidden @ layers[-1][0] + layers[-1][1])[:, 0]

    best = np.argmax([q(0), q(1)], axis=0)
    np.testing.assert_array_equal(model.predict(states)[0], best)
    certificate = model.certify(states, solver=model.config.agent.solver)
    np.testing.assert_allclose(certificate.value, np.maximum(q(0), q(1)), rtol=1e-5)
    assert (certificate.gap <= 1e-4).all()


def test_whole_numbers_are_acted_on_by_the_solver_unless_they_are_relaxed():
    states = np.random.default_rng(0).normal(size=(8, 2)).astype(np.float32)
    for relaxed in (False, True):
        agent = CAQL("MlpPolicy", Mixed(), relaxed=relaxed, **HIGHS, **LOOP).training.agent
        state = agent.init(jax.random.key(0))
        other = state._replace(action_function=state.action_function._replace(vector=-state.action_function.vector))
        same = (agent.policy(other, 0).act(states) == agent.policy(state, 0).act(states)).all()
        assert same == (not relaxed)


def test_whole_numbers_need_a_solver_that_takes_them_or_are_relaxed():
    with pytest.raises(CaqlError, match="take 'exact' or 'mip'"):
        CAQL("MlpPolicy", "CartPole-v1")
    model = CAQL("MlpPolicy", Mixed(), relaxed=True, hidden=(4,), **LOOP)
    model.learn(30)
    np.testing.assert_array_equal(model.training.replay.data.actions[:30, :3].sum(axis=1), 1)


def test_random_choices_are_uniform_over_what_a_state_admits():
    class Greedy:
        def act(self, state):
            return np.zeros(4, np.float32)

        def explore(self, state, noise):
            return np.array([1, 0, 0, 0], np.float32) + np.array([0, 0, 0, 1], np.float32) * noise

    choice = (ActionSet.one_of(3) & ActionSet.bounds([0, 0, 0], [1, 1, 0])).at(range(3), 4) & ActionSet.bounds(-1, 1, 4)
    policy = EpsilonGreedy(Greedy(), Spec(1, choice), 0.4)
    rng = np.random.default_rng(0)
    picked = []
    for noise in rng.standard_normal((2000, 4)).astype(np.float32):
        action = policy.explore(np.zeros(1), noise)
        assert action[3] == noise[3]  # the continuous part keeps its Gaussian noise
        picked.append(int(np.argmax(choice.admissible(action)[:3])))
    shares = np.bincount(picked, minlength=3) / 2000
    np.testing.assert_allclose(shares, [0.8, 0.2, 0.0], atol=0.03)
    # Numbers from 0 to 3: half a step beyond either end, a quarter of the draws for each of the four.
    floors = EpsilonGreedy(Greedy(), Spec(1, ActionSet.bounds(0, 3, 4) & ActionSet.whole(4)), 1.0)
    ends = [floors.explore(np.zeros(1), np.full(4, noise)) for noise in (-9.0, 9.0)]
    np.testing.assert_array_equal(ends, [[-0.5] * 4, [3.5] * 4])
    assert Exploration(sigma=2.0, decay=0.5, minimum=0.1).epsilon(0) == 1
    assert Exploration(sigma=2.0, decay=0.5, minimum=0.1).epsilon(3) == 0.25
    assert Exploration(sigma=2.0, decay=0.5, minimum=0.1).epsilon(9) == 0.1


def test_gradients_pass_through_the_edge_of_a_set():
    rows = ActionSet.linear([[1.0, 1.0]], high=0.5) & ActionSet.bounds(-1, 1, 2)
    spec = Spec(1, rows.map(lambda array: jax.numpy.asarray(array, jax.numpy.float32)))
    outside = jax.numpy.array([[0.9, 0.8]])
    # Weights across the edge: along it the projection's own gradient would be added.
    weights = jax.numpy.array([1.0, 3.0])
    np.testing.assert_allclose(jax.grad(lambda a: (spec.inside(a, None) @ weights).sum())(outside), [weights])
    raw = jax.numpy.array([[1.5, 1.0], [-0.2, 0.3], [0.0, 0.0], [4.0, -4.0]])
    slopes = jax.vmap(jax.jacobian(lambda r: radial(spec.action_set, spec.action_set, r[None])[0]))(raw)
    assert np.isfinite(slopes).all()
    assert (np.abs(np.linalg.det(slopes[jax.numpy.array([0, 1])])) > 1e-3).all()


def test_radial_squashing_fills_the_set_and_never_leaves_it():
    rows = ActionSet.linear([[1.0, 2.0], [-1.0, 0.5]], high=[0.4, 0.9]) & ActionSet.bounds(-1, 1, 2)
    box = ActionSet.box(rows.low, rows.high)
    raw = np.random.default_rng(0).normal(0, 3, (2000, 2))
    actions = radial(rows, box, raw)
    heights = np.array([[1.0, 2.0], [-1.0, 0.5]]) @ actions.T
    assert (np.array([0.4, 0.9]) + 1e-9 >= heights.T).all()
    assert (np.abs(actions) <= 1 + 1e-9).all()
    assert (heights.max(axis=1) > np.array([0.39, 0.89])).all()
    assert (actions.min(axis=0) < -0.99).all()
    wider = ActionSet.linear([[1.0, 2.0], [-1.0, 0.5]], high=[1.5, 1.2]) & ActionSet.bounds(-1, 1, 2)
    traced = radial(wider.map(jax.numpy.asarray), box.map(jax.numpy.asarray), jax.numpy.asarray(raw))
    np.testing.assert_allclose(traced, radial(wider, box, raw), atol=1e-5)
    with pytest.raises(CaqlError, match="inequalities in the actions alone"):
        CAQL("MlpPolicy", "CartPole-v1", **HIGHS, squash="radial")


def test_a_box_is_left_as_it_is():
    spec = Spec(1, make_box([-1.0], [1.0]))
    assert not spec.constrained
    actions = jax.numpy.array([[3.0]])
    assert spec.inside(actions, None) is actions


def below(agent, *limits):
    """The columns of sets a <= limit, one for each."""
    sets = [agent.spec.sets.columns(agent.spec.sets.at(np.array([limit]))) for limit in limits]
    return {name: np.stack([each[name] for each in sets]) for name in sets[0]}


def make_limited(kind, config, **settings):
    """An agent of one observation, which is the largest admissible action in [-1, 1]."""
    space = ActionSet.bounds(-1.0, 1.0, 1)
    sets = StateSets(lambda x: ActionSet.linear(np.ones((1, 1)), high=float(x[0])), space, np.ones(1))
    return kind(config(hidden=(1,), discount=0.9, **settings), Spec(1, make_box([-1.0], [1.0]), sets=sets))


# The actors want a = 1, wherever they are; the critics have Q(x, a) = a + 2.
UPWARD, CRITIC = [0.0, 0.0, 0.0, 9.0], [0.0, 1.0, 2.0, 1.0, 0.0]


def ddpg_by_hand():
    agent = make_limited(ddpg.DDPG, ddpg.DDPGConfig)
    state = agent.init(jax.random.key(0))._replace(actor_target=jnp.array(UPWARD), critic_target=jnp.array(CRITIC))
    return (
        agent,
        lambda batch: agent.labels(state, batch),
        lambda batch: agent.actor_loss(jnp.array(UPWARD), jnp.array(CRITIC), batch)[0],
    )


def td3_by_hand():
    agent = make_limited(td3.TD3, td3.TD3Config)
    critics, push = jnp.array([CRITIC, CRITIC]), jnp.full((2, 1), 3.0)
    state = agent.init(jax.random.key(0))._replace(actor_target=jnp.array(UPWARD), critics_target=critics)
    return (
        agent,
        lambda batch: agent.labels(state, batch, push),
        lambda batch: agent.actor_loss(jnp.array(UPWARD), critics, batch)[0],
    )


def sac_by_hand():
    agent = make_limited(sac.SAC, sac.SACConfig, initial_temperature=1e-9)
    critics, push, upward = jnp.array([CRITIC, CRITIC]), jnp.full((2, 1), 0.1), jnp.array([0, 0, 0, 0, 9.0, 0])
    state = agent.init(jax.random.key(0))
    state = state._replace(actor=state.actor._replace(vector=upward), critics_target=critics)
    return (
        agent,
        lambda batch: agent.labels(state, batch, push),
        lambda batch: agent.actor_loss(upward, critics, jnp.float32(0.0), batch, push)[0],
    )


@pytest.mark.parametrize("make", [ddpg_by_hand, td3_by_hand, sac_by_hand])
def test_labels_are_made_inside_the_sets_of_the_next_states_and_actors_climb_in_their_own(make):
    agent, labels, actor_loss = make()
    column = np.zeros((2, 1), np.float32)
    batch = Batch(column, column, np.zeros(2), column, np.ones(2), below(agent, 0.9, -0.2), below(agent, -0.5, 0.25))
    np.testing.assert_allclose(labels(batch), [0.9 * (2 - 0.5), 0.9 * (2 + 0.25)], atol=1e-4)
    assert float(actor_loss(batch)) == pytest.approx(-(2.9 + 1.8) / 2, abs=1e-4)


def test_naf_labels_are_the_value_of_the_closest_action_of_the_next_state():
    agent = make_limited(naf.NAF, naf.NAFConfig)
    vector = jnp.array([0.0, 0.0, 0.0, 0.0, 0.0, 5.0, 9.0, 0.0])  # Q(x, a) = 5 - (a - 1)^2 / 2
    column = np.zeros((2, 1), np.float32)
    batch = Batch(column, column, np.zeros(2), column, np.ones(2), below(agent, 0.9, -0.2), below(agent, -0.5, 0.0))
    np.testing.assert_allclose(agent.labels(vector, batch), [0.9 * (5 - 1.5**2 / 2), 0.9 * 4.5], atol=1e-4)


def test_caql_asks_about_the_sets_of_the_next_states():
    agent = make_limited(caql.CAQL, caql.CAQLConfig, action_hidden=(1,))
    state = agent.init(jax.random.key(0))
    state = state._replace(action_function=state.action_function._replace(vector=jnp.array(UPWARD)))
    column = np.zeros((2, 1), np.float32)
    batch = Batch(column, column, np.zeros(2), column, np.ones(2), below(agent, 0.9, -0.2), below(agent, -0.5, 0.25))
    problem = agent.ask(state, batch).problem
    np.testing.assert_allclose(problem.action_set.row_high, [[-0.5], [0.25]])
    np.testing.assert_allclose(problem.warm_start, [[-0.5], [0.25]], atol=1e-5)


def test_relaxed_searches_without_whole_numbers():
    for relaxed, integer in ((True, ()), (False, (0, 1, 2))):
        model = CAQL("MlpPolicy", Mixed(), relaxed=relaxed, **HIGHS, **LOOP)
        agent = model.training.agent
        assert agent.max_q(model.training.state, np.zeros((2, 2), np.float32)).action_set.integer == integer


def test_a_radial_policy_answers_one_state_or_many():
    agent = make_limited(caql.CAQL, caql.CAQLConfig, action_hidden=(1,), squash="radial")
    spec = agent.spec._replace(sets_at=lambda states: stacked([agent.spec.sets.at(state) for state in states]))
    policy = RadialPolicy(agent.action_function.network.layers(np.array(UPWARD)), spec, np.zeros(1))
    states = np.array([[0.5], [-0.25]], np.float32)
    many = policy.act(states)
    np.testing.assert_allclose(many, [[0.5], [-0.25]], atol=1e-3)
    np.testing.assert_array_equal(policy.act(states[1]), many[1])
