"""Presolve of one state: the folded network becomes a `Compact` one of the neurons whose sign is not known.

Layer by layer every neuron's pre-activation is written as an affine row of the actions and of the unstable
neurons so far, and bounded backwards.  Inactive neurons vanish, active ones are substituted into the next
layer, and only the rest become variables.  Actions are scaled to [0, 1] and every unstable neuron by the width
of its range, so that one absolute feasibility tolerance suits all scales.

Rows are rounded, and a neuron may be called active or inactive by a hair.  So each has an error, which bounds the
difference between its true pre-activation and the computed row over the whole box (gamma, B and m as in `relaxation`):

    error_j = gamma (|b_j| + sum over actions of |W_kj| (|low_k| + span_k))       in the first layer,
    error_o = gamma |b_o| + sum over j of |W_jo| (error_j + 2 m_j)                in the others.

A wrong phase costs at most error_j + m_j, and writing the next layer's row at most m_j more, whatever the phase.
The output's error then bounds |Q - Q of the compact network| for all actions, and is added to whatever is proved.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from caql.maxq.exact.compilation import NATURAL, compiled
from caql.maxq.exact.relaxation import TINY, Compact, Floats, Integers, Layer, Node, Planes, bound_layer, operations
from caql.maxq.exact.rows import Region, Scaling, write_rows


class Stack(NamedTuple):
    """The whole batch's network: `sizes` = (actions, hidden...), the layers' weights and biases end to end.

    The first layer's bias is per state and kept apart.
    """

    sizes: Integers
    flat: Floats
    first_bias: Floats


class Case(NamedTuple):
    """One state's question: its row of the stack, and its action set."""

    stack: Stack
    state: int
    region: Region


class Affine(NamedTuple):
    """One layer's pre-activations in terms of actions and unstable neurons, a column each."""

    columns: Floats
    constant: Floats
    error: Floats
    size: Floats
    """B, in the units of the layer."""


class Presolve(NamedTuple):
    """Where the layer at hand and the next one are written, and what an action or unstable neuron weighs in B."""

    here: Affine
    following: Affine
    weight: Floats
    planes: Planes


class Step(NamedTuple):
    """From a layer of `width` neurons, which reads the first `reads` of the compact network, to one of `outputs`.

    `offset` is where the weights between the two begin.
    """

    reads: int
    offset: int
    width: int
    outputs: int
    gamma: float


@compiled
def write_first_layer(case: Case, scaling: Scaling, gamma: float, first: Affine) -> None:
    """The first layer in terms of the actions scaled to [0, 1]; it reads no auxiliary variable and no row."""
    stack, state = case.stack, case.state
    d, width = stack.sizes[0] & NATURAL, stack.first_bias.shape[1] & NATURAL
    columns, constant, error, _ = first
    low, unit = scaling.low, scaling.unit
    for j in range(width):
        constant[j] = stack.first_bias[state, j]
        error[j] = abs(constant[j])
    for k in range(d):
        size = abs(low[k]) + unit[k]
        for j in range(width):
            weight = stack.flat[k * width + j]
            constant[j] += weight * low[k]
            columns[k, j] = weight * unit[k]
            error[j] += abs(weight) * size
    for k in range(d, low.size + scaling.count[0]):
        for j in range(width):
            columns[k, j] = 0.0
    for j in range(width):
        error[j] = gamma * error[j] + TINY


@compiled
def measure(affine: Affine, weight: Floats, variables: int, width: int) -> None:
    """B of each of the layer's neurons."""
    columns, constant, _, size = affine
    for j in range(width):
        size[j] = abs(constant[j])
    for k in range(variables):
        times = weight[k]
        for j in range(width):
            size[j] += abs(columns[k, j]) * times


@compiled
def add_unstable(net: Compact, root: Node, work: Presolve, variables: int, n: int, j: int, step: Step) -> float:
    """Make neuron j of the layer the n-th of the compact network; returns the scale of its activation."""
    columns, constant, _, size = work.here
    up, lowest = work.planes.up[j], -work.planes.up[step.width + j]
    scale = up - lowest
    inverse = 1.0 / scale
    for k in range(variables):
        net.rows[n, k] = columns[k, j] * inverse
        net.columns[k, n] = columns[k, j] * inverse
    net.constant[n] = constant[j] * inverse
    net.margin[n] = step.gamma * size[j] * inverse + TINY
    root.lower[n] = lowest * inverse
    root.upper[n] = up * inverse
    return scale


@compiled
def substitute(flat: Floats, step: Step, d: int, start: int, net: Compact, root: Node, work: Presolve) -> int:
    """The next layer's rows from the bounds of this one's; `start` and the result count the unstable neurons."""
    columns, constant, error, size = work.here
    following, next_constant, next_error, _ = work.following
    reads, offset, width, outputs, gamma = step
    reads, width, outputs, start = reads & NATURAL, width & NATURAL, outputs & NATURAL, start & NATURAL
    bias = offset + width * outputs
    for o in range(outputs):
        next_constant[o] = flat[bias + o]
        next_error[o] = gamma * abs(flat[bias + o]) + TINY
    for k in range(d + start):
        for o in range(outputs):
            following[k, o] = 0.0
    n = start
    for j in range(width):
        up, lowest = work.planes.up[j], -work.planes.up[width + j]
        weights = (offset + j * outputs) & NATURAL
        wrong = error[j] + 2.0 * gamma * size[j] + max(0.0, min(up, TINY))
        if up <= TINY:
            for o in range(outputs):
                next_error[o] += abs(flat[weights + o]) * wrong
            continue
        if lowest >= 0.0:
            for o in range(outputs):
                next_constant[o] += constant[j] * flat[weights + o]
                next_error[o] += abs(flat[weights + o]) * wrong
            for k in range(d + reads):
                value = columns[k, j]
                for o in range(outputs):
                    following[k, o] += value * flat[weights + o]
            continue
        scale = add_unstable(net, root, work, d + reads, n, j, step)
        net.first[n] = reads
        work.weight[d + n] = 3.0 * size[j] / scale + 1.0
        for o in range(outputs):
            following[d + n, o] = scale * flat[weights + o]
            next_error[o] += abs(flat[weights + o]) * wrong
        n += 1
    return n


@compiled
def presolve(case: Case, scaling: Scaling, net: Compact, root: Node, work: Presolve) -> tuple[int, float]:
    """Fill `net` and the root's bounds for one state: (rows and unstable neurons, rounding error of Q).

    The error bounds |Q - Q of the compact network|, and the rounding of Q's own evaluation and of its bounds besides.
    With an empty set the number is -1.
    """
    sizes, flat = case.stack.sizes, case.stack.flat
    d, hidden = scaling.low.size & NATURAL, sizes.size - 1
    neurons = case.region.rows.shape[0]
    for layer in range(hidden):
        neurons += sizes[layer + 1]
    gamma = operations(d, neurons, hidden)
    if not write_rows(case.region, scaling, gamma, net, root):
        return np.int64(-1), 0.0
    n = scaling.count[0]
    net.count[0] = net.count[1] = n
    write_first_layer(case, scaling, gamma, work.here)
    for k in range(d):
        root.low[k], root.high[k] = 0.0, scaling.reach[k]
    for k in range(d + n):
        work.weight[k] = 1.0
    width = case.stack.first_bias.shape[1] & NATURAL
    offset, reads = sizes[0] * width, np.int64(0)
    for layer in range(hidden):
        here, planes = work.here, work.planes
        for j in range(width):
            planes.constant[j] = here.constant[j]
        bound_layer(net, d, Layer(reads, np.int64(0), width), here.columns, root, planes)
        measure(here, work.weight, d + reads, width)
        outputs = (sizes[layer + 2] if layer + 1 < hidden else 1) & NATURAL
        n = substitute(flat, Step(reads, offset, width, outputs, gamma), d, n, net, root, work)
        if reads == 0:
            net.count[1] = n
        reads = n
        offset += (width + 1) * outputs
        width = outputs
        work = Presolve(work.following, here, work.weight, planes)
    output = work.here
    measure(output, work.weight, d + n, np.int64(1))
    for k in range(d + n):
        net.rows[n, k] = output.columns[k, 0]
    net.constant[n] = output.constant[0]
    net.margin[n] = gamma * output.size[0] + TINY
    net.first[n] = n
    return n, output.error[0] + 3.0 * net.margin[n]


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
