"""`solve_block`, what is called from Python and from compiled code: a batch of states, one after the other.

A state is presolved and searched (`tree`), or, where too many neurons stay unstable, in parts (`parts`).  Whatever
the search proved of the compact network, the rounding error of the network itself is added to it.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from caql.maxq.exact.block import AT, FIELDS
from caql.maxq.exact.compilation import called_from_c, compiled, is_finite, pointer, seconds, take
from caql.maxq.exact.limits import Limits
from caql.maxq.exact.node import begin
from caql.maxq.exact.open_nodes import grow, make_queue
from caql.maxq.exact.parts import explore_parts, worth_parting
from caql.maxq.exact.presolve import Case, folded_q
from caql.maxq.exact.relaxation import Floats
from caql.maxq.exact.rows import mend, scale_up
from caql.maxq.exact.screen import WANTED, screen, set_down
from caql.maxq.exact.threads import PROBED, join, region_of, share_out, unpack
from caql.maxq.exact.tree import BROKEN, EMPTY, FULL, LIMITED, PROVED, Found, explore, outset
from caql.maxq.exact.workspace import Workspace, make_workspace


@compiled
def take_best(case: Case, space: Workspace, action: Floats) -> None:
    """The best point of a search as an action; a function, because only compiled ones take tuples apart for nothing."""
    scale_up(space.scaling, case.region, space.search.best, action)


@compiled
def finish(case: Case, action: Floats, limits: Limits, space: Workspace, found: Found, answer: Floats) -> None:
    """The best action brought into the set, its value by the original network, and what was proved of it."""
    answer[3], answer[4], answer[5] = found.nodes, found.pivots, 1.0
    if not found.known:
        answer[0], answer[1], answer[2] = -np.inf, -np.inf, EMPTY
        if found.status != PROVED or found.upper > limits.floor:
            answer[0], answer[1], answer[2], answer[5] = np.nan, np.inf, BROKEN, 0.0
        return
    answer[5] = 1.0 if mend(case.region, action) else 0.0
    value = folded_q(case.stack, case.state, action, space.scratch.row, space.search.active)
    upper, status = max(found.upper + limits.rounding, value), found.status
    if status == BROKEN or not is_finite(value):
        upper, status = np.inf, BROKEN
    elif status == PROVED and not upper - value <= max(limits.absolute, limits.relative * abs(value)):
        status = LIMITED
    answer[0], answer[1], answer[2] = value, upper, status


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
    boxes = make_queue(16, 0, d)
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
        if worth_parting(case, n, own):
            queue, boxes, found = explore_parts(case, actions[b], space, own, queue, boxes)
            own = Limits(tolerance[0, b], tolerance[1, b], np.int64(limits[0]), limits[1], 0.0, share, floor)
        else:
            progress, found = explore(space, n, own, queue, outset(best))
            while found.status == FULL:
                queue = grow(n, d, queue)
                progress, found = explore(space, n, own, queue, progress)
            if found.known:
                take_best(case, space, actions[b])
        finish(case, actions[b], own, space, found, answer[b])
    join(helpers, made)
    return 0
