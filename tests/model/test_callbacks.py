"""Callbacks, the vector that `get_env` gives, and the policy: what Stable-Baselines3's own code asks of a model."""

import gymnasium as gym
import numpy as np
import pytest

from caql import CAQL, CaqlError
from caql.model.environment import OneEnvironment
from tests.misbehaving import Counting

SMALL = {"batch_size": 8, "policy_kwargs": {"net_arch": [4]}, "learning_starts": 30}


class Recording:
    """A callback of one's own: the methods of Stable-Baselines3's, without the library."""

    def __init__(self, most=10**9):
        self.most, self.heard, self.steps = most, [], []

    def init_callback(self, model):
        self.model = model

    def on_training_start(self, said, _):
        self.heard.append("start")
        self.total = said["total_timesteps"]

    def on_rollout_start(self):
        self.heard.append("rollout")

    def update_locals(self, found):
        self.found = found

    def on_step(self):
        self.steps.append(self.model.num_timesteps)
        assert self.found["dones"].shape == (1,)
        assert self.found["new_obs"].shape == (1, 2)
        return len(self.steps) < self.most

    def on_rollout_end(self):
        self.heard.append("end of rollout")

    def on_training_end(self):
        self.heard.append("end")


def test_an_object_hears_of_every_step():
    callback = Recording()
    model = CAQL("MlpPolicy", Counting(), **SMALL).learn(50, callback)
    assert callback.steps == list(range(1, 51))
    assert callback.total == 50
    assert callback.heard[0] == "start"
    assert callback.heard[-1] == "end"
    assert callback.heard.count("end of rollout") == callback.heard.count("rollout") == 3
    model.learn(10, callback, reset_num_timesteps=False)
    assert callback.steps[-1] == 60
    assert callback.total == 60


def test_an_object_and_a_function_can_stop_the_learning():
    stopping, seen = Recording(27), []
    model = CAQL("MlpPolicy", Counting(), **SMALL)
    model.learn(100, [stopping, lambda m, epoch: seen.append(epoch.environment_steps)])
    assert model.num_timesteps == len(model.replay_buffer) == 27
    assert seen == [20, 27]
    assert model.train_step == 0
    model.learn(100, (lambda m, epoch: epoch.environment_steps < 60,), reset_num_timesteps=False)
    assert model.num_timesteps == 67
    # The next learning begins an episode of its own.
    assert model.training.explorer.said == []


@pytest.mark.parametrize("callback", [3, "stop", [lambda m, e: None, 5]])
def test_anything_else_is_refused_before_a_step_is_made(callback):
    model = CAQL("MlpPolicy", Counting(), **SMALL)
    with pytest.raises(CaqlError, match=r"callback = .* must be a function"):
        model.learn(10, callback)
    assert model.num_timesteps == 0


def test_an_exception_in_a_callback_leaves_the_model_as_it_was():
    class Broken(Recording):
        def on_step(self):
            super().on_step()
            if len(self.steps) == 25:
                raise RuntimeError("mine")
            return True

    model = CAQL("MlpPolicy", Counting(), **SMALL)
    with pytest.raises(RuntimeError, match="mine"):
        model.learn(100, Broken())
    assert model.num_timesteps == len(model.replay_buffer) == 20
    model.learn(30, reset_num_timesteps=False)
    assert model.num_timesteps == 50


def test_the_environment_as_a_vector_of_one():
    model = CAQL("MlpPolicy", gym.make("Pendulum-v1"), **SMALL)
    env = OneEnvironment(model.task)
    env.seed(7)
    observations = env.reset()
    np.testing.assert_array_equal(observations[0], gym.make("Pendulum-v1").reset(seed=7)[0])
    for t in range(200):
        actions, _ = model.predict(observations)
        observations, rewards, dones, infos = env.step(actions)
        assert observations.shape == (1, 3)
        assert rewards.shape == dones.shape == (1,)
        assert dones[0] == (t == 199)
    assert infos[0]["TimeLimit.truncated"]
    assert not np.array_equal(infos[0]["terminal_observation"], observations[0])
    assert env.num_envs == 1
    assert env.get_attr("g") == [10.0]
    env.set_attr("g", 5.0)
    assert env.envs[0].unwrapped.g == 5.0
    assert env.env_method("get_wrapper_attr", "g") == [5.0]
    assert env.env_is_wrapped(gym.wrappers.TimeLimit) == [True]
    assert env.env_is_wrapped(gym.wrappers.RecordVideo) == [False]
    assert env.observation_space == model.observation_space
    assert env.action_space == model.action_space


def test_the_policy_predicts_on_its_own():
    model = CAQL("MlpPolicy", Counting(), **SMALL)
    x = np.ones((2, 2), np.float32)
    np.testing.assert_array_equal(model.policy.predict(x, deterministic=True)[0], model.predict(x)[0])
    assert model.policy.action_space is model.action_space
    assert model.device == "cpu"
