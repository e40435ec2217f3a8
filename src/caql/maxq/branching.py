"""Best-first branch and bound on ReLU phases for one state (Section 3.1, without a general MIP solver).

A node is a box of actions with bounds per neuron.  It is tightened, bounded by its parent's multipliers, then
by its linear program; the program's point is climbed to a local maximum of the network; and the neuron whose
envelope costs most is split into its two phases.

The certificate is the largest of: the bounds of open nodes, the bounds at which nodes were closed, and every
cutoff below which something was cut away.  The top of the queue alone would not be one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from caql.maxq.compilation import compiled, seconds
from caql.maxq.presolve import Affine, Stack, folded_q, presolve
from caql.maxq.relaxation import (
    Compact,
    Floats,
    Node,
    Planes,
    Scratch,
    backward_multipliers,
    cut_by_value,
    dual_bound,
    tighten,
)
from caql.maxq.simplex import Tableau, current, dual_simplex, read_multipliers, unwritten, write_down

INFEASIBLE = 1
PROVED, LIMITED, BROKEN, SKIPPED = 0, 2, 3, 4
"""Values of `caql.maxq.problem.Status`."""


class Search(NamedTuple):
    """Room for one search at a time: a point, its activations and pre-activations, the best point so far."""

    point: Floats
    active: Floats
    pre: Floats
    best: Floats
    saved: Floats


class Room(NamedTuple):
    """All the arrays that a thread works in."""

    net: Compact
    node: Node
    scratch: Scratch
    tab: Tableau
    affine: Affine
    planes: Planes
    search: Search


class Limits(NamedTuple):
    """When to stop: absolute and relative gap, nodes, seconds."""

    absolute: float
    relative: float
    nodes: int
    time: float


@compiled
def make_room(actions: int, neurons: int, widest: int) -> Room:
    """Arrays for networks of at most this many actions and neurons."""
    d, n, w = actions, neurons, widest
    columns = d + n
    net = Compact(np.empty((n + 1, columns)), np.empty((columns, n + 1)), np.empty(n + 1), np.empty(n + 1, np.int64))
    node = Node(np.empty(d), np.empty(d), np.empty(n), np.empty(n), np.empty(n), np.empty(n + d, np.int8))
    scratch = Scratch(np.empty(columns + 1), np.empty(n), np.empty(n, np.int8))
    variables = d + 3 * n + 1
    tab = Tableau(
        np.empty((2 * n + 3, (columns + 4) // 4 * 4)),
        np.empty(2 * n + 2, np.int64),
        np.empty(columns + 1, np.int64),
        np.empty(2 * n + 2),
        np.empty(columns + 1),
        np.empty(variables),
        np.empty(variables),
        np.empty(2 * n + 2),
        np.empty(2 * n + 2),
        np.empty(variables),
        np.empty((n + 1, columns + 1)),
        np.empty(n + 1, np.int64),
        np.empty(columns + 5),
        np.empty(n),
        np.empty(n),
        np.empty(variables, np.int64),
    )
    affine = Affine(np.empty((columns, w)), np.empty(w), np.empty((columns, w)), np.empty(w))
    planes = Planes(
        np.empty((columns, w)),
        np.empty((columns, w)),
        np.empty(w),
        np.empty(w),
        np.empty(w),
        np.empty(w),
        np.empty(w),
        np.empty(w),
    )
    search = Search(np.empty(d), np.empty(n + 1), np.empty(n + 1), np.empty(d), np.empty(n))
    return Room(net, node, scratch, tab, affine, planes, search)


@compiled
def value_at(net: Compact, n: int, d: int, search: Search) -> float:
    """Q of the presolved network at `search.point`; leaves the pre-activations in `search.pre`."""
    for i in range(n + 1):
        y = net.constant[i]
        for k in range(d):
            y += net.rows[i, k] * search.point[k]
        for j in range(net.first[i]):
            y += net.rows[i, d + j] * search.active[j]
        search.pre[i] = y
        search.active[i] = max(y, 0.0)
    return search.pre[n]


@compiled
def offer(net: Compact, n: int, d: int, search: Search, best: float) -> float:
    """The better of the best value so far and the value at `search.point`."""
    value = value_at(net, n, d, search)
    if value > best:
        for k in range(d):
            search.best[k] = search.point[k]
        return value
    return best


@compiled
def read_point(d: int, tab: Tableau, rows: int, columns: int, point: Floats) -> None:
    """The actions of the tableau's current point, clipped into the scaled box."""
    for r in range(rows):
        if tab.basic[r] < d:
            point[tab.basic[r]] = min(max(tab.basic_value[r], 0.0), 1.0)
    for c in range(1, columns):
        if tab.nonbasic[c] < d:
            point[tab.nonbasic[c]] = min(max(tab.nonbasic_value[c], 0.0), 1.0)


@compiled
def costliest_envelope(n: int, d: int, node: Node, tab: Tableau) -> int:
    """The free neuron with the largest envelope multiplier x distance to the graph; -1 when none is free.

    The distance of a triangle's point to the two lines z = 0 and z = y is min(z, p).
    Reads the reduced costs that `read_multipliers` leaves behind.
    """
    choice, best = -1, -1.0
    for i in range(n):
        if node.lower[i] < 0.0 and node.upper[i] > 0.0:
            e = d + 3 * i + 2
            score = 0.0
            if tab.ratio[e] < 0.0:
                missing, value = unwritten(tab, d, i)
                z = value if missing == e - 2 else current(tab, tab.where[e - 2])
                p = value if missing == e - 1 else current(tab, tab.where[e - 1])
                distance = min(z, p)
                score = -tab.ratio[e] * max(distance, 0.0)
            score += 1e-9 * min(-node.lower[i], node.upper[i])
            if score > best:
                choice, best = i, score
    return choice


@compiled
def climb(
    net: Compact, n: int, d: int, node: Node, tab: Tableau, rows: int, columns: int, search: Search, best: float
) -> float:
    """From the program's point to the best of its linear region, and on over the kinks that pay; uses up the tableau."""
    for step in range(8):
        if step == 0:
            for i in range(n):
                z = d + 3 * i
                if node.lower[i] < 0.0 and node.upper[i] > 0.0:
                    if search.pre[i] > 0.0:
                        tab.variable_high[z + 1] = 0.0
                    else:
                        tab.variable_high[z] = 0.0
        else:
            chosen, gain = -1, 1e-12
            for c in range(1, columns):
                v = tab.nonbasic[c]
                if v >= d and (v - d) % 3 < 2 and tab.matrix[rows, c] > gain and tab.variable_high[v] == 0.0:
                    partner = v + 1 if (v - d) % 3 == 0 else v - 1
                    for other in range(1, columns):
                        if tab.nonbasic[other] == partner and tab.nonbasic_value[other] == 0.0:
                            chosen, gain = v, tab.matrix[rows, c]
            if chosen < 0:
                break
            i = (chosen - d) // 3
            if (chosen - d) % 3 == 0:
                tab.variable_high[chosen] = node.upper[i]
                tab.variable_high[chosen + 1] = 0.0
            else:
                tab.variable_high[chosen] = -node.lower[i]
                tab.variable_high[chosen - 1] = 0.0
        status, rows, _, _, _ = dual_simplex(tab, d, n, rows, columns, best, 4 * (d + n) + 20)
        if status != 0:
            break
        read_point(d, tab, rows, columns, search.point)
        value = offer(net, n, d, search, best)
        if not value > best:
            break
        best = value
    return best


@compiled
def allowed(value: float, limits: Limits) -> float:
    """The largest upper bound that counts as proved; a hair less than the tolerance, for rounding's sake."""
    return value + 0.9999 * max(limits.absolute, limits.relative * abs(value))


@compiled
def maximise(
    stack: Stack, state: int, low: Floats, high: Floats, action: Floats, limits: Limits, room: Room
) -> tuple[float, float, int, int, int]:
    """Solve one state from the warm start in `action`, and leave the best action there: (value, upper, status, nodes, pivots)."""
    net, node, scratch, tab, affine, planes, search = room
    d = low.size
    started = seconds() if limits.time < np.inf else 0.0
    for k in range(d):
        span = high[k] - low[k]
        search.best[k] = span
    n = presolve(stack, state, low, search.best, net, node, affine, planes)
    for k in range(d):
        span = high[k] - low[k]
        search.point[k] = min(max((action[k] - low[k]) / span, 0.0), 1.0) if span > 0.0 else 0.0
    best = offer(net, n, d, search, -np.inf)
    for i in range(n):
        scratch.binding[i] = 0
        node.basis[i] = 0
    for k in range(d):
        node.basis[n + k] = 0
    backward_multipliers(net, n, d, node, scratch)
    bound = np.inf
    record = 3 * n + 2 * d
    pool = np.empty((16, record))
    bases = np.empty((16, n + d), np.int8)
    keys = np.empty(16)
    heap = np.empty(16, np.int64)
    vacant = np.empty(16, np.int64)
    for slot in range(16):
        vacant[slot] = slot
    free_slots = 16
    queued = np.int64(0)
    proved = -np.inf
    nodes = 0
    pivots = 0
    status = PROVED
    while True:
        nodes += 1
        closed = False
        cutoff = allowed(best, limits)
        if nodes > 1 and not tighten(net, n, d, node, scratch, planes):
            closed = True
            bound = -np.inf
        branch = -1
        if not closed:
            here = dual_bound(net, n, d, node, scratch, True)
            bound = min(bound, here)
            if not np.isfinite(here):
                status = BROKEN
                break
            if nodes == 1:
                for k in range(d):
                    search.point[k] = 1.0 if scratch.row[k] > 0.0 else 0.0
                best = offer(net, n, d, search, best)
                cutoff = allowed(best, limits)
            if bound <= cutoff:
                closed = True
            elif cut_by_value(n, d, node, scratch, here - cutoff):
                proved = max(proved, cutoff)
        if not closed:
            if nodes == 1:
                for i in range(n):
                    t = node.multiplier[i]
                    node.basis[i] = 4 if scratch.coefficient[i] > 0.0 else (2 if t != 0.0 else 1)
            rows, columns = write_down(net, n, d, node, scratch, tab)
            outcome, rows, ray, step, spent = dual_simplex(tab, d, n, rows, columns, cutoff, 20 * (d + n) + 100)
            pivots += spent
            read_multipliers(net, n, d, node, scratch, tab, rows, columns, ray, step)
            here = dual_bound(net, n, d, node, scratch, False)
            if not np.isfinite(here):  # a breakdown of the tableau: any other multipliers are as valid
                backward_multipliers(net, n, d, node, scratch)
                here = dual_bound(net, n, d, node, scratch, False)
            bound = min(bound, here)
            if bound <= cutoff:
                closed = True
            else:
                read_point(d, tab, rows, columns, search.point)
                incumbent = best
                best = offer(net, n, d, search, best)
                climbing = best > incumbent or nodes & (nodes - 1) == 0
                if outcome != INFEASIBLE:
                    branch = costliest_envelope(n, d, node, tab)
                    if climbing:
                        best = climb(net, n, d, node, tab, rows, columns, search, best)
                cutoff = allowed(best, limits)
                if bound <= cutoff:
                    closed = True
                elif cut_by_value(n, d, node, scratch, here - cutoff):
                    proved = max(proved, cutoff)
        if not closed and (branch < 0 or node.lower[branch] >= 0.0 or node.upper[branch] <= 0.0):
            branch = -1
            widest = 0.0
            for i in range(n):
                room_left = min(-node.lower[i], node.upper[i])
                if room_left > widest:
                    branch, widest = i, room_left
        if closed or branch < 0:
            proved = max(proved, bound)
        else:
            split_low, split_up = node.lower[branch], node.upper[branch]
            for i in range(n):
                search.saved[i] = node.multiplier[i]
            for phase in range(2):
                node.lower[branch] = 0.0 if phase == 1 else split_low
                node.upper[branch] = 0.0 if phase == 0 else split_up
                for i in range(n):
                    node.multiplier[i] = search.saved[i]
                key = min(bound, dual_bound(net, n, d, node, scratch, True))
                if key <= cutoff:
                    proved = max(proved, key)
                    continue
                if free_slots == 0:
                    free_slots = pool.shape[0]
                    pool, bases, keys, heap, vacant = grow(pool, bases, keys, heap)
                free_slots -= 1
                slot = vacant[free_slots]
                store(n, d, node, pool, bases, slot)
                keys[slot] = key
                push(heap, keys, queued, slot)
                queued += 1
        if queued == 0:
            break
        cutoff = allowed(best, limits)
        if keys[heap[0]] <= cutoff:
            proved = max(proved, keys[heap[0]])
            break
        if nodes >= limits.nodes or (limits.time < np.inf and seconds() - started > limits.time):
            proved = max(proved, keys[heap[0]])
            status = LIMITED
            break
        slot = heap[0]
        queued -= 1
        pop(heap, keys, queued)
        bound = keys[slot]
        load(n, d, node, pool, bases, slot)
        vacant[free_slots] = slot
        free_slots += 1
    for k in range(d):
        action[k] = min(max(low[k] + search.best[k] * (high[k] - low[k]), low[k]), high[k])
    value = folded_q(stack, state, action, scratch.row, search.active)
    upper = max(proved, value)
    if status == BROKEN or not np.isfinite(value):
        return value, np.inf, BROKEN, nodes, pivots
    if status == PROVED and not upper - value <= max(limits.absolute, limits.relative * abs(value)):
        status = LIMITED
    return value, upper, status, nodes, pivots


@compiled
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


@compiled
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
