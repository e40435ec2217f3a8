"""Labels over several steps, by hand."""

import numpy as np
import pytest

from caql.agents.td3 import TD3Config
from caql.config import RunConfig
from caql.errors import CaqlError
from caql.replay import Batch
from caql.runs.n_step import n_step
from caql.runs.training import Training

GAMMA = 0.5


def transitions(rewards, continues):
    count = len(rewards)
    states = np.arange(count, dtype=np.float32)[:, None]
    return Batch(
        states,
        np.zeros((count, 1), np.float32),
        np.asarray(rewards, np.float32),
        states + 100,
        np.asarray(continues, np.float32),
        None,
        {"low": states + 200},
    )


def test_rewards_are_added_up_within_an_episode_and_never_beyond_it():
    # Two episodes: one of four steps that the clock ends, one of two that ends by itself.
    found = n_step(transitions([1, 2, 4, 8, 16, 32], [1, 1, 1, 1, 1, 0]), [4, 2], 3, GAMMA)
    np.testing.assert_array_equal(found.rewards, [1 + 1 + 1, 2 + 2 + 2, 4 + 4, 8, 16 + 16, 32])
    np.testing.assert_array_equal(found.next_states[:, 0], [102, 103, 103, 103, 105, 105])
    np.testing.assert_array_equal(found.next_sets["low"][:, 0], [202, 203, 203, 203, 205, 205])
    # gamma * continues is gamma^m, and 0 where the episode ended by itself.
    np.testing.assert_array_equal(found.continues, [0.25, 0.25, 0.5, 1, 0, 0])
    np.testing.assert_array_equal(found.states[:, 0], np.arange(6))


def test_an_end_inside_a_piece_stops_the_sum():
    found = n_step(transitions([1, 2, 4], [0, 1, 1]), [3], 3, GAMMA)
    np.testing.assert_array_equal(found.rewards, [1, 2 + 2, 4])
    np.testing.assert_array_equal(found.continues, [0, 0.5, 1])


def test_one_step_is_what_was_there():
    before = transitions([1, 2, 4], [1, 1, 0])
    after = n_step(before, [3], 1, GAMMA)
    for name in ("rewards", "next_states", "continues"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))


@pytest.mark.parametrize("agent", [None, TD3Config()])
def test_a_run_stores_them(agent):
    settings = {} if agent is None else {"agent": agent}
    common = {"warm_up": 200, "train_steps": 20, "evaluate_every": 0}
    rewards = {}
    for steps in (1, 3):
        training = Training(RunConfig("Pendulum", label_steps=steps, **common, **settings))
        list(training.epochs())
        rewards[steps] = training.replay.data
    one, three = rewards[1], rewards[3]
    # The first episode is the same in both runs.
    summed = one.rewards[:198] + 0.99 * one.rewards[1:199] + 0.99**2 * one.rewards[2:200]
    np.testing.assert_allclose(three.rewards[:198], summed, rtol=1e-5)
    np.testing.assert_array_equal(three.next_states[:198], one.next_states[2:200])
    np.testing.assert_array_equal(three.next_states[198:200], one.next_states[[199, 199]])
    np.testing.assert_allclose(three.continues[:200], [0.99**2] * 198 + [0.99, 1], rtol=1e-6)


def test_stretches_shorter_than_the_label_are_refused():
    with pytest.raises(CaqlError, match=r"label_steps = 3 needs stretches of at least as many steps"):
        RunConfig("Pendulum", label_steps=3, train_freq=(1, "step"))
