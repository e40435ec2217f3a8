"""A node made smaller by what is known of it: the box by the phases and by the best value, the neurons by the box.

Each step keeps what `relaxation` says a node claims, rounding included.
"""

from __future__ import annotations

import numpy as np

from caql.maxq.exact.compilation import compiled
from caql.maxq.exact.relaxation import TINY, Compact, Layer, Node, Planes, Scratch, bound_layer


@compiled
def cut_box(d: int, planes: Planes, i: int, least: float, node: Node) -> tuple[bool, bool]:
    """Keep only actions at which plane i is at least `least`: (box not empty, box changed)."""
    reach = planes.constant[i] - least
    for k in range(d):
        g = planes.slope[k, i]
        reach += g * (node.high[k] if g > 0.0 else node.low[k])
    if reach < 0.0:
        return False, True
    changed = False
    for k in range(d):
        g = planes.slope[k, i]
        width = node.high[k] - node.low[k]
        if reach < abs(g) * width:
            if g > 0.0:
                node.low[k] = max(node.low[k], node.high[k] - reach / g)
            else:
                node.high[k] = min(node.high[k], node.low[k] - reach / g)
            changed = changed or reach < 0.9 * abs(g) * width
    return True, changed


@compiled
def tighten(net: Compact, n: int, d: int, node: Node, scratch: Scratch, planes: Planes) -> bool:
    """Bounds of all neurons from the box and the box from the fixed phases, in place; False when none is left.

    The first layer, where bounds are exact, is done again when its half-spaces have shrunk the box.
    """
    start = np.int64(0)
    again = True
    while start < n:
        count = net.first[start]
        end = start
        while end < n and net.first[end] == count:
            planes.constant[end - start] = net.constant[end]
            end += 1
        width = end - start
        bound_layer(net, d, Layer(count, start, width), net.columns, node, planes)
        changed = False
        for i in range(start, end):
            nonempty, cut = tighten_neuron(net, d, node, scratch, planes, i, (i - start, width))
            if not nonempty:
                return False
            changed = changed or cut
        if changed and again and count == 0:
            again = False
        else:
            start = end
    return True


@compiled
def tighten_neuron(
    net: Compact, d: int, node: Node, scratch: Scratch, planes: Planes, i: int, place: tuple[int, int]
) -> tuple[bool, bool]:
    """Neuron i's bounds from its planes (`place`: its index in the layer, the layer's width), the box from its phase.

    Returns (node not empty, box changed).
    """
    above, below = place[0], place[1] + place[0]
    up, low = planes.up[above], -planes.up[below]
    stored_low, stored_up = node.lower[i], node.upper[i]
    margin = net.margin[i]
    if up < stored_low - 2.0 * margin or low > stored_up + 2.0 * margin:
        return False, False
    nonempty, cut = True, False
    if i < net.count[0]:  # a row of the action set, both of whose sides count
        scratch.binding[i] = low < stored_low or up > stored_up
        if low < stored_low:
            nonempty, cut = cut_box(d, planes, above, stored_low - 3.0 * margin, node)
        if nonempty and up > stored_up:
            nonempty, also = cut_box(d, planes, below, -stored_up - 3.0 * margin, node)
            cut = cut or also
    elif stored_low >= 0.0 and low < stored_low:
        nonempty, cut = cut_box(d, planes, above, stored_low - 3.0 * margin, node)
    elif stored_up <= 0.0 and up > stored_up:
        nonempty, cut = cut_box(d, planes, below, -stored_up - 3.0 * margin, node)
    if i >= net.count[0]:
        scratch.binding[i] = (stored_low >= 0.0 and low < 0.0) or (stored_up <= 0.0 and up > 0.0)
    node.lower[i] = max(stored_low, low)
    node.upper[i] = min(stored_up, up)
    if node.lower[i] > node.upper[i]:  # by no more than rounding: any point between the two will do
        if stored_low >= 0.0:
            node.upper[i] = node.lower[i]
        else:
            node.lower[i] = node.upper[i]
    return nonempty, cut


@compiled
def cut_by_value(n: int, d: int, node: Node, scratch: Scratch, slack: float) -> bool:
    """Cut off what the bound just evaluated proves to be `slack` below it (reduced-cost tightening).

    Valid only right after `dual_bound`; False when nothing was cut.
    """
    slack = slack * (1.0 + 1e-9) + TINY
    cut = False
    for k in range(d):
        g = scratch.row[k]
        if g > 0.0 and slack < g * (node.high[k] - node.low[k]):
            node.low[k] = max(node.low[k], node.high[k] - slack / g)
            cut = True
        elif g < 0.0 and slack < -g * (node.high[k] - node.low[k]):
            node.high[k] = min(node.high[k], node.low[k] - slack / g)
            cut = True
    for i in range(n):
        low, up = node.lower[i], node.upper[i]
        if low >= 0.0 or up <= 0.0:
            continue
        t = node.multiplier[i]
        w = scratch.coefficient[i] - node.share[i] - t
        left, right = -t * low, w * up
        need = max(0.0, max(left, right)) - slack
        if min(left, right) >= need:
            continue
        if max(left, 0.0) < need:
            node.lower[i] = 0.0
            scratch.binding[i] = 1
            cut = True
        elif t < 0.0 and left < need:
            node.lower[i] = -need / t
            cut = True
        if max(right, 0.0) < need:
            node.upper[i] = 0.0
            scratch.binding[i] = 1
            cut = True
        elif w < 0.0 and right < need:
            node.upper[i] = need / w
            cut = True
    return cut
