"""The short way through MuJoCo's robots answers as Gymnasium's own, in every bit."""

import copy

import gymnasium as gym
import numpy as np
import pytest

from caql import mujoco_steps
from caql.environments import make_task
from caql.mujoco_steps import COMPARED, direct_step
from caql.runs.exploring import Explorer
from caql.task_names import TASKS

pytestmark = pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")

ROBOTS = {task.id: task.arguments for name, task in TASKS.items() if name != "Pendulum"} | {
    name: {} for name in ("Reacher-v5", "HalfCheetah-v5", "Hopper-v5", "Walker2d-v5")
}


@pytest.fixture(autouse=True)
def _quiet():
    with mujoco_steps.quiet_mujoco():
        yield


def made(name, limit=-1, **arguments):
    return gym.make(name, disable_env_checker=True, max_episode_steps=limit, **(ROBOTS[name] | arguments))


def bits(values):
    return np.asarray(values, np.float64).tobytes()


def compare(name, steps, scale, seed, **arguments):
    """Two environments, one stepped by each, with the same actions from the same seeds; how many episodes ended."""
    theirs, ours = made(name, 90, **arguments), made(name, 90, **arguments)
    rng, falls, clocks, episode = np.random.default_rng(seed), 0, 0, 0
    space, fresh = theirs.action_space, True
    for number in range(steps):
        if fresh:
            start = theirs.reset(seed=number)[0]
            assert bits(start) == bits(ours.reset(seed=number)[0])
            step, episode = direct_step(ours), episode + 1
        action = (scale * rng.uniform(space.low, space.high)).astype(np.float32)
        observation, reward, terminated, truncated, _ = theirs.step(action.copy())
        found = step(action.copy())
        assert found[0].dtype == observation.dtype
        assert bits(found[0]) == bits(observation), number
        assert bits(found[1]) == bits(reward), number
        assert (found[2], found[3]) == (terminated, truncated), number
        assert isinstance(found[1], float)
        assert type(found[2]) is bool
        falls, clocks = falls + terminated, clocks + truncated
        fresh = truncated or (terminated and episode % 2 == 0)  # every other robot is thrown about on the ground
    assert theirs.unwrapped.data.time == ours.unwrapped.data.time
    return falls, clocks


@pytest.mark.parametrize("name", ROBOTS)
@pytest.mark.parametrize("scale", [1.0, 0.2])
def test_every_robot_answers_as_gymnasiums_in_every_bit(name, scale):
    falls, clocks = compare(name, 3000, scale, seed=1)
    assert clocks
    assert falls or name.split("-")[0] in ("HalfCheetah", "Reacher") or (scale < 1 and name == "Ant-v4")


@pytest.mark.parametrize("name", ["Hopper-v4", "Hopper-v5", "Walker2d-v4", "Walker2d-v5", "Ant-v4", "Humanoid-v4"])
def test_other_settings_of_a_robot_are_read(name):
    settings = {"terminate_when_unhealthy": False, "healthy_reward": 0.3, "ctrl_cost_weight": 0.7}
    compare(name, 300, 1.0, 2, **settings, exclude_current_positions_from_observation=False)
    if name == "Ant-v4":
        compare(name, 300, 1.0, 2, use_contact_forces=False)
    if "Hopper" in name:
        compare(name, 300, 1.0, 2, healthy_angle_range=(-np.inf, np.inf), healthy_state_range=(-0.1, 5.0))


@pytest.mark.parametrize("name", ["HalfCheetah-v4", "HalfCheetah-v5"])
def test_other_settings_of_a_cheetah_are_read(name):
    settings = {"forward_reward_weight": 0.3, "ctrl_cost_weight": 0.7}
    compare(name, 300, 1.0, 2, **settings, exclude_current_positions_from_observation=False)


@pytest.mark.parametrize("name", ["Hopper-v4", "Hopper-v5", "Ant-v4"])
@pytest.mark.parametrize("bad", [99.0, 150.0, -150.0, np.inf, np.nan])
def test_speeds_out_of_all_bounds_are_judged_alike(name, bad, monkeypatch):
    def broken(model, data, nstep):
        data.qvel[-1] = bad

    monkeypatch.setattr("mujoco.mj_step", broken)
    monkeypatch.setattr("mujoco.mj_rnePostConstraint", lambda model, data: None)
    theirs, ours = made(name), made(name)
    for env in (theirs, ours):
        env.reset(seed=0)
    action = np.zeros(theirs.action_space.shape, np.float32)
    expected, found = theirs.step(action), direct_step(ours)(action)
    assert bits(found[0]) == bits(expected[0])
    assert found[1:3] == expected[1:3]
    assert found[2] == (not abs(bad) < (100.0 if "Hopper" in name else np.inf))


@pytest.mark.parametrize("name", ["Hopper-v4", "Hopper-v5"])
def test_the_angle_is_among_what_must_be_bounded(name, monkeypatch):
    monkeypatch.setattr("mujoco.mj_step", lambda model, data, nstep: data.qpos.__setitem__(2, 150.0))
    theirs, ours = (made(name, healthy_angle_range=(-np.inf, np.inf)) for _ in range(2))
    for env in (theirs, ours):
        env.reset(seed=0)
    action = np.zeros(3, np.float32)
    assert direct_step(ours)(action)[1:3] == theirs.step(action)[1:3] == (float("v4" in name), True)


def test_the_installed_gymnasium_is_one_that_was_compared(monkeypatch):
    assert gym.__version__ in COMPARED, "add it to COMPARED if the other tests of this file pass"
    env = made("Hopper-v5")
    env.reset(seed=0)
    assert direct_step(env) is not None
    monkeypatch.setattr(gym, "__version__", "0.0.0")
    assert direct_step(env) is None


class Faller(type(gym.make("Hopper-v5").unwrapped)):
    """A user's own Hopper."""

    def step(self, action):
        return (*super().step(action)[:3], False, {"mine": True})


def test_what_a_user_wrapped_changed_or_subclassed_keeps_its_own_step():
    wrapped = gym.wrappers.TransformReward(made("Hopper-v5"), lambda reward: 7.0)
    subclassed = gym.wrappers.OrderEnforcing(Faller())
    seen = made("Hopper-v5", render_mode="rgb_array")
    patched = made("Hopper-v5")
    patched.unwrapped.step = lambda action: None
    for env in (wrapped, subclassed, seen, patched, made("Hopper-v5").unwrapped, gym.make("Hopper-v5")):
        env.reset(seed=0)
        assert direct_step(env) is None
    task = make_task(wrapped)
    task.reset(seed=0)
    assert task.advance(np.zeros(3))[1] == 7.0


def calls(task, monkeypatch):
    """How often the environment's own `step` is called from now on."""
    counted, own = [], type(task.unwrapped).step

    def step(self, action):
        counted.append(1)
        return own(self, action)

    monkeypatch.setattr(type(task.unwrapped), "step", step)
    return counted


def test_only_an_environment_made_here_takes_the_short_way(monkeypatch):
    named, given = make_task("Hopper-v5"), make_task(made("Hopper-v5"))
    counted = calls(named, monkeypatch)
    for task, expected in ((named, 0), (given, 1)):
        task.reset(seed=0)
        task.advance(np.zeros(3))
        assert len(counted) == expected


class Still:
    def explore(self, state, noise):
        return 0.1 * noise

    act = None


def test_who_watches_sees_every_info_and_the_same_transitions(monkeypatch):
    alone, watched = (Explorer(make_task("Hopper"), 3) for _ in range(2))
    counted = calls(alone.task, monkeypatch)
    quick = alone.collect(Still(), 150)
    assert not counted
    infos = []
    slow = watched.collect(Still(), 150, watch=lambda seen: infos.append(seen.infos[0]) or True)
    assert len(counted) == len(infos) == 150
    assert all("x_velocity" in info for info in infos)
    for left, right in zip(quick.transitions[:5], slow.transitions[:5], strict=True):
        assert left.tobytes() == right.tobytes()


def test_both_ways_may_take_turns_in_an_episode():
    task = make_task("Reacher-v5", episode_steps=None)
    task.reset(seed=0)
    ends = [(task.advance if t % 3 else task.step)(np.zeros(2))[3] for t in range(50)]
    assert ends == [False] * 49 + [True]


def test_a_copy_steps_its_own_environment():
    task = make_task("Hopper-v5")
    task.reset(seed=0)
    before = task.unwrapped.data.qpos.copy()
    twin = copy.deepcopy(task)
    twin.advance(np.ones(3))
    np.testing.assert_array_equal(task.unwrapped.data.qpos, before)
