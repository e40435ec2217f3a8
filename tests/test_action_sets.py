"""Where a task's action set comes from, what is wrong with one, and runs that go on with it."""

import re
import sys
from dataclasses import replace

import gymnasium as gym
import jax
import numpy as np
import pytest

from caql import CAQL, CaqlWarning, Status, cli
from caql.action_sets import check_set, named_set, set_name
from caql.actions import ActionSet
from caql.agents.ddpg import DDPGConfig
from caql.cli import evaluate, train
from caql.config import RunConfig
from caql.environments import Misbehaviour, known_task, make_task
from caql.errors import CaqlError
from caql.runs import checkpoints
from caql.runs.training import Training
from tests.budgeted import Budgeted, Closing

SHARED = ActionSet.budget([1.0, 1.0, 1.0], 0.5)


class Plain(Budgeted):
    """Without a set of its own."""

    action_set = None

    def has_wrapper_attr(self, name):
        return name != "action_set" and super().has_wrapper_attr(name)


def power(observations):
    assert observations.ndim == 2
    return ActionSet.absolute_budget(observations[:, 1:4], observations[:, 4])


def test_a_set_for_all_states_is_joined_with_the_space():
    task = make_task(Plain(), 0.5, action_set=SHARED)
    assert not task.depends_on_state
    task.reset(seed=0)
    task.step(np.ones(3, np.float32))
    np.testing.assert_allclose(task.actions.executed, 1 / 6, rtol=1e-5)
    assert task.actions.executed.sum() <= 0.5
    assert task.set_at(np.zeros(5)).contains(np.full(3, 0.1))
    np.testing.assert_allclose(task.low, -0.5)


def test_a_function_of_observations_and_the_environments_own_method_through_wrappers():
    given = make_task(Plain(), action_set=power)
    own = make_task(gym.wrappers.TimeLimit(Budgeted(), 9))
    for task in (given, own):
        assert task.depends_on_state
        observation, _ = task.reset(seed=3)
        once = task.set_at(observation)
        assert once.contains(np.zeros(3))
        assert not once.contains(np.ones(3))
        both = task.sets_at(np.stack([observation, observation * 2]))
        assert both.states == 2
    assert "rows" in given.sets.varying
    assert "low" not in given.sets.varying
    assert "low" in own.sets.varying


def test_bounds_alone_are_a_box_like_any_other():
    task = make_task(Plain(), action_set=ActionSet.bounds([-1, -0.5, 0], [0, 0.5, 0.5]))
    assert task.actions is None
    np.testing.assert_array_equal(task.low, [-1, -0.5, 0])
    assert make_task(task) is task
    with pytest.raises(CaqlError, match="is a task already"):
        make_task(task, 0.5)


def test_a_set_given_by_the_user_takes_the_place_of_the_environments():
    assert not make_task(Budgeted(), action_set=SHARED).depends_on_state


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (ActionSet.budget([1.0, 1.0], 0.5), "over 2 numbers; an action of the task has 3"),
        (ActionSet.bounds(-2, 2, 3), "wider than the action space's -1 and 1"),
        (ActionSet.budget([1.0, 1.0, 1.0], -4.0), "empty: within the bounds these rows conflict"),
        (ActionSet.budget(np.ones((2, 3)), 0.5), "for 2 states; give one set for all"),
        (SHARED.map(lambda array: array * np.nan), "holds a number that is not finite"),
        (3.0, "must be an ActionSet, or a function"),
        (lambda x: 3.0, "gave float; it must be an ActionSet"),
        (lambda x: ActionSet.budget(np.ones((5, 3)), 0.5), "for 5 states when asked about one"),
        (lambda x: ActionSet.budget(np.full((1, 3), np.nan), 0.5), "nan"),
        ("caql.tasks.constrained", "MODULE:NAME"),
        ("no_such_module:power", "cannot be imported: ModuleNotFoundError"),
        ("caql.errors:CaqlErrr", "cannot be imported: AttributeError"),
        ("caql.action_sets:ARRAYS", "is a tuple; it must be an ActionSet or a function"),
    ],
)
def test_a_set_that_does_not_fit_is_named_in_one_sentence(given, words):
    with pytest.raises(CaqlError, match=words) as problem:
        make_task(Plain(), action_set=given)
    assert "\n" not in str(problem.value)


def test_the_form_of_the_set_is_the_same_at_every_state():
    def changing(observations):
        rows = 1 if observations[0, 0] == 0 else 2
        return ActionSet.linear(np.ones((rows, 3)), high=1.0)

    task = make_task(Plain(), action_set=changing)
    task.reset(seed=0)
    task.step(np.ones(3))
    with pytest.raises(Misbehaviour, match=r"2 rows.*1 rows.*form must be the same"):
        task.step(np.ones(3))


def test_a_function_that_fails_is_told_with_its_line():
    def failing(observations):
        return power(observations) if observations[0, 0] == 0 else power(observations[0])

    task = make_task(Plain(), action_set=failing)
    task.reset(seed=0)
    task.step(np.ones(3))
    with pytest.raises(Misbehaviour, match=r"action_set raised AssertionError.*line"):
        task.step(np.ones(3))


@pytest.mark.parametrize("solver", [{}, {"action_function": "none"}])
def test_an_empty_set_stops_with_the_step_and_the_rows(solver):
    model = CAQL("MlpPolicy", Closing(), warm_up=20, hidden=(4,), **solver)
    with pytest.raises(Misbehaviour, match=r"environment step 5 of Closing: the action set is empty.*row 0.*row 1"):
        model.learn(50)
    assert model.num_timesteps == 0


def test_nothing_is_asked_about_the_actions_after_the_end():
    class Ending(Closing):
        def step(self, action):
            observation, reward, _, _, info = super().step(action)
            return observation, reward, self.t == 4, False, info

    model = CAQL("MlpPolicy", Ending(), warm_up=20, hidden=(4,))
    model.learn(8)
    assert model.num_timesteps == 8
    with pytest.raises(Misbehaviour, match=r"step 4 of Cut.*empty"):
        CAQL("MlpPolicy", type("Cut", (Closing,), {})(steps=4), warm_up=20, hidden=(4,)).learn(8)


def test_a_run_with_sets_goes_on_bit_for_bit():
    config = RunConfig("Budgeted", train_steps=8, steps_per_epoch=2, warm_up=20, batch_size=4, replay_size=60,
                       evaluate_every=0, agent=DDPGConfig(hidden=(4,)))  # fmt: skip
    straight = Training(config, make_task(Budgeted()))
    epochs = straight.epochs()
    for _ in range(2):
        next(epochs)
    arrays, meta = straight.snapshot()
    arrays = {name: np.array(array) for name, array in arrays.items()}
    assert any(name.startswith("replay.next_sets.") for name in arrays)
    for _ in epochs:
        pass
    resumed = Training(config, make_task(Budgeted()))
    resumed.restore(arrays, meta)
    for _ in resumed.epochs():
        pass
    assert resumed.train_step == straight.train_step == 8
    jax.tree.map(np.testing.assert_array_equal, resumed.state, straight.state)
    jax.tree.map(np.testing.assert_array_equal, resumed.replay.data, straight.replay.data)
    del arrays["replay.sets.rows"]
    with pytest.raises(CaqlError, match=r"sets.rows should be"):
        Training(config, make_task(Budgeted())).restore(arrays, meta)


def test_names_of_sets():
    assert set_name(power) == "tests.test_action_sets:power"
    assert named_set("tests.test_action_sets:power") is power
    assert set_name(SHARED).startswith("ActionSet:")
    assert set_name(SHARED) != set_name(ActionSet.budget([1.0, 1.0, 1.0], 0.6))
    assert set_name(None) is None


def test_a_saved_model_asks_for_its_set_again(tmp_path):
    model = CAQL("MlpPolicy", Plain(), action_set=power, hidden=(4,))
    assert model.config.action_set == "tests.test_action_sets:power"
    model.save(tmp_path / "model")
    with pytest.raises(CaqlError, match=r"made with action_set = 'tests.test_action_sets:power'.*give it again"):
        CAQL.load(tmp_path / "model", Plain())
    loaded = CAQL.load(tmp_path / "model", Plain(), power)
    x = np.array([0.3, 1.0, -2.0, 0.5, 0.4], np.float32)
    np.testing.assert_array_equal(loaded.predict(x)[0], model.predict(x)[0])


def test_constrained_tasks_train_from_one_command_and_resume(tmp_path, capsys):
    out = ["--out", str(tmp_path / "run")]
    small = ["--episode-steps", "10", "--warm-up", "10", "--batch-size", "4", "--steps-per-epoch", "1"]
    small += ["--evaluate-every", "0", "--hidden", "4", "--replay-size", "50"]
    train.main(["h+m", "--agent", "ddpg", "--train-steps", "2", *out, *small])
    assert (tmp_path / "run" / "finished.json").exists()
    evaluate.main([str(tmp_path / "run"), "--episodes", "1"])
    assert "H+M: ddpg after 2 training steps" in capsys.readouterr().out
    named = ["--action-set", "tests.test_action_sets:short"]
    again = ["--out", str(tmp_path / "named")]
    train.main(["Pendulum", "--agent", "ddpg", "--train-steps", "2", *again, *small, *named])
    with pytest.raises(CaqlError, match="give it again"):
        train.main(["Pendulum", "--resume", *again])
    train.main(["Pendulum", "--resume", *again, *named])
    evaluate.main([str(tmp_path / "named"), "--episodes", "1", *named])


ASKED: list[int] = []


def closing(observations):
    """Empty from the 25th time on that it is asked."""
    ASKED.append(len(ASKED))
    most = np.full(len(observations), 1.0 if len(ASKED) < 25 else -1.0)
    return ActionSet.budget(np.ones((len(observations), 1)), most) & ActionSet.bounds(0, 2, 1)


def test_a_set_that_becomes_empty_stops_the_command_and_keeps_the_checkpoint(tmp_path, monkeypatch, capsys):
    ASKED.clear()
    tiny = "--agent ddpg --hidden 4 --episode-steps 10 --warm-up 10 --batch-size 4 --steps-per-epoch 1".split()
    named = ["--action-set", "tests.test_action_sets:closing", "--out", str(tmp_path / "run")]
    given = ["caql", "train", "Pendulum", *tiny, "--train-steps", "9", "--evaluate-every", "0", *named]
    monkeypatch.setattr(sys, "argv", given)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert "Traceback" not in said
    words = r"environment step (\d+) of Pendulum: the action set is empty: .*row 0: 1 a0 <= -1"
    assert int(re.search(words, said)[1]) > 20
    assert "kept at training step 2, and --resume" in said
    _, meta = checkpoints.latest_checkpoint(tmp_path / "run", pytest.fail)
    assert (meta["environment_steps"], meta["train_step"]) == (20, 2)


def test_certify_and_predict_at_a_state_without_admissible_actions():
    model = CAQL("MlpPolicy", Plain(), action_set=with_limit, hidden=(4,))
    states = np.array([[0.0, 1.0, 1.0, 1.0, 0.5], [0.0, 1.0, 1.0, 1.0, -9.0]])
    with pytest.warns(CaqlWarning, match=r"of 2 states, 1 without an admissible action.*state 1 \(.*row 0"):
        certificate = model.certify(states)
    assert certificate.status.tolist() == [Status.OPTIMAL, Status.INFEASIBLE]
    assert certificate.value[1] == certificate.upper[1] == -np.inf
    with pytest.raises(CaqlError, match=r"empty.*row 0: 1 a0 \+1 a1 \+1 a2 <= -9") as raised:
        model.predict(states[1])
    assert "\n" not in str(raised.value)


def with_limit(observations):
    return ActionSet.budget(observations[:, 1:4], observations[:, 4])


def short(observations):
    return ActionSet.budget(np.ones((len(observations), 1)), 0.5)


@pytest.mark.parametrize(
    "name", ["Microgrid", "Platform", "R+O03", "R+O10", "R+O30", "R+M", "HC+O", "HC+MA", "H+M", "W+M"]
)
def test_every_constrained_task_has_a_name(name):
    assert known_task(name.lower()) == name
    task = make_task(name)
    assert task.episode_steps == 200
    observation, _ = task.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(5):
        assert task.set_at(observation).contains(np.zeros(task.action_set.size)) or name in ("Microgrid", "Platform")
        inside = task.set_at(observation)
        observation, _, terminated, _, _ = task.step(rng.uniform(task.low, task.high) * 1.5)
        assert inside.contains(task.actions.executed)
        if terminated:
            break


@pytest.mark.parametrize("name", ["low", "high", "rows", "row_low", "row_high", "auxiliary_low", "auxiliary_high"])
def test_numbers_of_any_size_are_taken_and_others_are_not(name):
    one = (ActionSet.bounds(-1, 1, 5) & ActionSet.absolute_budget(np.ones(5), 1.0)).on_host()
    for value in (1e-200, 1e200, np.inf, np.nan):
        array = getattr(one, name).copy()
        array.flat[-1] = value
        changed = replace(one, **{name: array})
        if np.isfinite(value) or (value == np.inf and name in ("low", "high", "row_low", "row_high")):
            check_set(changed, 5)
        else:
            with pytest.raises(CaqlError, match=f"the action set's {name} holds a number that is not finite"):
                check_set(changed, 5)
