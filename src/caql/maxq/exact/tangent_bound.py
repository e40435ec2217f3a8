"""A node bounded by tangent planes (`tangent`), before any linear program is written down.

The first plane is taken at the corner nearest to the best action known, ordered by the slopes of the bound before.
The next ones are taken where the mixture so far is highest, as long as each brings the bound down by a quarter of what
is left.  What the last mixture proves to be below the cutoff is cut off the box.
"""

from __future__ import annotations

from caql.maxq.exact.climb import offer
from caql.maxq.exact.compilation import compiled, is_finite
from caql.maxq.exact.limits import Limits, allowed
from caql.maxq.exact.relaxation import Known
from caql.maxq.exact.tangent import choose_corner, cut_by_plane, highest, mix, tangent_plane
from caql.maxq.exact.workspace import Workspace

PLANES = 4
"""At most so many for a node."""
WORTH = 0.75
"""Another plane is tried where the last one has left less than this of the gap."""
ROUNDING = 8.0
"""In units of Q's margin, what is added to the maximum of a computed plane (`tangent`)."""


@compiled
def begin_at(space: Workspace, d: int) -> None:
    """Begin at the best action, with the slopes that `dual_bound` leaves behind."""
    node, search = space.node, space.search
    for k in range(d):
        search.point[k] = search.best[k]
        space.tangent.plane[k] = space.scratch.row[k] * (node.high[k] - node.low[k])


@compiled
def next_plane(space: Workspace, n: int, d: int, turn: int) -> tuple[float, float]:
    """Take another plane in: (the bound that all of them prove, Q at its corner)."""
    tangent = space.tangent
    choose_corner(d, space.node, tangent, space.search.point, tangent.plane)
    value = tangent_plane(space.net, n, d, space.node, tangent)
    if turn == 0:
        for k in range(d + 1):
            tangent.plane[k] = tangent.other[k]
        bound = highest(d, tangent.plane)
    else:
        bound = mix(d, tangent.plane, tangent.other)
    return bound + ROUNDING * space.net.margin[n], value


@compiled
def bound_by_tangents(space: Workspace, n: int, d: int, known: Known, limits: Limits) -> Known:
    """Bound the node whose `dual_bound` was just evaluated, offer the corners, and cut off what is proved."""
    node, tangent, search = space.node, space.tangent, space.search
    begin_at(space, d)
    cutoff = allowed(known.best, limits)
    left = known.bound - cutoff
    for turn in range(PLANES):
        here, value = next_plane(space, n, d, turn)
        if not is_finite(here):
            return known
        best = known.best
        if value > best:
            order, origin = tangent.order, tangent.origin
            for m in range(d):
                search.point[order[m]] = origin[m]
            best = offer(space.net, n, d, space.scaling, search, best)
        known = Known(min(known.bound, here), best, known.proved)
        cutoff = allowed(best, limits)
        if here <= cutoff or turn == PLANES - 1 or here - cutoff > WORTH * left:
            break
        left = here - cutoff
        for k in range(d):
            search.point[k] = node.high[k] if tangent.plane[k] > 0.0 else node.low[k]
    if here > cutoff and cut_by_plane(d, node, tangent.plane, here - cutoff):
        return Known(known.bound, known.best, max(known.proved, cutoff))
    return known
