import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caql.action_ranges import restrict, round_inward
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


class Echo(gym.Env):
    """Keeps the action it was given, and answers with it."""

    observation_space = gym.spaces.Box(-9, 9, (2,))
    action_space = gym.spaces.Box(-2.0, 2.0, (2,))

    def __init__(self, action_space=None):
        self.action_space = action_space or type(self).action_space

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.given = action
        return np.resize(np.asarray(action, np.float32), 2), 0.0, False, False, {}


def test_no_action_outside_the_range_reaches_the_environment():
    task = make_task(Echo(), ((-1.0, 0.0), (0.5, 1.5)), 5)
    task.reset(seed=0)
    np.testing.assert_allclose(task.step(np.array([9.0, -9.0]))[0], [0.5, 0.0])


@pytest.mark.parametrize(
    ("space", "asked", "given"),
    [
        (gym.spaces.Box(-0.1, 0.1, (1,), np.float64), [1.0], [0.1]),
        (gym.spaces.Box(-0.1, 0.1, (1,), np.float64), [np.float32(0.1)], [0.1]),
        (gym.spaces.Box(-0.1, 0.1, (1,), np.float16), [-1.0], [np.float16(-0.1)]),
        (gym.spaces.Box(-3, 3, (2,), np.int8), [0.6, -2.5], [1, -2]),
        (gym.spaces.Box(0, 255, (2, 1), np.uint8), [-7.0, 254.7], [[0], [255]]),
        (gym.spaces.Box(0, 1, (1,), np.int64), [0.4], [0]),
        (gym.spaces.Box(0.25, 0.25, (), np.float64), [3.0], 0.25),
    ],
)
def test_actions_arrive_in_the_spaces_own_type_and_shape(space, asked, given):
    env = Echo(space)
    task = make_task(env, episode_steps=9)
    task.reset(seed=0)
    task.step(np.array(asked, np.float32))
    assert env.given.dtype == space.dtype
    np.testing.assert_array_equal(env.given, np.array(given, space.dtype))
    assert space.contains(env.given)


def test_what_an_agent_may_choose_lies_inside_a_float64_space():
    task = make_task(Echo(gym.spaces.Box(-0.1, 0.1, (1,), np.float64)))
    assert -0.1 <= task.low.astype(np.float64) < task.high.astype(np.float64) <= 0.1
    narrowed = make_task(Echo(gym.spaces.Box(-1.0, 1.0, (1,), np.float64)), 0.1)
    assert -0.1 <= narrowed.low.astype(np.float64) < narrowed.high.astype(np.float64) <= 0.1


@pytest.mark.parametrize(
    ("dtype", "low", "high", "lower", "upper"),
    [
        (np.float32, -0.1, 0.1, -0.09999999403953552, 0.09999999403953552),
        (np.float16, 0.1, 0.3, 0.10003662109375, 0.2998046875),
        (np.float64, -0.1, 0.1, -0.1, 0.1),
        (np.int8, -1.5, 2.5, -1, 2),
    ],
)
def test_bounds_by_hand(dtype, low, high, lower, upper):
    assert round_inward(np.array([low]), np.array([high]), dtype) == (lower, upper)


def test_a_range_wider_than_the_space_by_rounding_is_the_spaces_own():
    space = gym.spaces.Box(-0.4, 0.4, (2,), np.float64)
    for wanted in (0.4 + 5e-7, ((-0.4 - 5e-7, -0.1), (0.4 + 5e-7, 0.2))):
        low, high = restrict(space, wanted)
        assert low[0] == -0.4
        assert high[0] == 0.4
    assert (low[1], high[1]) == (-0.1, 0.2)


FORMATS = [np.float16, np.float32, np.float64, np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64]


@settings(max_examples=150, deadline=None)
@given(
    dtype=st.sampled_from(FORMATS),
    ends=st.tuples(st.floats(-1e4, 1e4), st.floats(-1e4, 1e4)),
    action=st.floats(width=32, allow_nan=False),
    share=st.none() | st.floats(0.2, 1.0),
)
def test_whatever_is_asked_for_the_environment_gets_something_inside(dtype, ends, action, share):
    held = (0, 250) if dtype == np.uint8 else (-100, 100) if dtype == np.int8 else (-1e4, 1e4)
    low, high = (
        float(np.clip(end, max(held[0], 0 if dtype == np.uint64 else held[0]), held[1])) for end in sorted(ends)
    )
    if np.dtype(dtype).kind in "iu":
        low, high = np.floor(low), np.ceil(high)
    space = gym.spaces.Box(low, max(high, low), (1,), dtype)
    wanted = None
    if share is not None and high - low > 4:
        middle, half = (low + high) / 2, share * (high - low) / 2
        wanted = ((middle - half,), (middle + half,))
    env = Echo(space)
    task = make_task(env, wanted, 9)
    task.reset(seed=0)
    task.step(np.array([action], np.float32))
    assert space.contains(env.given)
    assert env.given.dtype == dtype
    # What an agent may choose is inside too, so that `predict` can be handed to the environment itself.
    for bound in (task.low, task.high):
        if space.low < space.high:
            assert space.low <= bound.astype(np.float64) <= space.high
    if wanted is not None and dtype != np.float32:
        assert wanted[0][0] <= float(env.given[0]) <= wanted[1][0]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([np.float16, np.float32, np.int16, np.int64]), st.floats(-3e4, 3e4), st.floats(-3e4, 3e4))
def test_bounds_are_rounded_to_the_nearest_number_inside(dtype, one, other):
    low, high = np.array([min(one, other)]), np.array([max(one, other)])
    lower, upper = round_inward(low, high, dtype)
    assert lower >= low
    assert upper <= high
    for bound, outward, limit in ((lower, -np.inf, low), (upper, np.inf, high)):
        assert bound.astype(dtype).astype(np.float64) == bound
        step = np.sign(outward) if np.dtype(dtype).kind == "i" else None
        beyond = bound + step if step else np.nextafter(bound.astype(dtype), dtype(outward)).astype(np.float64)
        assert beyond < limit if outward < 0 else beyond > limit


def test_the_largest_whole_numbers_are_not_rounded_outwards():
    info = np.iinfo(np.int64)
    lower, upper = round_inward(np.array([float(info.min)]), np.array([float(info.max)]), np.int64)
    assert int(upper[0]) <= info.max
    assert int(lower[0]) >= info.min


def test_a_range_that_holds_nothing_of_the_spaces_type_is_refused():
    with pytest.raises(CaqlError, match="holds no number of the action space's type, int8"):
        make_task(Echo(gym.spaces.Box(-3, 3, (1,), np.int8)), ((0.2,), (0.8,)))


def test_an_action_that_is_not_a_number_never_reaches_the_environment():
    env = Echo(gym.spaces.Box(-3, 3, (1,), np.int8))
    task = make_task(env)
    task.reset(seed=0)
    with pytest.raises(CaqlError, match="is not a number"):
        task.step(np.array([np.nan], np.float32))
    assert not hasattr(env, "given")


def test_observations_are_float32_vectors_of_the_tasks_own_space():
    task = make_task("Hopper-v5")
    observation, _ = task.reset(seed=0)
    assert observation.dtype == task.observation_space.dtype == np.float32
    assert task.observation_space.contains(observation)


def test_observation_bounds_beyond_float32_are_taken():
    class Wide(Echo):
        observation_space = gym.spaces.Box(-1e300, 1e300, (2,), np.float64)

    assert make_task(Wide()).observation_space.high.tolist() == [np.inf, np.inf]


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


def test_our_clock_takes_the_place_of_gymnasiums():
    task = make_task("Pendulum", episode_steps=230)
    task.reset(seed=0)
    ends = [task.step(np.zeros(1))[3] for _ in range(230)]
    assert ends == [False] * 229 + [True]


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
        ("no_such_module:Env-v0", None, "cannot be made: ModuleNotFoundError"),
        ("Hoper", None, "did you mean 'Hopper'"),
        ("CartPole-v1", 1.0, "narrows a Box; the action space is Discrete"),
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
