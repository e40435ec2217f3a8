"""What a CAQL-GA run spends its time on: gradient steps, physics, acting, starting.  `make bench` prints it.

    python benchmarks/training_step.py [--task Hopper] [--no-start-up]

Everything is measured in one run, and what matters is printed as a ratio.
"""

from __future__ import annotations

import os

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from caql.agents import config_class, make_agent
from caql.agents.agent import Spec
from caql.config import RunConfig
from caql.environments import make_task
from caql.runs.training import Training

STEPS, ROWS = 20, 64
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "recommended preset": {"critics": 2, "hidden": (64, 64), "action_hidden": (64, 64)},
    "dual filter": {"dual_filter": True},
    "clustering": {"cluster_radius": 0.25},
    "filter + clustering + dynamic tolerance": {
        "dual_filter": True,
        "cluster_radius": 0.25,
        "dynamic_tolerance": 1.0,
    },
    "Dual": {"dual_only": True},
}


def best_seconds(call: Callable[[], Any], seconds: float = 2.0) -> float:
    """The fastest of as many calls as fit into the time: other processes can only slow a call down."""
    call()
    found, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return min(found)


def updates(agent: Any, batches: Any) -> float:
    """Seconds per gradient step inside the jitted scan."""
    box = [agent.init(jax.random.key(0))]

    def call() -> None:
        box[0], _ = agent.update(box[0], batches, jax.random.key(1))
        jax.block_until_ready(box[0])

    return best_seconds(call) / STEPS


def start_up(cache: str) -> float:
    """Seconds from a fresh process to the end of the first gradient steps."""
    command = "train Hopper --train-steps 20 --evaluate-every 0 --out"
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", "from caql.cli import main; main()", *command.split(), f"{folder}/run"],
            check=True,
            env=os.environ | {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2"},
            stdout=subprocess.DEVNULL,
        )
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="Hopper")
    parser.add_argument("--no-start-up", action="store_true")
    options = parser.parse_args()

    training = Training(RunConfig(options.task, train_steps=400, evaluate_every=0))
    for _ in training.epochs():
        pass
    batches = training.replay.sample(np.random.default_rng(0), STEPS, ROWS)
    task = make_task(options.task)
    actions = np.random.default_rng(0).uniform(task.low, task.high, (200, len(task.low))).astype(np.float32)

    def episode() -> int:
        task.reset(seed=0)
        for count, action in enumerate(actions, 1):
            if any(task.step(action)[2:4]):
                return count
        return len(actions)

    physics = best_seconds(episode) / episode()
    policy = training.agent.policy(training.state, 0)
    state, noise = training.replay.data.states[0], np.zeros(len(task.low), np.float32)

    def act() -> None:
        for _ in range(100):
            policy.explore(state, noise)

    acting = best_seconds(act, 0.5) / 100
    spec = Spec(task.observation_size, task.action_set)
    print(f"{options.task}: a physics step takes {physics * 1e6:.0f} us")
    print(f"  acting                     {acting * 1e6:6.1f} us a step   {acting / physics:5.2f} of the physics")
    plain = 0.0
    for name, settings in VARIANTS.items():
        seconds = updates(make_agent(config_class("caql")(**settings), spec), batches)
        plain = plain or seconds
        ratio = STEPS * seconds / (200 * physics)
        print(
            f"  CAQL-GA, {name}: {seconds * 1e6:.0f} us a training step, {seconds / plain:.2f} of the plain one; "
            f"20 of them are {ratio:.2f} of 200 steps' physics"
        )
    for name in ("naf", "ddpg", "td3", "sac"):
        seconds = updates(make_agent(config_class(name)(), spec), batches)
        print(f"  {name}: {seconds * 1e6:.0f} us a training step, {seconds / plain:.2f} of CAQL-GA's")
    if options.no_start_up:
        return
    with tempfile.TemporaryDirectory() as cache:
        cold, warm = start_up(cache), start_up(cache)
    print(
        f"start to the end of the first 20 training steps: {cold:.1f} s cold, {warm:.1f} s from the compilation cache"
    )
    code = "import time; t = time.perf_counter(); import caql; print(time.perf_counter() - t)"
    quick = float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    print(f"import caql: {quick:.3f} s")


if __name__ == "__main__":
    main()
