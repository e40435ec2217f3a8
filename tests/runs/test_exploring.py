"""Collecting in pieces: what comes out does not depend on where the pieces end, also across a checkpoint."""

import dataclasses
import signal
import subprocess

import gymnasium as gym
import numpy as np
import pytest

from caql.cli.train import main
from caql.environments import Misbehaviour, make_task
from caql.errors import CaqlError, CaqlWarning
from caql.runs.exploring import Explorer
from caql.runs.training import Training, _calls, _weighted
from tests.budgeted import Budgeted
from tests.misbehaving import Counting
from tests.runs.kill_storm import COMMAND, compare, newest_step
from tests.runs.test_training import TINY, Scripted

STEPPING = dataclasses.replace(TINY, train_freq=(7, "step"), steps_per_epoch=3)


class Noisy:
    """Answers with the noise it is given."""

    def act(self, state):
        return np.zeros(1, np.float32)

    def explore(self, state, noise):
        return noise


def same(left, right):
    for one, other in zip(left, right, strict=True):
        np.testing.assert_array_equal(one, other)


def test_pieces_are_the_same_steps_as_whole_episodes():
    whole, pieces = (Explorer(make_task("Pendulum", 1.0, 20), 3) for _ in range(2))
    episodes = whole.collect(Noisy(), None, 3)
    assert episodes.lengths == [20, 20, 20]
    found = [pieces.collect(Noisy(), steps) for steps in (7, 1, 30, 22)]
    for column in ("states", "actions", "rewards", "next_states", "continues"):
        parts = np.concatenate([getattr(piece.transitions, column) for piece in found])
        np.testing.assert_array_equal(parts, getattr(episodes.transitions, column))
    assert [total for piece in found for total in piece.returns] == pytest.approx(episodes.returns)
    assert [piece.lengths for piece in found] == [[], [], [20], [20, 20]]
    assert pieces.episode == whole.episode == 3


def test_the_sets_of_the_states_are_the_same_in_pieces():
    whole, pieces = (Explorer(make_task(Budgeted(), episode_steps=20), 3) for _ in range(2))
    rows = whole.collect(Noisy(), 30).transitions
    found = [pieces.collect(Noisy(), 10).transitions for _ in range(3)]
    for name in rows.sets:
        np.testing.assert_array_equal(np.concatenate([each.sets[name] for each in found]), rows.sets[name])
        np.testing.assert_array_equal(np.concatenate([each.next_sets[name] for each in found]), rows.next_sets[name])


@pytest.mark.parametrize(("left", "steps"), [(0, 9), (13, 9), (13, 40)])
def test_the_environment_is_led_back_after_others_have_used_it(left, steps):
    straight, led = (Explorer(make_task("Pendulum", 1.0, 20), 3) for _ in range(2))
    for explorer in (straight, led):
        if left:
            explorer.collect(Noisy(), left)
    led.leave()
    led.task.reset(seed=99)
    led.task.step(np.ones(1))
    one, other = (explorer.collect(Noisy(), steps) for explorer in (straight, led))
    same(one.transitions[:5], other.transitions[:5])
    assert one.returns == other.returns


def test_an_environment_that_does_not_repeat_itself_begins_anew_and_says_so_once():
    class Forgetful(Counting):
        def observe(self):
            return super().observe() + np.float32(self.total)

    explorer = Explorer(make_task(Forgetful()), 0)
    explorer.collect(Noisy(), 4)
    explorer.leave()
    with pytest.warns(CaqlWarning, match="does not come back"):
        assert explorer.collect(Noisy(), 4).lengths == []
    assert explorer.episode == 1
    explorer.leave()
    assert len(explorer.collect(Noisy(), 4).transitions.rewards) == 4


@pytest.mark.parametrize("at", [3, 12, 13, 25])
def test_a_failed_step_leaves_what_came_before_and_the_next_try_goes_on(at):
    whole, broken = (Explorer(make_task(Counting(fault)), 0) for fault in (None, "raises"))
    broken.task.env.at = at
    expected = [whole.collect(Noisy(), 6).transitions for _ in range(6)]
    found = []
    for _ in range(7):
        try:
            found.append(broken.collect(Noisy(), 6).transitions)
        except Misbehaviour:
            assert len(found) == (at - 1) // 6
    assert len(found) == 6
    for left, right in zip(expected, found, strict=True):
        same(left[:5], right[:5])


def test_watching_sees_every_step_and_can_stop():
    seen = []

    def watch(step):
        seen.append(step)
        return len(seen) < 17

    rollout = Explorer(make_task(Scripted(fall=5), None, 9), 0).collect(Noisy(), 30, None, watch)
    assert rollout.stopped
    assert len(rollout.transitions.rewards) == len(seen) == 17
    assert [bool(step.dones[0]) for step in seen] == ([False] * 4 + [True]) * 3 + [False] * 2
    assert seen[4].infos[0]["terminal_observation"][0] == 5
    assert seen[4].infos[0]["TimeLimit.truncated"] is False


def test_gradient_steps_follow_the_steps_collected():
    one = Training(dataclasses.replace(STEPPING, evaluate_every=0, warm_up=14))
    counts = [(epoch.environment_steps, epoch.train_step) for epoch in one.epochs(30)]
    assert counts == [(7, 0), (14, 3), (21, 6), (28, 9), (30, 12)]
    other = Training(dataclasses.replace(STEPPING, steps_per_epoch=-1, evaluate_every=0, warm_up=14))
    assert [epoch.train_step for epoch in other.epochs(30)] == [0, 7, 14, 21, 23]
    episodes = Training(dataclasses.replace(TINY, train_freq=(2, "episode"), steps_per_epoch=-1, evaluate_every=0))
    assert [(epoch.environment_steps, epoch.train_step) for epoch in episodes.epochs(70)] == [(40, 40), (70, 70)]


def test_gradient_steps_are_made_in_calls_of_two_sizes():
    assert _calls(3, 99) == [3]
    assert _calls(-1, 45) == [20, 20, *[1] * 5]
    assert sum(_calls(-1, 1000)) == 1000
    found = [(20, {"loss": 1.0, "audit": 5.0}), (1, {"loss": 22.0})]
    assert _weighted(found) == {"loss": pytest.approx(2.0), "audit": 5.0}


def test_what_decays_by_epochs_decays_by_twenty_gradient_steps():
    training = Training(dataclasses.replace(STEPPING, steps_per_epoch=-1, evaluate_every=0, warm_up=8))
    list(training.epochs(107))
    assert training.train_step == 100
    assert training.decays == 5
    assert training.agent.spec.epoch_steps == 20
    assert Training(TINY).agent.spec.epoch_steps == 10


@pytest.mark.parametrize("stop_after", [1, 4, 8, 23])
@pytest.mark.parametrize("steps", [3, -1])
def test_a_run_restored_inside_an_episode_goes_on_bit_for_bit(stop_after, steps):
    config = dataclasses.replace(STEPPING, steps_per_epoch=steps, train_steps=90)
    whole, first, second = (Training(config) for _ in range(3))
    list(whole.epochs())
    for _, _epoch in zip(range(stop_after), first.epochs(), strict=False):
        pass
    arrays, meta = first.snapshot()
    second.restore({name: array.copy() for name, array in arrays.items()}, meta)
    list(second.epochs())
    np.testing.assert_array_equal(np.asarray(second.state.q.vector), np.asarray(whole.state.q.vector))
    np.testing.assert_array_equal(second.replay.data.states, whole.replay.data.states)
    assert [row["returns"] for row in second.records] == [row["returns"] for row in whole.records]
    assert second.explorer.episode == whole.explorer.episode


@pytest.mark.parametrize(
    "change",
    [
        {"episode.actions": np.zeros((3, 2), np.float32)},
        {"episode.actions": np.zeros(3, np.float32)},
        {"episode.actions": np.full((3, 1), np.nan, np.float32)},
        {"episode.observation": np.zeros(2, np.float32)},
        {"episode.observation": None},
    ],
)
def test_a_checkpoint_with_a_wrong_episode_is_one_sentence(change):
    first, second = Training(STEPPING), Training(STEPPING)
    for _ in zip(range(3), first.epochs(), strict=False):
        pass
    arrays, meta = first.snapshot()
    assert len(arrays["episode.actions"]) == 14
    arrays = {name: array for name, array in (arrays | change).items() if array is not None}
    with pytest.raises(CaqlError, match=r"episode\."):
        second.restore(arrays, meta)
    assert second.epoch == 0
    with pytest.raises(CaqlError, match="episode = '-1'"):
        second.restore(first.snapshot()[0], meta | {"episode": -1})


def test_a_checkpoint_of_the_first_version_has_an_episode_for_each_epoch():
    first, second = Training(TINY), Training(TINY)
    for _ in zip(range(5), first.epochs(), strict=False):
        pass
    arrays, meta = first.snapshot()
    assert meta.pop("episode") == first.epoch == 4
    second.restore(arrays, meta)
    assert second.explorer.episode == 4


def test_killed_inside_an_episode_and_resumed_the_run_ends_the_same(tmp_path):
    steps = (
        "Pendulum --train-steps 150 --episode-steps 60 --warm-up 40 --evaluate-every 70 --evaluation-episodes 1 "
        "--hidden 4 --action-hidden 4 --solver.iterations 2 --checkpoint-seconds 0 --train-freq 13 step "
        "--steps-per-epoch -1"
    ).split()
    whole, folder = tmp_path / "whole", tmp_path / "run"
    main([*steps, "--out", str(whole)])
    process = subprocess.Popen(
        [*COMMAND, *steps, "--out", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        while newest_step(folder) < 26 and process.poll() is None:
            pass
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert not (folder / "finished.json").exists()
    main([*steps, "--out", str(folder), "--resume"])
    assert compare(folder, whole) == []


def test_an_environment_of_ones_own_without_a_seed_still_learns():
    class Unseeded(gym.Wrapper):
        def reset(self, *, seed=None, options=None):
            return self.env.reset(options=options)

    training = Training(
        dataclasses.replace(STEPPING, evaluate_every=0), make_task(Unseeded(gym.make("Pendulum-v1")), None, 20)
    )
    list(training.epochs(60))
    assert training.train_step > 0
