"""The hidden layers made so far, and the bounds of whatever is written on top of them.

A value that skips a layer is carried by a unit that is always active: with a lower bound l of x over the action set,

    x = [x - l]+ + l.

The bounds are `bounds.layer_bounds`' own, so that a solver sees at once that such a unit is active and substitutes it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from caql.actions import ActionSet
from caql.bounds import Bounds, Method, following_bounds
from caql.errors import CaqlError
from caql.graphs.expressions import Expression, StatesDiffer, exact
from caql.graphs.operations import Array
from caql.networks import FoldedNetwork

MARGIN = 0.05
"""Of the width of a carried value's range, kept between its lower bound and zero: a solver's bounds may be wider."""
ROUNDING = 1e-10
"""Of the size of an expression, by which computed bounds are widened."""


class HiddenLayers:
    """The ReLU layers of a lowered network, growing from the action set upwards."""

    def __init__(self, action_set: ActionSet | None, d: int, method: Method) -> None:
        """`action_set` None: a network of any actions, in which nothing can be carried."""
        self.action_set, self.d, self.method = action_set, d, method
        self.layers: list[tuple[Array, Array]] = []
        self.bounds: Bounds = []
        if action_set is None:
            self.largest = np.zeros(d)
        else:
            box = action_set.tightened()
            self.largest = np.abs(np.stack([box.low, box.high])).reshape(-1, d).max(axis=0)

    def actions(self, bias: Array, positions: Array) -> Expression:
        """An input (B or 1, *shape) whose entry i is action `positions[i]`, or the bias's where that is negative."""
        size = math.prod(bias.shape[1:])
        coefficients = np.zeros((self.d, size))
        at = np.flatnonzero(positions.ravel() >= 0)
        coefficients[positions.ravel()[at], at] = 1.0
        return exact(bias, coefficients.reshape(self.d, *bias.shape[1:]), self.largest)

    def range_of(self, weights: Array, bias: Array) -> tuple[Array, Array]:
        """Bounds of units @ weights + bias over the action set, (B, m) each."""
        assert self.action_set is not None
        if not self.layers:
            box = self.action_set.tightened()
            middle = box.centre @ weights + bias
            spread = box.radius @ np.abs(weights)
            return middle - spread, middle + spread
        return following_bounds(self.network(), self.action_set, self.bounds, (weights, bias), self.method)

    def network(self, *last: Any) -> FoldedNetwork:
        """The layers, and perhaps a last one, as a folded network."""
        layers: list[Any] = [*self.layers, *last]
        (weights, bias), *later = layers
        return FoldedNetwork(bias, weights, tuple((each, row[0]) for each, row in later))

    def interval(self, x: Expression) -> tuple[Array, Array]:
        """Bounds of the value itself, all of its errors included, over the action set, (B or 1, *shape) each."""
        weights, bias = x.rows()
        lower, upper = self.range_of(weights, bias)
        wide = (ROUNDING * x.size + x.spread).reshape(1, -1)
        return (lower - wide).reshape(-1, *x.shape), (upper + wide).reshape(-1, *x.shape)

    def append(self, weights: Array, bias: Array, size: Array, carried: Array) -> tuple[Array, Array, Array]:
        """One more ReLU layer, of pre-activations units @ weights + bias, bias (B or 1, m); `carried` (m,) bool.

        Returns the bounds l that the carried units are shifted by, zero for the others, (m,), and the range of
        the pre-activations before that shift over all states, (m,) each; unbounded if there is no action set.
        """
        if self.layers and len(bias) > 1:
            raise StatesDiffer
        shift = np.zeros(weights.shape[1])
        if self.action_set is None:
            if carried.any():
                raise CaqlError("the network is not a plain chain of layers with ReLU between them")
            self.layers.append((weights, bias))
            self.largest = shift
            return shift, shift - math.inf, shift + math.inf
        lower, upper = self.range_of(weights, bias)
        least, most = lower.min(axis=0), upper.max(axis=0)
        room = MARGIN * (most - least) + ROUNDING * size
        shift[carried] = (least - room)[carried]
        self.layers.append((weights, bias - shift))
        self.bounds.append((lower - shift, upper - shift))
        self.largest = np.maximum(most - shift, 0.0)
        return shift, least, most
