"""The shape of an action set in the planes through one of its points.

In the plane of two actions, all others held, a set of linear rows is a convex polygon, also with auxiliary variables.
Points far outside in all directions project onto its corners, or between them where a side faces the direction, so the
projections, in the order of the directions, are the polygon.  Whole numbers are relaxed: the polygon is then around
the admissible points.  A set with an equality can be a segment or a point.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from caql.actions import ActionSet
from caql.explore.subject import Array

DIRECTIONS = 48
FAR = 20.0
"""Half-widths of the box from which the points are projected."""
MOST_PAIRS = 66
"""Planes that are computed: those of twelve actions."""


def _plane(action_set: ActionSet, point: Array, free: tuple[int, ...]) -> ActionSet:
    """The set with all actions but the `free` ones held at `point`."""
    low, high = point.copy(), point.copy()
    low[list(free)], high[list(free)] = action_set.low[list(free)], action_set.high[list(free)]
    return replace(action_set, low=low, high=high, integer=())


def _projections(action_set: ActionSet, point: Array, free: tuple[int, ...], directions: Array) -> Array:
    """(D, 2) or (D, 1) directions -> the set's points there, without repetitions; empty if rounding empties it."""
    plane, index = _plane(action_set, point, free), list(free)
    radius = (action_set.high - action_set.low)[index] / 2
    found: list[Array] = []
    for direction in directions:
        target = point.copy()
        target[index] += FAR * radius * direction
        closest = plane.closest(target)
        if closest is None:
            return np.empty((0, len(free)))
        here = closest[index]
        if not found or np.abs(here - found[-1]).max() > 1e-6 * radius.max():
            found.append(here)
    if len(found) > 1 and np.abs(found[0] - found[-1]).max() <= 1e-6 * radius.max():
        found.pop()
    return np.stack(found)


def polygons(action_set: ActionSet, point: Array) -> dict[str, list[list[float]]]:
    """The corners of one state's set in each plane through `point`, by the numbers of its two actions: "0,2"."""
    size = len(point)
    pairs = list(itertools.combinations(range(size), 2))
    if len(pairs) > MOST_PAIRS:
        return {}
    angles = np.linspace(0, 2 * np.pi, DIRECTIONS, endpoint=False) + 0.01
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return {f"{i},{j}": _projections(action_set, point, (i, j), directions).tolist() for i, j in pairs}


def spans(action_set: ActionSet, point: Array) -> list[list[float]]:
    """How far each action alone can go from `point`."""
    ends = np.array([[-1.0], [1.0]])
    found = []
    for index in range(len(point)):
        reached = _projections(action_set, point, (index,), ends)[:, 0]
        found.append([float(reached.min()), float(reached.max())] if len(reached) else [float(point[index])] * 2)
    return found
