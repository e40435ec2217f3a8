"""A dense tableau, and what a dual simplex does with one row of it: a long-step ratio test, flips, a pivot.

A row reads x_basic = T[r, 0] + sum over columns c of T[r, c] x_nonbasic(c); the row after the last is Q.  Every
variable is boxed, so a ratio test may step over (flip) variables to their other bound as long as the dual
objective improves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from caql.maxq.exact.compilation import NATURAL, compiled
from caql.maxq.exact.relaxation import Floats, Integers

FEASIBLE = 1e-9
PIVOT = 1e-8
"""Entries of a row that are no larger are not pivoted on."""
SPARSE = 3
"""A row with fewer than one in so many entries is added entry by entry."""


class Tableau(NamedTuple):
    """Dense tableau, variable bounds by id, and the current point."""

    matrix: Floats
    basic: Integers
    nonbasic: Integers
    basic_value: Floats
    nonbasic_value: Floats
    free: Floats
    """By column: 1 for a variable at its lower bound, which can rise, -1 for one that can fall, 0 for a fixed one."""
    variable_low: Floats
    variable_high: Floats
    basic_low: Floats
    basic_high: Floats
    ratio: Floats
    column: Integers
    """Of each free neuron's key in the first basis; 0 for the others."""
    incoming: Floats
    touched: Integers
    """The incoming row, and its columns that are not zero."""
    reach: Floats
    """Minus the lower bound of each free neuron."""
    slope: Floats
    """Of each free neuron's envelope; 0 for the others."""
    times: Floats
    """Of each neuron's line z = times y + plus + own x in the first basis (`written_rows`)."""
    plus: Floats
    own: Floats
    capped: Floats
    """1 where that line is the cap of a neuron that reads the actions alone; `times` and `plus` are then 0."""
    key: Integers
    planes: Floats
    """The first layer's z in terms of 1 and the actions, a column each, but for their keys; and its free neurons."""
    bent: Integers
    count: Integers
    """(1,): how many of these there are."""
    original: Integers
    """The nonbasic variables of the first basis."""
    fresh: Floats
    """A row in terms of them, and the same while it is traced back through the network."""
    traced: Floats
    actual: Floats
    """Actions and activations at the current point, and the pre-activations."""
    pre: Floats
    where: Integers
    """By variable: r + 1 in row r, -c in column c, 0 for one that has neither."""
    stop: Integers
    """Pivoting ends soon after its only entry becomes non-zero."""


KINDS = 4
"""Variables of a neuron: its activation, and its slacks to z >= y, to its envelope or cap, and to another facet."""


class Shape(NamedTuple):
    """How much of a tableau is in use; the row after the last is Q."""

    rows: int
    columns: int


@compiled
def pivot(tab: Tableau, rows: int, columns: int, r: int, q: int) -> None:
    """Exchange basic variable r with nonbasic variable q; values are left alone."""
    matrix, incoming = tab.matrix, tab.incoming
    padded = (columns + 3) & NATURAL & ~3  # whole vectors; the padding is kept at zero
    inverse = 1.0 / matrix[r, q]
    for c in range(padded):
        incoming[c] = matrix[r, c] * -inverse
        matrix[r, c] = 0.0
    incoming[q] = inverse
    matrix[r, q] = 1.0
    touched, count = tab.touched, 0
    for c in range(columns):
        touched[count] = c
        count += incoming[c] != 0.0
    if SPARSE * count < padded:
        for i in range(rows + 1):
            factor = matrix[i, q]
            if factor != 0.0:
                matrix[i, q] = 0.0
                for c in range(count):
                    matrix[i, touched[c]] += factor * incoming[touched[c]]
    else:
        for i in range(0, rows, 2):
            factor, other = matrix[i, q], matrix[i + 1, q]
            matrix[i, q] = matrix[i + 1, q] = 0.0
            for c in range(padded):
                matrix[i, c] += factor * incoming[c]
                matrix[i + 1, c] += other * incoming[c]
        if rows % 2 == 0:
            factor = matrix[rows, q]
            matrix[rows, q] = 0.0
            for c in range(padded):
                matrix[rows, c] += factor * incoming[c]
    tab.basic[r], tab.nonbasic[q] = tab.nonbasic[q], tab.basic[r]
    tab.where[tab.basic[r]] = r + 1
    tab.where[tab.nonbasic[q]] = -q


@compiled
def settle(tab: Tableau, rows: int, columns: int) -> None:
    """Put every nonbasic variable at the bound its reduced cost prefers and recompute the basic ones."""
    matrix = tab.matrix
    tab.nonbasic_value[0], tab.free[0] = 1.0, 0.0
    for c in range(1, columns):
        variable = tab.nonbasic[c]
        upper, low, high = matrix[rows, c] > 0.0, tab.variable_low[variable], tab.variable_high[variable]
        tab.nonbasic_value[c] = high if upper else low
        tab.free[c] = (-1.0 if upper else 1.0) if high > low else 0.0
    for r in range(rows):
        value = 0.0
        for c in range(columns):
            value += matrix[r, c] * tab.nonbasic_value[c]
        tab.basic_value[r] = value


@compiled
def fetch_bounds(tab: Tableau, rows: int) -> None:
    """Lay the basic variables' bounds beside their values."""
    for r in range(rows):
        tab.basic_low[r] = tab.variable_low[tab.basic[r]]
        tab.basic_high[r] = tab.variable_high[tab.basic[r]]


@compiled
def objective(tab: Tableau, rows: int, columns: int) -> float:
    """The tableau's value of Q, an upper bound up to rounding."""
    value = 0.0
    for c in range(columns):
        value += tab.matrix[rows, c] * tab.nonbasic_value[c]
    return value


@compiled
def rate(tab: Tableau, shape: Shape, r: int, sign: float) -> int:
    """The ratio of every column that can mend row r, infinity elsewhere; returns the best column, or -1."""
    matrix, ratio, free, rows = tab.matrix, tab.ratio, tab.free, shape.rows
    for c in range(shape.columns & NATURAL):
        slope = sign * matrix[r, c]
        ratio[c] = max(0.0, -matrix[rows, c] / slope) if slope * free[c] > PIVOT else np.inf
    return smallest(tab, shape.columns, r)


@compiled
def negligible(tab: Tableau, columns: int, r: int) -> float:
    """A violation of row r that proves nothing: columns too small to pivot on might mend it."""
    total = 0.0
    for c in range(1, columns):
        if abs(tab.matrix[r, c]) <= PIVOT:
            variable = tab.nonbasic[c]
            total += abs(tab.matrix[r, c]) * (tab.variable_high[variable] - tab.variable_low[variable])
    return FEASIBLE + 2.0 * total


@compiled
def next_column(tab: Tableau, columns: int, r: int, passed: int) -> int:
    """The column with the smallest ratio but for `passed`, whose ratio becomes infinite; -1 when there is none."""
    tab.ratio[passed] = np.inf
    return smallest(tab, columns, r)


@compiled
def smallest(tab: Tableau, columns: int, r: int) -> int:
    """The column with the smallest ratio, the largest entry of row r among equals; -1 when there is none."""
    ratio, matrix = tab.ratio, tab.matrix
    q, best, size = np.int64(-1), np.inf, 0.0
    for c in range(1, columns):
        if ratio[c] < best or (ratio[c] == best and best < np.inf and abs(matrix[r, c]) > size):
            q, best, size = c, ratio[c], abs(matrix[r, c])
    return q


@compiled
def flip(tab: Tableau, rows: int, q: int) -> None:
    """Move nonbasic variable q to its other bound."""
    variable = tab.nonbasic[q]
    width = tab.variable_high[variable] - tab.variable_low[variable]
    at_upper = tab.nonbasic_value[q] > tab.variable_low[variable]
    move = -width if at_upper else width
    tab.nonbasic_value[q] = tab.variable_low[variable] if at_upper else tab.variable_high[variable]
    tab.free[q] = -tab.free[q]
    for i in range(rows):
        tab.basic_value[i] += tab.matrix[i, q] * move


class Choice(NamedTuple):
    """The column to exchange a row with, or -1; the objective and the ratio there; the violation that would be left."""

    column: int
    value: float
    ratio: float
    rest: float


@compiled
def choose_column(tab: Tableau, shape: Shape, r: int, sign: float, worst: float, value: float) -> Choice:
    """The long step: flip the columns on the way as long as the dual objective improves.

    Without a column, a `rest` of 0 stands for a violation too small to prove anything by.
    """
    q, rest, passed = rate(tab, shape, r, sign), worst, 0.0
    while q >= 0:
        value -= rest * (tab.ratio[q] - passed)
        passed = tab.ratio[q]
        variable = tab.nonbasic[q]
        rest -= abs(tab.matrix[r, q]) * (tab.variable_high[variable] - tab.variable_low[variable])
        if rest <= 0.0:
            return Choice(q, value, passed, 0.0)
        following = next_column(tab, shape.columns, r, q)
        if following < 0 and rest <= negligible(tab, shape.columns, r):
            return Choice(q, value, passed, 0.0)  # it mends the row but for a trifle
        flip(tab, shape.rows, q)
        q = following
    return Choice(q, value, passed, rest if rest > negligible(tab, shape.columns, r) else 0.0)


@compiled
def exchange(tab: Tableau, shape: Shape, r: int, q: int, sign: float) -> None:
    """Bring basic variable r to the bound it violates by moving nonbasic variable q, and pivot."""
    rows = shape.rows
    target = tab.basic_low[r] if sign > 0.0 else tab.basic_high[r]
    move = (target - tab.basic_value[r]) / tab.matrix[r, q]
    for i in range(rows):
        tab.basic_value[i] += tab.matrix[i, q] * move
    tab.basic_value[r] = tab.nonbasic_value[q] + move
    tab.nonbasic_value[q] = target
    leaving = tab.basic[r]
    tab.free[q] = sign if tab.variable_high[leaving] > tab.variable_low[leaving] else 0.0
    pivot(tab, rows, shape.columns, r, q)
    tab.basic_low[r] = tab.variable_low[tab.basic[r]]
    tab.basic_high[r] = tab.variable_high[tab.basic[r]]
