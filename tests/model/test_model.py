import gymnasium as gym
import numpy as np
import pytest

import caql
from caql import CAQL, SAC, CaqlError, CaqlWarning
from caql.config import RunConfig
from caql.environments import make_task
from caql.maxq.problem import Status

SMALL = {"policy_kwargs": {"net_arch": [8, 4]}, "warm_up": 64, "batch_size": 16, "steps_per_epoch": 4}


@pytest.fixture(scope="module")
def model():
    return CAQL("MlpPolicy", gym.make("Pendulum-v1"), solver="ga", seed=0, **SMALL).learn(500)


def test_learn_counts_environment_steps_and_goes_on(model):
    assert model.num_timesteps == 500
    assert model.train_step == 12
    assert model.config.train_steps == RunConfig("Pendulum").train_steps
    seen = []
    model.learn(300, callback=lambda m, epoch: seen.append(epoch.environment_steps))
    assert seen == [700, 800]
    assert model.num_timesteps == 300
    model.learn(10_000, callback=lambda m, epoch: False, reset_num_timesteps=False)
    assert model.num_timesteps == 500
    assert model.training.environment_steps == 1000


def test_learning_in_two_calls_is_the_same_after_a_save_in_between(tmp_path):
    def weights(model):
        return np.asarray(model.training.state.q.vector), model.training.replay.data.states[:300]

    straight = CAQL("MlpPolicy", "Pendulum-v1", **SMALL).learn(130).learn(100)
    again = CAQL("MlpPolicy", "Pendulum-v1", **SMALL).learn(130).learn(100)
    for left, right in zip(weights(straight), weights(again), strict=True):
        np.testing.assert_array_equal(left, right)
    # A saved model has no replay buffer, so what is compared is the episode, which needs nothing but counters.
    half = CAQL("MlpPolicy", "Pendulum-v1", **SMALL).learn(130)
    half.save(tmp_path / "half")
    loaded = CAQL.load(tmp_path / "half").learn(100)
    assert loaded.training.environment_steps == straight.training.environment_steps == 230
    np.testing.assert_array_equal(
        loaded.training.replay.data.states[:100], straight.training.replay.data.states[130:230]
    )


@pytest.mark.parametrize(
    ("task", "asked", "steps"),
    [("Pendulum", 0, 200), ("pendulum", 0, 200), ("Pendulum-v1", 0, None), ("Pendulum", None, None), ("Hopper", 7, 7)],
)
def test_only_the_papers_tasks_have_a_clock_of_ours(task, asked, steps):
    assert CAQL("MlpPolicy", task, episode_steps=asked, **SMALL).config.episode_steps == steps
    assert RunConfig(task, episode_steps=asked).episode_steps == steps
    assert make_task(task, episode_steps=asked).episode_steps == steps


def test_a_long_episode_of_another_id_is_not_cut():
    model = CAQL("MlpPolicy", "HalfCheetah-v5", **SMALL).learn(250)
    assert model.training.epoch == 1
    assert CAQL("MlpPolicy", gym.make("HalfCheetah-v5"), **SMALL).config.episode_steps is None


def test_predict_takes_one_observation_or_a_batch(model):
    one, state = model.predict(np.array([1.0, 0.0, 0.0]))
    assert state is None
    assert one.shape == (1,)
    many, _ = model.predict(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.5]]))
    assert many.shape == (2, 1)
    np.testing.assert_allclose(many[0], one, rtol=1e-6)
    noisy = np.concatenate([model.predict(np.array([1.0, 0.0, 0.0]), deterministic=False)[0] for _ in range(20)])
    assert noisy.std() > 0.1
    assert np.abs(noisy).max() <= 2
    with pytest.raises(CaqlError, match="shape"):
        model.predict(np.zeros(4))
    with pytest.raises(CaqlError, match="non-finite"):
        model.predict(np.array([np.nan, 0, 0]))


def test_certificates_are_of_the_float64_network(model):
    """Thousands of states: `upper` is above Q in float64, which folding in float32 would miss by about 1e-6."""
    states = np.random.default_rng(0).uniform(-3, 3, (3000, 3)).astype(np.float32)
    certificate = model.certify(states, tolerance=1e-9)
    assert (certificate.status == Status.OPTIMAL).all()
    layers = [(np.asarray(weights, np.float64), np.asarray(bias, np.float64)) for weights, bias in model.q_layers()]

    def q(actions):
        hidden = np.hstack([states.astype(np.float64), actions])
        for k, (weights, bias) in enumerate(layers):
            hidden = (np.maximum(hidden, 0) if k else hidden) @ weights + bias
        return hidden[:, 0]

    rounding = 1e-12 * (1 + np.abs(certificate.value))
    np.testing.assert_allclose(q(certificate.action), certificate.value, atol=1e-11)
    for shift in (-0.3, -1e-3, -1e-6, 0.0, 1e-6, 1e-3, 0.3):
        tried = np.clip(certificate.action + shift, model.task.low, model.task.high)
        assert (q(tried) <= certificate.upper + rounding).all()
    assert (certificate.gap <= 1e-9).all()


def test_certify_takes_solvers_by_name_and_warns_of_limits(model):
    states = np.random.default_rng(0).uniform(-1, 1, (20, 3)).astype(np.float32)
    np.testing.assert_allclose(
        model.certify(states, solver="highs").value, model.certify(states, solver="exact").value, atol=2e-4
    )
    with pytest.warns(CaqlWarning, match="could not be proved|node_limit = 1"):
        model.certify(states, tolerance=0.0, node_limit=1)


def test_the_solver_can_act_and_certify(model):
    states = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    certificate = model.certify(states)
    assert (certificate.status == Status.OPTIMAL).all()
    assert (certificate.gap <= 1e-4).all()
    assert (certificate.gap >= -1e-9).all()
    grid = np.linspace(-2, 2, 101, dtype=np.float32)[:, None]
    q = model.training.agent.q_network.layers(np.asarray(model.training.state.q.vector))
    from caql.networks import q_value

    for row, state in enumerate(states):
        values = np.asarray(q_value(q, np.tile(state, (101, 1)), grid))
        assert values.max() <= certificate.upper[row] + 1e-5
    single = model.certify(states[0])
    assert single.action.shape == (1,)
    assert single.value == pytest.approx(certificate.value[0])
    acted, _ = model.predict(states, greedy="solver")
    assert acted.shape == (5, 1)
    with pytest.raises(CaqlError, match="greedy"):
        model.predict(states, greedy="wish")


@pytest.mark.parametrize("combine", ["min", "mean"])
def test_certificates_of_an_ensemble_are_of_the_combination(combine, tmp_path):
    from caql.networks import q_value

    model = CAQL("MlpPolicy", "Pendulum", critics=2, combine=combine, hidden=(8, 6), action_hidden=(8,))
    model.save(tmp_path / "two")
    model = CAQL.load(tmp_path / "two")
    states = np.random.default_rng(0).uniform(-1, 1, (6, 3)).astype(np.float32)
    certificate = model.certify(states)
    assert (certificate.status == Status.OPTIMAL).all()
    critics = model.training.agent.q_network
    rows = np.asarray(model.training.state.q.vector).reshape(2, -1)
    grid = np.linspace(-2, 2, 2001, dtype=np.float32)[:, None]
    for row, state in enumerate(states):
        each = [q_value(critics.network.layers(vector), np.tile(state, (2001, 1)), grid) for vector in rows]
        values = (np.min if combine == "min" else np.mean)(each, axis=0)
        assert certificate.value[row] - 2e-3 <= values.max() <= certificate.upper[row] + 1e-5
    acted, _ = model.predict(states, greedy="solver")
    assert acted.shape == (6, 1)


def test_save_and_load_round_trip(model, tmp_path):
    model.save(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    loaded = CAQL.load(tmp_path / "model")
    observations = np.random.default_rng(1).normal(size=(10, 3))
    np.testing.assert_array_equal(loaded.predict(observations)[0], model.predict(observations)[0])
    assert loaded.num_timesteps == model.num_timesteps
    loaded.learn(150, reset_num_timesteps=False)
    assert loaded.num_timesteps == model.num_timesteps + 150
    with pytest.raises(CaqlError, match="holds a CAQL, not a SAC"):
        SAC.load(tmp_path / "model")
    with pytest.raises(CaqlError, match="does not exist"):
        CAQL.load(tmp_path / "nothing")
    (tmp_path / "junk.safetensors").write_bytes(b"junk")
    with pytest.raises(CaqlError, match="damaged"):
        CAQL.load(tmp_path / "junk")


def test_stable_baselines_evaluation_calls(model):
    """The calls that evaluate_policy of Stable-Baselines3 makes on a model, over a vector of environments."""
    envs = gym.vector.SyncVectorEnv([lambda: gym.make("Pendulum-v1")] * 2)
    observations, _ = envs.reset(seed=1)
    states, episode_starts = None, np.ones((2,), dtype=bool)
    for _ in range(3):
        actions, states = model.predict(observations, state=states, episode_start=episode_starts, deterministic=True)
        observations, *_ = envs.step(actions)
        episode_starts = np.zeros((2,), dtype=bool)
    assert states is None
    assert actions.shape == (2, 1)


def test_a_range_is_respected_natively():
    model = CAQL("MlpPolicy", "Hopper", action_range=((-0.1, -0.2, -0.3), (0.4, 0.5, 0.6)), seed=1, **SMALL)
    states = 50 * np.random.default_rng(0).normal(size=(2000, 11))
    actions, _ = model.predict(states)
    assert (actions >= np.float32([-0.1, -0.2, -0.3])).all()
    assert (actions <= np.float32([0.4, 0.5, 0.6])).all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"env": None}, "env is missing"),
        ({"env": "Pendulum", "solver": "gaa"}, "did you mean 'ga'"),
        ({"env": "Pendulum", "q_lerning_rate": 1}, "did you mean 'q_learning_rate'"),
        ({"env": "Pendulum", "policy_kwargs": {"width": 3}}, "net_arch"),
        ({"env": "Pendulum", "policy": "CnnPolicy"}, "MlpPolicy"),
        ({"env": "Pendulum", "total": 3}, "has no setting 'total'"),
        ({"env": "Pendulum", "seed": 2**31}, "seed = 2147483648 must not be negative"),
        ({"env": "nomodule_at_all:Env-v0"}, "cannot be made: ModuleNotFoundError"),
        ({"env": 3}, "env is a int"),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    with pytest.raises(CaqlError, match=words):
        CAQL(arguments.pop("policy", "MlpPolicy"), **arguments)


def test_public_names_exist():
    for name in caql.__all__:
        assert getattr(caql, name) is not None
    with pytest.raises(AttributeError):
        _ = caql.nonsense
