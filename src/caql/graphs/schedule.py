"""Which values of a graph move with the action, how deep they are, and at which layers each of them is wanted.

Walking down from the objective, a value wanted at layer k is

    linear in others       they are wanted at layer k too;
    made by ReLUs there    what the ReLUs read is wanted at layer k - 1;
    of smaller depth       it is carried: wanted at layer k - 1 as well.  A linear value with more entries than what it
                           is made of (a concatenation with the action, say) is not carried, but made again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from caql.graphs.activations import PiecewiseLinear, Smooth
from caql.graphs.graph import Graph, Node
from caql.graphs.objective import Objective
from caql.graphs.operations import Array, Linear, Maximum, Opaque


@dataclass(frozen=True)
class Schedule:
    """depth: of each value that moves with the action.  fixed: the others that these are computed from.

    wanted: for each layer, the moving values that are wanted there, operands first.
    carried: (value, layer) for each value that is carried into a layer.
    """

    depth: dict[int, int]
    fixed: set[int]
    wanted: list[list[int]]
    carried: set[tuple[int, int]]

    def entries(self, graph: Graph, d: int) -> int:
        """How many coefficients all expressions have together, known before any of them is made."""
        total, units = 0, d
        for layer, wanted in enumerate(self.wanted):
            if layer:
                units = sum(self._units(graph.nodes[index], (index, layer)) for index in wanted)
            total += units * sum(graph.nodes[index].size for index in wanted)
        return total

    def _units(self, node: Node, place: tuple[int, int]) -> int:
        if place in self.carried:
            return node.size
        if isinstance(node.operation, PiecewiseLinear):
            return node.size * (len(node.operation.kinks().kinks) + 1)
        return 2 * node.size if isinstance(node.operation, Maximum) else 0


def makes_units(node: Node) -> bool:
    """Whether the value is made by ReLUs."""
    return isinstance(node.operation, PiecewiseLinear | Maximum)


def schedule(objective: Objective, states: int) -> Schedule:
    """The schedule for states of so many numbers."""
    graph, target = objective.graph, objective.node
    moving = _moving(objective, states)
    reached = graph.reached([target])
    depth: dict[int, int] = {}
    for index in reached:
        if index not in moving:
            continue
        node = graph.nodes[index]
        below = max((depth[each] for each in node.operands if each in depth), default=0)
        depth[index] = below + makes_units(node)
    used = {each for index in depth for each in graph.nodes[index].operands}
    if target not in depth:
        return Schedule({}, {target}, [], set())
    layers: list[set[int]] = [set() for _ in range(depth[target] + 1)]
    layers[-1].add(target)
    carried = set()
    for layer in range(depth[target], -1, -1):
        here = layers[layer]
        for index in reversed(reached):
            if index not in here:
                continue
            node = graph.nodes[index]
            operands = [each for each in node.operands if each in depth]
            if depth[index] < layer and _is_carried(node, sum(graph.nodes[each].size for each in operands)):
                carried.add((index, layer))
                layers[layer - 1].add(index)
            elif makes_units(node):
                layers[layer - 1].update(operands)
            else:
                here.update(operands)
    return Schedule(depth, used - depth.keys(), [sorted(each) for each in layers], carried)


def _is_carried(node: Node, operands: int) -> bool:
    """Whether a value of smaller depth is carried, and not made again from its operands, of so many entries."""
    return node.operation is None or isinstance(node.operation, Smooth) or makes_units(node) or node.size < operands


def _moving(objective: Objective, states: int) -> set[int]:
    """The values of which some entry may change with the action."""
    graph, network = objective.graph, objective.network
    d = network.sizes(states)[1]
    masks: dict[int, Array] = network.given(np.zeros((1, states)), np.ones((1, d)))
    for index in graph.reached([objective.node]):
        node = graph.nodes[index]
        if index in masks:
            continue
        if node.operation is None:
            masks[index] = np.zeros((1, *node.shape))
            continue
        parts = [masks[each] for each in node.operands]
        if not any(part.any() for part in parts):
            masks[index] = np.zeros((1, *node.shape))
        elif isinstance(node.operation, Opaque):
            masks[index] = np.ones((1, *node.shape))
        elif isinstance(node.operation, Linear) and not node.operation.additive and len(parts) == 2:
            left, right = parts
            either = node.operation.evaluate(left, np.ones_like(right))
            either = either + node.operation.evaluate(np.ones_like(left), right)
            masks[index] = (either > 0) * 1.0
        elif isinstance(node.operation, Linear):
            masks[index] = (node.operation.evaluate(*parts) > 0) * 1.0
        else:
            masks[index] = np.maximum(parts[0], parts[-1])
    return {index for index, mask in masks.items() if mask.any()}
