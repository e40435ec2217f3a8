"""Lowering: a graph of operations as the layered ReLU network of the action that every bound and solver takes.

The depth of a value is the largest number of ReLUs between it and the action.  A value of depth k is an affine
expression of the units of layer k, or of a later layer through which it is carried (`layers`); a piecewise-linear
activation makes one unit of the next layer for each of its kinks, a maximum one (`units`), and a smooth activation is
a straight line with an error (`tangents`).  So a plain ReLU network is lowered to itself, and what skips a layer costs
units that are always active, on which no solver branches.

What does not depend on the action is computed beforehand, by whatever operations: it is a constant of the expressions.
The states of a batch share all weights and differ in the first layer's bias; where they would differ in more,
`StatesDiffer` is raised and each has to be lowered by itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from caql.actions import ActionSet
from caql.errors import CaqlError
from caql.graphs.activations import PiecewiseLinear, Smooth
from caql.graphs.expressions import Expression, StatesDiffer, apply, straightened
from caql.graphs.graph import LARGEST, Graph, Node
from caql.graphs.layers import HiddenLayers
from caql.graphs.objective import Objective
from caql.graphs.operations import Array, Linear, Maximum
from caql.graphs.schedule import Schedule, makes_units, schedule
from caql.graphs.tangents import tangent
from caql.graphs.units import Block, Operand, blocks_of, make_layer, value_of
from caql.networks import FoldedNetwork

SUPPORTED = "sums, products with constants, convolutions, poolings, maxima, and piecewise-linear or smooth activations"


class Lowered(NamedTuple):
    """A network of the action alone, and a bound on how far it is from the objective, whatever the action."""

    network: FoldedNetwork
    error: float


def lower(objective: Objective, states: Array, action_set: ActionSet) -> Lowered:
    """The objective at (B, n) states as a folded network over the action set.

    Raises `StatesDiffer` if the states cannot share its weights, `CaqlError` for an operation that cannot be lowered.
    """
    return _Lowering(objective, states, action_set).run()


def plain_layers(objective: Objective) -> list[tuple[Array, Array]]:
    """The layers `(W, b)` of a network that is a plain chain with ReLU between; `CaqlError` if it is not one."""
    network: Any = _Lowering(objective, np.zeros((1, 0)), None).run().network
    return [(network.action_weights, network.first_bias[0]), *network.later]


def is_smooth(objective: Objective, states: int) -> bool:
    """Whether a smooth activation stands between the action and the objective, with states of so many numbers."""
    nodes, plan = objective.graph.nodes, schedule(objective, states)
    return any(isinstance(nodes[index].operation, Smooth) for index in plan.depth)


def require_lowerable(graph: Graph, plan: Schedule) -> None:
    """Raise `CaqlError` for the first operation that moves with the action and cannot be lowered."""
    for index in sorted(plan.depth):
        node = graph.nodes[index]
        operation, what = node.operation, node.label or getattr(node.operation, "name", "")
        if operation is None or isinstance(operation, PiecewiseLinear | Smooth | Maximum):
            continue
        if not isinstance(operation, Linear):
            raise CaqlError(
                f"{what} depends on the action and {operation.name} is not piecewise linear; after the action may "
                f"stand {SUPPORTED}"
            )
        moving = [each in plan.depth for each in node.operands]
        if operation.name == "Divide" and moving[1]:
            raise CaqlError(
                f"{what}: what it divides by depends on the action, which is not piecewise linear; that must be "
                "constant or depend on the state alone"
            )
        if not operation.additive and len(moving) == 2 and all(moving):
            raise CaqlError(
                f"{what}: both operands of {operation.name} depend on the action, which is not piecewise linear; one "
                "of them must be constant or depend on the state alone"
            )


class _Lowering:
    """The state of one lowering: the schedule, the layers so far, and the expressions at the current layer."""

    def __init__(self, objective: Objective, states: Array, action_set: ActionSet | None) -> None:
        self.objective, self.graph = objective, objective.graph
        network, count = objective.network, states.shape[1]
        d = network.sizes(count)[1]
        self.plan = schedule(objective, count)
        require_lowerable(self.graph, self.plan)
        if self.plan.entries(self.graph, d) > LARGEST:
            raise CaqlError(f"the network's layers hold more than {LARGEST} numbers, which is too many to be lowered")
        smooth = any(isinstance(self.graph.nodes[index].operation, Smooth) for index in self.plan.depth)
        if smooth and action_set is None:
            raise CaqlError("the network has smooth activations: it is not a plain chain of layers with ReLU between")
        if smooth and len(states) > 1:
            raise StatesDiffer
        self.layers = HiddenLayers(action_set, d, "tightest" if smooth or self._carries() else "interval")
        middle = np.zeros((1, d)) if action_set is None else np.atleast_2d(action_set.centre)[:1]
        given = network.given(states, np.broadcast_to(middle, (len(states), d)))
        self.fixed = self._fixed(given)
        marks = network.given(np.full((1, count), -1.0), np.arange(d, dtype=np.float64)[None])
        self.inputs = {
            index: (np.where(mark >= 0, 0.0, given[index]), mark[0].astype(np.intp)) for index, mark in marks.items()
        }
        self.here: dict[int, Expression] = {}

    def _carries(self) -> bool:
        """Whether some value, or part of one, has to be carried through a layer."""
        operations = [self.graph.nodes[index].operation for index in self.plan.depth]
        kinked = [each.kinks() for each in operations if isinstance(each, PiecewiseLinear)]
        return bool(self.plan.carried) or any(
            [isinstance(each, Maximum) for each in operations] + [bool(np.any(each.slope)) for each in kinked]
        )

    def _fixed(self, given: dict[int, Array]) -> dict[int, Array]:
        """The values that do not move with the action but are needed, (B or 1, *shape)."""
        needed = sorted(self.plan.fixed)
        with np.errstate(all="ignore"):
            fixed = dict(zip(needed, self.graph.evaluate(given, needed), strict=True))
        for index, value in fixed.items():
            if not np.isfinite(value).all():
                what = self.graph.nodes[index].label or "a value of the state"
                raise CaqlError(f"{what} is not finite at some state; a network's numbers must be")
        return fixed

    def run(self) -> Lowered:
        """Layer by layer: units, then what is linear in them."""
        target = self.objective.node
        if target not in self.plan.depth:
            value: Any = self.fixed[target].reshape(len(self.fixed[target]), -1)
            rows = max(len(bias) for bias, _ in self.inputs.values())
            value = np.broadcast_to(value, (max(rows, len(value)), value.shape[1]))
            nothing: Any = np.zeros((self.layers.d, value.shape[1]))
            return Lowered(FoldedNetwork(value, nothing, ()), 0.0)
        for layer, wanted in enumerate(self.plan.wanted):
            made = self._make(layer, wanted) if layer else {}
            self.here = {}
            for index in wanted:
                self.here[index] = made[index] if index in made else self._linear(index)
        result = self.here[target]
        weights, bias = result.rows()
        if self.layers.layers and len(bias) > 1:
            raise StatesDiffer
        return Lowered(self.layers.network((weights, bias)), float(result.spread.max()))

    def _operands(self, node: Node) -> list[Operand]:
        return [self.here[each] if each in self.plan.depth else self.fixed[each] for each in node.operands]

    def _linear(self, index: int) -> Expression:
        """A value that is linear in the layer's units: an input, a linear operation, or a smooth one made straight."""
        node = self.graph.nodes[index]
        if node.operation is None:
            return self.layers.actions(*self.inputs[index])
        if isinstance(node.operation, Linear):
            return apply(node.operation, self._operands(node), self.layers.largest)
        assert isinstance(node.operation, Smooth)
        (x,) = self._operands(node)
        assert isinstance(x, Expression)
        return straightened(x, *tangent(node.operation, *self.layers.interval(x)), self.layers.largest)

    def _make(self, layer: int, wanted: list[int]) -> dict[int, Expression]:
        """Append a layer with all units that its values need, and read those values off it."""
        makers: list[tuple[int, list[Operand], list[Block]]] = []
        for index in wanted:
            node = self.graph.nodes[index]
            if (index, layer) in self.plan.carried:
                makers.append((index, [], [Block(self.here[index], None)]))
            elif makes_units(node):
                operands = self._operands(node)
                makers.append((index, operands, blocks_of(node, operands, self.layers.largest)))
        found = iter(make_layer(self.layers, [block for *_, blocks in makers for block in blocks]))
        made = {}
        for index, operands, blocks in makers:
            units = [next(found) for _ in blocks]
            if (index, layer) in self.plan.carried:
                (made[index],) = units
            else:
                made[index] = value_of(self.graph.nodes[index], operands, units, self.layers.largest)
        return made
