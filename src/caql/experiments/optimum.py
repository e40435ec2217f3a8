"""What the best policy on Pendulum scores: the yardstick of the report's regret.

Pendulum has two state variables and one action, so its optimal control can be computed: backward induction

    V_t(x) = max_a r(x, a) + V_{t+1}(f(x, a)),    t = 199, ..., 0,

on a grid of angles and speeds, with linear interpolation between grid points; the episode's 200 steps are the
horizon, and nothing is discounted, as in an evaluation.  The policy that is greedy for V_t is then
replayed from the start states of the runs' own evaluations, because some starts are luckier than others: a
run and the optimum can be compared evaluation by evaluation.

    python -m caql.experiments.optimum        # about two minutes on an idle core; writes optimum.json beside this file
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np

from caql.environments import TASKS, make_task
from caql.runs.streams import Purpose, reset_seed

F = TypeVar("F", bound=Callable[..., Any])
POINTS = 301
"""Grid points for the angle, and for the speed."""
ACTIONS = 41
"""Torques tried at a grid point."""
REPLAY_ACTIONS = 101
"""Torques tried at a step of the replay."""
SEEDS = 10
"""Runs' seeds whose evaluations are replayed: 0, 1, ..."""
EVALUATIONS = 201
EPISODES = 10
STEPS = 200
FASTEST = 8.0
TIME_STEP = 0.05


def compiled(function: F) -> F:
    """The function as machine code, kept for the next time."""
    found: F = numba.njit(cache=True)(function)
    return found


@compiled
def step(angle: float, speed: float, torque: float) -> tuple[float, float, float]:
    """Gymnasium's Pendulum-v1 (g = 10, m = l = 1): the next angle and speed, and the reward."""
    normal = (angle + np.pi) % (2 * np.pi) - np.pi
    reward = -(normal**2 + 0.1 * speed**2 + 0.001 * torque**2)
    faster = speed + (15.0 * np.sin(angle) + 3.0 * torque) * TIME_STEP
    faster = min(max(faster, -FASTEST), FASTEST)
    return angle + faster * TIME_STEP, faster, reward


@compiled
def interpolate(values: np.ndarray, angle: float, speed: float) -> float:
    """V at any state, from a table (angles, speeds); angles go round, speeds end at the fastest."""
    angles, speeds = values.shape
    across = ((angle + np.pi) / (2 * np.pi) % 1.0) * angles
    left = int(across)
    up = (speed + FASTEST) / (2 * FASTEST) * (speeds - 1)
    below = min(int(up), speeds - 2)
    x, y = across - left, up - below
    left, right = left % angles, (left + 1) % angles
    low = (1 - x) * values[left, below] + x * values[right, below]
    high = (1 - x) * values[left, below + 1] + x * values[right, below + 1]
    return (1 - y) * low + y * high


@compiled
def best_torque(values: np.ndarray, angle: float, speed: float, torques: np.ndarray) -> tuple[float, float]:
    """The torque with the largest reward and following value, and their sum."""
    best, found = torques[0], -np.inf
    for torque in torques:
        following, faster, reward = step(angle, speed, torque)
        total = reward + interpolate(values, following, faster)
        if total > found:
            best, found = torque, total
    return best, found


@compiled
def induct(points: int, steps: int, torques: np.ndarray) -> np.ndarray:
    """V_1, ..., V_steps, each (points, points); the last is zero.  Row t is what follows step t."""
    values = np.zeros((steps, points, points))
    for t in range(steps - 1, 0, -1):
        for i in range(points):
            angle = -np.pi + 2 * np.pi * i / points
            for j in range(points):
                speed = -FASTEST + 2 * FASTEST * j / (points - 1)
                values[t - 1, i, j] = best_torque(values[t], angle, speed, torques)[1]
    return values


@compiled
def replay(values: np.ndarray, starts: np.ndarray, torques: np.ndarray) -> np.ndarray:
    """Returns of the greedy policy from (n, 2) starts."""
    returns = np.zeros(len(starts))
    for row in range(len(starts)):
        angle, speed = starts[row]
        for t in range(len(values)):
            torque, _ = best_torque(values[t], angle, speed, torques)
            angle, speed, reward = step(angle, speed, torque)
            returns[row] += reward
    return returns


def evaluation_starts(seeds: int = SEEDS, evaluations: int = EVALUATIONS) -> np.ndarray:
    """(seeds, evaluations, episodes, 2): angle and speed at the start of a run's every evaluation episode."""
    task = make_task("Pendulum")
    starts = np.empty((seeds, evaluations, EPISODES, 2))
    for index in np.ndindex(*starts.shape[:3]):
        seed, evaluation, episode = index
        task.reset(seed=reset_seed(seed, Purpose.EVALUATION, evaluation, episode))
        starts[index] = task.unwrapped.state
    return starts


def optimal_curves(size: float, starts: np.ndarray, points: int = POINTS, actions: int = ACTIONS) -> np.ndarray:
    """(seeds, evaluations): the mean return, from each evaluation's starts, of the optimal policy with torques in
    [-size, size]."""
    values = induct(points, STEPS, np.linspace(-size, size, actions))
    returns = replay(values, starts.reshape(-1, 2), np.linspace(-size, size, REPLAY_ACTIONS))
    return np.asarray(returns.reshape(starts.shape[:3]).mean(axis=2))


def main() -> None:
    """Compute the optimum at the paper's three ranges and store it."""
    starts = evaluation_starts()
    how = {"grid": [POINTS, POINTS], "torques": ACTIONS, "steps": STEPS, "episodes": EPISODES}
    rows = [f'  "made_by": "python -m caql.experiments.optimum",\n  "how": {json.dumps(how)}']
    for size in TASKS["Pendulum"].ranges:
        curves = optimal_curves(size, starts)
        print(f"Pendulum {size:g}: {curves.mean():.1f}", flush=True)
        lines = ",\n    ".join(json.dumps(curve) for curve in curves.round(1).tolist())
        rows.append(f'  "Pendulum {size:g}": [\n    {lines}\n  ]')
    Path(__file__).with_name("optimum.json").write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
