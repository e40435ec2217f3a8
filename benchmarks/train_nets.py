"""Train the Q-networks that `caql bench maxq` measures solvers on, and write them as package data.

    python benchmarks/train_nets.py [TASK ...]

CAQL with gradient ascent for 60,000 training steps; HalfCheetah and Ant, which learn later, for 200,000.  Ranges are
those of the paper's latency table (Pendulum, which is not in it, at its default).  Each file holds the Q-network's
layers, the action bounds and 128 states drawn from the replay buffer.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from caql.config import RunConfig
from caql.runs.training import Training

TASKS = {"pendulum": 2.0, "hopper": 1.0, "walker2d": 0.5, "halfcheetah": 0.5, "ant": 0.25, "humanoid": 0.25}
STEPS = {"halfcheetah": 200_000, "ant": 200_000}
DATA = Path(__file__).parent.parent / "src" / "caql" / "bench" / "networks"


def train(task: str) -> None:
    training = Training(RunConfig(task, action_range=TASKS[task], train_steps=STEPS.get(task, 60_000)))
    for epoch in training.epochs():
        if epoch.evaluation and epoch.train_step % 10_000 == 0:
            print(task, epoch.train_step, round(epoch.evaluation["return"], 1), flush=True)
    layers = training.agent.q_network.layers(np.asarray(training.state.q.vector))
    tensors = {"low": training.task.low, "high": training.task.high}
    for index, (weights, bias) in enumerate(layers):
        tensors |= {f"weights_{index}": np.ascontiguousarray(weights), f"bias_{index}": np.ascontiguousarray(bias)}
    rows = np.random.default_rng(0).choice(len(training.replay), 128, replace=False)
    tensors["states"] = np.ascontiguousarray(training.replay.data.states[rows])
    DATA.mkdir(parents=True, exist_ok=True)
    save_file(tensors, DATA / f"{task}.safetensors")


if __name__ == "__main__":
    for name in sys.argv[1:] or TASKS:
        train(name)
