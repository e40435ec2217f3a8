"""Dot by hand, and its contract with Gymnasium."""

from itertools import pairwise

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from caql.environments import make_task
from caql.tasks.dot import SIDE, STEPS, Dot


def test_it_keeps_gymnasiums_contract():
    check_env(Dot(), skip_render_check=True)


def test_positions_are_where_the_light_is():
    env = Dot()
    image, _ = env.reset(seed=0)
    assert image.dtype == np.uint8
    grid = np.arange(SIDE)
    for channel, place in enumerate((env.point, env.target)):
        light = image[..., channel] / image[..., channel].sum()
        centre = np.array([(light.sum(axis=1) * grid).sum(), (light.sum(axis=0) * grid).sum()]) / (SIDE - 1)
        np.testing.assert_allclose(centre, place, atol=0.01)


def test_the_best_action_arrives_and_stays():
    env = Dot()
    env.reset(seed=1)
    far = np.abs(env.target - env.point).max()
    rewards = [env.step(env.best_action())[1] for _ in range(int(np.ceil(far / 0.1)))]
    assert all(later > earlier for earlier, later in pairwise(rewards))
    assert rewards[-1] == pytest.approx(0.0, abs=1e-9)
    for _ in range(STEPS - len(rewards)):
        _, reward, terminated, truncated, _ = env.step(env.best_action())
        assert reward == pytest.approx(0.0, abs=1e-9)
        assert not terminated
    assert truncated


def test_it_has_a_name_and_its_own_length():
    task = make_task("dot")
    task.reset(seed=0)
    steps = 1
    while not task.step(np.zeros(2))[3]:
        steps += 1
    assert steps == STEPS
    assert task.observation_shape == (SIDE, SIDE, 2)
    assert task.observation_dtype == np.uint8
