"""Presolve of one state: the folded network becomes a `Compact` one of the neurons whose sign is not known.

Layer by layer every neuron's pre-activation is written as an affine row of the actions and of the unstable
neurons so far, and bounded backwards.  Inactive neurons vanish, active ones are substituted into the next
layer, and only the rest become variables.  Actions are scaled to [0, 1] and every unstable neuron by the width
of its range, so that one absolute feasibility tolerance suits all scales.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import numpy as np

from caql.maxq.compilation import compiled
from caql.maxq.relaxation import Compact, Floats, Integers, Node, largest


class Stack(NamedTuple):
    """The whole batch's network: `sizes` = (actions, hidden...), the layers' weights and biases end to end.

    The first layer's bias is per state and kept apart.
    """

    sizes: Integers
    flat: Floats
    first_bias: Floats


class Affine(NamedTuple):
    """One layer's pre-activations as rows of (actions, unstable neurons), and the same for the next layer."""

    rows: Floats
    constant: Floats
    next_rows: Floats
    next_constant: Floats
    scale: Floats
    slot: Integers


@compiled
def presolve(
    stack: Stack, state: int, low: Floats, span: Floats, net: Compact, root: Node, affine: Affine, row: Floats
) -> int:
    """Fill `net` and the root's bounds for one state; returns the number of unstable neurons."""
    sizes, flat = stack.sizes, stack.flat
    d = sizes[0]
    hidden = sizes.size - 1
    width = stack.first_bias.shape[1]
    rows, constant, following, following_constant, scale, slot = affine
    for j in range(width):
        constant[j] = stack.first_bias[state, j]
    for k in range(d):
        root.low[k] = 0.0
        root.high[k] = 1.0
        for j in range(width):
            weight = flat[k * width + j]
            constant[j] += weight * low[k]
            rows[j, k] = weight * span[k]
    offset = d * width
    n = np.int64(0)
    for layer in range(hidden):
        start = n
        columns = d + start
        for j in range(width):
            for k in range(columns):
                row[k] = rows[j, k]
            up, _ = largest(net, d, start, constant[j], row, root)
            slot[j] = -2
            if up <= 0.0:
                continue
            for k in range(columns):
                row[k] = -rows[j, k]
            negative, _ = largest(net, d, start, -constant[j], row, root)
            slot[j] = -1
            if negative <= 0.0:
                continue
            span_j = up + negative
            for k in range(columns):
                net.rows[n, k] = rows[j, k] / span_j
            net.constant[n] = constant[j] / span_j
            net.first[n] = start
            root.lower[n] = -negative / span_j
            root.upper[n] = up / span_j
            scale[n] = span_j
            slot[j] = n
            n += 1
        outputs = sizes[layer + 2] if layer + 1 < hidden else 1
        for o in range(outputs):
            following_constant[o] = flat[offset + width * outputs + o]
            for k in range(d + n):
                following[o, k] = 0.0
        for j in range(width):
            if slot[j] == -2:
                continue
            for o in range(outputs):
                weight = flat[offset + j * outputs + o]
                if slot[j] >= 0:
                    following[o, d + slot[j]] = weight * scale[slot[j]]
                else:
                    following_constant[o] += weight * constant[j]
                    for k in range(columns):
                        following[o, k] += weight * rows[j, k]
        offset += (width + 1) * outputs
        width = outputs
        rows, following = following, rows
        constant, following_constant = following_constant, constant
    for k in range(d + n):
        net.rows[n, k] = rows[0, k]
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
