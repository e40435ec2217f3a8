"""What `caql bench maxq --sets` measures: the same networks and states as `maxq`, over sets that are more than a box.

The sets are made from the box's own maximisers a*, so that they matter: each budget leaves half of the way from the
middle of the box to a*.

    box          nothing else
    1 row        w a <= limit, cutting off a*
    8 rows       C a <= d, cutting off a* in most directions
    equality     E a = f, and two rows
    whole        every other action is a whole number (in units in which the box reaches from -4 to 4), and a row
    mixed        sum |w_i a_i| <= limit, and every other action is 0 or between 0.3 and 1 of its range

`exact` is timed on all sets in turn, several times over, and the shortest time of each counts: so all of them meet the
same moments of the machine.  The MIP solvers get the same arrays, once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from caql.actions import ActionSet
from caql.bench.maxq import Case
from caql.maxq.host import allowed_gap
from caql.maxq.problem import Problem, Solution, Solver, Status
from caql.maxq.solvers import make_solver

Array = NDArray[np.float64]

KINDS = ("box", "1 row", "8 rows", "equality", "whole", "mixed")
REPEATS = 7
STEPS = 4.0
"""Whole numbers reach from minus to plus this."""


class SetMeasurement(NamedTuple):
    """One solver on one set: processor seconds of the whole batch, values, and the counts that must be right.

    proved: rows proved optimal.  outside: actions that are not admissible.
    apart: the largest distance to the values of `exact`, in units of the gap that both were allowed; 0 for `exact`.
    """

    task: str
    kind: str
    solver: str
    total: float
    values: Array
    proved: int
    outside: int
    apart: float = 0.0


def set_cases(case: Case, maximisers: Array) -> dict[str, Case]:
    """The case over each kind of set, by name; `maximisers`, (B, d), are those of its box."""
    rng = np.random.default_rng(0)
    box, (states, d) = case.action_set, maximisers.shape
    away = maximisers - box.centre
    toward = np.where(away >= 0, 1.0, -1.0) * rng.uniform(0.2, 1.0, (states, d))

    def sides(rows: Array, share: float) -> Array:
        """Right-hand sides that leave `share` of the way from the middle to the maximiser."""
        reach = np.maximum(np.einsum("smi,si->sm", rows, away), 0.1 * np.abs(rows) @ box.radius)
        return rows @ box.centre + share * reach

    one = toward[:, None, :]
    many = np.concatenate([one, rng.normal(size=(states, 7, d))], axis=1)
    level = one @ box.centre + 0.3 * np.einsum("smi,si->sm", one, away)
    # The point at 0.3 of the way satisfies the equality, and both rows with some distance.
    between = rng.normal(size=(states, 2, d))
    at_point = np.einsum("smi,si->sm", between, box.centre + 0.3 * away) + 0.2 * np.abs(between) @ box.radius
    switched = list(range(0, d, 2))
    off = ActionSet.off_or_between(0.3 * box.high[switched], box.high[switched]).at(switched, d)
    power = ActionSet.absolute_budget(toward, 0.5 * np.abs(toward * maximisers).sum(axis=1) + 1e-3)
    found = {
        "box": box,
        "1 row": box & ActionSet.linear(one, high=sides(one, 0.5)),
        "8 rows": box & ActionSet.linear(many, high=sides(many, 0.5)),
        "equality": box & ActionSet.linear(one, level, level) & ActionSet.linear(between, high=at_point),
        "mixed": box & power & off,
    }
    cases = {kind: replace(case, action_set=action_set) for kind, action_set in found.items()}
    return {kind: cases[kind] if kind in cases else _in_steps(case, one, sides(one, 0.5)) for kind in KINDS}


def _in_steps(case: Case, rows: Array, sides: Array) -> Case:
    """The same question with a = centre + radius b / 4, every other b a whole number."""
    box = case.action_set
    unit = box.radius / STEPS
    network = case.network._replace(
        first_bias=case.network.first_bias + box.centre @ case.network.action_weights,
        action_weights=unit[:, None] * case.network.action_weights,
    )
    whole = ActionSet.whole(box.size, range(0, box.size, 2))
    row = ActionSet.linear(rows * unit, high=sides - rows @ box.centre)
    return replace(case, network=network, action_set=ActionSet.bounds(-STEPS, STEPS, box.size) & row & whole)


def compare(case: Case, solvers: Sequence[str], repeats: int = REPEATS) -> list[SetMeasurement]:
    """Every solver on every kind of set of one case; the first solver is the one that the others are held against."""
    first, *others = solvers
    cases = set_cases(case, np.asarray(make_solver(first).solve(case.problem(), None).actions, np.float64))
    problems = {kind: each.problem() for kind, each in cases.items()}
    times, solutions = _interleaved(make_solver(first, threads=1), problems, repeats)
    found = []
    for kind, problem in problems.items():
        reference = _checked(case.name, kind, first, times[kind], problem, solutions[kind])
        found.append(reference)
        for name in others:
            solver = make_solver(name, threads=1)
            began = time.process_time()
            solution = solver.solve(problem, None)
            seconds = time.process_time() - began
            measured = _checked(case.name, kind, name, seconds, problem, solution)
            found.append(measured._replace(apart=_apart(problem, reference.values, measured.values)))
    return found


def _interleaved(
    solver: Solver, problems: dict[str, Problem], repeats: int
) -> tuple[dict[str, float], dict[str, Solution]]:
    """The shortest time of each problem over several rounds through all of them, and the solutions."""
    solutions = {kind: solver.solve(problem, None) for kind, problem in problems.items()}
    times = dict.fromkeys(problems, np.inf)
    for _ in range(repeats):
        for kind, problem in problems.items():
            began = time.process_time()
            solver.solve(problem, None)
            times[kind] = min(times[kind], time.process_time() - began)
    return times, solutions


def _checked(task: str, kind: str, solver: str, seconds: float, problem: Problem, solution: Solution) -> SetMeasurement:
    actions: Any = np.asarray(solution.actions, np.float64)
    outside = int(np.sum(~problem.action_set.contains(actions)))
    proved = int(np.sum(np.asarray(solution.status) == Status.OPTIMAL))
    return SetMeasurement(task, kind, solver, seconds, np.asarray(solution.values, np.float64), proved, outside)


def _apart(problem: Problem, values: Array, others: Array) -> float:
    return float(np.max(np.abs(values - others) / allowed_gap(problem, np.maximum(np.abs(values), np.abs(others)))))


def projection_times(rows: Sequence[int] = (1, 8, 64), actions: int = 6, points: int = 200) -> dict[int, float]:
    """Median processor seconds to project a point onto a set of `rows` rows, one point at a time, on the host.

    The points lie around the set, most of them outside; the sets are measured in turn.
    """
    rng = np.random.default_rng(0)
    sets = {}
    for count in rows:
        matrix = rng.normal(size=(count, actions))
        sets[count] = ActionSet.bounds(-1, 1, actions) & ActionSet.linear(matrix, high=rng.uniform(0.2, 1.0, count))
    given = rng.uniform(-1.5, 1.5, (points, actions))
    seconds: dict[int, list[float]] = {count: [] for count in rows}
    for each in sets.values():
        each.project(given[0])
    for point in given:
        for count, each in sets.items():
            began = time.process_time()
            each.project(point)
            seconds[count].append(time.process_time() - began)
    return {count: float(np.median(taken)) for count, taken in seconds.items()}


def ratio(found: Sequence[SetMeasurement], above: tuple[str, str], below: tuple[str, str]) -> float:
    """Total seconds of one (solver, kind) over those of another, all tasks together; kind "" is all kinds."""

    def seconds(solver: str, kind: str) -> float:
        return sum(each.total for each in found if each.solver == solver and kind in ("", each.kind))

    return seconds(*above) / seconds(*below)
