"""Planes above the neurons of the first layer, lower than their triangles: facets of the hull over the box of actions.

The triangle of a neuron forgets that its pre-activation is a function of the actions.  Over a box the least concave
function above relu(y), y = c + r a, is lower (Anderson et al. 2020, "Strong mixed-integer programming formulations for
trained neural networks"), and at a given point it is found by sorting: begin at the corner where y is smallest, let the
actions go to their other ends one after the other, those first that have gone farthest at the point, and see where y
becomes positive.  With w_k the share of action k in what is then above zero,

    relu(c + r a) <= cap(a) = sum of w_k r_k (a_k - end_k)          for all a in the box, whatever the order,

plus relu(y) at that corner, which is seldom more than 0.  w is 0 for the actions that went before y was zero, 1 for
those after, and (y after) / (y after - y before) for the one in between.  No other plane above the neuron is lower at
the point.

The program of a node begins with the planes that are lowest at its parent's maximiser, the neuron's *cap* in place of
the upper side of its triangle (`tableau`), and gets more of them where its own maximiser is above one that promises a
share of the gap (`written_rows.write_cuts`).

Rounding
--------
gamma, B and m are those of `relaxation`.  With D_k = r_k (a_k - end_k), which is between 0 and its step R_k = |r_k|
times the side, cap - y = -y(corner) - sum of (1 - w_k) D_k, at least -y(corner) - sum of (1 - w_k) R_k, and w makes
that 0.  Computed, the rises of y along the way, whose shares the slopes are, are wrong by (3 d + 6) u B altogether,
and the slopes, none of which is larger than |r_k|, and the constant of the plane are rounded by (d + 3) u B, which
together is less than 2 m.  An order that rounding has got wrong is an order.  A triangle's upper side, which takes the
place of a facet where the node's bounds are tighter than those of its box, is wrong by m for the bounds and less than
m for rounding.
"""

from __future__ import annotations

from typing import NamedTuple

from caql.maxq.exact.compilation import NATURAL, compiled
from caql.maxq.exact.relaxation import TINY, Compact, Floats, Integers, Node

CLOSE = 1e-9
"""A triangle takes the place of a facet where it is lower by more than that."""


class Facets(NamedTuple):
    """Room for the planes of a first layer, beside those that the node has."""

    order: Integers
    """(2 d,): the ends of the sides, in the order in which the actions go there."""
    gone: Floats
    """(2 d,): how much of its way to each end a point has gone."""
    level: Floats
    """By neuron: its pre-activation on the way, and in the end its largest value."""
    top: Floats
    """By neuron: the largest value of its cap's slack."""
    bottom: Floats
    """By neuron: the smallest value of its pre-activation."""
    height: Floats
    """By neuron: its plane at a point."""
    slack: Floats
    """By neuron: how far inside its envelope it is at a point."""
    planes: Floats
    """(1 + d, n): planes beside the node's own, for a second point."""


@compiled
def sort_ends(d: int, node: Node, point: Floats, facets: Facets) -> None:
    """Which action goes next, to its upper end (k) or to its lower one (d + k): those first that are nearest to it."""
    order, gone = facets.order, facets.gone
    for k in range(d):
        side = node.high[k] - node.low[k]
        share = (point[k] - node.low[k]) / side if side > 0.0 else 0.5
        gone[k], gone[d + k] = share, 1.0 - share
    for end in range(2 * d):
        size, place = gone[end], end
        while place > 0 and gone[order[place - 1]] < size:
            order[place] = order[place - 1]
            place -= 1
        order[place] = end


@compiled
def write_facets(net: Compact, d: int, node: Node, facets: Facets, planes: Floats) -> None:
    """The planes of the first layer's neurons, a column each: the constant, then the slopes; in the order of the ends.

    `facets.level` becomes the largest value of each over the box.
    """
    level, count, d = facets.level, net.count[1] & NATURAL, d & NATURAL
    for i in range(count):
        level[i] = net.constant[i]
    for k in range(d):
        low, high = node.low[k], node.high[k]
        for i in range(count):
            r = net.columns[k, i]
            level[i] += max(r, 0.0) * low + min(r, 0.0) * high
            planes[1 + k, i] = 0.0
    for i in range(count):
        facets.bottom[i] = level[i]
        planes[0, i] = max(level[i], 0.0)
    for m in range(2 * d):
        end = facets.order[m]
        rising = end < d
        k = end if rising else end - d
        sign = 1.0 if rising else -1.0
        side, start = node.high[k] - node.low[k], node.low[k] if rising else node.high[k]
        inverse = 1.0 / max(side, TINY)
        for i in range(count):
            r = max(sign * net.columns[k, i], 0.0)
            before = max(level[i], 0.0)
            level[i] += r * side
            slope = sign * min((max(level[i], 0.0) - before) * inverse, r)
            planes[1 + k, i] += slope
            planes[0, i] -= slope * start


@compiled
def heights(net: Compact, d: int, planes: Floats, point: Floats, out: Floats) -> None:
    """The first layer's planes at a point."""
    count, d = net.count[1] & NATURAL, d & NATURAL
    for i in range(count):
        out[i] = planes[0, i]
    for k in range(d):
        for i in range(count):
            out[i] += planes[1 + k, i] * point[k]


@compiled
def cap_neurons(net: Compact, d: int, node: Node, facets: Facets) -> None:
    """Give the node the planes that are lowest at `node.point`: facets, or triangles where bounds are tighter."""
    top, point = facets.top, node.point
    sort_ends(d, node, point, facets)
    write_facets(net, d, node, facets, node.cap)
    for i in range(net.count[0], net.count[1]):
        top[i] = facets.level[i]
        low, up = node.lower[i], node.upper[i]
        if low < 0.0 and up > 0.0 and (low > facets.bottom[i] + CLOSE or up < top[i] - CLOSE):
            value, height = net.constant[i], node.cap[0, i]
            for k in range(d):
                value += net.rows[i, k] * point[k]
                height += node.cap[1 + k, i] * point[k]
            slope = up / (up - low)
            if slope * (value - low) < height - CLOSE:
                top[i] = -slope * low
                node.cap[0, i] = slope * (net.constant[i] - low)
                for k in range(d):
                    node.cap[1 + k, i] = slope * net.rows[i, k]
