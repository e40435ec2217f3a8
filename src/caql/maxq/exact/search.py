"""Best-first branch and bound on ReLU phases for one state (Section 3.1, without a general MIP solver).

A node is a box of actions with bounds per neuron.  It is tightened, bounded by its parent's multipliers, then
by its linear program; the program's point is climbed to a local maximum of the network; and the neuron whose
envelope costs most is split into its two phases.

The certificate is the largest of: the bounds of open nodes, the bounds at which nodes were closed, and every
cutoff below which something was cut away.  The top of the queue alone would not be one.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from caql.maxq.exact.block import AT, FIELDS
from caql.maxq.exact.compilation import allocating, called_from_c, compiled, pointer, seconds, take
from caql.maxq.exact.node import Limits, Room, allowed, become_child, begin, evaluate, make_room
from caql.maxq.exact.presolve import Stack, folded_q
from caql.maxq.exact.relaxation import Floats, Node
from caql.maxq.exact.screen import WANTED, screen, set_down
from caql.maxq.exact.threads import PROBED, join, share_out, unpack

PROVED, LIMITED, BROKEN = 0, 2, 3
"""Values of `caql.maxq.problem.Status`."""


@compiled
def finish(
    stack: Stack, state: int, low: Floats, high: Floats, action: Floats, limits: Limits, room: Room, answer: Floats
) -> None:
    """The best point as an action of the box, its value by the original network, and what was proved of it.

    `answer` comes with the bound in place of the upper bound, and with the status the search ended in.
    """
    best = room.search.best
    for k in range(low.size):
        action[k] = min(max(low[k] + best[k] * (high[k] - low[k]), low[k]), high[k])
    value = folded_q(stack, state, action, room.scratch.row, room.search.active)
    answer[0] = value
    answer[1] = max(answer[1], value)
    if answer[2] == BROKEN or not np.isfinite(value):
        answer[1], answer[2] = np.inf, BROKEN
    elif answer[2] == PROVED and not answer[1] - value <= max(limits.absolute, limits.relative * abs(value)):
        answer[2] = LIMITED


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


@called_from_c
def solve_block(address: int) -> int:
    """The rows of the `Block` at an address, save those that other threads take from the same counter.

    `actions` holds the warm starts and receives the actions; `answer` has one row per state: value, upper bound,
    status, nodes, pivots.  One function, because Numba optimises everything below a function again for every
    function above it.
    """
    block = carray(pointer(address), (FIELDS,), np.int64)
    batch = unpack(block)
    stack, low, high, tolerance, limits, wanted, counter, actions, answer, stop = batch
    if counter[0] == 0:  # before any row is taken, so by the first thread alone
        screen(batch)
    helpers = np.empty((max(0, block[AT.threads] - 1), FIELDS + 1), np.int64)
    made, solved, began = 0, 0, seconds()
    d = stack.sizes[0]
    neurons, widest = np.int64(0), np.int64(1)
    for layer in range(1, stack.sizes.size):
        neurons += stack.sizes[layer]
        widest = max(widest, stack.sizes[layer])
    room = make_room(d, neurons, widest)
    capacity = 16
    pool = np.empty((capacity, 3 * neurons + 2 * d))
    bases = np.empty((capacity, neurons + d), np.int8)
    keys = np.empty(capacity)
    heap = np.empty(capacity, np.int64)
    vacant = np.empty(capacity, np.int64)
    while True:
        b = take(counter)
        if b >= counter[1]:
            break
        if wanted[b] != WANTED or stop[0] != 0:
            answer[b, 0] = folded_q(stack, b, actions[b], room.scratch.row, room.search.active)
            set_down(answer[b], wanted[b])
            continue
        started = seconds()
        if solved == PROBED and helpers.shape[0] > 0:
            made = share_out(block, started - began, wanted, b, helpers)
        solved += 1
        own = Limits(tolerance[0, b], tolerance[1, b], np.int64(limits[0]), limits[1])
        n, best = begin(stack, b, low[b], high[b], actions[b], room)
        vacancies = pool.shape[0]
        for slot in range(vacancies):
            vacant[slot] = slot
        queued, nodes, pivots = np.int64(0), np.int64(0), 0
        key, proved, status = np.inf, -np.inf, PROVED
        while True:
            nodes += 1
            verdict = evaluate(n, d, room, own, nodes, key, best, proved)
            best, proved, pivots = verdict.best, verdict.proved, pivots + verdict.pivots
            if not verdict.sound:
                status = BROKEN
                break
            cutoff = allowed(best, own)
            for phase in range(2 if verdict.branch >= 0 else 0):
                key = min(verdict.bound, become_child(n, d, room, verdict.branch, phase == 1))
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
                break
            slot = heap[0]
            key = keys[slot]
            if key <= cutoff or nodes >= own.nodes or stop[0] != 0 or seconds() - started > own.time:
                proved = max(proved, key)
                status = PROVED if key <= cutoff else LIMITED
                break
            queued -= 1
            pop(heap, keys, queued)
            load(n, d, room.node, pool, bases, slot)
            vacant[vacancies] = slot
            vacancies += 1
        answer[b, 1], answer[b, 2], answer[b, 3], answer[b, 4] = proved, status, nodes, pivots
        finish(stack, b, low[b], high[b], actions[b], own, room, answer[b])
    join(helpers, made)
    return 0
