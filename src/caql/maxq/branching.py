"""Best-first branch and bound on ReLU phases for one state (Section 3.1, without a general MIP solver).

A node is a box of actions with bounds per neuron.  It is tightened, bounded by its parent's multipliers, then
by its linear program; the program's point is climbed to a local maximum of the network; and the neuron whose
envelope costs most is split into its two phases.

The certificate is the largest of: the bounds of open nodes, the bounds at which nodes were closed, and every
cutoff below which something was cut away.  The top of the queue alone would not be one.
"""

from __future__ import annotations

import numpy as np

from caql.maxq.compilation import allocating, compiled, seconds
from caql.maxq.evaluation import Limits, Room, Verdict, allowed, become_child, begin, evaluate, make_room
from caql.maxq.presolve import Stack, folded_q
from caql.maxq.relaxation import Floats, Node

PROVED, LIMITED, BROKEN, SKIPPED = 0, 2, 3, 4
"""Values of `caql.maxq.problem.Status`."""


@allocating
def maximise(
    stack: Stack, state: int, low: Floats, high: Floats, action: Floats, limits: Limits, room: Room
) -> tuple[float, float, int, int, int]:
    """Solve one state from the warm start in `action`, and leave the best action there.

    Returns value, upper bound, status, nodes, pivots.
    """
    d = low.size
    started = seconds()
    n, best = begin(stack, state, low, high, action, room)
    nodes = np.int64(1)
    verdict = evaluate(n, d, room, limits, nodes, np.inf, best, -np.inf)
    proved, pivots = verdict.proved, verdict.pivots
    status = PROVED if verdict.sound else BROKEN
    if verdict.branch >= 0:
        proved, nodes, pivots, status = explore(n, d, room, limits, verdict, started)
    return finish(stack, state, low, high, action, limits, room, proved, status, nodes, pivots)


@allocating
def explore(
    n: int, d: int, room: Room, limits: Limits, verdict: Verdict, started: float
) -> tuple[float, int, int, int]:
    """Branch from the evaluated root until nothing above the cutoff is open: (proved, nodes, pivots, status)."""
    capacity = 16
    pool = np.empty((capacity, 3 * n + 2 * d))
    bases = np.empty((capacity, n + d), np.int8)
    keys = np.empty(capacity)
    heap = np.empty(capacity, np.int64)
    vacant = np.empty(capacity, np.int64)
    for slot in range(capacity):
        vacant[slot] = slot
    vacancies = capacity
    queued = np.int64(0)
    nodes, pivots, proved, best = np.int64(1), verdict.pivots, verdict.proved, verdict.best
    while True:
        cutoff = allowed(best, limits)
        if verdict.branch >= 0:
            for phase in range(2):
                key = min(verdict.bound, become_child(n, d, room, verdict.branch, phase == 1))
                if key != key:
                    return proved, nodes, pivots, BROKEN
                if key <= cutoff:
                    proved = max(proved, key)
                    continue
                if vacancies == 0:
                    vacancies = pool.shape[0]
                    pool, bases, keys, heap, vacant = grow(pool, bases, keys, heap)
                vacancies -= 1
                slot = vacant[vacancies]
                store(n, d, room.node, pool, bases, slot)
                keys[slot] = key
                push(heap, keys, queued, slot)
                queued += 1
        if queued == 0:
            return proved, nodes, pivots, PROVED
        slot = heap[0]
        if keys[slot] <= cutoff:
            return max(proved, keys[slot]), nodes, pivots, PROVED
        if nodes >= limits.nodes or seconds() - started > limits.time:
            return max(proved, keys[slot]), nodes, pivots, LIMITED
        queued -= 1
        pop(heap, keys, queued)
        load(n, d, room.node, pool, bases, slot)
        vacant[vacancies] = slot
        vacancies += 1
        nodes += 1
        verdict = evaluate(n, d, room, limits, nodes, keys[slot], best, proved)
        best, proved, pivots = verdict.best, verdict.proved, pivots + verdict.pivots
        if not verdict.sound:
            return proved, nodes, pivots, BROKEN


@compiled
def finish(
    stack: Stack,
    state: int,
    low: Floats,
    high: Floats,
    action: Floats,
    limits: Limits,
    room: Room,
    proved: float,
    status: int,
    nodes: int,
    pivots: int,
) -> tuple[float, float, int, int, int]:
    """The best point as an action of the box, its value by the original network, and what was proved of it."""
    best = room.search.best
    for k in range(low.size):
        action[k] = min(max(low[k] + best[k] * (high[k] - low[k]), low[k]), high[k])
    value = folded_q(stack, state, action, room.scratch.row, room.search.active)
    upper = max(proved, value)
    if status == BROKEN or not np.isfinite(value):
        return value, np.inf, BROKEN, nodes, pivots
    if status == PROVED and not upper - value <= max(limits.absolute, limits.relative * abs(value)):
        status = LIMITED
    return value, upper, status, nodes, pivots


@allocating
def grow(
    pool: Floats, bases: np.ndarray, keys: Floats, heap: np.ndarray
) -> tuple[Floats, np.ndarray, Floats, np.ndarray, np.ndarray]:
    """The same arrays with room for twice as many nodes, and the list of new slots."""
    size = pool.shape[0]
    new_pool, new_bases = np.empty((2 * size, pool.shape[1])), np.empty((2 * size, bases.shape[1]), np.int8)
    new_keys, new_heap, vacant = np.empty(2 * size), np.empty(2 * size, np.int64), np.empty(2 * size, np.int64)
    for slot in range(size):
        for i in range(pool.shape[1]):
            new_pool[slot, i] = pool[slot, i]
        for i in range(bases.shape[1]):
            new_bases[slot, i] = bases[slot, i]
        new_keys[slot] = keys[slot]
        new_heap[slot] = heap[slot]
        vacant[slot] = size + slot
    return new_pool, new_bases, new_keys, new_heap, vacant


@compiled
def store(n: int, d: int, node: Node, pool: Floats, bases: np.ndarray, slot: int) -> None:
    """Keep a copy of the node."""
    for i in range(n):
        pool[slot, i] = node.lower[i]
        pool[slot, n + i] = node.upper[i]
        pool[slot, 2 * n + i] = node.multiplier[i]
    for k in range(d):
        pool[slot, 3 * n + k] = node.low[k]
        pool[slot, 3 * n + d + k] = node.high[k]
    for i in range(n + d):
        bases[slot, i] = node.basis[i]


@compiled
def load(n: int, d: int, node: Node, pool: Floats, bases: np.ndarray, slot: int) -> None:
    """The inverse of `store`."""
    for i in range(n):
        node.lower[i] = pool[slot, i]
        node.upper[i] = pool[slot, n + i]
        node.multiplier[i] = pool[slot, 2 * n + i]
    for k in range(d):
        node.low[k] = pool[slot, 3 * n + k]
        node.high[k] = pool[slot, 3 * n + d + k]
    for i in range(n + d):
        node.basis[i] = bases[slot, i]


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
def maximise_rows(
    stack: Stack,
    low: Floats,
    high: Floats,
    tolerance: Floats,
    limits: Limits,
    wanted: np.ndarray,
    rows: tuple[int, int],
    actions: Floats,
    answer: Floats,
) -> None:
    """Rows `rows[0]` to `rows[1]` of the batch; `actions` holds the warm starts and receives the actions.

    `answer` has one row per state: value, upper bound, status, nodes, pivots.
    """
    neurons, widest = np.int64(0), np.int64(1)
    for layer in range(1, stack.sizes.size):
        neurons += stack.sizes[layer]
        widest = max(widest, stack.sizes[layer])
    room = make_room(stack.sizes[0], neurons, widest)
    for b in range(rows[0], rows[1]):
        if wanted[b]:
            own = Limits(tolerance[0, b], tolerance[1, b], limits.nodes, limits.time)
            value, upper, status, nodes, pivots = maximise(stack, b, low[b], high[b], actions[b], own, room)
        else:
            value = folded_q(stack, b, actions[b], room.scratch.row, room.search.active)
            upper, status, nodes, pivots = np.inf, SKIPPED, 0, 0
        answer[b, 0], answer[b, 1], answer[b, 2], answer[b, 3], answer[b, 4] = value, upper, status, nodes, pivots
