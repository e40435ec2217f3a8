import gymnasium as gym
import numpy as np
import pytest

from caql.environments import TASKS, make_task
from caql.errors import CaqlError

SIZES = {
    "Pendulum": (3, 1),
    "Hopper": (11, 3),
    "Walker2D": (17, 6),
    "HalfCheetah": (17, 6),
    "Ant": (111, 8),
    "Humanoid": (376, 17),
}


@pytest.mark.parametrize("name", SIZES)
def test_the_papers_tasks_have_its_dimensions_and_default_ranges(name):
    task = make_task(name)
    assert (task.observation_size, len(task.low)) == SIZES[name]
    default = TASKS[name].ranges[0]
    np.testing.assert_allclose(task.action_space.high, default)
    np.testing.assert_allclose(task.action_space.low, -default)
    observation, _ = task.reset(seed=3)
    again, _ = task.reset(seed=3)
    np.testing.assert_array_equal(observation, again)
    assert len(observation) == SIZES[name][0]


def test_every_range_of_the_paper_narrows_the_action_space():
    for name, task in TASKS.items():
        for half in task.ranges:
            space = make_task(name, half).action_space
            np.testing.assert_allclose(space.high, half)
            np.testing.assert_allclose(space.low, -half)


def test_no_action_outside_the_range_reaches_the_environment():
    class Echo(gym.Env):
        observation_space = gym.spaces.Box(-9, 9, (2,))
        action_space = gym.spaces.Box(-2.0, 2.0, (2,))

        def reset(self, *, seed=None, options=None):
            return np.zeros(2, np.float32), {}

        def step(self, action):
            return np.asarray(action, np.float32), 0.0, False, False, {}

    task = make_task(Echo(), ((-1.0, 0.0), (0.5, 1.5)), 5)
    task.reset(seed=0)
    np.testing.assert_allclose(task.step(np.array([9.0, -9.0]))[0], [0.5, 0.0])


def test_the_clock_truncates_and_a_fall_terminates():
    task = make_task("Hopper", episode_steps=200)
    task.reset(seed=0)
    ends = []
    for _ in range(200):
        _, _, terminated, truncated, _ = task.step(np.array([1.0, -1.0, 1.0]))
        if terminated or truncated:
            ends.append((bool(terminated), bool(truncated)))
            break
    assert ends == [(True, False)]
    task = make_task("Pendulum", episode_steps=7)
    task.reset(seed=0)
    flags = [task.step(np.zeros(1))[2:4] for _ in range(7)]
    assert flags[-1] == (False, True)
    assert all(flag == (False, False) for flag in flags[:-1])


def test_an_episode_without_a_limit_of_ours_keeps_the_environments():
    task = make_task("Pendulum-v1", episode_steps=None)
    task.reset(seed=0)
    steps = 1
    while not task.step(np.zeros(1))[3]:
        steps += 1
    assert steps == 200


@pytest.mark.parametrize(
    ("name", "action_range", "words"),
    [
        ("Hoper", None, "did you mean 'Hopper'"),
        ("CartPole-v1", None, "action_space is Discrete"),
        ("Blackjack-v1", None, "observation_space is Tuple"),
        ("Hopper", 0.0, "positive finite"),
        ("Hopper", -0.5, "positive finite"),
        ("Hopper", float("nan"), "positive finite"),
        ("Hopper", 1.5, "wider than the environment's"),
        ("Hopper", ((0.5,) * 3, (-0.5,) * 3), "empty or reversed"),
        ("Hopper", ((0.5,) * 3, (0.5,) * 3), "empty or reversed"),
        ("Hopper", ((-0.5,) * 2, (0.5,) * 3), "2 low and 3 high"),
        ("Hopper", ((-0.5,) * 3, (0.5, 0.5, float("inf"))), "finite"),
        ("Hopper", "wide", "pair"),
    ],
)
def test_bad_tasks_and_ranges_are_named(name, action_range, words):
    with pytest.raises(CaqlError, match=words):
        make_task(name, action_range)


def test_infinite_bounds_need_a_range():
    class Free(gym.Env):
        observation_space = gym.spaces.Box(-1, 1, (2, 2))
        action_space = gym.spaces.Box(-np.inf, np.inf, (1, 2))

        def reset(self, *, seed=None, options=None):
            return np.zeros((2, 2), np.float32), {}

        def step(self, action):
            assert action.shape == (1, 2)
            return np.ones((2, 2), np.float32), 0.0, False, False, {}

    with pytest.raises(CaqlError, match="infinite bounds"):
        make_task(Free())
    task = make_task(Free(), 3.0, 5)
    assert task.reset(seed=0)[0].shape == (4,)
    assert task.step(np.zeros(2))[0].shape == (4,)
