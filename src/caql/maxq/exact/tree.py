"""Best-first branch and bound on ReLU phases, sides of the box and whole numbers, for one presolved network.

A node is a box of actions with bounds per neuron.  It is tightened, bounded by its parent's multipliers, then
by its linear program; the program's point is climbed to a local maximum of the network; and it is split in two.

The certificate is the largest of: the bounds of open nodes, the bounds at which nodes were closed, and every
cutoff below which something was cut away.  The top of the queue alone would not be one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from caql.maxq.exact.compilation import allocating, compiled, is_finite, seconds
from caql.maxq.exact.limits import Limits, allowed
from caql.maxq.exact.node import CLOSED, Verdict, become_child, evaluate
from caql.maxq.exact.open_nodes import Queue, clear, grow, load, store
from caql.maxq.exact.relaxation import Known
from caql.maxq.exact.workspace import Workspace

PROVED, LIMITED, BROKEN, EMPTY = 0, 2, 3, 5
"""Values of `caql.maxq.problem.Status`."""


LARGE, HURRIED = 64, 1e-3
"""With more neurons, or fewer seconds, the clock is read at every node,"""
READ = 16
"""and otherwise at every so-manieth, the first of which starts it."""


class Found(NamedTuple):
    """How the search of a state ended: whether an action is known, and an upper bound of the compact network."""

    known: bool
    upper: float
    status: int
    nodes: int
    pivots: int


@compiled
def actions_of(space: Workspace) -> int:
    """How many actions there are; a function, because taking arrays out of tuples is cheap only in compiled ones."""
    return space.node.low.size


@compiled
def is_stopped(space: Workspace) -> bool:
    """Whether somebody said stop."""
    return space.tab.stop[0] != 0


@allocating
def branch(space: Workspace, n: int, d: int, verdict: Verdict, cutoff: float, queue: Queue) -> tuple[Queue, float]:
    """Put the node's two children into the queue, or their bounds into the certificate: (queue, certificate)."""
    known, proved = verdict.known, verdict.known.proved
    for child in range(2):
        key = min(known.bound, become_child(space, n, d, verdict.branch, child == 1))
        if key <= cutoff:
            proved = max(proved, key)
            continue
        if queue.count[1] == 0:
            queue = grow(n, d, queue)
        store(n, d, space, queue, key)
    return queue, proved


@allocating
def explore(space: Workspace, n: int, best: float, limits: Limits, queue: Queue) -> tuple[Queue, Found]:
    """Search from the root node until the gap is proved, or a limit is hit, or somebody says stop."""
    if n < 0 and limits.rounding == 0.0:
        return queue, Found(False, -np.inf, PROVED, 0, 0)
    if not is_finite(limits.rounding):
        return queue, Found(best > -np.inf, np.inf, BROKEN, 0, 0)
    d = actions_of(space)
    often = n > LARGE or limits.time < HURRIED
    started = seconds() if often else np.inf
    clear(queue)
    nodes, pivots = np.int64(0), 0
    known = Known(np.inf, best, -np.inf)
    while True:
        nodes += 1
        verdict = evaluate(space, n, d, limits, nodes, known)
        pivots += verdict.pivots
        best, proved = verdict.known.best, verdict.known.proved
        if not verdict.sound:
            return queue, Found(best > -np.inf, np.inf, BROKEN, nodes, pivots)
        cutoff = allowed(best, limits)
        if verdict.branch != CLOSED:
            queue, proved = branch(space, n, d, verdict, cutoff, queue)
        if queue.count[0] == 0:
            return queue, Found(best > -np.inf, proved, PROVED, nodes, pivots)
        key = queue.keys[queue.heap[0]]
        if key <= cutoff:
            return queue, Found(best > -np.inf, max(proved, key), PROVED, nodes, pivots)
        over = nodes >= limits.nodes or is_stopped(space)
        if often or nodes % READ == 0:
            now = seconds()
            started = min(started, now)
            over = over or now - started > limits.time
        if over:
            return queue, Found(best > -np.inf, max(proved, key), LIMITED, nodes, pivots)
        load(n, d, space, queue)
        known = Known(key, best, proved)
