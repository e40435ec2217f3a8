"""Presolve of one state: the folded network becomes a `Compact` one of the neurons whose sign is not known.

Layer by layer every neuron's pre-activation is written as an affine row of the actions and of the unstable
neurons so far, and bounded backwards.  Inactive neurons vanish, active ones are substituted into the next
layer, and only the rest become variables.  Actions are scaled to [0, 1] and every unstable neuron by the width
of its range, so that one absolute feasibility tolerance suits all scales.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from caql.maxq.exact.compilation import NATURAL, compiled
from caql.maxq.exact.relaxation import Compact, Floats, Integers, Node, Planes, bound_layer


class Stack(NamedTuple):
    """The whole batch's network: `sizes` = (actions, hidden...), the layers' weights and biases end to end.

    The first layer's bias is per state and kept apart.
    """

    sizes: Integers
    flat: Floats
    first_bias: Floats


class Affine(NamedTuple):
    """One layer's pre-activations in terms of actions and unstable neurons, a column each; and the next layer's."""

    columns: Floats
    constant: Floats
    next_columns: Floats
    next_constant: Floats


@compiled
def presolve(
    stack: Stack, state: int, low: Floats, span: Floats, net: Compact, root: Node, affine: Affine, planes: Planes
) -> int:
    """Fill `net` and the root's bounds for one state; returns the number of unstable neurons."""
    sizes, flat = stack.sizes, stack.flat
    d = sizes[0] & NATURAL
    hidden = sizes.size - 1
    width = stack.first_bias.shape[1]
    columns, constant, following, following_constant = affine
    for j in range(width):
        constant[j] = stack.first_bias[state, j]
    for k in range(d):
        root.low[k] = 0.0
        root.high[k] = 1.0
        for j in range(width):
            weight = flat[k * width + j]
            constant[j] += weight * low[k]
            columns[k, j] = weight * span[k]
    offset = d * width
    n = np.int64(0)
    for layer in range(hidden):
        start = n & NATURAL
        width &= NATURAL
        for j in range(width):
            planes.constant[j] = constant[j]
        bound_layer(net, d, start, columns, np.int64(0), width, root, planes)
        outputs = (sizes[layer + 2] if layer + 1 < hidden else 1) & NATURAL
        bias = offset + width * outputs
        for o in range(outputs):
            following_constant[o] = flat[bias + o]
        for k in range(d + start):
            for o in range(outputs):
                following[k, o] = 0.0
        for j in range(width):
            up, lowest = planes.up[j], -planes.up[width + j]
            weights = (offset + j * outputs) & NATURAL
            if up <= 0.0:
                continue
            if lowest >= 0.0:
                for o in range(outputs):
                    following_constant[o] += constant[j] * flat[weights + o]
                for k in range(d + start):
                    value = columns[k, j]
                    for o in range(outputs):
                        following[k, o] += value * flat[weights + o]
                continue
            scale = up - lowest
            inverse = 1.0 / scale
            for k in range(d + start):
                net.rows[n, k] = columns[k, j] * inverse
                net.columns[k, n] = columns[k, j] * inverse
            net.constant[n] = constant[j] * inverse
            net.first[n] = start
            root.lower[n] = lowest * inverse
            root.upper[n] = up * inverse
            for o in range(outputs):
                following[d + n, o] = scale * flat[weights + o]
            n += 1
        offset = bias + outputs
        width = outputs
        columns, following = following, columns
        constant, following_constant = following_constant, constant
    for k in range(d + n):
        net.rows[n, k] = columns[k, 0]
    net.constant[n] = constant[0]
    net.first[n] = n
    return n


@compiled
def folded_q(stack: Stack, state: int, action: Floats, here: Floats, there: Floats) -> float:
    """Q at an action by the original network, so that a returned value never depends on the presolve."""
    sizes, flat = stack.sizes, stack.flat
    d = sizes[0]
    hidden = sizes.size - 1
    width = stack.first_bias.shape[1]
    for j in range(width):
        here[j] = stack.first_bias[state, j]
    for k in range(d):
        for j in range(width):
            here[j] += flat[k * width + j] * action[k]
    offset = d * width
    for layer in range(hidden):
        outputs = sizes[layer + 2] if layer + 1 < hidden else 1
        for o in range(outputs):
            there[o] = flat[offset + width * outputs + o]
        for j in range(width):
            value = here[j]
            if not value <= 0.0:  # so that a NaN is passed on
                for o in range(outputs):
                    there[o] += flat[offset + j * outputs + o] * value
        offset += (width + 1) * outputs
        width = outputs
        here, there = there, here
    return here[0]
