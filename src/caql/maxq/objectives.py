"""The maximum of an objective of a graph: lowered to a layered ReLU network, solved there, and held against the graph.

The lowered network differs from the graph by at most `Lowered.error`, so

    max graph <= max lowered + error,      and the value returned is the graph's own at the action found.

Where the states of a batch share the lowered weights they are solved together, otherwise one by one.  A graph with
smooth activations is lowered with an error that is more than rounding, and is refined (`refinement`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from caql.actions import ActionSet
from caql.graphs.expressions import StatesDiffer
from caql.graphs.lowering import is_smooth, lower
from caql.graphs.objective import Objective
from caql.maxq.host import Array, brought_inside, is_proved
from caql.maxq.interrupts import Interrupted
from caql.maxq.problem import Problem, Solution, Solver, Status
from caql.maxq.refinement import Refinement
from caql.networks import FoldedNetwork

TOGETHER = 2**23
"""Numbers in the largest array that bounding a batch of states takes; larger batches are solved in parts."""

Ask = Callable[[Solver, Problem], Solution]


class AtStates(NamedTuple):
    """An objective at (B, n) states."""

    objective: Objective
    states: Array


@dataclass(frozen=True)
class Question:
    """An objective over (B, n) states and their action sets, with first guesses (B, d) or None, and tolerances."""

    objective: Objective
    states: Array
    action_set: ActionSet
    guesses: Array | None
    tolerance: Any
    relative_tolerance: Any

    def part(self, rows: slice) -> Question:
        """Some of the states."""

        def pick(each: Any) -> Any:
            return each[rows] if np.ndim(each) else each

        guesses = None if self.guesses is None else self.guesses[rows]
        gaps = pick(self.tolerance), pick(self.relative_tolerance)
        return Question(self.objective, self.states[rows], self.action_set[rows], guesses, *gaps)

    def problem(self, network: FoldedNetwork) -> Problem:
        """The question about the network in place of the graph, which the answer is held to in the end."""
        return Problem(network, self.action_set, self.guesses, self.tolerance, self.relative_tolerance)


def solve_objective(question: Question, ask: Ask, solver: Solver) -> Solution:
    """The objective's maximum at every state; `ask` answers a problem with a solver.

    Raises `Interrupted`, with what is known of all states, on Ctrl-C.
    """
    found: list[Solution] = []
    try:
        found.extend(_parts(question, ask, solver))
    except Interrupted as interruption:
        found.append(interruption.solution)
        done = sum(len(each.values) for each in found)
        if done < len(question.states):
            found.append(_unknown(question.part(slice(done, None))))
        raise Interrupted(_joined(found)) from None
    return _joined(found)


def _joined(parts: list[Solution]) -> Solution:
    return Solution(*(np.concatenate([np.asarray(part) for part in field]) for field in zip(*parts, strict=True)))


def _unknown(question: Question) -> Solution:
    """States that nobody has looked at."""
    rows, d = len(question.states), question.action_set.size
    actions = np.array(np.broadcast_to(question.action_set.centre, (rows, d)), np.float64)
    empty, _ = brought_inside(question.action_set, actions)
    values = np.where(empty, -np.inf, question.objective.values(question.states, actions))
    status = np.where(empty, int(Status.INFEASIBLE), int(Status.LIMIT)).astype(np.int32)
    return Solution(actions, values, np.where(empty, -np.inf, np.inf), status, np.zeros(rows, np.int64))


def _parts(question: Question, ask: Ask, solver: Solver) -> Iterator[Solution]:
    """The solution in parts of one state or many."""
    count = len(question.states)
    if is_smooth(question.objective, question.states.shape[1]):
        for row in range(count):
            one = question.part(slice(row, row + 1))
            gaps = [float(np.ravel(gap)[0]) for gap in (one.tolerance, one.relative_tolerance)]
            search = Refinement(one.objective, one.states, one.action_set[0], ask, solver, *gaps)
            yield search.solve(None if one.guesses is None else one.guesses[0])
        return
    together, row = _at_once(question), 0
    while row < count:
        part = question.part(slice(row, row + together))
        row += len(part.states)
        try:
            yield _solved(part, ask, solver)
        except StatesDiffer:
            for each in range(len(part.states)):
                yield _solved(part.part(slice(each, each + 1)), ask, solver)


def _at_once(question: Question) -> int:
    """How many states are lowered together."""
    graph = question.objective.graph
    values = [graph.nodes[index] for index in graph.reached([question.objective.node])]
    widest = max((value.size for value in values if value.constant is None), default=1)
    return max(1, TOGETHER // (2 * widest) ** 2)


def _solved(question: Question, ask: Ask, solver: Solver) -> Solution:
    """The states of a batch whose lowered networks share their weights."""
    lowered = lower(question.objective, question.states, question.action_set)
    # The gap that is left for the solver, so that value and bound of the graph itself are within the tolerance.
    slack = 2.0 * lowered.error
    tolerance = np.asarray(question.tolerance, np.float64)
    narrowed = np.where(tolerance > 2.0 * slack, tolerance - slack, 0.5 * tolerance)
    asked = question.problem(lowered.network)
    try:
        relative = 0.99 * np.asarray(question.relative_tolerance)
        solution = ask(solver, asked._replace(tolerance=narrowed, relative_tolerance=relative))
    except Interrupted as interruption:
        interruption.solution = held_to(question, asked, interruption.solution, lowered.error)
        raise
    return held_to(question, asked, solution, lowered.error)


def held_to(question: Question, problem: Problem, solution: Solution, error: float) -> Solution:
    """The lowered network's solution as one of the graph itself."""
    status = np.asarray(solution.status).astype(np.int32)
    sound = ~np.isin(status, (int(Status.FAILED), int(Status.INFEASIBLE)))
    own = question.objective.values(question.states, np.asarray(solution.actions, np.float64))
    values = np.where(sound, own, solution.values)
    upper = np.where(sound & np.isfinite(solution.upper), np.maximum(solution.upper + error, values), solution.upper)
    proved = is_proved(problem, values, upper)
    status = np.where((status == int(Status.OPTIMAL)) & ~proved, int(Status.LIMIT), status)
    status = np.where((status == int(Status.LIMIT)) & proved, int(Status.OPTIMAL), status)
    return solution._replace(values=values, upper=upper, status=status.astype(np.int32))
