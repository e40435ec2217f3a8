"""What a node is split at: the phase of a neuron, or the middle of a side of the box.

The neuron is the one whose envelope costs most: multiplier times distance to the graph.  Its phases take away that one
envelope.  Half a side makes the range of every neuron that reads the action shorter, and every envelope lower: one
over [lower, upper] is up to upper (-lower) / (upper - lower) above the ReLU, times its coefficient c in the bound, and
half of side k shortens the range by |row_k| side_k / 2.  So

    gain_k = 1/2 sum over free neurons of |c_i| upper_i (-lower_i) / (upper_i - lower_i)^2 |row_ik| side_k

says how much lower the bound should be in both halves.  Networks with few free neurons are best split by phases, those
with many by sides, where the same proof takes a twentieth of the nodes.
"""

from __future__ import annotations

from caql.maxq.exact.compilation import NATURAL, compiled
from caql.maxq.exact.pivoting import KINDS, Tableau
from caql.maxq.exact.relaxation import TINY, Compact, Known, Node
from caql.maxq.exact.workspace import Workspace

KINKS_WEIGHT = 0.35
"""How much first-layer neurons are preferred for splitting, per first-layer neuron and action dimension."""
SIDES_WEIGHT = 7.0
"""With so many free neurons for each action, half a side and a phase are held against each other as they are."""
PROGRESS = 1.0 / 64.0
"""A side is halved only where the split before has closed so much of the gap: some bounds no box makes lower."""
SHORTEST = 2.0**-44
"""A side of the box, of length 1 at the root, is halved only while it is longer: shorter ones are mostly rounding."""


@compiled
def can_halve(space: Workspace, k: int) -> bool:
    """Whether side k of the node's box is long enough to be halved; one of whole numbers if it has two of them."""
    width = space.node.high[k] - space.node.low[k]
    return width > (0.0 if space.scaling.whole[k] != 0.0 else SHORTEST)


@compiled
def middle(node: Node, k: int) -> float:
    """Where side k is halved."""
    return 0.5 * (node.low[k] + node.high[k])


@compiled
def costliest_side(d: int, space: Workspace) -> int:
    """The action whose side of the box the bound just evaluated gains most by, if it can be halved; otherwise -1."""
    node, branch, most = space.node, -1, 0.0
    for k in range(d):
        gain = max(abs(space.scratch.row[k]), TINY) * (node.high[k] - node.low[k])
        if gain > most and can_halve(space, k):
            branch, most = k, gain
    return branch


@compiled
def loosest_side(space: Workspace, n: int, d: int) -> tuple[int, float, int]:
    """The action whose side is best halved, or -1; what that should take off the bound in both halves; free neurons.

    Reads the coefficients that `dual_bound` leaves behind.
    """
    net, node, gains = space.net, space.node, space.search.gains
    n, d = n & NATURAL, d & NATURAL
    for k in range(d):
        gains[k] = 0.0
    free = 0
    for i in range(net.count[0], n):
        low, up = node.lower[i], node.upper[i]
        if low < 0.0 and up > 0.0:
            free += 1
            width = up - low
            loose = abs(space.scratch.coefficient[i]) * (up / width) * (-low / width)
            for k in range(d):
                gains[k] += loose * abs(net.rows[i, k])
    branch, most = -1, 0.0
    for k in range(d):
        gain = 0.5 * gains[k] * (node.high[k] - node.low[k])
        if gain > most and can_halve(space, k):
            branch, most = k, gain
    return branch, most, free


@compiled
def costliest_envelope(net: Compact, n: int, d: int, node: Node, tab: Tableau) -> tuple[int, float]:
    """The free neuron with the largest envelope multiplier x distance to the graph, and that; -1 when none is free.

    A split of the first layer also cuts the box, the more so the fewer actions there are for its kinks.
    The distance of a triangle's point to the two lines z = 0 and z = y is min(z, p).
    Reads the reduced costs that `read_basis` leaves behind, and the activations of `pass_forward`.
    """
    choice, best = -1, -1.0
    n, d = n & NATURAL, d & NATURAL
    kinks = 0
    for i in range(net.count[0], n):
        kinks += net.first[i] == 0
    weight = max(1.0, KINKS_WEIGHT * kinks / d)
    for i in range(n):
        if node.lower[i] < 0.0 and node.upper[i] > 0.0:
            e = d + KINDS * i + 2
            score, cost = 0.0, tab.ratio[e] + tab.ratio[e + 1]
            if cost < 0.0:
                z = tab.actual[d + i]
                distance = min(z, z - tab.pre[i])
                score = -cost * max(distance, 0.0)
            score += 1e-9 * min(-node.lower[i], node.upper[i])
            if net.first[i] == 0:
                score *= weight
            if score > best:
                choice, best = i, score
    return choice, best


@compiled
def widest_neuron(n: int, node: Node) -> int:
    """The free neuron that is farthest from having a phase, or -1."""
    branch, widest = -1, 0.0
    for i in range(n):
        left = min(-node.lower[i], node.upper[i])
        if left > widest:
            branch, widest = i, left
    return branch


@compiled
def choose(space: Workspace, n: int, d: int, known: Known) -> int:
    """What to split, after the program: a neuron, or n plus an action.

    The more free neurons there are for an action, the more phases it would take, and the more a half side is preferred.
    """
    branch, cost = costliest_envelope(space.net, n, d, space.node, space.tab)
    progress = space.search.parent[0] - known.bound >= PROGRESS * (known.bound - known.best)
    if progress and d > 1:  # with one action the kinks of the first layer part the box better than its middle
        side, gain, free = loosest_side(space, n, d)
        share = free / (SIDES_WEIGHT * d)
        if side >= 0 and gain * share * share > cost:
            return n + side
    return branch
