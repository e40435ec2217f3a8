"""How long a max-Q problem takes, by solver, on the networks of a run in training (Appendix E.1).

The probe follows a run as its reporter: at some evaluations it poses a fresh minibatch and lets every solver
answer the very same question, one thread each, so that the solvers differ in nothing but themselves.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from caql.maxq.problem import Problem, Solution
from caql.maxq.solvers import make_solver
from caql.runs.progress import Silent
from caql.runs.training import Epoch, Training
from caql.whole_files import write_atomically

SOLVERS: dict[str, dict[str, Any]] = {"ga": {}, "cem": {}, "exact": {"threads": 1}, "mip": {}}
ROWS = {"mip": 4}
"""States to ask a solver about, where all 64 would take longer than the training itself."""
PROBES = 40
"""Measurements over a whole run."""
GAP = 1e-4
"""Relative gap of the solvers that prove one (Appendix D); the others stop at an absolute 1e-6."""


class Probe(Silent):
    """Writes `latency.jsonl` beside a run's metrics: one row of milliseconds per state and work, by solver."""

    def __init__(self, folder: Path, solvers: dict[str, dict[str, Any]] = SOLVERS) -> None:
        self.path = folder / "latency.jsonl"
        self.solvers = {name: make_solver(name, **settings) for name, settings in solvers.items()}
        self.compiled: dict[str, Callable[[Problem, Any], Solution]] = {
            name: jax.jit(solver.solve) if solver.traceable else solver.solve for name, solver in self.solvers.items()
        }
        self.rows: list[dict[str, Any]] = []
        self.training: Training | None = None
        self.seen = 0

    def follow(self, training: Training) -> contextlib.AbstractContextManager[None]:
        self.training, self.seen = training, len(training.records)
        if self.path.exists():
            old = [json.loads(line) for line in self.path.read_text().splitlines()]
            self.rows = [row for row in old if row["train_step"] <= training.train_step]
        return contextlib.nullcontext()

    def epoch(self, epoch: Epoch) -> None:
        training = self.training
        assert training is not None
        # Before the warm-up has ended there is nothing to draw a minibatch from.
        if epoch.evaluation is None or len(training.replay) < training.config.batch_size:
            return
        config = training.config
        every = max(1, config.train_steps // max(config.evaluate_every, 1) // PROBES)
        self.seen += 1
        if self.seen % every:
            return
        self.rows.append({"train_step": epoch.train_step, **self._measure(training)})
        text = "".join(json.dumps(row) + "\n" for row in self.rows)
        write_atomically(self.path, lambda file: file.write_text(text))

    def _measure(self, training: Training) -> dict[str, Any]:
        batches = training.replay.sample(np.random.default_rng(training.train_step), 1, training.config.batch_size)
        batch = batches.pick(0)
        problem = training.agent.ask(training.state, batch).problem._replace(mask=None)
        found: dict[str, dict[str, float]] = {"milliseconds": {}, "work": {}}
        for name, solver in self.solvers.items():
            rows = ROWS.get(name, training.config.batch_size)
            gap = 0.0 if solver.traceable else GAP
            question = _first(problem, rows)._replace(tolerance=1e-6, relative_tolerance=gap)
            solve = self.compiled[name]
            if not self.rows:
                _finish(solve(question, jax.random.key(0)))
            before = time.perf_counter()
            answer = _finish(solve(question, jax.random.key(1)))
            found["milliseconds"][name] = 1000.0 * (time.perf_counter() - before) / rows
            found["work"][name] = float(np.mean(answer.work))
        return found


def _finish(answer: Solution) -> Solution:
    """Wait for JAX, which answers before it has computed."""
    return Solution(*(jax.device_get(part) for part in answer))


def _first(problem: Problem, rows: int) -> Problem:
    """The problem of its first states alone."""
    network = problem.network._replace(first_bias=problem.network.first_bias[:rows])
    start = None if problem.warm_start is None else problem.warm_start[:rows]
    return problem._replace(network=network, warm_start=start)
