"""Best-first branch and bound on ReLU phases, sides of the box and whole numbers, for one presolved network.

A node is a box of actions with bounds per neuron.  It is tightened, bounded by its parent's multipliers, then
by its linear program; the program's point is climbed to a local maximum of the network; and it is split in two.

The certificate is the largest of: the bounds of open nodes, the bounds at which nodes were closed, and every
cutoff below which something was cut away.  The top of the queue alone would not be one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from caql.maxq.exact.compilation import compiled, is_finite, seconds
from caql.maxq.exact.limits import Limits, allowed
from caql.maxq.exact.node import CLOSED, Verdict, become_child, evaluate
from caql.maxq.exact.open_nodes import Queue, clear, load, store
from caql.maxq.exact.relaxation import Known
from caql.maxq.exact.workspace import Workspace

PROVED, LIMITED, BROKEN, EMPTY = 0, 2, 3, 5
"""Values of `caql.maxq.problem.Status`."""
FULL = -1
"""The search is not at its end: its queue has to grow."""


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


class Progress(NamedTuple):
    """Where a search stands: nodes and pivots so far, what is known of the node at hand, when it was begun."""

    nodes: int
    pivots: int
    known: Known
    started: float


@compiled
def outset(best: float) -> Progress:
    """A search that has not begun, with the value of its warm start."""
    return Progress(np.int64(0), np.int64(0), Known(np.inf, best, -np.inf), np.inf)


@compiled
def branch(space: Workspace, n: int, d: int, verdict: Verdict, cutoff: float, queue: Queue) -> float:
    """Put the node's two children into the queue, which has room, or their bounds into the certificate: returns it."""
    known, proved = verdict.known, verdict.known.proved
    for child in range(2):
        key = min(known.bound, become_child(space, n, d, verdict.branch, child == 1))
        if key <= cutoff:
            proved = max(proved, key)
        else:
            store(n, d, space, queue, key)
    return proved


@compiled
def explore(space: Workspace, n: int, limits: Limits, queue: Queue, progress: Progress) -> tuple[Progress, Found]:
    """Search from the root node until the gap is proved, or a limit is hit, or somebody says stop.

    With the status `FULL` the queue has no room for more: the search goes on from its progress with a larger one.  It
    does not make that itself, because a function that makes arrays counts the references to all that it is given,
    which takes longer than a node.
    """
    nodes, pivots, known, started = progress
    best = known.best
    if n < 0 and limits.rounding == 0.0:
        return progress, Found(False, -np.inf, PROVED, 0, 0)
    if not is_finite(limits.rounding):
        return progress, Found(best > -np.inf, np.inf, BROKEN, 0, 0)
    d = space.node.low.size
    often = n > LARGE or limits.time < HURRIED
    if nodes == 0:
        started = seconds() if often else np.inf
        clear(queue)
    while True:
        if queue.count[1] < 2:
            return Progress(nodes, pivots, known, started), Found(best > -np.inf, np.inf, FULL, nodes, pivots)
        nodes += 1
        verdict = evaluate(space, n, d, limits, nodes, known)
        pivots += verdict.pivots
        best, proved = verdict.known.best, verdict.known.proved
        if not verdict.sound:
            return progress, Found(best > -np.inf, np.inf, BROKEN, nodes, pivots)
        cutoff = allowed(best, limits)
        if verdict.branch != CLOSED:
            proved = branch(space, n, d, verdict, cutoff, queue)
        if queue.count[0] == 0:
            return progress, Found(best > -np.inf, proved, PROVED, nodes, pivots)
        key = queue.keys[queue.heap[0]]
        if key <= cutoff:
            return progress, Found(best > -np.inf, max(proved, key), PROVED, nodes, pivots)
        over = nodes >= limits.nodes or space.tab.stop[0] != 0
        if often or nodes % READ == 0:
            now = seconds()
            started = min(started, now)
            over = over or now - started > limits.time
        if over:
            return progress, Found(best > -np.inf, max(proved, key), LIMITED, nodes, pivots)
        load(n, d, space, queue)
        known = Known(key, best, proved)
