"""Small networks of the kinds that break solvers, and the exact maximum of one with a single action.

Python's fractions hold every float64 exactly, so the oracle has no rounding of its own.
"""

import itertools
from fractions import Fraction

import numpy as np

from caql.networks import FoldedNetwork

KINDS = ("plain", "quantised", "tied", "duplicated", "sparse", "huge", "tiny", "mixed", "cancelling")


def network(rng, kind, sizes, batch=1):
    """A network of `sizes` = (actions, hidden..., 1) whose weights are of one of the `KINDS`."""
    layers = []
    for inputs, outputs in itertools.pairwise(sizes):
        weights, bias = rng.normal(size=(inputs, outputs)), rng.normal(size=outputs) * 0.5
        if kind in ("quantised", "tied", "duplicated"):
            weights, bias = np.round(weights * 4) / 4, np.round(bias * 4) / 4
        if kind == "tied":  # the same neuron, or its negative, or with another constant
            for j in range(1, outputs):
                if rng.random() < 0.5:
                    weights[:, j] = weights[:, j - 1] * rng.choice([1.0, -1.0, 2.0])
                    bias[j] = bias[j - 1] * rng.choice([1.0, -1.0, 2.0, 0.0])
        if kind == "duplicated":
            copies = rng.integers(0, outputs, outputs)
            weights, bias = weights[:, copies], bias[copies]
        if kind == "sparse":
            weights *= rng.random(weights.shape) < 0.5
        if kind in ("huge", "tiny"):
            weights, bias = (each * 10.0 ** (6 if kind == "huge" else -6) for each in (weights, bias))
        if kind == "mixed":
            weights *= 10.0 ** rng.uniform(-4, 4, weights.shape)
        if kind == "cancelling":  # neighbours that nearly cancel in the next layer
            large = 10.0 ** rng.uniform(6, 12)
            for j in range(1, outputs, 2):
                weights[:, j] = weights[:, j - 1] * large + weights[:, j]
                weights[:, j - 1] *= large
            for i in range(1, inputs, 2):
                weights[i] = -weights[i - 1] + rng.normal(size=outputs) / large
        layers.append((weights, bias))
    (first, bias), *later = layers
    shift = rng.normal(size=(batch, len(bias)))
    shift = np.round(shift * 4) / 4 if kind in ("quantised", "tied", "duplicated") else shift
    if kind in ("tied", "duplicated"):
        shift[:, 1:] = shift[:, :1]
    return FoldedNetwork(bias * (1.0 + np.abs(shift)) + shift * np.abs(bias), first, tuple(later))


def magnitude(network, low, high):
    """What |Q| could be if nothing cancelled: rounding is relative to this."""
    reach = np.maximum(np.abs(low), np.abs(high))
    size = np.abs(network.first_bias) + reach @ np.abs(network.action_weights)
    for weights, bias in network.later:
        size = size @ np.abs(weights) + np.abs(bias)
    return size[..., 0]


def exact_value(network, row, action):
    """Q at an action, as a fraction."""
    here = [Fraction(float(bias)) for bias in network.first_bias[row]]
    for k, a in enumerate(action):
        here = [h + Fraction(float(w)) * Fraction(a) for h, w in zip(here, network.action_weights[k], strict=True)]
    for weights, bias in network.later:
        there = [Fraction(float(b)) for b in bias]
        for j, value in enumerate(here):
            if value > 0:
                there = [t + Fraction(float(w)) * value for t, w in zip(there, weights[j], strict=True)]
        here = there
    return here[0]


def exact_maximum(network, row, low, high, axis=0, others=()):
    """The maximum over one action, `others` being the rest, as a fraction.

    Every layer is affine between the kinks of the layers before.
    """
    points = [Fraction(float(low)), Fraction(float(high))]
    weights = [Fraction(float(w)) for w in network.action_weights[axis]]
    bias = [Fraction(float(b)) for b in network.first_bias[row]]
    rest = [k for k in range(len(network.action_weights)) if k != axis]
    for k, value in zip(rest, map(Fraction, others), strict=True):
        bias = [b + Fraction(float(w)) * value for b, w in zip(bias, network.action_weights[k], strict=True)]
    values = [[b + w * point for b, w in zip(bias, weights, strict=True)] for point in points]
    for matrix, vector in network.later:
        points, values = _with_kinks(points, values)
        columns = [[Fraction(float(w)) for w in matrix[:, o]] for o in range(matrix.shape[1])]
        constants = [Fraction(float(b)) for b in vector]
        values = [
            [
                c + sum(w * v for w, v in zip(column, here, strict=True) if v > 0)
                for c, column in zip(constants, columns, strict=True)
            ]
            for here in values
        ]
    return max(here[0] for here in values)


def _with_kinks(points, values):
    """The same piecewise affine functions with a point wherever one of them changes sign."""
    more, at = [points[0]], [values[0]]
    for (left, here), (right, there) in itertools.pairwise(zip(points, values, strict=True)):
        shares = sorted({h / (h - t) for h, t in zip(here, there, strict=True) if h * t < 0})
        for share in shares:
            more.append(left + share * (right - left))
            at.append([h + share * (t - h) for h, t in zip(here, there, strict=True)])
        more.append(right)
        at.append(there)
    return more, at
