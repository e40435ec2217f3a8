"""`mip`: max-Q by a general mixed-integer solver (Section 3.1), a model for each state in turn.

A solver's answer is trusted only for two things: its action, which is brought into the action set and evaluated in
float64, and its dual bound.  A row is called optimal when those two are within the tolerance of each other, whatever
the solver called it; a solver that breaks down on a state leaves that row flagged with the best action known.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from caql.bounds import METHODS, Method, layer_bounds
from caql.errors import CaqlError, nearest
from caql.maxq.host import as_float64, brought_inside, conclude, first_guess, is_proved, refused_on_host
from caql.maxq.interrupts import Interrupted
from caql.maxq.mip.backends import BACKENDS, FEASIBILITY, Answer, Limits, highs_relaxation, require_backend
from caql.maxq.mip.formulation import Model, formulate, tighten
from caql.maxq.problem import Problem, Solution, Status, require_support, require_threads
from caql.networks import folded_value

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Mip:
    """A branch-and-cut solver for each state in turn; needs nothing of the network but piecewise linearity."""

    name: ClassVar[str] = "mip"
    traceable: ClassVar[bool] = False
    accepts_rows: ClassVar[bool] = True
    accepts_integers: ClassVar[bool] = True

    backend: str = "scip"
    """scip, highs, gurobi or cplex."""
    time_limit: float = 60.0
    """Seconds for one state."""
    threads: int = 1
    """Threads of the backend for one state (SCIP uses one)."""
    bounds: Method = "backward"
    """Where the big-M constants come from: interval, dual, backward or tightest."""
    cut_rounds: int = 0
    """Rounds of ideal-formulation cuts at the root before the solver starts."""

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise CaqlError(f"backend = {self.backend!r} is not a solver; {nearest(self.backend, BACKENDS)}")
        if self.bounds not in METHODS:
            raise CaqlError(f"bounds = {self.bounds!r} is not a method; {nearest(self.bounds, METHODS)}")
        if not self.time_limit > 0:
            raise CaqlError(f"time_limit = {self.time_limit} must be a positive number of seconds")
        require_threads(self.threads)
        if self.cut_rounds < 0:
            raise CaqlError(f"cut_rounds = {self.cut_rounds} must be at least 0")

    def solve(self, problem: Problem, key: Any = None) -> Solution:  # noqa: ARG002  (the protocol's)
        """Each wanted row by its own model; see the module's docstring for what the rows' status means."""
        require_support(self, problem.action_set)
        require_backend(self.backend)
        network, given = as_float64(problem.network, problem.action_set)
        action_set = given.tightened()
        rows = len(network.first_bias)
        with np.errstate(invalid="ignore", over="ignore"):
            bounds = layer_bounds(network, action_set, self.bounds)
            actions = first_guess(problem, action_set, rows)
            refused = refused_on_host(problem)
            wanted = refused == 0 if problem.mask is None else np.asarray(problem.mask) & (refused == 0)
            empty, auxiliary = brought_inside(given, actions)
            values = folded_value(network, actions)
        upper = np.array(np.nan_to_num(bounds[-1][1][:, 0], nan=np.inf))
        upper[empty] = np.inf
        stopped, work = np.full(rows, int(Status.LIMIT)), np.zeros(rows, np.int64)
        stopped[empty] = int(Status.INFEASIBLE)
        absolute = np.broadcast_to(np.asarray(problem.tolerance, np.float64), rows)
        relative = np.broadcast_to(np.asarray(problem.relative_tolerance, np.float64), rows)
        interrupted = False
        open_rows = wanted & ~empty & ~is_proved(problem, values, upper)
        for row in np.flatnonzero(open_rows).tolist():
            try:
                model = formulate(network, action_set, bounds, row)
                # Nine tenths: what the solver leaves open may not be all that is left after re-evaluation.
                limits = Limits(0.9 * absolute[row] / model.unit, 0.9 * relative[row], self.time_limit, self.threads)
                start = np.concatenate([actions[row], auxiliary[row]]) if problem.warm_start is not None else None
                answer = self._search(model, limits, start)
            except KeyboardInterrupt:
                interrupted = True
                break
            except Exception as error:  # a broken backend must not end a training run
                logging.getLogger(__name__).warning("%s failed on state %d: %s", self.backend, row, error)
                stopped[row] = int(Status.FAILED)
                continue
            work[row] = answer.nodes
            if answer.point is not None:
                found = given[row].admissible(model.action(answer.point), np.float64)
                value = folded_value(network._replace(first_bias=network.first_bias[row]), found)
                if value > values[row] or not np.isfinite(values[row]):
                    actions[row], values[row] = found, value
            proved = model.unit * answer.bound
            if proved < values[row] - max(absolute[row], 1e3 * FEASIBILITY * model.unit):
                # The action at hand refutes the bound: nothing the backend says of this state can be trusted.
                logging.getLogger(__name__).warning("%s cut off the best action of state %d", self.backend, row)
                stopped[row] = int(Status.FAILED)
                continue
            upper[row] = np.fmin(upper[row], proved)
            if answer.interrupted:
                interrupted = True
                break
        stopped[~np.isfinite(values) & ~empty] = int(Status.FAILED)
        solution = conclude(problem, actions, values, upper, stopped, work)
        if interrupted:
            raise Interrupted(solution)
        return solution

    def _search(self, model: Model, limits: Limits, warm_start: Array | None) -> Answer:
        if not model.integrality.any() and not len(model.rows):
            # Every neuron is stable: Q is affine over the box.
            corner = np.where(model.objective > 0, model.upper, model.lower)
            return Answer(corner, float(model.objective @ corner) + model.offset, 0)
        if self.cut_rounds:
            model = tighten(model, highs_relaxation, self.cut_rounds)
        return BACKENDS[self.backend](model, limits, None if warm_start is None else model.point(warm_start))
