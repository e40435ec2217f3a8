"""Models outside their process: names of files, other environments, parameters, pickling."""

import copy
import multiprocessing
import pickle
import subprocess
import sys
import zipfile

import gymnasium as gym
import numpy as np
import pytest

from caql import CAQL, SAC, TD3, ActionSet, CaqlError
from caql.runs import checkpoints
from tests.misbehaving import Counting

SMALL = {"batch_size": 8, "policy_kwargs": {"net_arch": [4]}, "learning_starts": 20}
STATES = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def model():
    return CAQL("MlpPolicy", gym.make("Pendulum-v1"), seed=3, **SMALL).learn(60)


@pytest.mark.parametrize(
    ("given", "file"),
    [("m", "m.safetensors"), ("m.zip", "m.zip"), ("m.safetensors", "m.safetensors"), ("m.v2", "m.v2.safetensors")],
)
def test_a_files_name_is_kept_and_found_again(model, tmp_path, given, file):
    model.save(tmp_path / given)
    assert [path.name for path in tmp_path.iterdir()] == [file]
    for name in (given, file, given.removesuffix(".zip").removesuffix(".safetensors")):
        np.testing.assert_array_equal(CAQL.load(tmp_path / name).predict(STATES)[0], model.predict(STATES)[0])


@pytest.mark.parametrize("path", ["", ".", "..", "/"])
def test_a_folder_is_no_file(model, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CaqlError, match="names a folder"):
        model.save(path)
    with pytest.raises(CaqlError, match="no run"):
        CAQL.load(path)


def test_a_zip_of_another_library_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "sac.zip", "w") as file:
        file.writestr("data", "{}")
    with pytest.raises(CaqlError, match="is a zip file of another library"):
        SAC.load(tmp_path / "sac")
    with pytest.raises(CaqlError, match="does not exist"):
        SAC.load(tmp_path / "nothing.zip")


def test_a_model_of_ones_own_environment_asks_for_it(tmp_path):
    CAQL("MlpPolicy", Counting(), **SMALL).save(tmp_path / "m")
    with pytest.raises(CaqlError, match=r"'Counting', that is not stored with it: pass env="):
        CAQL.load(tmp_path / "m")
    assert CAQL.load(tmp_path / "m", env=Counting()).learn(30).num_timesteps == 30


class Wide(Counting):
    action_space = gym.spaces.Box(-4.0, 4.0, (1,), np.float32)


class Long(Counting):
    observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)


def test_other_action_bounds_are_refused_unless_asked_for(tmp_path):
    model = CAQL("MlpPolicy", Counting(), **SMALL)
    model.save(tmp_path / "m")
    with pytest.raises(CaqlError, match=r"from \[-4.0\] to \[4.0\].*from \[-1.0\] to \[1.0\].*allow_other_bounds=True"):
        CAQL.load(tmp_path / "m", env=Wide())
    assert CAQL.load(tmp_path / "m", env=Wide(), allow_other_bounds=True).task.high == 4.0
    with pytest.raises(CaqlError, match="observations of 3 numbers; the model was made for 2"):
        CAQL.load(tmp_path / "m", env=Long(), allow_other_bounds=True)
    with pytest.raises(CaqlError, match="means something else in other bounds"):
        model.set_env(Wide())
    with pytest.raises(CaqlError, match="observations of 3 numbers"):
        model.set_env(Long())
    with pytest.raises(CaqlError, match="load has no argument 'envs'; did you mean 'env'"):
        CAQL.load(tmp_path / "m", envs=Wide())


@pytest.mark.parametrize("spaces", [{"low": 1}, {"observation_size": 2, "low": [1.0], "high": "x"}])
def test_spaces_of_a_strangers_file_are_checked(tmp_path, spaces):
    CAQL("MlpPolicy", Counting(), **SMALL).save(tmp_path / "m")
    arrays, meta = checkpoints.load(tmp_path / "m.safetensors")
    checkpoints.save(tmp_path / "n.safetensors", arrays, meta | {"spaces": spaces})
    with pytest.raises(CaqlError):
        CAQL.load(tmp_path / "n", env=Counting())


def test_another_environment_takes_over(model, tmp_path):
    other = copy.deepcopy(model)
    env = gym.make("Pendulum-v1", g=5.0)
    other.set_env(env)
    assert other.get_env().envs[0] is env
    other.learn(40, reset_num_timesteps=False)
    assert other.num_timesteps == model.num_timesteps + 40
    other.set_env(gym.make_vec("Pendulum-v1", 2))
    assert other.n_envs == 2
    other.learn(40)
    with pytest.raises(CaqlError, match="force_reset"):
        other.set_env(env, force_reset=False)


def test_parameters_go_out_and_in(model, tmp_path):
    before = model.get_parameters()
    other = CAQL("MlpPolicy", "Pendulum-v1", seed=9, **SMALL)
    assert not np.array_equal(other.predict(STATES)[0], model.predict(STATES)[0])
    other.set_parameters(before)
    np.testing.assert_array_equal(other.predict(STATES)[0], model.predict(STATES)[0])
    name = "state.action_function.vector"
    other.set_parameters({name: np.zeros_like(before[name])}, exact_match=False)
    assert not other.predict(STATES)[0].any()
    assert before[name].any()
    model.save(tmp_path / "m")
    other.set_parameters(tmp_path / "m")
    np.testing.assert_array_equal(other.get_parameters()[name], before[name])
    with pytest.raises(CaqlError, match=r"no parameter 'state.q.vectr'; did you mean 'state.q.vector'"):
        other.set_parameters({"state.q.vectr": np.zeros(3)})
    with pytest.raises(CaqlError, match="should be"):
        other.set_parameters({name: np.zeros(3, np.float32)}, exact_match=False)
    with pytest.raises(CaqlError, match="nothing"):
        other.set_parameters({name: before[name]})


def test_the_replay_buffer_goes_out_and_in(model, tmp_path):
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    other = CAQL("MlpPolicy", "Pendulum-v1", seed=9, **SMALL)
    other.load_replay_buffer(tmp_path / "buffer")
    assert len(other.replay_buffer) == other.replay_buffer.size() == 60
    np.testing.assert_array_equal(other.replay_buffer.data.states, model.replay_buffer.data.states)
    model.save(tmp_path / "m")
    with pytest.raises(CaqlError, match="is not a saved replay buffer"):
        other.load_replay_buffer(tmp_path / "m")
    smaller = CAQL("MlpPolicy", "Pendulum-v1", buffer_size=30, **SMALL)
    with pytest.raises(CaqlError, match="does not fit"):
        smaller.load_replay_buffer(tmp_path / "buffer")


def budget(observations):
    return ActionSet.absolute_budget(np.ones((len(observations), 1)), 0.5 + 0 * observations[:, 0])


@pytest.mark.parametrize(
    "make",
    [
        lambda: CAQL("MlpPolicy", "Pendulum", action_range=0.66, **SMALL),
        lambda: TD3("MlpPolicy", Counting(), **SMALL),
        lambda: CAQL("MlpPolicy", gym.make("HalfCheetah-v5"), **SMALL),
        lambda: CAQL("MlpPolicy", "Pendulum-v1", action_set=budget, **SMALL | {"learning_starts": 99}),
    ],
)
def test_a_pickled_model_goes_on_as_the_model_does(make):
    model = make().learn(40)
    copied = pickle.loads(pickle.dumps(model))
    assert type(copied) is type(model)
    assert copied.num_timesteps == 40
    for each in (model, copied):
        each.learn(30)
    for name, array in model.get_parameters().items():
        np.testing.assert_array_equal(array, copied.get_parameters()[name])
    np.testing.assert_array_equal(model.replay_buffer.data.states, copied.replay_buffer.data.states)
    np.testing.assert_array_equal(model.replay_buffer.data.actions, copied.replay_buffer.data.actions)


def predicted(model):
    return model.predict(STATES)[0]


def test_other_processes_get_the_model(model):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        np.testing.assert_array_equal(pool.apply(predicted, (model,)), predicted(model))


def test_what_cannot_be_pickled_is_named(model):
    class Local(Counting):
        pass

    with pytest.raises(CaqlError, match="the model's environment cannot be pickled"):
        pickle.dumps(CAQL("MlpPolicy", Local(), **SMALL))
    with pytest.raises(CaqlError, match="the model's action set cannot be pickled"):
        pickle.dumps(CAQL("MlpPolicy", "Pendulum-v1", action_set=lambda x: budget(x), **SMALL))


def test_damaged_bytes_are_found_out(model):
    revive, (cls, data, *rest) = model.__reduce__()
    for broken in (data[:-1], data[:100], b"", data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]):
        with pytest.raises(CaqlError, match="the pickled model"):
            revive(cls, broken, *rest)


def test_exploring_predictions_follow_the_seed(model, tmp_path):
    model.set_random_seed()
    model.save(tmp_path / "m")
    loaded = CAQL.load(tmp_path / "m")
    first = [model.predict(STATES, deterministic=False)[0] for _ in range(2)]
    again = [loaded.predict(STATES, deterministic=False)[0] for _ in range(2)]
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[0], first[1])
    model.set_random_seed(77)
    other = model.predict(STATES, deterministic=False)[0]
    model.set_random_seed(77)
    np.testing.assert_array_equal(model.predict(STATES, deterministic=False)[0], other)
    assert not np.array_equal(other, first[0])
    with pytest.raises(CaqlError, match="seed = -1"):
        model.set_random_seed(-1)


def test_the_module_is_the_command():
    said = subprocess.run([sys.executable, "-m", "caql", "--help"], check=True, capture_output=True, text=True).stdout
    assert said.startswith("usage: caql COMMAND")
