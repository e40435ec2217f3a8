"""What an action set costs a training run: Hopper under H+M against Hopper without, both with the exact solver.

    python benchmarks/constrained_training.py [--train-steps 4000] [--solver exact] [--tasks Hopper-v5 H+M]

Both runs have the same robot, episode length, network and seed, and take turns: an epoch of one (an episode, then 20
training steps), an epoch of the other.  Times are processor time of one thread: on an idle machine the same as the
time on the wall, on a busy one the better estimate of it.  Epochs before learning begins, and the first that learns,
which compiles, are left out.
"""

from __future__ import annotations

import os

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import argparse
import time
from typing import Any, NamedTuple

import numpy as np

from caql.agents.caql import CAQLConfig
from caql.config import RunConfig
from caql.maxq.solvers import make_solver, proves
from caql.runs.training import Training

BAR = 2.5
EPISODE_STEPS = 200


class Turn(NamedTuple):
    """One epoch: processor seconds of all of it and of its updates, training and environment steps, its return."""

    seconds: float
    updating: float
    train_steps: int
    environment_steps: int
    episode_return: float


class Run:
    """A training run that is taken forward one epoch at a time."""

    def __init__(self, task: str, solver: str, train_steps: int) -> None:
        settings = {"threads": 1} if proves(solver) else {}
        agent = CAQLConfig(solver=make_solver(solver, **settings), relative_tolerance=1e-4)
        config = RunConfig(
            task, train_steps=train_steps, episode_steps=EPISODE_STEPS, evaluate_every=0, warm_up=1000, agent=agent
        )
        self.training = Training(config)
        self.epochs = self.training.epochs()
        self.turns: list[Turn] = []
        self._updating = 0.0
        update = self.training.agent.update

        def measured(*arguments: Any) -> Any:
            began = time.process_time()
            answer = update(*arguments)
            np.asarray(answer[0].step)  # JAX answers before it has computed
            self._updating = time.process_time() - began
            return answer

        self.training.agent.update = measured  # type: ignore[method-assign]

    def turn(self) -> bool:
        """One epoch; whether there was one."""
        before = self.training.train_step, self.training.environment_steps
        self._updating = 0.0
        began = time.process_time()
        epoch = next(self.epochs, None)
        seconds = time.process_time() - began
        if epoch is not None:
            steps = epoch.train_step - before[0], epoch.environment_steps - before[1]
            self.turns.append(Turn(seconds, self._updating, *steps, epoch.episode_return))
        return epoch is not None

    def learned(self) -> list[Turn]:
        """The turns that count."""
        return [turn for turn in self.turns if turn.train_steps][1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train-steps", type=int, default=4000)
    parser.add_argument("--solver", default="exact")
    parser.add_argument(
        "--tasks", nargs=2, default=["Hopper-v5", "H+M"], help="the run without a set, and the one with"
    )
    options = parser.parse_args()
    runs = {task: Run(task, options.solver, options.train_steps) for task in options.tasks}
    while True:
        taken = [run.turn() for run in runs.values()]
        if not all(taken):
            break
    found = {}
    for task, run in runs.items():
        turns = run.learned()
        steps, lived = sum(turn.train_steps for turn in turns), sum(turn.environment_steps for turn in turns)
        whole, updating = sum(turn.seconds for turn in turns), sum(turn.updating for turn in turns)
        found[task] = np.array([whole / steps, updating / steps, (whole - updating) / lived])
        print(
            f"{task}: {1e3 * found[task][0]:.3f} ms a training step in all, {1e3 * found[task][1]:.3f} ms of it "
            f"learning; {1e6 * found[task][2]:.0f} us an environment step; {steps} training steps, {lived} "
            f"environment steps, return of the last ten episodes {np.mean([t.episode_return for t in turns[-10:]]):.0f}"
        )
    first, second = options.tasks
    whole, learning, acting = found[second] / found[first]
    print(
        f"{second} / {first}, {options.solver}: {whole:.2f} in all (at most {BAR}), {learning:.2f} learning, "
        f"{acting:.2f} an environment step"
    )


if __name__ == "__main__":
    main()
