"""Best-first branch and bound on ReLU phases and whole numbers (Section 3.1, without a general MIP solver).

A node is a box of actions with bounds per neuron.  It is tightened, bounded by its parent's multipliers, then
by its linear program; the program's point is climbed to a local maximum of the network; and the neuron whose
envelope costs most is split into its two phases.

The certificate is the largest of: the bounds of open nodes, the bounds at which nodes were closed, and every
cutoff below which something was cut away; and then the rounding error of the network itself.  The top of the queue
alone would not be one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import carray

from caql.maxq.exact.block import AT, FIELDS
from caql.maxq.exact.compilation import allocating, called_from_c, compiled, is_finite, pointer, seconds, take
from caql.maxq.exact.node import CLOSED, Known, Limits, Verdict, allowed, become_child, begin, evaluate
from caql.maxq.exact.presolve import Case, folded_q
from caql.maxq.exact.relaxation import Floats, Node
from caql.maxq.exact.rows import mend, scale_up
from caql.maxq.exact.screen import WANTED, screen, set_down
from caql.maxq.exact.threads import PROBED, join, region_of, share_out, unpack
from caql.maxq.exact.workspace import Workspace, make_workspace

PROVED, LIMITED, BROKEN, EMPTY = 0, 2, 3, 5
"""Values of `caql.maxq.problem.Status`."""


class Queue(NamedTuple):
    """The open nodes: their numbers in slots, a heap of slots with the largest bound on top, and the vacant slots."""

    pool: Floats
    bases: np.ndarray
    keys: Floats
    heap: np.ndarray
    vacant: np.ndarray
    count: np.ndarray
    """(2,): how many are open, how many slots are vacant."""


class Found(NamedTuple):
    """How the search of a state ended: whether an action is known, and an upper bound of the compact network."""

    known: bool
    upper: float
    status: int
    nodes: int
    pivots: int


@compiled
def finish(case: Case, action: Floats, limits: Limits, space: Workspace, found: Found, answer: Floats) -> None:
    """The best point as an action of the set, its value by the original network, and what was proved of it."""
    answer[3], answer[4], answer[5] = found.nodes, found.pivots, 1.0
    if not found.known:
        answer[0], answer[1], answer[2] = -np.inf, -np.inf, EMPTY
        if found.status != PROVED or found.upper > limits.floor:
            answer[0], answer[1], answer[2], answer[5] = np.nan, np.inf, BROKEN, 0.0
        return
    scale_up(space.scaling, case.region, space.search.best, action)
    answer[5] = 1.0 if mend(case.region, action) else 0.0
    value = folded_q(case.stack, case.state, action, space.scratch.row, space.search.active)
    upper, status = max(found.upper + limits.rounding, value), found.status
    if status == BROKEN or not is_finite(value):
        upper, status = np.inf, BROKEN
    elif status == PROVED and not upper - value <= max(limits.absolute, limits.relative * abs(value)):
        status = LIMITED
    answer[0], answer[1], answer[2] = value, upper, status


@allocating
def make_queue(capacity: int, neurons: int, d: int) -> Queue:
    """An empty queue."""
    return Queue(
        np.empty((capacity, 3 * neurons + 2 * d)),
        np.empty((capacity, neurons + d), np.int8),
        np.empty(capacity),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int64),
        np.zeros(2, np.int64),
    )


@compiled
def clear(queue: Queue) -> None:
    """Make all slots vacant."""
    for slot in range(queue.vacant.size):
        queue.vacant[slot] = slot
    queue.count[0], queue.count[1] = 0, queue.vacant.size


@allocating
def grow(n: int, d: int, queue: Queue) -> Queue:
    """The same queue with twice as many slots; all of the old ones are taken."""
    size = queue.keys.size
    larger = Queue(
        np.empty((2 * size, queue.pool.shape[1])),
        np.empty((2 * size, queue.bases.shape[1]), np.int8),
        np.empty(2 * size),
        np.empty(2 * size, np.int64),
        np.empty(2 * size, np.int64),
        queue.count,
    )
    for slot in range(size):
        for i in range(3 * n + 2 * d):  # a slot has room for neurons that presolve has removed
            larger.pool[slot, i] = queue.pool[slot, i]
        for i in range(n + d):
            larger.bases[slot, i] = queue.bases[slot, i]
        larger.keys[slot] = queue.keys[slot]
        larger.heap[slot] = queue.heap[slot]
        larger.vacant[slot] = size + slot
    larger.count[1] = size
    return larger


@compiled
def store(n: int, d: int, node: Node, queue: Queue, key: float) -> None:
    """Keep a copy of the node; there must be a vacant slot."""
    pool, bases, keys, heap, vacant, count = queue
    count[1] -= 1
    slot = vacant[count[1]]
    for i in range(n):
        pool[slot, i] = node.lower[i]
        pool[slot, n + i] = node.upper[i]
        pool[slot, 2 * n + i] = node.multiplier[i]
    for k in range(d):
        pool[slot, 3 * n + k] = node.low[k]
        pool[slot, 3 * n + d + k] = node.high[k]
    for i in range(n + d):
        bases[slot, i] = node.basis[i]
    keys[slot] = key
    push(heap, keys, count[0], slot)
    count[0] += 1


@compiled
def load(n: int, d: int, node: Node, queue: Queue) -> None:
    """Take the node with the largest bound out of the queue."""
    pool, bases, keys, heap, vacant, count = queue
    slot = heap[0]
    count[0] -= 1
    pop(heap, keys, count[0])
    for i in range(n):
        node.lower[i] = pool[slot, i]
        node.upper[i] = pool[slot, n + i]
        node.multiplier[i] = pool[slot, 2 * n + i]
    for k in range(d):
        node.low[k] = pool[slot, 3 * n + k]
        node.high[k] = pool[slot, 3 * n + d + k]
    for i in range(n + d):
        node.basis[i] = bases[slot, i]
    vacant[count[1]] = slot
    count[1] += 1


@compiled
def push(heap: np.ndarray, keys: Floats, size: int, slot: int) -> None:
    """Add a slot to a heap with the largest key on top."""
    i = size
    while i > 0 and keys[heap[(i - 1) // 2]] < keys[slot]:
        heap[i] = heap[(i - 1) // 2]
        i = (i - 1) // 2
    heap[i] = slot


@compiled
def pop(heap: np.ndarray, keys: Floats, size: int) -> None:
    """Remove the top; `size` is what remains."""
    slot = heap[size]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and keys[heap[child + 1]] > keys[heap[child]]:
            child += 1
        if keys[heap[child]] <= keys[slot]:
            break
        heap[i] = heap[child]
        i = child
    heap[i] = slot


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
        store(n, d, space.node, queue, key)
    return queue, proved


@allocating
def explore(space: Workspace, n: int, best: float, limits: Limits, queue: Queue) -> tuple[Queue, Found]:
    """Search from the root node until the gap is proved, or a limit is hit, or somebody says stop."""
    if n < 0 and limits.rounding == 0.0:
        return queue, Found(False, -np.inf, PROVED, 0, 0)
    if not is_finite(limits.rounding):
        return queue, Found(best > -np.inf, np.inf, BROKEN, 0, 0)
    started, d = seconds(), space.node.low.size
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
        if nodes >= limits.nodes or space.tab.stop[0] != 0 or seconds() - started > limits.time:
            return queue, Found(best > -np.inf, max(proved, key), LIMITED, nodes, pivots)
        load(n, d, space.node, queue)
        known = Known(key, best, proved)


@called_from_c
def solve_block(address: int) -> int:
    """The rows of the `Block` at an address, save those that other threads take from the same counter.

    `actions` holds the warm starts and receives the actions; `answer` has one row per state (`Block.answer`).
    One function, because Numba optimises everything below a function again for every function above it.
    """
    block = carray(pointer(address), (FIELDS,), np.int64)
    batch = unpack(block)
    stack, sets, tolerance, limits, wanted, counter, actions, answer, stop = batch
    if counter[0] == 0:  # before any row is taken, so by the first thread alone
        screen(batch)
    helpers = np.empty((max(0, block[AT.threads] - 1), FIELDS + 1), np.int64)
    made, solved, began = 0, 0, seconds()
    rows, d = sets.rows.shape[1], sets.low.shape[1]
    neurons, widest = np.int64(0), np.int64(1)
    for layer in range(1, stack.sizes.size):
        neurons += stack.sizes[layer]
        widest = max(widest, stack.sizes[layer])
    space = make_workspace(d, rows, neurons, widest, stop)
    queue = make_queue(16, rows + neurons, d)
    while True:
        b = take(counter)
        if b >= counter[1]:
            break
        if wanted[b] != WANTED or stop[0] != 0:
            answer[b, 0] = folded_q(stack, b, actions[b], space.scratch.row, space.search.active)
            set_down(answer[b], wanted[b])
            continue
        if solved == PROBED and helpers.shape[0] > 0:
            made = share_out(block, seconds() - began, wanted, b, helpers)
        solved += 1
        case = Case(stack, b, region_of(sets, b))
        n, best, rounding = begin(case, actions[b], space)
        # The rounding error is at least 60 u B, with B the largest that |Q| can be, so the floor is below -7 B.
        floor, share = -rounding * 2.0**50, 0.9999 if rows == 0 else 0.9
        own = Limits(tolerance[0, b], tolerance[1, b], np.int64(limits[0]), limits[1], rounding, share, floor)
        queue, found = explore(space, n, best, own, queue)
        finish(case, actions[b], own, space, found, answer[b])
    join(helpers, made)
    return 0
