"""What happens at one node of the branch and bound: tighten, bound, solve the relaxation, climb, choose a split.

The relaxation's point is a good place to look for a better action (`climb`).  A variable that should be a whole number
and is not there is split first; then a neuron into its phases, or the box (`branching`).

With every phase fixed the relaxation is the network itself, and its bound should be attained.  Where rounding has
kept the linear program from showing that, the box is halved, and smaller boxes settle it.

The certificate grows from pieces, `Known.proved`: the bound of every node that is closed, and the cutoff whenever
something was cut away below it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from caql.maxq.exact.branching import choose, costliest_side, middle, widest_neuron
from caql.maxq.exact.climb import climb, fractional, offer
from caql.maxq.exact.compilation import compiled, is_finite
from caql.maxq.exact.facets import cap_neurons
from caql.maxq.exact.limits import Limits, allowed
from caql.maxq.exact.pivoting import Shape
from caql.maxq.exact.presolve import Case, presolve
from caql.maxq.exact.relaxation import Floats, Known, backward_multipliers, dual_bound
from caql.maxq.exact.rows import round_box, scale_down, shrink
from caql.maxq.exact.simplex import INFEASIBLE, OPTIMAL, Outcome, dual_simplex
from caql.maxq.exact.tableau import E, P, Z, read_basis, read_multipliers, read_point, write_down
from caql.maxq.exact.tangent_bound import bound_by_tangents
from caql.maxq.exact.tightening import cut_by_value, tighten
from caql.maxq.exact.workspace import Workspace
from caql.maxq.exact.written_rows import pass_forward

CLOSED = -1


class Verdict(NamedTuple):
    """What is known after a node, and how to go on.

    branch: the neuron to split, n plus the action whose side to halve, or `CLOSED`.
    sound: False when not even a bound could be computed.
    """

    branch: int
    known: Known
    pivots: int
    sound: bool


@compiled
def begin(case: Case, action: Floats, space: Workspace) -> tuple[int, float, float]:
    """Presolve a state into the root node: (rows and unstable neurons, value of the warm start, rounding error).

    A warm start outside the set has the value -inf.  -1 neurons stand for a set that is proved to be empty or, with an
    infinite error, for one that is not bounded.
    """
    net, node, scratch, search, scaling = space.net, space.node, space.scratch, space.search, space.scaling
    d = scaling.low.size
    if not shrink(case.region, scaling):
        return np.int64(-1), -np.inf, 0.0
    for k in range(d):
        if not is_finite(scaling.unit[k]):
            return np.int64(-1), -np.inf, np.inf
    n, rounding = presolve(case, scaling, net, node, space.presolve)
    if n < 0:
        return n, -np.inf, 0.0
    scale_down(scaling, action, search.point)
    for k in range(d):
        search.best[k] = search.point[k]
        node.basis[n + k] = 0
    search.parent[0] = np.inf
    best = offer(net, n, d, scaling, search, -np.inf)
    backward_multipliers(net, n, d, node, scratch)
    for i in range(n):
        scratch.binding[i] = 0
        slope = node.multiplier[i]
        node.basis[i] = E if slope > 0.0 else (P if slope < 0.0 else Z)
    return n, best, rounding


@compiled
def corner(space: Workspace, d: int) -> None:
    """Make `search.point` the corner of the box at which the bound just evaluated is attained."""
    node, row = space.node, space.scratch.row
    for k in range(d):
        space.search.point[k] = node.high[k] if row[k] > 0.0 else node.low[k]


@compiled
def become_child(space: Workspace, n: int, d: int, branch: int, upper: bool) -> float:
    """Turn the node just evaluated into one of its two children; returns what the parent's multipliers prove of it.

    The upper child of a neuron is its active phase, that of an action the upper part of its side.
    """
    node, search = space.node, space.search
    for i in range(n):
        node.multiplier[i], node.share[i] = search.saved[i], search.shared[i]
    least, most, lower_end, upper_end = search.split
    if branch < n:
        node.lower[branch] = 0.0 if upper else least
        node.upper[branch] = most if upper else 0.0
    else:
        node.low[branch - n] = upper_end if upper else least
        node.high[branch - n] = most if upper else lower_end
    bound = dual_bound(space.net, n, d, node, space.scratch, True)
    return bound if is_finite(bound) else np.inf


@compiled
def cut_away(space: Workspace, n: int, d: int, known: Known, here: float, cutoff: float) -> Known:
    """Cut off what the bound `here`, just evaluated, proves to be below the cutoff, and record that."""
    if cut_by_value(n, d, space.node, space.scratch, here - cutoff):
        return Known(known.bound, known.best, max(known.proved, cutoff))
    return known


@compiled
def close(known: Known, pivots: int) -> Verdict:
    """A node that is done with: its bound joins the certificate."""
    return Verdict(CLOSED, Known(known.bound, known.best, max(known.proved, known.bound)), pivots, True)


@compiled
def bound_by(space: Workspace, n: int, d: int, known: Known) -> tuple[Known, float]:
    """The node's bound by the multipliers that it has, and that bound by itself."""
    here = dual_bound(space.net, n, d, space.node, space.scratch, False)
    return (Known(min(known.bound, here), known.best, known.proved) if is_finite(here) else known), here


@compiled
def bound_by_program(
    space: Workspace, n: int, d: int, known: Known, cutoff: float
) -> tuple[Known, float, Outcome, int]:
    """Solve the node's linear program: (what is known then, its bound by itself, the outcome, columns)."""
    shape = write_down(space, n, d, False)
    outcome = dual_simplex(space, n, d, shape, cutoff, 20 * (d + n) + 100, d > 1)
    read_basis(space, n, d, Shape(outcome.rows, shape.columns), outcome)
    read_multipliers(space, n, d)
    known, here = bound_by(space, n, d, known)
    if not is_finite(here):  # a breakdown of the tableau: any other multipliers are as valid
        backward_multipliers(space.net, n, d, space.node, space.scratch)
        known, here = bound_by(space, n, d, known)
    return known, here, outcome, shape.columns


@compiled
def split(space: Workspace, n: int, branch: int, at: float, known: Known, pivots: int) -> Verdict:
    """Keep what the two children of a node need; the side of an action is parted at `at`."""
    node, search, scaling = space.node, space.search, space.scaling
    for i in range(n):
        search.saved[i], search.shared[i] = node.multiplier[i], node.share[i]
    if branch < n:
        search.split[0], search.split[1] = node.lower[branch], node.upper[branch]
    else:
        k = branch - n
        least, most = node.low[k], node.high[k]
        lower_end, upper_end = at, at
        if scaling.whole[k] != 0.0:
            lower_end = np.floor(at * scaling.unit[k]) / scaling.unit[k]
            upper_end = lower_end + 1.0 / scaling.unit[k]
        search.split[0], search.split[1], search.split[2], search.split[3] = least, most, lower_end, upper_end
    search.parent[0] = known.bound
    return Verdict(branch, known, pivots, True)


@compiled
def settle_leaf(space: Workspace, n: int, d: int, known: Known, limits: Limits, pivots: int) -> Verdict:
    """A node without a free neuron that its program did not close: backward bounds are exact up to the phases' rows."""
    node, point = space.node, space.search.point
    backward_multipliers(space.net, n, d, node, space.scratch)
    known, _ = bound_by(space, n, d, known)
    for k in range(d):  # the best of this box, were the phases implied by it: they will be, as it shrinks
        point[k] = node.high[k] if space.scratch.row[k] > 0.0 else node.low[k]
    known = Known(known.bound, offer(space.net, n, d, space.scaling, space.search, known.best), known.proved)
    side = costliest_side(d, space)
    if known.bound <= allowed(known.best, limits) or side < 0:
        return close(known, pivots)
    return split(space, n, n + side, middle(node, side), known, pivots)


@compiled
def cap_at_best(space: Workspace, d: int) -> None:
    """Caps that are low at the best action, for the root's program."""
    for k in range(d):
        space.node.point[k] = space.search.best[k]
    cap_neurons(space.net, d, space.node, space.facets)


@compiled
def tightened(space: Workspace, n: int, d: int) -> bool:
    """Make the node smaller by its phases, rows and whole numbers; False when nothing is left of it."""
    node, scaling = space.node, space.scaling
    if scaling.count[1] > 0 and not round_box(scaling.whole, scaling.unit, node.low, node.high):
        return False
    if not tighten(space.net, n, d, node, space.scratch, space.presolve.planes):
        return False
    return scaling.count[1] == 0 or round_box(scaling.whole, scaling.unit, node.low, node.high)


@compiled
def evaluate(space: Workspace, n: int, d: int, limits: Limits, count: int, known: Known) -> Verdict:
    """Bound the node at hand (the `count`-th), look for a better action, and find the neuron to split.

    `known.bound` is what its parent proved; `known.proved` grows by whatever is closed or cut away here.
    """
    net, node, scratch, tab, search = space.net, space.node, space.scratch, space.tab, space.search
    scaling = space.scaling
    if (count > 1 or net.count[0] > 0) and not tightened(space, n, d):
        return close(Known(-np.inf, known.best, known.proved), 0)
    if count > 1:
        cap_neurons(net, d, node, space.facets)
    here = dual_bound(net, n, d, node, scratch, True)
    if not is_finite(here):
        return Verdict(CLOSED, known, 0, False)
    best = known.best
    if count == 1:
        corner(space, d)
        best = offer(net, n, d, scaling, search, best)
    known = Known(min(known.bound, here), best, known.proved)
    cutoff = allowed(best, limits)
    if known.bound <= cutoff:
        return close(known, 0)
    known = cut_away(space, n, d, known, here, cutoff)
    if count == 1 and d > 1:
        known = bound_by_tangents(space, n, d, known, limits)
        cutoff = allowed(known.best, limits)
        if known.bound <= cutoff:
            return close(known, 0)
    if count == 1:
        cap_at_best(space, d)
    known, here, outcome, columns = bound_by_program(space, n, d, known, cutoff - limits.rounding)
    shape, pivots = Shape(outcome.rows, columns), outcome.pivots
    if known.bound <= cutoff:
        return close(known, pivots)
    read_point(tab, d, shape, search.point)
    for k in range(d):
        node.point[k] = search.point[k]
    part = fractional(scaling, search, node)[0]
    at = search.point[part] if part >= 0 else 0.0
    best = offer(net, n, d, scaling, search, known.best)
    branch = -1
    if outcome.status != INFEASIBLE and known.bound > allowed(best, limits):
        if outcome.status != OPTIMAL:
            pass_forward(space, n, d)
        branch = n + part if part >= 0 else choose(space, n, d, Known(known.bound, best, known.proved))
        # Elsewhere the climb seldom pays.
        if best > known.best or best == -np.inf or count == 1 or (count >= 16 and count & (count - 1) == 0):
            best = climb(space, n, d, shape, best)
    known = Known(known.bound, best, known.proved)
    cutoff = allowed(best, limits)
    if known.bound <= cutoff:
        return close(known, pivots)
    known = cut_away(space, n, d, known, here, cutoff)
    if branch >= n:
        k = branch - n
        if part < 0:
            at = middle(node, k)
        if node.low[k] < at < node.high[k]:
            return split(space, n, branch, at, known, pivots)
    if not 0 <= branch < n or node.lower[branch] >= 0.0 or node.upper[branch] <= 0.0:
        branch = widest_neuron(n, node)
    if branch < 0:
        return settle_leaf(space, n, d, known, limits, pivots)
    return split(space, n, branch, 0.0, known, pivots)
