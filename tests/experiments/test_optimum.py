"""The optimal policy on Pendulum: the physics, the stored result, and how far runs are from it."""

import json
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest

from caql.config import from_json
from caql.environments import make_task
from caql.experiments.optimum import evaluation_starts, induct, interpolate, optimal_curves, replay, step
from caql.experiments.report.regret import last_window_regret, optimal_return
from caql.experiments.report.statistics import best_return
from caql.runs.episodes import evaluate_policy
from caql.runs.streams import Purpose, reset_seed

STORED = json.loads(files("caql.experiments").joinpath("optimum.json").read_text())
CONFIG = from_json({"task": "Pendulum", "action_range": 1.0})


def test_the_physics_are_gymnasiums():
    task = make_task("Pendulum", 1.3)
    task.reset(seed=3)
    angle, speed = task.unwrapped.state
    rng = np.random.default_rng(0)
    for torque in rng.uniform(-1.3, 1.3, 100).astype(np.float32):
        angle, speed, reward = step(angle, speed, float(torque))
        _, expected, *_ = task.step(np.asarray([torque]))
        # Gymnasium computes with a torque of 32 bits.
        assert reward == pytest.approx(expected, abs=1e-5)
        assert (angle, speed) == pytest.approx(tuple(task.unwrapped.state), abs=1e-5)


def test_interpolation_is_linear_in_speed_and_goes_round_in_angle():
    speeds = np.linspace(-8, 8, 5)
    table = np.repeat(speeds[None], 4, axis=0)
    assert interpolate(table, 0.3, 1.7) == pytest.approx(1.7)
    assert interpolate(table, 0.3, 8.0) == pytest.approx(8.0)
    # Between two speeds only their own values count, also between the fastest two.
    assert interpolate(table**2, 0.3, 6.0) == pytest.approx((4.0**2 + 8.0**2) / 2)
    angles = np.repeat(np.arange(4.0)[:, None], 5, axis=1)
    assert interpolate(angles, -np.pi, 0.0) == pytest.approx(0.0)
    assert interpolate(angles, np.pi, 0.0) == pytest.approx(0.0)
    assert interpolate(angles, np.pi / 4, 0.0) == pytest.approx(2.5)
    # Between the last point and the first one again.
    assert interpolate(angles, 3 * np.pi / 4, 0.0) == pytest.approx(1.5)


def test_induction_chooses_the_better_torque_and_counts_the_steps():
    values = induct(31, 3, np.asarray([-1.0, 0.0, 1.0]))
    assert values.shape == (3, 31, 31)
    assert not values[2].any()
    # One step before the end only the reward counts, and no torque is cheapest.
    angle, speed = -np.pi + 2 * np.pi * 4 / 31, -8.0 + 16.0 * 9 / 30
    assert values[1][4, 9] == pytest.approx(step(angle, speed, 0.0)[2])
    assert (values[0] < values[1]).all()


def test_starts_are_those_of_a_runs_evaluations():
    starts = evaluation_starts(2, 3)
    task = make_task("Pendulum", 1.0)
    task.reset(seed=reset_seed(1, Purpose.EVALUATION, 2, 7))
    assert tuple(starts[1, 2, 7]) == pytest.approx(tuple(task.unwrapped.state))

    class Still:
        def act(self, state):
            return np.zeros(1, np.float32)

    found = evaluate_policy(Still(), task, 10, (1, 2))
    # With no torque to choose from, the optimal policy is the one that does nothing.
    assert replay(np.zeros((200, 9, 9)), starts[1, 2], np.zeros(1)) == pytest.approx(found, abs=1e-3)


def test_a_coarse_grid_comes_close_to_the_stored_result():
    curves = optimal_curves(2.0, evaluation_starts(1, 3), points=61, actions=9)
    assert curves.shape == (1, 3)
    assert curves[0] == pytest.approx(STORED["Pendulum 2"][0][:3], rel=0.08)


def test_the_stored_optimum():
    for size, mean, percentile in ((0.66, -342, -294), (1, -241, -207), (2, -137, -122)):
        curves = np.asarray(STORED[f"Pendulum {size:g}"])
        assert curves.shape == (10, 201)
        assert curves[:3].mean() == pytest.approx(mean, abs=1)
        assert np.mean([best_return(curve) for curve in curves[:3]]) == pytest.approx(percentile, abs=1)
        assert optimal_return(("Pendulum", size)) == pytest.approx(curves.mean())
    assert optimal_return(("Hopper", 1.0)) is None
    assert optimal_return(("Pendulum", 0.5)) is None


def test_regret_is_to_the_optimum_from_the_same_starts():
    best = np.asarray(STORED["Pendulum 1"][4])
    returns = best[:50] - 3.0
    returns[:44] -= 100
    assert last_window_regret(replace(CONFIG, seed=4), returns) == pytest.approx(3.0)
    assert last_window_regret(replace(CONFIG, seed=4, action_range=1), returns) == pytest.approx(3.0)
    mean = optimal_return(("Pendulum", 1.0))
    beyond = len(STORED["Pendulum 1"])
    for other in (
        replace(CONFIG, seed=beyond),
        replace(CONFIG, seed=99),
        replace(CONFIG, seed=4, evaluation_episodes=3),
    ):
        assert last_window_regret(other, returns) == pytest.approx(mean - returns[-6:].mean())
    assert last_window_regret(CONFIG, np.full(500, -300.0)) == pytest.approx(mean + 300)
    assert last_window_regret(CONFIG, np.asarray([-300.0, -310.0])) == pytest.approx(
        np.mean(STORED["Pendulum 1"][0][:2]) + 305
    )


@pytest.mark.parametrize(
    "changes", [{"task": "Hopper"}, {"action_range": None}, {"action_range": 0.5}, {"episode_steps": 100}]
)
def test_where_the_optimum_is_not_known_there_is_no_regret(changes):
    assert last_window_regret(replace(CONFIG, **changes), np.full(20, -300.0)) is None
