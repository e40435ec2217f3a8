"""What each solver does at each state, step by step.

* Gradient ascent and cross-entropy are asked again with fewer iterations: what they answer is the best action that they
  had by then, and their last answer is what training would have been given.
* The exact solver is asked with a limit of 1, 2, 3, ... nodes.  It is deterministic, so these are the stages of one
  search; whatever stops it, its upper bound is proved.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from caql import bounds
from caql.actions import ActionSet
from caql.errors import CaqlError, CaqlWarning
from caql.explore.subject import Array, Subject
from caql.maxq.arguments import checked_network
from caql.maxq.maximize import maximize_over
from caql.maxq.problem import Status
from caql.maxq.solvers import make_solver
from caql.networks import FoldedNetwork

TOLERANCE = 1e-6
STARTS = 6
"""Ascents at each state: one from the action function's choice, the others from random actions."""
ASCENT_STOPS, CROSS_ENTROPY_STOPS = (1, 2, 3, 5, 8), (1, 2, 5)
"""Iterations after which the two searches are looked at, besides their last."""
MOST_NODES = 64
"""Node limits that are tried one by one; beyond them each is a quarter larger than the one before."""


class Stage(NamedTuple):
    """What is known of one state at one time: nothing is worth more than `upper`, and some action is worth `value`."""

    name: str
    value: float | None
    upper: float


class Traces(NamedTuple):
    """One entry per state.

    best (S, d), value (S,), proved (S,).  stages: of the search for it, the bounds before it included.
    ascents: (S, STARTS, K, d), where each ascent was, its start first; None for sets with whole numbers.
    elites: (S, K, d), the best action of the cross-entropy method; None likewise.
    """

    best: Array
    value: Array
    proved: Array
    stages: list[list[Stage]]
    ascents: Array | None
    elites: Array | None


def trace(subject: Subject) -> Traces:
    """Ask all solvers at all states; `CaqlError` if no action is admissible at one of them."""
    network = checked_network(subject.layers, subject.states)
    sets = subject.sets
    warm = (
        subject.guess
        if subject.guess is not None
        else np.broadcast_to(sets.centre, (len(network.first_bias), len(subject.names)))
    )
    with warnings.catch_warnings():  # that a limit was hit is the point of these calls
        warnings.simplefilter("ignore", CaqlWarning)
        solution, stages = _search(network, sets, warm)
        searchable = not sets.integer
        return Traces(
            solution.actions,
            solution.values,
            solution.status == Status.OPTIMAL,
            stages,
            _ascents(subject, network, warm) if searchable else None,
            _elites(subject, network, warm) if searchable else None,
        )


def _search(network: FoldedNetwork, sets: ActionSet, warm: Array) -> tuple[Any, list[list[Stage]]]:
    """The proved answers, and what was known on the way to them."""
    solution = maximize_over(network, sets, make_solver("exact"), TOLERANCE, warm)
    if (solution.status == Status.INFEASIBLE).any():
        state = int(np.argmax(solution.status == Status.INFEASIBLE))
        raise CaqlError(f"no action is admissible at state {state}: {sets[state].conflict()}")
    hull: Any = sets.tightened()
    stages: list[list[Stage]] = [[] for _ in solution.values]
    for name, bound in (("interval bound", bounds.interval_bound), ("dual bound", bounds.dual_bound)):
        for state, upper in enumerate(np.asarray(bound(network, hull)).tolist()):
            stages[state].append(Stage(name, None, upper))
    limit, last = 1, int(solution.work.max())
    while True:
        found = maximize_over(network, sets, make_solver("exact", node_limit=limit), TOLERANCE, warm)
        for state, rows in enumerate(stages):
            if limit <= max(1, solution.work[state]) or (limit >= last and rows[-1].name.startswith("dual")):
                nodes = f"{limit} node" + ("s" if limit > 1 else "")
                rows.append(Stage(nodes, float(found.values[state]), float(found.upper[state])))
        if limit >= last:
            return solution, stages
        limit = min(last, limit + 1 if limit < MOST_NODES else limit + limit // 4)


def _stops(solver: Any, stops: tuple[int, ...]) -> list[int]:
    return [*(stop for stop in stops if stop < solver.iterations), solver.iterations]


def _ascents(subject: Subject, network: FoldedNetwork, warm: Array) -> Array:
    states, size = warm.shape
    sets = subject.sets.per_state(states)
    random = sets.sample(np.random.default_rng(0), STARTS - 1)
    starts = np.concatenate([sets.project(warm)[None], random]).reshape(STARTS * states, size)
    many = network._replace(first_bias=np.tile(network.first_bias, (STARTS, 1)))  # type: ignore[arg-type]
    repeated = sets.map(lambda array: np.tile(array, (STARTS, *[1] * (array.ndim - 1))))
    found = [starts]
    for iterations in _stops(subject.ascent, ASCENT_STOPS):
        solver = replace(subject.ascent, iterations=iterations, restarts=0)
        found.append(maximize_over(many, repeated, solver, TOLERANCE, starts).actions)
    return np.stack(found).reshape(len(found), STARTS, states, size).transpose(2, 1, 0, 3)


def _elites(subject: Subject, network: FoldedNetwork, warm: Array) -> Array:
    found = [subject.sets.per_state(len(warm)).project(warm)]
    for iterations in _stops(subject.cross_entropy, CROSS_ENTROPY_STOPS):
        solver = replace(subject.cross_entropy, iterations=iterations)
        found.append(maximize_over(network, subject.sets, solver, TOLERANCE, warm).actions)
    return np.stack(found).transpose(1, 0, 2)
