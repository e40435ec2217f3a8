"""A wide box in parts, each presolved anew: for networks so many of whose neurons are unstable that bounds mean little.

The bounds of deep networks compound, and over a wide box they can be a thousand times too large.  Over a part of the
box most neurons have a phase, so that the compact network is a small one.  A part with too many unstable neurons is
halved on the side that makes most of them so (`branching`), without a linear program; the others are searched like a
problem of their own (`tree`), which starts from the best value known.

The parts share their faces and cover the box to the bit.  What is proved of each includes the rounding error of its
own compact network, so the largest of them is a bound on Q over the box.
"""

from __future__ import annotations

import numpy as np

from caql.maxq.exact.branching import loosest_side
from caql.maxq.exact.climb import offer
from caql.maxq.exact.compilation import allocating, compiled, is_finite, seconds
from caql.maxq.exact.limits import Limits, allowed
from caql.maxq.exact.node import begin, corner
from caql.maxq.exact.open_nodes import Queue, clear, grow, load, store
from caql.maxq.exact.presolve import Case, folded_q
from caql.maxq.exact.relaxation import Floats, dual_bound
from caql.maxq.exact.rows import Region, scale_up
from caql.maxq.exact.tree import BROKEN, FULL, LIMITED, PROVED, Found, explore, outset
from caql.maxq.exact.workspace import Workspace

CROWDED = 96
"""A part with more unstable neurons is halved: below it presolving anew costs more than it saves."""

SHORT = 2.0**-12
"""Sides are halved while they are longer than this share of the box."""


@compiled
def worth_parting(case: Case, n: int, limits: Limits) -> bool:
    """Whether a box is too wide to be searched as it is.  Sets with rows or whole numbers are not parted."""
    region, d = case.region, case.region.low.size
    if d < 2 or region.rows.shape[0] > 0 or not is_finite(limits.rounding):
        return False
    for k in range(d):
        if region.whole[k] != 0.0:
            return False
    return n > CROWDED


@compiled
def part_of(region: Region, space: Workspace) -> Region:
    """The set, confined to the box in `search.corners`, in the user's units."""
    low, high = space.search.corners[0], space.search.corners[1]
    return Region(region.actions, low, high, region.rows, region.row_low, region.row_high, region.whole)


@compiled
def take_over(case: Case, space: Workspace, action: Floats, best: float) -> float:
    """Make the best point of a part the state's action if the original network says so; returns the best value."""
    trial = space.search.trial
    scale_up(space.scaling, case.region, space.search.best, trial)
    value = folded_q(case.stack, case.state, trial, space.scratch.row, space.search.active)
    if value > best:
        for k in range(trial.size):
            action[k] = trial[k]
        return value
    return best


@compiled
def middle_of(corners: Floats, side: int) -> float:
    """Where a side is halved, in the user's units."""
    return 0.5 * corners[0, side] + 0.5 * corners[1, side]


@compiled
def is_long(region: Region, corners: Floats, side: int) -> bool:
    """Whether a side of a part is worth halving, and has a middle."""
    low, high = corners[0, side], corners[1, side]
    return high - low > SHORT * (region.high[side] - region.low[side]) and low < middle_of(corners, side) < high


@allocating
def halve(space: Workspace, side: int, key: float, boxes: Queue) -> Queue:
    """Put both halves of the box in `search.corners` into the queue."""
    node, corners = space.node, space.search.corners
    d = corners.shape[1]
    at = middle_of(corners, side)
    for half in range(2):
        for k in range(d):
            node.low[k], node.high[k] = corners[0, k], corners[1, k]
        if half == 0:
            node.high[side] = at
        else:
            node.low[side] = at
        if boxes.count[1] == 0:
            boxes = grow(0, d, boxes)
        store(0, d, space, boxes, key)
    return boxes


@compiled
def look_at(case: Case, action: Floats, space: Workspace) -> tuple[int, float, float, float]:
    """Presolve the part in `search.corners`: (unstable neurons, a value in it, its bound, rounding error).

    The bound is infinite when it, or the part, could not be computed.
    """
    d = action.size
    n, value, rounding = begin(Case(case.stack, case.state, part_of(case.region, space)), action, space)
    if not is_finite(rounding) or not is_finite(value):
        return n, value, np.inf, rounding
    bound = dual_bound(space.net, n, d, space.node, space.scratch, True)
    if not is_finite(bound):
        return n, value, np.inf, rounding
    corner(space, d)
    return n, offer(space.net, n, d, space.scaling, space.search, value), bound, rounding


@compiled
def left(limits: Limits, rounding: float, nodes: int, elapsed: float) -> Limits:
    """What is left of a state's limits for a part of its box."""
    absolute, relative = limits.absolute, limits.relative
    return Limits(absolute, relative, limits.nodes - nodes, limits.time - elapsed, rounding, limits.share, limits.floor)


@allocating
def explore_parts(
    case: Case, action: Floats, space: Workspace, limits: Limits, queue: Queue, boxes: Queue
) -> tuple[Queue, Queue, Found]:
    """Search a state's box in parts; `action`, its best action so far, becomes the best of all.

    What is found includes the rounding errors of the parts.
    """
    started, d, corners = seconds(), action.size, space.search.corners
    clear(boxes)
    for k in range(d):
        action[k] = min(max(action[k], case.region.low[k]), case.region.high[k])
        space.node.low[k], space.node.high[k] = case.region.low[k], case.region.high[k]
    store(0, d, space, boxes, np.inf)
    best = folded_q(case.stack, case.state, action, space.scratch.row, space.search.active)
    proved, nodes, pivots = -np.inf, np.int64(0), 0
    while boxes.count[0] > 0:
        key, elapsed = boxes.keys[boxes.heap[0]], seconds() - started
        if key <= best + limits.share * max(limits.absolute, limits.relative * abs(best)):
            return queue, boxes, Found(True, max(proved, key), PROVED, nodes, pivots)
        if nodes > 0 and (nodes >= limits.nodes or space.tab.stop[0] != 0 or elapsed > limits.time):
            return queue, boxes, Found(True, max(proved, key), LIMITED, nodes, pivots)
        load(0, d, space, boxes)
        for k in range(d):
            corners[0, k], corners[1, k] = space.node.low[k], space.node.high[k]
        n, value, bound, rounding = look_at(case, action, space)
        if bound == np.inf or not is_finite(best):
            return queue, boxes, Found(True, np.inf, BROKEN, nodes, pivots)
        side = loosest_side(space, n, d)[0] if n > CROWDED else -1
        if value > best:
            best = take_over(case, space, action, best)
        key, own = min(key, bound + rounding), left(limits, rounding, nodes, elapsed)
        nodes += 1
        if bound <= allowed(best, own):
            proved = max(proved, key)
        elif side >= 0 and is_long(case.region, corners, side):
            boxes = halve(space, side, key, boxes)
        else:
            progress, found = explore(space, n, own, queue, outset(best))
            while found.status == FULL:
                queue = grow(n, d, queue)
                progress, found = explore(space, n, own, queue, progress)
            nodes += found.nodes - 1
            pivots += found.pivots
            best = take_over(case, space, action, best)
            proved = max(proved, min(key, found.upper + rounding))
            if found.status != PROVED:
                if boxes.count[0] > 0:
                    proved = max(proved, boxes.keys[boxes.heap[0]])
                return queue, boxes, Found(True, proved, found.status, nodes, pivots)
    return queue, boxes, Found(True, proved, PROVED, nodes, pivots)
