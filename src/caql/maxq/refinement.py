"""Networks with smooth activations: best-first splitting of the actions until the gap is met.

On a box every smooth activation is a straight line with an error that falls with the square of the box's width
(`graphs.tangents`), and the rest is solved exactly, over the actions of the box that the set admits.  So each box has
an upper bound,

    max over the set within the box of the lowered network, plus the lowering's error,

minus infinity if the set has no action there, and the largest of them over all boxes that are not split yet bounds the
true network.  The box with the largest bound is split in two across the side along which the true network bends most,
between two whole numbers where the action is one.  Each box also offers its maximiser; where that is better than the
best action so far, an ascent inside the set, whole numbers held, climbs from it to a local maximum of the true network.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np

from caql.actions import ActionSet
from caql.graphs.expressions import gamma
from caql.graphs.lowering import lower
from caql.graphs.objective import Objective
from caql.maxq.host import Array, brought_inside
from caql.maxq.interrupts import Interrupted
from caql.maxq.problem import Problem, Solution, Solver, Status

ASCENT_STEPS = 60
MOMENT = 1e-3
"""Seconds for a box that is begun when the time is up."""


class Found(NamedTuple):
    """The best action, its value, the bound, why it ended and the boxes looked at."""

    action: Array
    value: float
    upper: float
    status: Status
    boxes: int

    def solution(self) -> Solution:
        """The same, as a solution of one state."""
        status, boxes = np.array([int(self.status)], np.int32), np.array([self.boxes], np.int64)
        return Solution(self.action[None], np.array([self.value]), np.array([self.upper]), status, boxes)


@dataclass
class Refinement:
    """The search at one state, (1, n), over its set of actions; `ask` answers a problem with a solver."""

    objective: Objective
    state: Array
    actions: ActionSet
    ask: Callable[[Solver, Problem], Solution]
    solver: Solver
    absolute: float
    relative: float

    def solve(self, guess: Array | None) -> Solution:
        """The maximum, from a first guess (d,) on; Ctrl-C raises `Interrupted` with what is known."""
        self.whole = [k for k in self.actions.integer if k < self.actions.size]
        self.low, self.high = self._around(np.asarray(self.actions.low), np.asarray(self.actions.high))
        start = np.array(self.actions.centre if guess is None else guess, np.float64).clip(
            self.actions.low, self.actions.high
        )[None]
        empty, _ = brought_inside(self.actions, start)
        if empty[0]:
            return Found(start[0], -math.inf, -math.inf, Status.INFEASIBLE, 0).solution()
        self.best = self._climb(start[0])
        self.boxes = 0
        self.open: list[tuple[float, int, Array, Array]] = []
        try:
            status = self._search() if not self.solver.traceable else self._look()
        except KeyboardInterrupt:
            raise Interrupted(self._found(Status.LIMIT).solution()) from None
        return self._found(status).solution()

    def _found(self, status: Status) -> Found:
        action, value = self.best
        bound = -self.open[0][0] if self.open else math.inf
        return Found(action, value, max(bound, value), status, self.boxes)

    def _allowed(self) -> float:
        return max(self.absolute, self.relative * abs(self.best[1]))

    def _around(self, low: Array, high: Array) -> tuple[Array, Array]:
        """The smallest box around the set within a box that its rows and its whole numbers show."""
        within = replace(self.actions, low=low, high=high).tightened()
        return np.array(within.low, np.float64), np.array(within.high, np.float64)

    def _look(self) -> Status:
        """With a solver that proves nothing: its maximiser of the straightened network, and the ascent from there."""
        lowered = lower(self.objective, self.state, self.actions)
        problem = Problem(lowered.network, self.actions, self.best[0][None], self.absolute, self.relative)
        answer = self.ask(self.solver, problem)
        self._offer(np.asarray(answer.actions[0], np.float64))
        return Status.CONVERGED

    def _search(self) -> Status:
        most, order = getattr(self.solver, "node_limit", math.inf), itertools.count()
        self.end = time.perf_counter() + getattr(self.solver, "time_limit", math.inf)

        def push(low: Array, high: Array, bound: float) -> None:
            self.boxes += 1
            low, high = self._around(low, high)
            found = min(bound, self._bound(low, high))
            heapq.heappush(self.open, (-found, next(order), low, high))

        push(self.low, self.high, math.inf)
        while True:
            bound = -self.open[0][0]
            if bound - self.best[1] <= self._allowed():
                return Status.OPTIMAL
            if math.isnan(bound) or not math.isfinite(self.best[1]):
                return Status.FAILED
            if self.boxes >= most or time.perf_counter() > self.end:
                return Status.LIMIT
            _, number, low, high = self.open[0]
            halves = self._halves(low, high)
            if halves is None:
                return Status.LIMIT
            for first, last in halves:
                push(first, last, bound)
            # Only now: whatever interrupts the two bounds leaves the box that they are parts of.
            self.open = [entry for entry in self.open if entry[1] != number]
            heapq.heapify(self.open)

    def _hurried(self) -> Solver:
        """The solver with the time that is left of its limit, or a moment: its bound counts whatever stops it."""
        solver: Any = self.solver
        if not math.isfinite(self.end) or not hasattr(solver, "__dataclass_fields__"):
            return self.solver
        return cast(Solver, replace(solver, time_limit=max(self.end - time.perf_counter(), MOMENT)))

    def _bound(self, low: Array, high: Array) -> float:
        """An upper bound over a part of the set; its maximiser is offered on the way."""
        if (low > high).any():
            return -math.inf
        part = replace(self.actions, low=low, high=high)
        lowered = lower(self.objective, self.state, part)
        network: Any = lowered.network
        if not network.later and part.is_box:
            weights, bias = network.action_weights[:, 0], float(network.first_bias[0, 0])
            self._offer(np.where(weights > 0, high, low))
            reach = np.maximum(np.abs(low), np.abs(high)) @ np.abs(weights) + abs(bias)
            return float(
                np.maximum(low * weights, high * weights).sum() + bias + lowered.error + gamma(len(low)) * reach
            )
        tolerance = 0.1 * max(self._allowed(), lowered.error)
        answer = self.ask(self._hurried(), Problem(network, part, None, tolerance, 0.0))
        if int(answer.status[0]) == int(Status.INFEASIBLE):
            return -math.inf
        if int(answer.status[0]) == int(Status.FAILED):
            return math.inf
        self._offer(np.asarray(answer.actions[0], np.float64))
        return float(answer.upper[0]) + lowered.error

    def _values(self, actions: Array) -> Array:
        return self.objective.values(self.state, actions)

    def _offer(self, action: Array) -> None:
        """Climb from an action that is better than the best so far."""
        if self._values(action[None])[0] > self.best[1]:
            self.best = max(self._climb(action), self.best, key=lambda each: each[1])

    def _climb(self, action: Array) -> tuple[Array, float]:
        """A projected ascent along central differences, halving the step whenever it does not help."""
        low, high = self.low.copy(), self.high.copy()
        low[self.whole] = high[self.whole] = action[self.whole]
        within = replace(self.actions, low=low, high=high)
        width = high - low
        value, step = float(self._values(action[None])[0]), 0.25
        for _ in range(ASCENT_STEPS):
            probe = 1e-5 * width
            around = np.concatenate([action + np.diag(probe), action - np.diag(probe)]).clip(low, high)
            ahead, behind = np.split(self._values(around), 2)
            # In units of the width, so that all sides count alike.
            slope = (ahead - behind) / 2e-5
            largest = np.abs(slope).max(initial=0.0)
            if not largest > 0.0:
                break
            lengths = step * 0.5 ** np.arange(12)
            tries = np.clip(action + lengths[:, None] * width * slope / largest, low, high)
            if not within.is_box:
                tries = within.admissible(tries, np.float64)
            found = self._values(tries)
            best = int(np.nanargmax(found)) if np.isfinite(found).any() else 0
            if not found[best] > value:
                break
            action, value, step = tries[best], float(found[best]), min(1.0, 4.0 * lengths[best])
        return action, value

    def _halves(self, low: Array, high: Array) -> list[tuple[Array, Array]] | None:
        """The box cut across the side along which the network bends most; None if it cannot be cut any more."""
        width = high - low
        middle = 0.5 * (low + high)
        steps = np.diag(0.5 * width)
        values = self._values(np.concatenate([middle + steps, middle - steps, middle[None]]))
        ahead, behind = values[: len(low)], values[len(low) : -1]
        bend = np.abs(ahead + behind - 2.0 * values[-1])
        whole = self.high - self.low
        relative = np.divide(width, whole, out=np.zeros_like(width), where=whole > 0)
        left, right = middle.copy(), middle.copy()
        left[self.whole] = np.floor(middle[self.whole])
        right[self.whole] = left[self.whole] + 1.0
        able = (low < middle) & (middle < high) & (low <= left) & (right <= high)
        if not able.any():
            return None
        # A side that does not bend here may elsewhere in the box: no side may stay wide for ever.
        score = bend / max(bend.max(), 1e-300) + relative / max(relative.max(), 1e-300)
        side = int(np.argmax(np.where(able, score, -1.0)))
        ends, starts = high.copy(), low.copy()
        ends[side], starts[side] = left[side], right[side]
        return [(low, ends), (starts, high)]
