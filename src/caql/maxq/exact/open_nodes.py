"""The open parts of a search, the largest bound first: nodes of one network, or boxes that are yet to be presolved."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from caql.maxq.exact.compilation import allocating, compiled
from caql.maxq.exact.relaxation import Floats
from caql.maxq.exact.workspace import Workspace


class Queue(NamedTuple):
    """The open nodes: their numbers in slots, a heap of slots with the largest bound on top, and the vacant slots."""

    pool: Floats
    bases: np.ndarray
    keys: Floats
    parents: Floats
    """The bound of each, and that of the node it was split from."""
    heap: np.ndarray
    vacant: np.ndarray
    count: np.ndarray
    """(2,): how many are open, how many slots are vacant."""


@allocating
def make_queue(capacity: int, neurons: int, d: int) -> Queue:
    """An empty queue."""
    return Queue(
        np.empty((capacity, 4 * neurons + 3 * d)),
        np.empty((capacity, neurons + d), np.int8),
        np.empty(capacity),
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
        np.empty(2 * size),
        np.empty(2 * size, np.int64),
        np.empty(2 * size, np.int64),
        queue.count,
    )
    for slot in range(size):
        for i in range(4 * n + 3 * d):  # a slot has room for neurons that presolve has removed
            larger.pool[slot, i] = queue.pool[slot, i]
        for i in range(n + d):
            larger.bases[slot, i] = queue.bases[slot, i]
        larger.keys[slot], larger.parents[slot] = queue.keys[slot], queue.parents[slot]
        larger.heap[slot] = queue.heap[slot]
        larger.vacant[slot] = size + slot
    larger.count[1] = size
    return larger


@compiled
def store(n: int, d: int, space: Workspace, queue: Queue, key: float) -> None:
    """Keep a copy of the node; there must be a vacant slot."""
    pool, bases, keys, parents, heap, vacant, count = queue
    node = space.node
    count[1] -= 1
    slot = vacant[count[1]]
    for i in range(n):
        pool[slot, i] = node.lower[i]
        pool[slot, n + i] = node.upper[i]
        pool[slot, 2 * n + i] = node.multiplier[i]
        pool[slot, 3 * n + i] = node.share[i]
    for k in range(d):
        pool[slot, 4 * n + k] = node.low[k]
        pool[slot, 4 * n + d + k] = node.high[k]
        pool[slot, 4 * n + 2 * d + k] = node.point[k]
    for i in range(n + d):
        bases[slot, i] = node.basis[i]
    keys[slot], parents[slot] = key, space.search.parent[0]
    push(heap, keys, count[0], slot)
    count[0] += 1


@compiled
def load(n: int, d: int, space: Workspace, queue: Queue) -> None:
    """Take the node with the largest bound out of the queue."""
    pool, bases, keys, parents, heap, vacant, count = queue
    node = space.node
    slot = heap[0]
    count[0] -= 1
    pop(heap, keys, count[0])
    for i in range(n):
        node.lower[i] = pool[slot, i]
        node.upper[i] = pool[slot, n + i]
        node.multiplier[i] = pool[slot, 2 * n + i]
        node.share[i] = pool[slot, 3 * n + i]
    for k in range(d):
        node.low[k] = pool[slot, 4 * n + k]
        node.high[k] = pool[slot, 4 * n + d + k]
        node.point[k] = pool[slot, 4 * n + 2 * d + k]
    for i in range(n + d):
        node.basis[i] = bases[slot, i]
    space.search.parent[0] = parents[slot]
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
