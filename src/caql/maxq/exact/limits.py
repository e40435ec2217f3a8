"""When a search may stop: the gap that was asked for, the nodes and seconds, and what rounding leaves of the gap."""

from __future__ import annotations

from typing import NamedTuple

from caql.maxq.exact.compilation import compiled


class Limits(NamedTuple):
    """When to stop: absolute and relative gap, nodes, seconds; the rounding error of Q, below which no gap is.

    share: how much of the gap is the search's; the rest is for what bringing the action into its rows costs.
    floor: less than Q anywhere in the box; what is proved to be at most that is not in the action set.
    """

    absolute: float
    relative: float
    nodes: int
    time: float
    rounding: float
    share: float
    floor: float


@compiled
def allowed(value: float, limits: Limits) -> float:
    """The largest bound on the compact network that counts as proved.

    The rounding error is added to the bound in the end, and the value may differ from that of the original network
    by three times as much; a part of the tolerance is left for it, or as much as it takes.  A tolerance that
    rounding leaves nothing of is not reached, and the search need not try.  Before any action of the set is known,
    it is the floor: what is at most that is empty.
    """
    if value < limits.floor:
        return limits.floor
    gap = max(limits.absolute, limits.relative * abs(value))
    return value + max(min(limits.share * gap, gap - 4.0 * limits.rounding), limits.rounding)
