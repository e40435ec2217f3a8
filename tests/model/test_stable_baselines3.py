"""With the real library, where it is installed: its script, its callbacks, its evaluation, its noise."""

import importlib.util
import re

import gymnasium as gym
import numpy as np
import pytest

from caql import CAQL, TD3

SCRIPT = """
import gymnasium as gym

from stable_baselines3 import SAC

env = gym.make("Pendulum-v1")

model = SAC(
    "MlpPolicy",
    env,
    learning_rate=1e-3,
    buffer_size=50_000,
    learning_starts=100,
    batch_size=64,
    tau=0.005,
    gamma=0.99,
    train_freq=1,
    gradient_steps=1,
    policy_kwargs=dict(net_arch=[32, 16]),
    tensorboard_log="logs",
    verbose=1,
    seed=0,
    device="cpu",
)
model.learn(total_timesteps=600, log_interval=1, tb_log_name="pendulum")
model.save("sac_pendulum")
model.save_replay_buffer("sac_buffer.pkl")

del model  # remove to demonstrate saving and loading

model = SAC.load("sac_pendulum", env=env)
model.load_replay_buffer("sac_buffer.pkl")
model.learn(total_timesteps=200, reset_num_timesteps=False)
steps, kept = model.num_timesteps, model.replay_buffer.size()

vec_env = model.get_env()
obs = vec_env.reset()
for _ in range(5):
    action, _states = model.predict(obs, deterministic=True)
    obs, rewards, dones, infos = vec_env.step(action)

total = 0.0
obs, info = env.reset(seed=1)
for _ in range(200):
    action, _states = model.predict(obs, deterministic=True)
    obs, reward, terminated, truncated, info = env.step(action)
    total += reward
    if terminated or truncated:
        obs, info = env.reset()
"""
"""As its users write it: the constructor's names, learn, save, load, predict, and the vector of environments."""


def run(script, folder, monkeypatch):
    monkeypatch.chdir(folder)
    names = {}
    exec(compile(script, "script.py", "exec"), names)
    return names


def ours(script):
    """One import and one class name changed."""
    changed = script.replace("from stable_baselines3 import SAC", "from caql import CAQL")
    return re.sub(r"\bSAC\b", "CAQL", changed)


def same_outcome(names, folder, capsys, boarded=True):
    assert names["steps"] == 800
    assert names["kept"] == 800
    assert np.isfinite(names["total"])
    assert names["obs"].shape == (3,)
    assert (folder / "logs" / "pendulum_1").is_dir() == boarded
    said = capsys.readouterr().out
    for word in ("ep_rew_mean", "ep_len_mean", "total_timesteps", "n_updates"):
        assert word in said


def test_the_script_with_caql(tmp_path, monkeypatch, capsys):
    assert sum(a != b for a, b in zip(SCRIPT.splitlines(), ours(SCRIPT).splitlines(), strict=True)) == 3
    names = run(ours(SCRIPT), tmp_path, monkeypatch)
    same_outcome(names, tmp_path, capsys)
    # The library begins when there are more than learning_starts transitions, caql when there are as many.
    assert names["model"].train_step == 501 + 200
    assert names["model"].config.seed == 0


@pytest.mark.filterwarnings("ignore")
def test_the_script_as_it_is(tmp_path, monkeypatch, capsys):
    """The same words mean the same steps in the library itself."""
    pytest.importorskip("stable_baselines3")
    boarded = importlib.util.find_spec("tensorboard") is not None
    script = SCRIPT if boarded else SCRIPT.replace('    tensorboard_log="logs",\n', "")
    names = run(script, tmp_path, monkeypatch)
    same_outcome(names, tmp_path, capsys, boarded)
    assert names["model"]._n_updates == 500 + 200


SMALL = {"batch_size": 8, "policy_kwargs": {"net_arch": [8]}, "learning_starts": 50, "seed": 0}


@pytest.fixture
def library():
    return pytest.importorskip("stable_baselines3.common.callbacks")


@pytest.mark.filterwarnings("ignore:Evaluation environment is not wrapped")
def test_its_evaluation_and_checkpoints(library, tmp_path):
    evaluation = library.EvalCallback(
        gym.make("Pendulum-v1"),
        eval_freq=150,
        n_eval_episodes=1,
        best_model_save_path=str(tmp_path / "best"),
        log_path=str(tmp_path / "logs"),
        verbose=0,
    )
    saving = library.CheckpointCallback(100, str(tmp_path / "kept"), save_replay_buffer=True)
    model = CAQL("MlpPolicy", gym.make("Pendulum-v1"), **SMALL).learn(330, callback=[evaluation, saving])
    assert evaluation.evaluations_timesteps == [150, 300]
    assert np.load(tmp_path / "logs" / "evaluations.npz")["results"].shape == (2, 1)
    kept = {path.name for path in (tmp_path / "kept").iterdir()}
    expected = {f"rl_model_{steps}_steps.zip" for steps in (100, 200, 300)}
    assert kept == expected | {f"rl_model_replay_buffer_{steps}_steps.pkl" for steps in (100, 200, 300)}
    x = np.ones((4, 3), np.float32)
    best, last = CAQL.load(tmp_path / "best" / "best_model"), CAQL.load(tmp_path / "kept" / "rl_model_300_steps.zip")
    assert best.predict(x)[0].shape == (4, 1)
    # Saved in the middle of a collecting: weights, counters and buffer are those of the last update before it.
    assert last.num_timesteps == 280
    assert model.num_timesteps == 330
    last.load_replay_buffer(tmp_path / "kept" / "rl_model_replay_buffer_300_steps.pkl")
    assert len(last.replay_buffer) == 280


@pytest.mark.filterwarnings("ignore:Evaluation environment is not wrapped")
def test_its_other_callbacks(library, capsys):
    stop = library.StopTrainingOnRewardThreshold(-1e9)
    evaluation = library.EvalCallback(
        gym.make("Pendulum-v1"), callback_on_new_best=stop, eval_freq=120, n_eval_episodes=1, verbose=0
    )
    assert CAQL("MlpPolicy", "Pendulum-v1", **SMALL).learn(1000, evaluation).num_timesteps == 120
    episodes = library.CallbackList([library.StopTrainingOnMaxEpisodes(1)])
    assert CAQL("MlpPolicy", "Pendulum-v1", **SMALL).learn(1000, episodes).num_timesteps == 200
    model = CAQL("MlpPolicy", "Pendulum-v1", verbose=1, **SMALL)
    capsys.readouterr()
    model.learn(100, library.LogEveryNTimesteps(40))
    assert capsys.readouterr().out.count("total_timesteps") == 2


def test_its_evaluate_policy_and_monitor(library):
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation")
    monitor = pytest.importorskip("stable_baselines3.common.monitor")
    model = CAQL("MlpPolicy", monitor.Monitor(gym.make("Pendulum-v1")), **SMALL).learn(60)
    for who in (model, model.policy):
        mean, _ = evaluation.evaluate_policy(who, model.get_env(), n_eval_episodes=1)
        assert -2000 < mean < 0
    assert type(model.get_env()).__name__ == "DummyVecEnv"


def test_its_noise():
    noise = pytest.importorskip("stable_baselines3.common.noise")
    normal = TD3("MlpPolicy", "Pendulum-v1", action_noise=noise.NormalActionNoise(np.zeros(1), 0.3 * np.ones(1)))
    assert normal.config.agent.exploration.size(10**6, normal.task.action_set) == pytest.approx(0.6)
    process = noise.OrnsteinUhlenbeckActionNoise(np.zeros(1), 0.5 * np.ones(1))
    assert TD3("MlpPolicy", "Pendulum-v1", action_noise=process, **SMALL).learn(60).num_timesteps == 60
