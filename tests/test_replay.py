import numpy as np
import pytest

from caql.errors import CaqlError
from caql.replay import Batch, Replay


def episode(first: int, count: int) -> Batch:
    steps = np.arange(first, first + count, dtype=np.float32)
    return Batch(steps[:, None], -steps[:, None], steps, steps[:, None] + 1, np.ones(count, np.float32))


def test_the_oldest_transitions_are_overwritten():
    replay = Replay(5, 1, 1)
    replay.extend(episode(0, 3))
    assert len(replay) == 3
    replay.extend(episode(3, 4))
    assert len(replay) == 5
    assert sorted(replay.data.rewards.tolist()) == [2, 3, 4, 5, 6]
    np.testing.assert_array_equal(replay.data.next_states, replay.data.states + 1)


def test_an_episode_longer_than_the_buffer_leaves_its_end():
    replay = Replay(4, 1, 1)
    replay.extend(episode(0, 11))
    assert sorted(replay.data.rewards.tolist()) == [7, 8, 9, 10]
    replay.extend(episode(11, 1))
    assert sorted(replay.data.rewards.tolist()) == [8, 9, 10, 11]


def test_a_sampling_buffer_keeps_each_transition_with_the_same_chance():
    kept = np.zeros(40)
    for seed in range(1000):
        replay = Replay(10, 1, 1)
        for first in range(0, 40, 8):
            replay.extend(episode(first, 8), np.random.default_rng([seed, first]))
        assert len(replay) == 10
        assert len(set(replay.data.rewards)) == 10
        np.testing.assert_array_equal(replay.data.next_states, replay.data.states + 1)
        np.testing.assert_array_equal(replay.data.actions, -replay.data.states)
        kept[replay.data.rewards.astype(int)] += 1
    assert np.abs(kept - 250).max() < 5 * np.sqrt(1000 * 0.25 * 0.75)  # binomial: 250 expected, 13.7 its deviation


def test_a_sampling_buffer_that_is_not_full_keeps_everything_in_order():
    replay = Replay(10, 1, 1)
    replay.extend(episode(0, 7), np.random.default_rng(0))
    assert replay.data.rewards[:7].tolist() == list(range(7))
    assert (len(replay), replay.written) == (7, 7)


def test_samples_are_uniform_over_what_is_there_and_seeded():
    replay = Replay(100, 1, 1)
    replay.extend(episode(0, 10))
    batch = replay.sample(np.random.default_rng(0), 50, 64)
    assert batch.states.shape == (50, 64, 1)
    assert batch.rewards.shape == (50, 64)
    counts = np.bincount(batch.rewards.astype(int).ravel(), minlength=10)
    assert len(counts) == 10
    assert counts.min() > 250  # 320 expected, a standard deviation of 17
    again = replay.sample(np.random.default_rng(0), 50, 64)
    np.testing.assert_array_equal(batch.rewards, again.rewards)


@pytest.mark.parametrize("draws", [lambda: None, lambda: np.random.default_rng(5)], ids=["newest", "sample"])
@pytest.mark.parametrize("before", [3, 9], ids=["part of it filled", "all of it filled"])
def test_restored_replay_goes_on_as_if_nothing_had_happened(before, draws):
    whole, broken = Replay(7, 1, 1), Replay(7, 1, 1)
    for replay in (whole, broken):
        replay.extend(episode(0, before), draws())
    other = Replay(7, 1, 1)
    other.restore({name: column.copy() for name, column in broken.snapshot().items()}, broken.written)
    np.testing.assert_array_equal(other.data.rewards, whole.data.rewards)
    for replay in (whole, other):
        replay.extend(episode(before, 3), draws())
    one, two = (r.sample(np.random.default_rng(3), 2, 8) for r in (whole, other))
    for left, right in zip(one, two, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rewards": None}, "rewards should be float32 of shape .5,. and is missing"),
        ({"states": np.zeros((5, 2), np.float32)}, "states should be"),
        ({"actions": np.zeros((5, 1))}, "actions should be float32 .* and is float64"),
        ({"continues": np.zeros(4, np.float32)}, "continues should be"),
    ],
)
def test_columns_that_do_not_fit_change_nothing(change, words):
    replay, other = Replay(7, 1, 1), Replay(7, 1, 1)
    replay.extend(episode(0, 5))
    columns = {name: column for name, column in (replay.snapshot() | change).items() if column is not None}
    with pytest.raises(CaqlError, match=words):
        other.restore(columns, 5)
    assert other.written == 0
    assert not other.data.rewards.any()


def test_capacity_must_be_positive():
    with pytest.raises(CaqlError, match="replay_size = 0"):
        Replay(0, 1, 1)


def test_the_oldest_goes_first_each_time():
    replay = Replay(4, 1, 1)
    for first in range(0, 12, 3):
        replay.extend(episode(first, 3))
    assert sorted(replay.data.rewards.tolist()) == [8, 9, 10, 11]


def test_the_sets_of_both_states_are_kept_and_restored():
    def with_sets(first, count):
        limits = np.arange(first, first + count, dtype=np.float32)[:, None]
        return episode(first, count)._replace(sets={"row_high": limits}, next_sets={"row_high": limits + 1})

    replay, other = (Replay(4, 1, 1, {"row_high": np.zeros(1)}) for _ in range(2))
    replay.extend(with_sets(0, 6))
    np.testing.assert_array_equal(replay.data.sets["row_high"], replay.data.states)
    np.testing.assert_array_equal(replay.data.next_sets["row_high"], replay.data.next_states)
    other.restore({name: column.copy() for name, column in replay.snapshot().items()}, replay.written)
    drawn, again = (each.sample(np.random.default_rng(0), 1, 9) for each in (replay, other))
    np.testing.assert_array_equal(drawn.sets["row_high"], again.sets["row_high"])
    np.testing.assert_array_equal(drawn.next_sets["row_high"], again.next_sets["row_high"])
