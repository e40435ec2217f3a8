"""What a training step costs with a proof in it, beside the same step with gradient ascent.

    python benchmarks/exact_step.py [--task HalfCheetah --action-range 0.5] [--steps 500 2000 10000 30000]

One CAQL-GA run is trained, and at each of the steps its networks and 20 minibatches of its replay buffer are kept, in
`--folder`, so that the next call measures the same ones.  Both kinds of step then start from the same networks, round
about, and the best of the rounds counts.  Times are processor times of one thread: other processes lengthen a wall
clock, and they can only slow a round down.

Where the time goes is measured by asking less: a gap so wide that the first bound closes every state (presolve and
first bound), and a limit of one node (with the first linear program, its climb and its split).
"""

from __future__ import annotations

import os

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from caql.agents import make_agent
from caql.agents.caql import CAQLConfig
from caql.config import RunConfig
from caql.maxq.exact.solver import Exact
from caql.maxq.problem import Problem
from caql.runs.training import Training, task_spec

BATCHES, ROWS = 20, 64
GAP = 1e-4
"""Relative; CAQL's own default is an absolute gap of 1e-6, which takes about as many nodes."""


def keep(training: Training, path: Path) -> None:
    """Write down the agent's state and minibatches of the replay buffer."""
    batches = training.replay.sample(np.random.default_rng(0), BATCHES, ROWS)
    leaves = jax.tree.leaves(training.state)
    arrays = {f"state_{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    arrays |= {f"batch_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(batches))}
    np.savez(path, **arrays)


def train(config: RunConfig, wanted: dict[int, Path]) -> None:
    """Train once, keeping what is missing on the way."""
    training = Training(config)
    for epoch in training.epochs():
        if epoch.train_step in wanted:
            keep(training, wanted[epoch.train_step])


def read(path: Path, training: Training) -> tuple[Any, Any]:
    """The agent's state and the minibatches, in the shape that they had."""
    with np.load(path) as arrays:
        state = jax.tree.structure(training.state)
        batch = jax.tree.structure(training.replay.data)
        return (
            jax.tree.unflatten(state, [arrays[f"state_{i}"] for i in range(state.num_leaves)]),
            jax.tree.unflatten(batch, [arrays[f"batch_{i}"] for i in range(batch.num_leaves)]),
        )


def best_of(rounds: int, *calls: Callable[[], float]) -> list[float]:
    """The shortest time that each call says it took, taken in turns; the first turn compiles."""
    turns = [[call() for call in calls] for _ in range(rounds + 1)]
    return np.min(turns[1:], axis=0).tolist()


def updating(agent: Any, state: Any, batches: Any) -> Callable[[], float]:
    """A call that learns the minibatches, always from the same state: its processor time."""
    key = jax.random.key(1)

    def call() -> float:
        copy = jax.block_until_ready(jax.tree.map(jax.numpy.array, state))  # an update consumes what it is given
        began = time.process_time()
        jax.block_until_ready(agent.update(copy, batches, key))
        return time.process_time() - began

    return call


def solving(solver: Exact, problems: list[Problem]) -> Callable[[], float]:
    """A call that answers problems on the host: its processor time."""

    def call() -> float:
        began = time.process_time()
        for problem in problems:
            solver.solve(problem)
        return time.process_time() - began

    return call


def questions(agent: Any, state: Any, batches: Any) -> list[Problem]:
    """The max-Q problems of the minibatches, on the host."""
    asked = [agent.ask(state, jax.tree.map(lambda leaf, i=i: leaf[i], batches)).problem for i in range(BATCHES)]
    return [jax.tree.map(np.asarray, problem) for problem in asked]


def measure(path: Path, training: Training, rounds: int) -> None:
    """Print a row of figures for the networks in a file."""
    state, batches = read(path, training)
    spec = task_spec(training.task, training.config)
    ascent = make_agent(CAQLConfig(), spec)
    exact = make_agent(CAQLConfig(solver=Exact(threads=1), relative_tolerance=GAP), spec)
    found = best_of(rounds, updating(ascent, state, batches), updating(exact, state, batches))
    steps = [seconds / BATCHES * 1e3 for seconds in found]
    asked = questions(exact, state, batches)
    loose = [problem._replace(tolerance=np.full(ROWS, 1e6, np.float32)) for problem in asked]
    whole, first = Exact(threads=1), Exact(threads=1, node_limit=1)
    times = best_of(rounds, solving(whole, loose), solving(first, asked), solving(whole, asked))
    nodes = np.concatenate([whole.solve(problem).work for problem in asked])
    bound, root, all_of_it = (seconds / (BATCHES * ROWS) * 1e6 for seconds in times)
    later = max(float(nodes.mean()) - 1.0, 1e-9)
    print(
        f"{path.stem:>28}: a step takes {steps[0]:.3f} ms with ga, {steps[1]:.3f} ms with exact,"
        f" {steps[1] / steps[0]:.1f} times as long;"
        f" nodes a state {nodes.mean():.1f} (median {np.median(nodes):.0f}, most {nodes.max()});"
        f" a state {all_of_it:.1f} us: presolve and first bound {bound:.1f}, rest of the root {root - bound:.1f},"
        f" each later node {(all_of_it - root) / later:.2f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--task", default="HalfCheetah")
    parser.add_argument("--action-range", type=float, default=0.5)
    parser.add_argument("--steps", type=int, nargs="+", default=[500, 2_000, 10_000, 30_000])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--folder", type=Path, default=Path("build/exact_step"))
    options = parser.parse_args()

    options.folder.mkdir(parents=True, exist_ok=True)
    name = f"{options.task.lower()}-{options.action_range:g}"
    paths = {step: options.folder / f"{name}-{step}.npz" for step in options.steps}
    config = RunConfig(
        options.task, action_range=options.action_range, train_steps=max(options.steps), evaluate_every=0
    )
    missing = {step: path for step, path in paths.items() if not path.exists()}
    if missing:
        train(config, missing)
    training = Training(config)
    for path in paths.values():
        measure(path, training, options.rounds)


if __name__ == "__main__":
    main()
