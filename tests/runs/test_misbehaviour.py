"""What an environment may do to a run: nothing worse than one sentence that says at which step."""

import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest

from caql import CAQL, CaqlError, cli, environments
from caql.agents.caql import CAQLConfig
from caql.config import RunConfig
from caql.environments import Misbehaviour, make_task
from caql.runs import checkpoints
from caql.runs.episodes import evaluate_policy
from caql.runs.exploring import Explorer
from tests.misbehaving import RESET_WORDS, STEPS, Counting, Endless, Reusing

SMALL = {"policy_kwargs": {"net_arch": [4]}, "warm_up": 64, "batch_size": 8, "steps_per_epoch": 2}


class Constant:
    """A policy that remembers what it saw and always answers with the same number."""

    def __init__(self, value=0.5):
        self.value, self.seen, self.answers = value, [], []

    def act(self, state):
        self.seen.append(state)
        self.answers.append(np.full(1, self.value, np.float32))
        return self.answers[-1]

    def explore(self, state, noise):
        return self.act(state)


@pytest.mark.parametrize("fault", [*STEPS, *RESET_WORDS])
def test_every_fault_is_one_sentence_with_its_step_and_changes_nothing(fault):
    words = STEPS[fault][1] if fault in STEPS else RESET_WORDS[fault]
    step = 13 if fault in STEPS else 20
    model = CAQL("MlpPolicy", Counting(fault), **SMALL)
    with pytest.raises(Misbehaviour, match=f"^environment step {step} of Counting: .*{words}") as raised:
        model.learn(100)
    assert "\n" not in str(raised.value)
    # The first episode is kept, the second never happened.
    kept = 10 if fault in STEPS else 20
    assert model.num_timesteps == model.training.replay.written == kept
    assert model.training.epoch == kept // 10
    if fault in STEPS:
        model.learn(20, reset_num_timesteps=False)  # this environment fails only once
        assert model.num_timesteps == 30


@pytest.mark.parametrize("fault", ["nan", "raises", "shape", "reward none"])
def test_a_fault_during_evaluation_names_the_episode_and_its_step(fault):
    with pytest.raises(Misbehaviour, match=f"^step 3 of evaluation episode 2: .*{STEPS[fault][1]}"):
        evaluate_policy(Constant(), make_task(Counting(fault)), 5, (0, 0))


def test_an_evaluation_that_failed_is_made_up_for():
    model = CAQL(
        "MlpPolicy", Counting("raises", at=25), evaluate_every=2, evaluation_episodes=1, **SMALL | {"warm_up": 8}
    )
    with pytest.raises(Misbehaviour, match="step 5 of evaluation episode 1"):
        model.learn(100)
    training = model.training
    assert (training.train_step, len(training.records)) == (2, 1)
    epochs = training.epochs(20)
    first = next(epochs)
    assert first.evaluation["train_step"] == 2
    assert first.environment_steps == 10
    # The same after a checkpoint, where the last minibatches are no longer there to probe.
    assert next(epochs).evaluation["train_step"] == 4


@pytest.mark.parametrize(
    ("reward", "terminated"),
    [
        (np.ones(1), np.True_),
        (np.float32(1), np.array([True])),
        (1, 1),
        (True, np.int64(1)),
        (np.ones((1, 1)), True),
    ],
)
def test_single_numbers_and_flags_of_any_type_are_taken(reward, terminated):
    class Odd(Counting):
        def step(self, action):
            return self.observe(), reward, terminated, np.False_, {}

    task = make_task(Odd())
    task.reset(seed=0)
    _, number, ended, cut, _ = task.step(np.zeros(1))
    assert (number, ended, cut) == (1.0, True, False)
    assert (type(number), type(ended), type(cut)) == (float, bool, bool)


def test_large_finite_observations_are_finite():
    class Large(Counting):
        observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)

        def observe(self):
            return np.array([1e30, -3e38])

    observation, _ = make_task(Large()).reset(seed=0)
    np.testing.assert_array_equal(observation, np.array([1e30, -3e38], np.float32))


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_an_observation_beyond_float32_is_named():
    class Larger(Counting):
        def observe(self):
            return np.array([1e300, 0.0])

    with pytest.raises(Misbehaviour, match="beyond float32"):
        make_task(Larger()).reset(seed=0)


def test_a_reused_observation_array_is_copied_and_a_changed_action_is_not_ours():
    policy = Constant()
    task = make_task(Reusing(), episode_steps=5)
    episode = Explorer(task, 0).collect(policy, None, 1)
    assert episode.transitions.states[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert episode.transitions.next_states[:, 0].tolist() == [1, 2, 3, 4, 5]
    assert episode.transitions.actions[:, 0].tolist() == [0.5] * 5
    seen = Constant()
    assert evaluate_policy(seen, task, 2, (0, 0)) == [5.0, 5.0]
    assert [state[0] for state in seen.seen] == [0, 1, 2, 3, 4] * 2
    assert [action[0] for action in seen.answers] == [0.5] * 10


def test_an_endless_episode_is_remarked_on_once(monkeypatch):
    monkeypatch.setattr(environments, "LONG_EPISODE", 30)
    task = make_task(Endless())
    with pytest.warns(UserWarning, match="taken 30 steps, and the environment has no step limit"):
        Explorer(task, 0).collect(Constant(), 30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Explorer(task, 0).collect(Constant(), 40)
        for limited in (make_task(Endless(), episode_steps=35), make_task(gym.wrappers.TimeLimit(Endless(), 35))):
            assert len(Explorer(limited, 0).collect(Constant(), None, 1).transitions.rewards) == 35


def test_an_endless_environment_lets_learn_stop():
    model = CAQL("MlpPolicy", Endless(), **SMALL).learn(50)
    assert model.num_timesteps == 50


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"observation_space": gym.spaces.Box(-1, 1, (0,))}, r"observation_space has shape \(0,\)"),
        ({"action_space": gym.spaces.Box(-1, 1, (0,))}, r"action_space has shape \(0,\)"),
        ({"observation_space": None}, "observation_space is missing"),
        ({"observation_space": gym.spaces.Discrete(3)}, "observation_space is Discrete"),
    ],
)
def test_spaces_that_hold_nothing_are_named(change, words):
    with pytest.raises(CaqlError, match=words):
        make_task(type("Changed", (Counting,), change)())


def command(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["caql", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


@pytest.mark.parametrize(("task", "words"), [("Raising-v0", "step raised RuntimeError"), ("Wordless-v0", "gave None")])
def test_the_command_line_says_it_and_keeps_the_run(monkeypatch, capsys, tmp_path, task, words):
    folder = tmp_path / "run"
    tiny = "--evaluate-every 0 --warm-up 64 --hidden 4 --action-hidden 4 --train-steps 10 --steps-per-epoch 2".split()
    assert command(monkeypatch, "train", task, *tiny, "--out", str(folder)) == 2
    said = capsys.readouterr().err
    assert f"environment step 13 of {task}: " in said
    assert words in said
    assert "kept at training step 0, and --resume" in said
    assert "Traceback" not in said
    _, meta = checkpoints.latest_checkpoint(folder, pytest.fail)
    assert (meta["environment_steps"], meta["epoch"]) == (10, 1)


def test_a_kept_run_goes_on_when_the_environment_works_again(monkeypatch, tmp_path):
    from caql.runs.folder import run

    config = RunConfig(
        "Whole-v0",
        train_steps=6,
        steps_per_epoch=2,
        warm_up=20,
        batch_size=4,
        evaluate_every=0,
        seed=3,
        agent=CAQLConfig(hidden=(4,), action_hidden=(4,)),
    )
    assert run(config, tmp_path / "whole")
    step = Counting.step
    monkeypatch.setattr(Counting, "step", lambda self, action: None if self.total == 24 else step(self, action))
    with pytest.raises(CaqlError, match="environment step 25 of Whole-v0: step returned None"):
        run(config, tmp_path / "broken")
    monkeypatch.setattr(Counting, "step", step)
    assert run(config, tmp_path / "broken", resume=True)
    one, other = (tmp_path / name / "model.safetensors" for name in ("whole", "broken"))
    assert one.read_bytes() == other.read_bytes()
