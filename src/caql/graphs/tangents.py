"""A straight line along a smooth activation, with a proved distance from it, over each entry's own interval.

Over [l, u] the slope is the chord's, s = (f(u) - f(l)) / (u - l), and the line lies midway between the lowest and the
highest value of g(x) = f(x) - s x.  These are sought on a grid of step h; between two neighbours g differs from
its linear interpolation by at most h^2 / 8 max |f''|, which is added on both sides.  The error falls with (u - l)^2.
"""

from __future__ import annotations

import numpy as np

from caql.graphs.activations import Smooth
from caql.graphs.expressions import UNIT
from caql.graphs.operations import Array

POINTS = 65


def tangent(activation: Smooth, lower: Array, upper: Array) -> tuple[Array, Array, Array]:
    """(slope, offset, error) with |f(x) - slope x - offset| <= error for lower <= x <= upper, entry by entry."""
    width = upper - lower
    weight = np.linspace(0.0, 1.0, POINTS).reshape(-1, *(1 for _ in lower.shape))
    # Both ends exactly: their distances to the grid's neighbours must not exceed the step.
    points = lower * (1.0 - weight) + upper * weight
    values = activation.evaluate(points)
    rise = values[-1] - values[0]
    slope = np.where(width > 0.0, rise / np.where(width > 0.0, width, 1.0), 0.0)
    rest = values - slope * points
    lowest, highest = rest.min(axis=0), rest.max(axis=0)
    between = (width / (POINTS - 1)) ** 2 / 8.0 * activation.curvature * (1.0 + 1e-9)
    size = np.abs(values).max(axis=0) + (np.abs(slope) + 1.0) * np.maximum(np.abs(lower), np.abs(upper))
    offset = 0.5 * (lowest + highest)
    return slope, offset, 0.5 * (highest - lowest) + between + 64.0 * UNIT * size
