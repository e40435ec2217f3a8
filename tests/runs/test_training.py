import dataclasses

import gymnasium as gym
import jax
import numpy as np
import pytest

from caql.agents.caql import CAQLConfig
from caql.config import RunConfig
from caql.environments import make_task
from caql.errors import CaqlError
from caql.maxq.gradient_ascent import GradientAscent
from caql.runs.clock import Clock
from caql.runs.episodes import evaluate_policy
from caql.runs.exploring import Noise
from caql.runs.training import Training

TINY = RunConfig(
    "Pendulum",
    episode_steps=20,
    train_steps=120,
    steps_per_epoch=10,
    batch_size=8,
    replay_size=60,
    warm_up=40,
    evaluate_every=40,
    evaluation_episodes=2,
    agent=CAQLConfig(hidden=(8, 4), action_hidden=(8, 4), solver=GradientAscent(iterations=3)),
)


class Scripted(gym.Env):
    """Counts its steps; ends by falling after `fall` of them, and answers with `rewards` and `observations` given."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))

    def __init__(self, fall=1000, reward=1.0, bad_at=None):
        self.fall, self.reward, self.bad_at, self.t, self.total = fall, reward, bad_at, 0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        self.total += 1
        bad = self.total == self.bad_at
        observation = np.array([np.nan if bad == 1 and self.reward is not None else self.t], np.float32)
        return observation, np.nan if self.reward is None and bad else 1.0, self.t >= self.fall, False, {}


def test_the_loop_counts_evaluates_and_stops():
    training = Training(TINY)
    epochs = list(training.epochs())
    assert training.train_step == 120
    assert [row["train_step"] for row in training.records] == [0, 40, 80, 120]
    assert epochs[0].evaluation is training.records[0]
    # 40 transitions are two episodes; the second of them is followed by learning.
    assert training.epoch == 1 + 12
    assert training.environment_steps == 13 * 20
    assert len(training.replay) == 60
    row = training.records[-1]
    assert row["return"] == pytest.approx(np.mean(row["returns"]))
    assert len(set(row["returns"])) == 2
    assert {"loss", "q_mean", "filtered", "clustered", "work", "tolerance", "training_return"} <= set(row)
    assert {"acting", "physics", "updating", "evaluating"} <= set(row["seconds"])


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    def weights(seed):
        training = Training(dataclasses.replace(TINY, seed=seed))
        list(training.epochs())
        return np.asarray(training.state.q.vector), [row["return"] for row in training.records]

    one, again, other = weights(0), weights(0), weights(1)
    np.testing.assert_array_equal(one[0], again[0])
    assert one[1] == again[1]
    assert not np.array_equal(one[0], other[0])


@pytest.mark.parametrize("keeps", ["newest", "sample"])
@pytest.mark.parametrize("stop_after", [1, 5, 9])
def test_a_restored_run_goes_on_bit_for_bit(stop_after, keeps):
    config = dataclasses.replace(TINY, replay_keeps=keeps)
    whole = Training(config)
    list(whole.epochs())
    first = Training(config)
    for _, _epoch in zip(range(stop_after), first.epochs(), strict=False):
        pass
    arrays, meta = first.snapshot()
    second = Training(config)
    second.restore({name: array.copy() for name, array in arrays.items()}, meta)
    list(second.epochs())
    np.testing.assert_array_equal(np.asarray(second.state.q.vector), np.asarray(whole.state.q.vector))
    np.testing.assert_array_equal(
        np.asarray(second.state.action_function.vector), np.asarray(whole.state.action_function.vector)
    )
    np.testing.assert_array_equal(second.replay.data.rewards, whole.replay.data.rewards)
    assert [row["returns"] for row in second.records] == [row["returns"] for row in whole.records]


def test_a_sampling_buffer_holds_old_episodes_where_a_ring_has_only_new_ones():
    """TINY's buffer holds three of thirteen episodes; what is kept depends on the seed and on nothing else."""
    held = {}
    for name, settings in {
        "ring": {},
        "sample": {"replay_keeps": "sample"},
        "again": {"replay_keeps": "sample"},
        "other": {"replay_keeps": "sample", "seed": 1},
    }.items():
        training = Training(dataclasses.replace(TINY, **settings))
        added = []
        extend = training.replay.extend
        training.replay.extend = lambda batch, draws, add=extend, into=added: (
            into.append(batch.rewards),
            add(batch, draws),
        )
        list(training.epochs())
        rewards = np.concatenate(added).tolist()
        held[name] = sorted(rewards.index(reward) for reward in training.replay.data.rewards.tolist())
    assert held["ring"] == list(range(200, 260))
    assert held["sample"][0] < 40
    assert len(set(held["sample"])) == 60
    assert held["sample"] == held["again"] != held["other"]


def test_records_and_seconds_go_on_too():
    """An evaluation after a resume averages what was learned before it as well."""
    whole, first, second = Training(TINY), Training(TINY), Training(TINY)
    list(whole.epochs())
    for _, _epoch in zip(range(5), first.epochs(), strict=False):
        pass
    assert first._since
    assert first._returns
    second.restore(*first.snapshot())
    assert second.clock.seconds == first.clock.seconds
    list(second.epochs())
    timed = {"seconds", "solve_ms", "solve_ms_std"}
    for left, right in zip(second.records, whole.records, strict=True):
        assert {n: v for n, v in left.items() if n not in timed} == {n: v for n, v in right.items() if n not in timed}
    assert second.clock.seconds["updating"] > first.clock.seconds["updating"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epoch", None),
        ("epoch", -1),
        ("train_step", "40"),
        ("environment_steps", True),
        ("written", 3.5),
        ("written", 1),
        ("records", {}),
        ("records", [3]),
        ("records", [{"train_step": "1"}]),
        ("since", [[1.0]]),
        ("since", [{"loss": "small"}]),
        ("returns", ["many"]),
        ("seconds", {"acting": None}),
        ("seconds", [1.0]),
    ],
)
def test_a_checkpoint_with_a_wrong_field_is_one_sentence_and_changes_nothing(name, value):
    first = Training(TINY)
    for _, _epoch in zip(range(5), first.epochs(), strict=False):
        pass
    arrays, meta = first.snapshot()
    second = Training(TINY)
    for changed in ({**meta, name: value}, {key: kept for key, kept in meta.items() if key != name}):
        with pytest.raises(CaqlError, match="does not fit"):
            second.restore(arrays, changed)
    for missing in ("replay.rewards", "state.q.vector"):
        with pytest.raises(CaqlError, match=missing.split(".")[1]):
            second.restore({key: array for key, array in arrays.items() if key != missing}, meta)
        with pytest.raises(CaqlError, match=missing.split(".")[1]):
            second.restore({**arrays, missing: arrays[missing].astype(np.float64)}, meta)
    assert (second.epoch, second.train_step, second.environment_steps, second.replay.written) == (0, 0, 0, 0)
    assert second.records == []
    second.restore(arrays, meta)
    assert second.train_step == first.train_step


def test_only_a_fall_stops_the_bootstrap():
    fallen = Training(TINY, make_task(Scripted(fall=5), None, 20))
    fallen._collect()
    assert fallen.replay.data.continues[:5].tolist() == [1, 1, 1, 1, 0]
    timed_out = Training(TINY, make_task(Scripted(), None, 5))
    timed_out._collect()
    assert timed_out.replay.data.continues[:5].tolist() == [1, 1, 1, 1, 1]
    np.testing.assert_array_equal(timed_out.replay.data.states[:5, 0], [0, 1, 2, 3, 4])
    np.testing.assert_array_equal(timed_out.replay.data.next_states[:5, 0], [1, 2, 3, 4, 5])


@pytest.mark.parametrize(("zero", "last"), [(True, 0.0), (False, 1.0)])
def test_the_terminal_reward_can_be_zeroed_in_the_buffer_but_not_in_the_return(zero, last):
    training = Training(dataclasses.replace(TINY, zero_terminal_reward=zero), make_task(Scripted(fall=3), None, 20))
    assert training._collect().total == 3.0
    assert training.replay.data.rewards[:3].tolist() == [1.0, 1.0, last]


def test_a_reward_at_the_time_limit_is_never_zeroed():
    training = Training(dataclasses.replace(TINY, zero_terminal_reward=True), make_task(Scripted(), None, 4))
    training._collect()
    assert training.replay.data.rewards[:4].tolist() == [1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(("reward", "word"), [(1.0, "observation"), (None, "reward")])
def test_a_non_finite_number_stops_the_run_and_names_the_step(reward, word):
    config = dataclasses.replace(TINY, evaluate_every=0)
    training = Training(config, make_task(Scripted(bad_at=33, reward=reward), None, 20))
    with pytest.raises(CaqlError, match=f"environment step 33 .* non-finite {word}"):
        list(training.epochs())


def test_diverged_weights_stop_the_run():
    training = Training(TINY)
    training.state = training.state._replace(
        q=training.state.q._replace(vector=training.state.q.vector.at[0].set(float("nan")))
    )
    with pytest.raises(CaqlError, match="non-finite loss"):
        list(training.epochs())


def test_evaluation_is_greedy_and_seeded():
    training = Training(TINY)
    policy = training.agent.policy(training.state, 0)
    one = evaluate_policy(policy, training.task, 3, (5, 0))
    assert one == evaluate_policy(policy, training.task, 3, (5, 0))
    assert one != evaluate_policy(policy, training.task, 3, (6, 0))


def test_every_evaluation_has_first_states_of_its_own():
    training = Training(dataclasses.replace(TINY, agent=dataclasses.replace(TINY.agent, q_learning_rate=1e-30)))
    training.state = training.state._replace(
        action_function=training.state.action_function._replace(
            vector=jax.numpy.zeros_like(training.state.action_function.vector)
        )
    )
    rows = [training._evaluate()["returns"] for _ in range(3)]
    assert len({tuple(row) for row in rows}) == 3
    assert rows[1] == training.evaluate(2, 1)


def test_a_negative_seed_is_named():
    training = Training(TINY)
    with pytest.raises(CaqlError, match="seed = -3"):
        evaluate_policy(training.agent.policy(training.state, 0), training.task, 1, (-3, 0))


@pytest.mark.parametrize("seed", [2**31, 2**64, 10**40])
def test_a_seed_that_jax_cannot_hold_is_named(seed):
    with pytest.raises(CaqlError, match=f"seed = {seed} must not be negative"):
        Training(dataclasses.replace(TINY, seed=seed))
    Training(dataclasses.replace(TINY, seed=2**31 - 1))


def test_epochs_stop_at_an_environment_step_inside_an_episode():
    training = Training(dataclasses.replace(TINY, evaluate_every=0))
    epochs = list(training.epochs(50))
    assert [epoch.environment_steps for epoch in epochs] == [20, 40, 50]
    assert training.environment_steps == training.replay.written == 50
    assert training.config.train_steps == 120
    # The tenth step of an unfinished episode is no end of the task, and its return is no episode's.
    assert training.replay.data.continues[:50].tolist() == [1.0] * 50
    assert len(training._returns) == 2
    assert training.train_step == 20
    assert [epoch.environment_steps for epoch in training.epochs(75)] == [70, 75]
    assert not list(training.epochs(75))


def test_stopping_inside_an_episode_leaves_what_came_before_as_it_was():
    config = dataclasses.replace(TINY, evaluate_every=0)
    short, long = Training(config), Training(config)
    list(short.epochs(47))
    list(long.epochs(60))
    np.testing.assert_array_equal(short.replay.data.states[:47], long.replay.data.states[:47])
    np.testing.assert_array_equal(short.replay.data.actions[:47], long.replay.data.actions[:47])


def test_noise_is_drawn_afresh_after_every_block_of_it():
    noise = Noise(np.random.default_rng(7), 1)
    expected = np.random.default_rng(7).standard_normal(520, np.float32)
    np.testing.assert_array_equal([noise.row(t)[0] for t in range(520)], expected)
    # Whoever comes back into an episode finds the same row.
    assert Noise(np.random.default_rng(7), 1).row(519)[0] == expected[519]


def test_training_returns_are_those_since_the_last_evaluation():
    training = Training(TINY, make_task(Scripted(fall=3), None, 20))
    training._collect()
    assert training._evaluate()["training_return"] == 3.0
    training.use(make_task(Scripted(fall=5), None, 20))
    training._collect()
    assert training._evaluate()["training_return"] == 5.0
    assert training._evaluate()["training_return"] is None


def test_an_evaluation_due_at_a_resume_is_made():
    """The minibatches that a probe wants are not in a checkpoint."""
    first, second = Training(TINY), Training(TINY)
    for _ in zip(range(3), first.epochs(), strict=False):
        pass
    assert first.train_step == 10
    first.train_step = 40
    second.restore(*first.snapshot())
    row = next(second.epochs()).evaluation
    assert row["train_step"] == 40
    assert "loss" in row
    assert "solve_ms" not in row


def test_seconds_move_between_parts_and_are_never_negative():
    clock = Clock({"updating": 2.0})
    clock.move("updating", "max_q", 0.5)
    assert clock.seconds == {"updating": 1.5, "max_q": 0.5}
    clock.move("updating", "max_q", 9.0)
    assert clock.seconds == {"updating": 0.0, "max_q": 2.0}
    clock.move("updating", "max_q", -1.0)
    clock.add("updating", -3.0)
    assert clock.seconds == {"updating": 0.0, "max_q": 2.0}
    with clock.time("acting"):
        pass
    assert 0.0 < clock.seconds["acting"] < 1.0
