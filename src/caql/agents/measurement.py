"""What is measured about max-Q beside learning: how long a solve takes, and how far it falls short of the truth.

Nothing here changes a weight.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from caql.maxq.problem import Problem, Solution, Status
from caql.maxq.solvers import make_solver, proving_solver
from caql.networks import folded_value

Solve = Callable[[Problem, Any], Solution]


class SolveTimes:
    """Seconds of the solves of some minibatches."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.milliseconds_a_state: list[float] = []

    def time(self, solve: Solve, problem: Problem, key: Any) -> Solution:
        """The solution on the host, its time noted."""
        jax.block_until_ready(problem)
        began = time.perf_counter()
        solution = jax.block_until_ready(solve(problem, key))
        self.seconds.append(time.perf_counter() - began)
        solution = Solution(*(np.asarray(part) for part in solution))
        solved = int((solution.status != Status.SKIPPED).sum())
        self.milliseconds_a_state.append(1e3 * self.seconds[-1] / max(1, solved))
        return solution

    def statistics(self) -> dict[str, float]:
        """Mean seconds of a minibatch, and the median and spread of the milliseconds of one of its states."""
        return {
            "solve_seconds": float(np.mean(self.seconds)),
            "solve_ms": float(np.median(self.milliseconds_a_state)),
            "solve_ms_std": float(np.std(self.milliseconds_a_state)),
        }


def solve_times(solve: Solve, problems: Iterable[Problem], key: Any) -> dict[str, float]:
    """Time max-Q alone on each problem; the first is solved once more beforehand, because that may compile."""
    times = SolveTimes()
    for row, problem in enumerate(problems):
        if row == 0:
            jax.block_until_ready(solve(problem, key))
        times.time(solve, problem, key)
    return times.statistics()


def shortfalls(solve: Solve, problem: Problem, key: Any) -> dict[str, float]:
    """How far the solver's and its warm starts' values fall short of the proven max-Q, for all rows of a problem.

    Rows without an admissible action do not count; if there are no others, there is nothing to report.
    """
    problem = problem._replace(mask=None)
    judge = make_solver(proving_solver(problem.action_set))
    proved = judge.solve(problem._replace(tolerance=1e-6, relative_tolerance=1e-6), None)
    some = np.asarray(proved.status) != Status.INFEASIBLE
    if not some.any():
        return {}
    true = np.asarray(proved.values)[some]
    found = np.asarray(solve(problem, key).values)[some]
    guessed = np.asarray(folded_value(problem.network, jnp.asarray(problem.warm_start)))[some]
    return {
        "audit_solver_shortfall": float(np.mean(true - found)),
        "audit_solver_worst": float(np.max(true - found)),
        "audit_action_shortfall": float(np.mean(true - guessed)),
    }
