"""Platform: what its three moves do, and how an episode can end."""

import numpy as np
import pytest

from caql.tasks.platform import FARTHEST, GOAL, GROUND, HOP, LEAP, RUN, STARTS, WIDTHS, Platform


def move(env, choice, distance):
    return env.step((choice, distance / np.array(FARTHEST)))


def send_away(env):
    """Enemies far off, who stay there."""
    env.enemies, env._walk = [1e6, 1e6], lambda k: None


def test_running_lasts_a_second_and_earns_the_distance():
    env = Platform()
    env.reset(seed=0)
    observation, reward, over, cut, info = move(env, RUN, 3.0)
    assert info["ticks"] == 20
    assert not over
    assert not cut
    assert reward == pytest.approx(env.x / GOAL)
    assert env.y == GROUND
    assert env.observation_space.contains(observation)


def test_a_jump_lasts_until_the_player_lands():
    env = Platform()
    env.reset(seed=0)
    _, reward, over, _, info = move(env, HOP, 300.0)
    assert info["ticks"] > 100  # 35 up at 9.8 down, in ticks of 0.05
    assert reward > 0.1
    assert over or env.y == GROUND


def test_a_leap_goes_farther_the_longer_it_is_asked_to():
    reached = []
    for distance in (50.0, 200.0, 430.0):
        env = Platform()
        env.reset(seed=1)
        send_away(env)
        move(env, LEAP, distance)
        reached.append(env.x)
    assert reached == sorted(reached)
    assert reached[2] > reached[0] + 50.0


def test_falling_into_a_gap_ends_the_episode():
    env = Platform()
    env.reset(seed=0)
    send_away(env)
    env.x = WIDTHS[0] - 10.0
    _, _, over, _, _ = move(env, RUN, 30.0)
    assert over
    assert env.y < GROUND


def test_touching_an_enemy_ends_the_episode():
    env = Platform()
    env.reset(seed=0)
    over, steps = False, 0
    while not over and steps < 50:
        _, _, over, _, _ = move(env, RUN, 3.0)
        steps += 1
    assert over
    assert abs(env.x - env.enemies[0]) < 20.0


def test_the_returns_of_an_episode_that_reaches_the_goal_add_up_to_one():
    env = Platform()
    env.reset(seed=0)
    send_away(env)
    env.x = STARTS[2]
    first = env.x / GOAL
    _, reward, over, _, _ = move(env, RUN, 30.0)
    assert over
    assert first + reward == pytest.approx(1.0)


def test_episodes_follow_their_seed():
    def play(seed):
        env, rng = Platform(), np.random.default_rng(0)
        env.reset(seed=seed)
        rewards, over = [], False
        while not over and len(rewards) < 100:
            _, reward, over, _, _ = env.step((rng.integers(3), rng.uniform(0.0, 1.0, 3)))
            rewards.append(reward)
        return rewards

    assert play(3) == play(3)
    assert play(3) != play(4)
