"""Several environments at once: whatever the library does at the end of an episode, the transitions are right."""

import gymnasium as gym
import numpy as np
import pytest

from caql import CAQL, ActionSet, CaqlError
from caql.runs.vector_exploring import VectorExplorer
from caql.vector_environments import VectorTask, is_vector
from tests.budgeted import Budgeted
from tests.misbehaving import STEPS, Counting

MODES = list(gym.vector.AutoresetMode)


class Falling(Counting):
    """Ends by itself after `fall` steps, and by the clock after ten."""

    def __init__(self, fall=99):
        super().__init__()
        self.fall = fall

    def step(self, action):
        observation, reward, _, truncated, _ = super().step(action)
        return observation, reward, self.t >= self.fall, truncated, {"t": self.t}


class Steady:
    def explore(self, state, noise):
        return np.array([state[0] / 100], np.float32)


def gymnasiums(mode, kind=gym.vector.SyncVectorEnv, **settings):
    return kind([lambda fall=fall: Falling(fall) for fall in (3, 99)], autoreset_mode=mode, **settings)


def transitions_are_right(batch, falls=(3, 99)):
    """Each is a step of one of the two counters, and ends where that one does."""
    np.testing.assert_array_equal(batch.next_states[:, 0], batch.states[:, 0] + 1)
    np.testing.assert_array_equal(batch.actions[:, 0], (batch.states[:, 0] / 100).astype(np.float32))
    ended = batch.continues == 0
    assert (batch.next_states[ended, 0] == min(falls)).all()
    assert ended.any()
    assert batch.next_states[:, 0].max() == 10
    assert (batch.states[:, 0] < 10).all()


@pytest.mark.parametrize("mode", MODES)
def test_episodes_of_gymnasiums_vectors(mode):
    explorer = VectorExplorer(VectorTask(gymnasiums(mode), None, None), 0)
    rollouts = [explorer.collect(Steady(), 30) for _ in range(3)]
    for rollout in rollouts:
        assert len(rollout.transitions.rewards) in (30, 31)
    whole = type(rollouts[0].transitions)(
        *(
            np.concatenate([getattr(r.transitions, name) for r in rollouts])
            for name in rollouts[0].transitions._fields[:5]
        )
    )
    transitions_are_right(whole)
    lengths = [length for rollout in rollouts for length in rollout.lengths]
    assert set(lengths) == {3, 10}
    assert [r for rollout in rollouts for r in rollout.returns] == [float(length) for length in lengths]


def test_a_vector_in_other_processes_gives_the_same():
    explorers = [
        VectorExplorer(VectorTask(envs, None, None), 0)
        for envs in (gymnasiums(MODES[0]), gymnasiums(MODES[0], gym.vector.AsyncVectorEnv, context="spawn"))
    ]
    one, other = (explorer.collect(Steady(), 44).transitions for explorer in explorers)
    explorers[1].envs.envs.close()
    np.testing.assert_array_equal(one.states, other.states)
    np.testing.assert_array_equal(one.continues, other.continues)


def test_stable_baselines_vectors():
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    env = vec_env.DummyVecEnv([lambda: Falling(3), lambda: Falling(99)])
    assert is_vector(env)
    explorer = VectorExplorer(VectorTask(env, None, None), 0)
    rollout = explorer.collect(Steady(), 80)
    transitions_are_right(rollout.transitions)
    assert set(rollout.lengths) == {3, 10}
    model = CAQL("MlpPolicy", vec_env.VecNormalize(env), batch_size=8, learning_starts=20).learn(100)
    assert model.num_timesteps == 100
    assert model.train_step == 100
    assert model.get_vec_normalize_env() is model.get_env()


def test_a_vector_learns_and_repeats_itself():
    def learned(**settings):
        envs = gym.make_vec("Pendulum-v1", 3, vector_kwargs={"autoreset_mode": MODES[1]})
        return CAQL("MlpPolicy", envs, seed=4, batch_size=8, policy_kwargs={"net_arch": [8]}, **settings).learn(300)

    one, again = learned(), learned()
    assert one.config.task == "Pendulum-v1"
    assert one.n_envs == 3
    assert one.num_timesteps == 300
    # Twenty steps of three environments are sixty transitions, and as many gradient steps after the first hundred.
    assert one.train_step == 240
    for name, array in one.get_parameters().items():
        np.testing.assert_array_equal(array, again.get_parameters()[name])
    assert one.predict(one.get_env().reset()[0])[0].shape == (3, 1)
    assert learned(train_freq=4).train_step == 17


@pytest.mark.parametrize("mode", MODES)
def test_actions_are_narrowed_and_admissible_in_each(mode):
    class Remembering(Counting):
        def step(self, action):
            seen.append(float(action[0]))
            return super().step(action)

    seen = []
    envs = gym.vector.SyncVectorEnv([Remembering] * 2, autoreset_mode=mode)
    CAQL("MlpPolicy", envs, action_range=0.25, learning_starts=50).learn(40)
    assert 0 < max(map(abs, seen)) <= 0.25
    budgeted = [Budgeted(), Budgeted()]
    envs = gym.vector.SyncVectorEnv([lambda: budgeted[0], lambda: budgeted[1]], autoreset_mode=mode)
    model = CAQL("MlpPolicy", envs, learning_starts=99, batch_size=4).learn(60)
    assert [env.violations for env in budgeted] == [0, 0]
    assert model.replay_buffer.data.sets is not None
    sets = [model.task.set_at(x) for x in model.replay_buffer.data.next_states[:58]]
    np.testing.assert_allclose(
        model.replay_buffer.data.next_sets["low"][:58], [each.low for each in sets], rtol=1e-6, atol=1e-6
    )


def test_a_fault_is_one_sentence_and_learning_can_go_on():
    envs = gym.vector.SyncVectorEnv([lambda: Counting(), lambda: Counting("raises", at=5)])
    model = CAQL("MlpPolicy", envs, learning_starts=60)
    with pytest.raises(CaqlError, match=f"of Counting: {STEPS['raises'][1]}"):
        model.learn(100)
    assert model.num_timesteps == len(model.replay_buffer) == 0
    model.learn(40)
    assert model.num_timesteps == 40


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"train_freq": (1, "episode")}, "counts episodes, which needs one environment and not 2"),
        ({"evaluate_every": 10}, "evaluate_every = 10 needs one environment"),
        ({"episode_steps": 10}, "episode_steps = 10 needs one environment"),
        ({"action_set": "module:name"}, "must be an ActionSet or a function"),
        ({"action_set": ActionSet.budget([1.0, 1.0], 1.0)}, "over 2 numbers"),
        ({"action_range": 9.0}, "wider"),
    ],
)
def test_what_needs_one_environment_says_so(settings, words):
    with pytest.raises(CaqlError, match=words):
        CAQL("MlpPolicy", gym.vector.SyncVectorEnv([Counting] * 2), **settings)
