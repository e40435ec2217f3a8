"""What an environment step costs beyond MuJoCo's own: Gymnasium's way, the short way, and the bare `mj_step`.

    python benchmarks/environment_steps.py [--steps 2000] [--rounds 5]

Each robot goes through the same actions from the same reset, three times a round: through `Task.step` (Gymnasium's
way, with `info`), through `Task.advance` (what training and evaluating use), and by `mj_step` alone.  Episodes last 200
steps, or until the robot falls.  Times are processor time, the best round of each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np

from caql.environments import TASKS, make_task
from caql.tasks.constrained import PROBLEMS

ROBOTS = [name for name in TASKS if name != "Pendulum"] + sorted({problem.id for problem in PROBLEMS.values()})


def seconds(task: Any, actions: Any, step: Callable[[Any], Any]) -> float:
    """Processor seconds a step, without resets; `step` says whether the episode has ended."""
    spent, seed = 0.0, 0
    task.reset(seed=seed)
    began = time.process_time()
    for action in actions:
        if step(action):
            spent += time.process_time() - began
            seed += 1
            task.reset(seed=seed)
            began = time.process_time()
    return (spent + time.process_time() - began) / len(actions)


def measure(name: str, steps: int, rounds: int) -> list[float]:
    """Seconds a step: Gymnasium's way, the short way, MuJoCo alone."""
    task = make_task(name, episode_steps=200)
    rng = np.random.default_rng(0)
    actions = rng.uniform(task.low, task.high, (steps, len(task.low))).astype(np.float32)
    robot: Any = task.unwrapped
    model, data, frames = robot.model, robot.data, robot.frame_skip
    ends: list[bool] = []

    def recorded(action: Any) -> bool:
        answer = task.advance(action)
        ends.append(answer[2] or answer[3])
        return ends[-1]

    seconds(task, actions, recorded)

    def bare() -> Callable[[Any], bool]:
        told = iter(ends)

        def step(action: Any) -> bool:
            data.ctrl[:] = action
            mujoco.mj_step(model, data, nstep=frames)
            return next(told)

        return step

    ways: list[Callable[[], Callable[[Any], bool]]] = [
        lambda: lambda action: any(task.step(action)[2:4]),
        lambda: lambda action: any(task.advance(action)[2:4]),
        bare,
    ]
    return [
        min(row) for row in zip(*([seconds(task, actions, way()) for way in ways] for _ in range(rounds)), strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(f"{'':16}{'Gymnasium':>12}{'advance':>12}{'mj_step':>12}   ratios to mj_step")
    for name in ROBOTS:
        found = measure(name, options.steps, options.rounds)
        times = "".join(f"{1e6 * each:9.1f} us" for each in found)
        print(f"{name:16}{times}   {found[0] / found[2]:.2f} -> {found[1] / found[2]:.2f}", flush=True)


if __name__ == "__main__":
    main()
