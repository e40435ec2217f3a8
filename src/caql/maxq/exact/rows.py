"""The action set of one state: its box made smaller by its rows, its rows as part of the network, points brought back.

    low <= x <= high,   row_low <= R x <= row_high,   some x_k whole numbers

x are the actions and, after them, the auxiliary variables, which are actions that no neuron reads.

A row is treated as a neuron of the first layer whose phase is known and whose activation nobody reads: scaled by its
width over the box and shifted so that its upper side is 0, it has bounds [lower, 0].  What `relaxation` says of a
neuron's bounds then holds for it too, its margin included: any x that satisfies the row in real arithmetic has a
computed row within [lower - m, 0 + m].  Rows therefore need nothing of their own in the tableau, in the dual bound or
in the cuts of the box, and a node that they leave nothing of is closed like any other.

Whole numbers are scaled by a power of two, so that a box of whole numbers is exact.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from caql.maxq.exact.compilation import compiled, is_finite
from caql.maxq.exact.relaxation import ROUNDOFF, TINY, Compact, Floats, Integers, Node

PASSES = 4
"""Rounds of tightening the box by the rows; each passes a bound on through one more row."""
LOOSE = 1e-9
"""By how much of its width a point of the search may be outside a row, until `mend` brings it back."""
SWEEPS = 32
"""How often `mend` goes over the rows."""
EQUAL = 1e-14
"""What an equality may be wrong by, relative to what it adds up."""


class Region(NamedTuple):
    """One state's action set; `whole` is not zero for whole numbers."""

    low: Floats
    high: Floats
    rows: Floats
    row_low: Floats
    row_high: Floats
    whole: Floats


class Scaling(NamedTuple):
    """The tightened box, what 1 stands for in each scaled variable, and how the rows are scaled.

    x_k = low_k + unit_k s_k, with s_k in [0, reach_k]: reach is 1, for whole numbers at most that.
    """

    low: Floats
    high: Floats
    unit: Floats
    reach: Floats
    whole: Floats
    least: Floats
    """Of each row of the set that is part of the network, the lower side; the upper one is 0."""
    slack: Floats
    """By how much a point may be outside of it."""
    count: Integers
    """(2,): how many such rows there are, how many whole numbers."""


@compiled
def side_of(rising: bool, k: int, low: Floats, high: Floats) -> float:
    """The end of side k of a box at which a rising function is smallest, or a falling one."""
    return low[k] if rising else high[k]


@compiled
def cut_by_row(row: Floats, sign: float, top: float, low: Floats, high: Floats) -> bool:
    """Keep only x with  sign * row x <= top  in the box, rounded outwards; False when there is none."""
    least, size, endless = 0.0, abs(top), 0
    for k in range(row.size):
        if row[k] != 0.0:
            part = sign * row[k] * side_of(sign * row[k] > 0.0, k, low, high)
            if is_finite(part):
                least += part
                size += abs(part)
            else:
                endless += 1
    slack = 8.0 * (row.size + 2.0) * ROUNDOFF * size + TINY
    if endless == 0 and least > top + slack:
        return False
    for k in range(row.size):
        g = sign * row[k]
        if g == 0.0:
            continue
        part = g * side_of(g > 0.0, k, low, high)
        own = is_finite(part)
        if endless > (0 if own else 1):
            continue
        end = (top - (least - part if own else least) + slack) / g
        if g > 0.0:
            high[k] = min(high[k], end)
        else:
            low[k] = max(low[k], end)
    return True


@compiled
def round_box(whole: Floats, unit: Floats, low: Floats, high: Floats) -> bool:
    """The sides of whole numbers moved inwards to whole multiples of 1 / unit; False when one has none."""
    for k in range(whole.size):
        if whole[k] != 0.0:
            low[k] = np.ceil(low[k] * unit[k]) / unit[k]
            high[k] = np.floor(high[k] * unit[k]) / unit[k]
            if low[k] > high[k]:
                return False
    return True


@compiled
def shrink(region: Region, scaling: Scaling) -> bool:
    """Write the tightened box and its scale; False when the set is proved to be empty."""
    low, high, unit, reach = scaling.low, scaling.high, scaling.unit, scaling.reach
    scaling.count[0], scaling.count[1] = 0, 0
    for k in range(low.size):
        low[k], high[k], unit[k], scaling.whole[k] = region.low[k], region.high[k], 1.0, region.whole[k]
        scaling.count[1] += region.whole[k] != 0.0
    rows = region.rows.shape[0]
    if scaling.count[1] > 0 and not round_box(region.whole, unit, low, high):
        return False
    for _ in range(PASSES if rows > 0 else 0):
        for r in range(rows):
            if is_finite(region.row_high[r]) and not cut_by_row(region.rows[r], 1.0, region.row_high[r], low, high):
                return False
            if is_finite(region.row_low[r]) and not cut_by_row(region.rows[r], -1.0, -region.row_low[r], low, high):
                return False
        if not round_box(region.whole, unit, low, high):
            return False
    for k in range(low.size):
        span = high[k] - low[k]
        if span < 0.0:
            return False
        unit[k], reach[k] = span, 1.0
        if region.whole[k] != 0.0:
            power = 1.0
            while power < span < np.inf:
                power *= 2.0
            unit[k], reach[k] = power, span / power
    return True


@compiled
def write_rows(region: Region, scaling: Scaling, gamma: float, net: Compact, root: Node) -> bool:
    """The rows that the box does not imply, as the first neurons of the network; False when one cannot hold."""
    low, unit, reach = scaling.low, scaling.unit, scaling.reach
    count = 0
    for r in range(region.rows.shape[0]):
        row = region.rows[r]
        constant, size, below, above, free = 0.0, 0.0, 0.0, 0.0, False
        for k in range(row.size):
            constant += row[k] * low[k]
            width = row[k] * unit[k] * reach[k]
            below, above = below + min(width, 0.0), above + max(width, 0.0)
            size += abs(row[k]) * (abs(low[k]) + unit[k])
            free = free or (width != 0.0 and region.whole[k] == 0.0)
        top, bottom = min(region.row_high[r], constant + above), max(region.row_low[r], constant + below)
        margin = 4.0 * gamma * (size + abs(top) + abs(bottom)) + TINY
        if bottom > top + margin:
            return False
        width = above - below
        implied = constant + above <= region.row_high[r] and constant + below >= region.row_low[r]
        if implied or not width > margin:  # the last: rounding hides whatever the row says
            continue
        inverse = 1.0 / width
        for k in range(row.size):
            net.rows[count, k] = net.columns[k, count] = row[k] * unit[k] * inverse
        net.constant[count] = (constant - top) * inverse
        net.margin[count] = margin * inverse + TINY
        net.first[count] = 0
        root.lower[count], root.upper[count] = min((bottom - top) * inverse, 0.0), 0.0
        scaling.least[count] = root.lower[count]
        scaling.slack[count] = max(LOOSE, 4.0 * net.margin[count]) if free else 4.0 * net.margin[count]
        count += 1
    scaling.count[0] = count
    return True


@compiled
def scale_down(scaling: Scaling, x: Floats, point: Floats) -> None:
    """A point in the user's units as one in [0, 1], brought into the tightened box."""
    for k in range(scaling.low.size):
        unit = scaling.unit[k]
        point[k] = min(max((x[k] - scaling.low[k]) / unit, 0.0), scaling.reach[k]) if unit > 0.0 else 0.0


@compiled
def round_point(scaling: Scaling, point: Floats) -> None:
    """The whole numbers of a scaled point, rounded to the nearest."""
    if scaling.count[1] == 0:
        return
    for k in range(scaling.low.size):
        if scaling.whole[k] != 0.0:
            point[k] = np.floor(point[k] * scaling.unit[k] + 0.5) / scaling.unit[k]


@compiled
def scale_up(scaling: Scaling, region: Region, point: Floats, x: Floats) -> None:
    """A scaled point in the user's units, in the user's box."""
    for k in range(scaling.low.size):
        value = scaling.low[k] + point[k] * scaling.unit[k]
        if scaling.whole[k] != 0.0:
            value = np.floor(value + 0.5)
        x[k] = min(max(value, region.low[k]), region.high[k])


@compiled
def admits(scaling: Scaling, pre: Floats) -> bool:
    """Whether a point whose pre-activations are `pre` satisfies the rows, but for what `mend` can put right."""
    for i in range(scaling.count[0]):
        if pre[i] > scaling.slack[i] or pre[i] < scaling.least[i] - scaling.slack[i]:
            return False
    return True


@compiled
def excess(region: Region, r: int, x: Floats) -> float:
    """By how much x must come down in row r to be inside, or minus how much it must rise; 0 where it is.

    An inequality must hold in whatever order its terms are added, unless they are whole numbers, whose sums are exact.
    """
    row, height, reach, exact = region.rows[r], 0.0, 0.0, True
    for k in range(row.size):
        height += row[k] * x[k]
        reach += abs(row[k] * x[k])
        exact = exact and (row[k] == 0.0 or (region.whole[k] != 0.0 and row[k] == np.floor(row[k])))
    bottom, top = region.row_low[r], region.row_high[r]
    if bottom == top:
        return height - top if abs(height - top) > EQUAL * (reach + abs(top)) else 0.0
    order = 0.0 if exact else 2.0 * (row.size + 1.0) * ROUNDOFF * reach
    if height + order > top:
        return height - top + 2.0 * order
    if height - order < bottom:
        return height - bottom - 2.0 * order
    return 0.0


@compiled
def mend(region: Region, x: Floats) -> bool:
    """Move x, which is outside the rows by rounding if at all, into the set; False when it did not work.

    Row by row to the nearest point that satisfies it, in the variables that are not whole and can move.
    """
    rows = region.rows.shape[0]
    for _ in range(SWEEPS if rows > 0 else 0):
        done = True
        for r in range(rows):
            over = excess(region, r, x)
            if over == 0.0:
                continue
            done, norm = False, 0.0
            for k in range(x.size):
                if movable(region, r, k, over, x):
                    norm += region.rows[r, k] * region.rows[r, k]
            if not norm > 0.0:
                return False
            for k in range(x.size):
                if movable(region, r, k, over, x):
                    value = x[k] - over / norm * region.rows[r, k]
                    x[k] = min(max(value, region.low[k]), region.high[k])
        if done:
            return True
    return rows == 0


@compiled
def movable(region: Region, r: int, k: int, over: float, x: Floats) -> bool:
    """Whether variable k can bring row r down by moving, or up if `over` is negative."""
    g = region.rows[r, k] * over
    if g == 0.0 or region.whole[k] != 0.0:
        return False
    return x[k] > region.low[k] if g > 0.0 else x[k] < region.high[k]
