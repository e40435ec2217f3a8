"""Train the Q-networks that `caql bench maxq` measures solvers on, and write them as package data.

    python benchmarks/train_nets.py [NAME ...]

A name is a task, for a network of 32 x 16, or a task with the units of its hidden layers, hopper-64x64.  CAQL with
gradient ascent for 60,000 training steps; some networks for more, and larger ones for fewer, see `STEPS`.  Ranges are
those of the paper's latency table (Pendulum, which is not in it, at its default).  Each file holds the Q-network's
layers, the action bounds and 128 states drawn from the replay buffer.  It is written every 10,000 steps.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from caql.agents.caql import CAQLConfig
from caql.config import RunConfig
from caql.runs.training import Training

TASKS = {"pendulum": 2.0, "hopper": 1.0, "walker2d": 0.5, "halfcheetah": 0.5, "ant": 0.25, "humanoid": 0.25}
SIZES = ("hopper-64x64", "halfcheetah-64x64", "hopper-200x100", "hopper-256x256", "halfcheetah-256x256")
STEPS = {
    "halfcheetah": 200_000,
    "ant": 200_000,
    "hopper-64x64": 40_000,
    "halfcheetah-64x64": 40_000,
    "hopper-200x100": 20_000,
    "hopper-256x256": 40_000,
    "halfcheetah-256x256": 40_000,
}
DATA = Path(__file__).parent.parent / "src" / "caql" / "bench" / "networks"


def configuration(name: str) -> RunConfig:
    """The run that a network comes from; large ones are evaluated seldom, because episodes cost more than they tell."""
    task, _, size = name.partition("-")
    steps = STEPS.get(name, 60_000)
    if not size:
        return RunConfig(task, action_range=TASKS[task], train_steps=steps)
    hidden = tuple(map(int, size.split("x")))
    return RunConfig(
        task, action_range=TASKS[task], train_steps=steps, evaluate_every=10_000, agent=CAQLConfig(hidden=hidden)
    )


def write(training: Training, name: str) -> None:
    """The network at hand, and states of the replay buffer."""
    layers = training.agent.q_network.layers(np.asarray(training.state.q.vector))
    tensors = {"low": training.task.low, "high": training.task.high}
    for index, (weights, bias) in enumerate(layers):
        tensors |= {f"weights_{index}": np.ascontiguousarray(weights), f"bias_{index}": np.ascontiguousarray(bias)}
    rows = np.random.default_rng(0).choice(len(training.replay), 128, replace=False)
    tensors["states"] = np.ascontiguousarray(training.replay.data.states[rows])
    DATA.mkdir(parents=True, exist_ok=True)
    save_file(tensors, DATA / f"{name}.safetensors")


def train(name: str) -> None:
    training = Training(configuration(name))
    for epoch in training.epochs():
        if epoch.evaluation and epoch.train_step and epoch.train_step % 10_000 == 0:
            print(name, epoch.train_step, round(epoch.evaluation["return"], 1), flush=True)
            write(training, name)
    write(training, name)


if __name__ == "__main__":
    for each in sys.argv[1:] or (*TASKS, *SIZES):
        train(each)
