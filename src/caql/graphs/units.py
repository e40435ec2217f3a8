"""The ReLUs that a value is made of, written on one layer and read on the next.

An activation offset + slope x + sum of jump [x - at]+ needs a unit for each kink and, unless its slope is zero, x
carried; max(x, y) = y + [x - y]+ needs one unit and y carried.  What an expression leaves out (`spread`) passes through
a ReLU unchanged where that is surely active, vanishes where it is surely inactive, and is an error of the same size
otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from caql.graphs.activations import PiecewiseLinear
from caql.graphs.expressions import Expression, apply, gamma
from caql.graphs.graph import Node
from caql.graphs.layers import HiddenLayers
from caql.graphs.operations import Add, Array, Maximum, Multiply

Operand = Expression | Array


@dataclass(frozen=True)
class Block:
    """Units for the entries of one expression: [x - at]+, or x itself carried if `at` is None."""

    x: Expression
    at: Array | None


def blocks_of(node: Node, operands: list[Operand], largest: Array) -> list[Block]:
    """The units that a value made by ReLUs needs."""
    if isinstance(node.operation, Maximum):
        x, y = _fixed_last(operands)
        minus = apply(Multiply(), [y, -np.ones((1, *node.shape))], largest) if isinstance(y, Expression) else -y
        difference = apply(Add(), [x, minus], largest)
        carried = [Block(y, None)] if isinstance(y, Expression) else []
        return [Block(difference, np.zeros((1, *node.shape))), *carried]
    assert isinstance(node.operation, PiecewiseLinear)
    (only,) = operands
    assert isinstance(only, Expression)
    _, slope, kinks = node.operation.kinks()
    units = [Block(only, np.broadcast_to(at, (1, *node.shape))) for at, _ in kinks]
    return [*units, Block(only, None)] if np.any(slope) or not kinks else units


def value_of(node: Node, operands: list[Operand], units: list[Expression], largest: Array) -> Expression:
    """The value, from what its units have become on the next layer."""
    if isinstance(node.operation, Maximum):
        _, y = _fixed_last(operands)
        return apply(Add(), [units[0], units[1] if isinstance(y, Expression) else y], largest)
    assert isinstance(node.operation, PiecewiseLinear)
    offset, slope, kinks = node.operation.kinks()
    parts = [(unit, jump) for unit, (_, jump) in zip(units, kinks, strict=False)]
    if len(units) > len(kinks):
        parts.append((units[-1], slope))
    total: Expression | None = None
    for unit, factor in parts:
        scaled = unit
        if np.any(np.asarray(factor) != 1.0):
            scaled = apply(Multiply(), [unit, np.broadcast_to(factor, (1, *node.shape))], largest)
        total = scaled if total is None else apply(Add(), [total, scaled], largest)
    assert total is not None
    if np.any(offset):
        total = apply(Add(), [total, np.broadcast_to(offset, (1, *node.shape))], largest)
    return total


def _fixed_last(operands: list[Operand]) -> tuple[Expression, Operand]:
    """x and y of max(x, y) = y + [x - y]+: a fixed operand is y."""
    x, y = operands
    if isinstance(x, Expression):
        return x, y
    assert isinstance(y, Expression)
    return y, x


def make_layer(layers: HiddenLayers, blocks: list[Block]) -> list[Expression]:
    """Append one layer with the units of all blocks; what each block is on that layer."""
    rows = [block.x.rows() for block in blocks]
    states = max(len(bias) for _, bias in rows)
    weights = np.concatenate([each for each, _ in rows], axis=1)
    shifted = []
    for block, (_, bias) in zip(blocks, rows, strict=True):
        moved = bias if block.at is None else bias - block.at.reshape(1, -1)
        shifted.append(np.broadcast_to(moved, (states, bias.shape[1])))
    size = np.concatenate([block.x.size.ravel() for block in blocks])
    carried = np.concatenate([np.full(block.x.size.size, block.at is None) for block in blocks])
    shift, least, most = layers.append(weights, np.concatenate(shifted, axis=1), size, carried)
    found, first = [], 0
    for block in blocks:
        part = slice(first, first + block.x.size.size)
        found.append(_read(block, part, shift[part], (least[part], most[part]), layers.largest))
        first = part.stop
    return found


def _read(block: Block, part: slice, shift: Array, reach: tuple[Array, Array], largest: Array) -> Expression:
    """A block's expression in the units of the layer that it has become part of."""
    x, shape = block.x, block.x.shape
    count = part.stop - part.start
    coefficients = np.zeros((len(largest), count))
    coefficients[np.arange(part.start, part.stop), np.arange(count)] = 1.0
    coefficients = coefficients.reshape(-1, *shape)
    bias = shift.reshape(1, *shape)
    size = largest[part].reshape(1, *shape) + np.abs(bias)
    if block.at is None:
        error = x.error + gamma(2) * (x.size + size)
        return Expression(bias, coefficients, x.generators, error, size)
    least, most = (side.reshape(1, *shape) for side in reach)
    spread = x.spread + 1e-10 * x.size
    active, inactive = least >= spread, most <= -spread
    generators = x.generators * active
    wrong = np.where(active, x.error, np.where(inactive, 0.0, x.spread))
    return Expression(bias, coefficients, generators, wrong + gamma(2) * (x.size + np.abs(block.at)), size)
