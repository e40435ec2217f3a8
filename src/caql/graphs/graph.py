"""A network as a graph of operations, with named inputs and outputs, and which of its inputs are the action.

A `Graph` is built node by node, operands first, and checks shapes and sizes as it grows: nothing is computed before
the whole graph is known to fit into memory.  A `Network` says what goes in and what comes out of it:

* with one input, that holds the state's numbers followed by the action's, as in Q(x, a) of a plain network;
* with several, one of them is the action and the others, in their order, are the state.

`Network.evaluate` is the definition: whatever is proved of a network is proved of what this function computes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from caql.errors import CaqlError
from caql.graphs.operations import Array, Operation, Shape

LARGEST = 2**28
"""Numbers that the values of a graph may hold in all, for one sample."""
MOST_NODES = 100_000


class Node(NamedTuple):
    """One value: an operation on earlier ones, an input (no operation), or a constant."""

    operation: Operation | None
    operands: tuple[int, ...]
    shape: Shape
    constant: Array | None = None
    label: str = ""
    """How errors call it."""

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass
class Graph:
    """Nodes in an order in which operands come first."""

    nodes: list[Node] = field(default_factory=list)
    label: str = ""
    """Given to the nodes that are added from now on."""
    entries: int = 0

    def _append(self, node: Node) -> int:
        if any(side < 0 for side in node.shape):
            raise CaqlError(f"{node.label or 'a value'} has shape {node.shape}; no side can be negative")
        self.entries += node.size
        if self.entries > LARGEST:
            raise CaqlError(f"{node.label or 'a value'} has shape {node.shape}; at most {LARGEST} numbers can be held")
        if len(self.nodes) >= MOST_NODES:
            raise CaqlError(f"the network has more than {MOST_NODES} operations")
        self.nodes.append(node)
        return len(self.nodes) - 1

    def input(self, shape: Shape, label: str = "") -> int:
        """A value that is given from outside."""
        return self._append(Node(None, (), shape, None, label))

    def constant(self, value: Any) -> int:
        """A value that is always the same."""
        array = np.asarray(value, np.float64)
        return self._append(Node(None, (), array.shape, array, self.label))

    def add(self, operation: Operation, *operands: int) -> int:
        """A value computed from earlier ones; `CaqlError`, with the label in front, if the shapes do not fit."""
        try:
            shape = operation.shape(*(self.nodes[each].shape for each in operands))
        except CaqlError as problem:
            raise CaqlError(f"{self.label}: {problem}" if self.label else str(problem)) from None
        constants = [self.nodes[each].constant for each in operands]
        node = Node(operation, operands, shape, None, self.label)
        index = self._append(node)
        if operands and all(each is not None for each in constants):
            known = operation.evaluate(*(each[None] for each in constants if each is not None))[0]
            self.nodes[index] = Node(None, (), shape, known, self.label)
        return index

    def shape(self, index: int) -> Shape:
        """The shape of a value."""
        return self.nodes[index].shape

    def evaluate(self, given: dict[int, Array], wanted: Sequence[int]) -> list[Array]:
        """The wanted values for given inputs, each (samples, *shape)."""
        needed = self.reached(wanted)
        last = {operand: index for index in needed for operand in self.nodes[index].operands}
        values: dict[int, Array] = dict(given)
        keep = set(wanted)
        for index in needed:
            node = self.nodes[index]
            if index in values:
                continue
            if node.constant is not None:
                values[index] = node.constant[None]
                continue
            assert node.operation is not None
            values[index] = node.operation.evaluate(*(values[each] for each in node.operands))
            for operand in set(node.operands):
                if last[operand] == index and operand not in keep:
                    del values[operand]
        return [values[index] for index in wanted]

    def reached(self, wanted: Sequence[int]) -> list[int]:
        """The nodes that the wanted ones are computed from, in order."""
        marked = set(wanted)
        for index in range(max(wanted, default=-1), -1, -1):
            if index in marked:
                marked.update(self.nodes[index].operands)
        return sorted(marked)


class Port(NamedTuple):
    """An input or an output: its name and its node."""

    name: str
    node: int


@dataclass(frozen=True)
class Network:
    """A graph with its inputs and outputs.

    action: the position among `inputs` of the action; None if there is one input, of state and action in one vector.
    """

    graph: Graph
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    action: int | None = None

    def __post_init__(self) -> None:
        if not self.outputs or not self.inputs:
            raise CaqlError(f"a network needs inputs and outputs; it has {len(self.inputs)} and {len(self.outputs)}")
        if self.action is None and len(self.inputs) > 1:
            names = ", ".join(repr(port.name) for port in self.inputs)
            raise CaqlError(f"the network has the inputs {names}; say which of them is the action (action='...')")

    def size(self, port: Port) -> int:
        return self.graph.nodes[port.node].size

    @cached_property
    def layers(self) -> list[tuple[Array, Array]] | None:
        """The layers `(W, b)` of all inputs, states first, if the network is a chain of them with ReLU between."""
        from caql.graphs.plain import chain_of

        return chain_of(self)

    def with_action(self, name: str) -> Network:
        """The same network with the input of that name as its action."""
        names = [port.name for port in self.inputs]
        if name not in names:
            raise CaqlError(f"action = {name!r} is not an input of the network; its inputs are {', '.join(names)}")
        return Network(self.graph, self.inputs, self.outputs, names.index(name))

    def sizes(self, states: int) -> tuple[list[int], int]:
        """How many numbers of a state each input but the action takes, and the length d of an action."""
        sizes = [self.size(port) for port in self.inputs]
        if self.action is None:
            if states >= sizes[0]:
                raise CaqlError(
                    f"states has {states} columns but the network only {sizes[0]} inputs; no input is left to act with"
                )
            return [states], sizes[0] - states
        d = sizes.pop(self.action)
        if states != sum(sizes):
            others = ", ".join(port.name for k, port in enumerate(self.inputs) if k != self.action) or "none"
            raise CaqlError(
                f"states has {states} columns; the network's inputs besides the action ({others}) take {sum(sizes)}"
            )
        return sizes, d

    def given(self, states: Array, actions: Array) -> dict[int, Array]:
        """Inputs by node, of (B, n) states and (B, d) actions."""
        graph = self.graph
        if self.action is None:
            both = np.concatenate(
                [np.broadcast_to(x, (max(len(states), len(actions)), x.shape[1])) for x in (states, actions)], axis=1
            )
            return {self.inputs[0].node: both.reshape(len(both), *graph.shape(self.inputs[0].node))}
        found, start = {}, 0
        for k, port in enumerate(self.inputs):
            source, at = (actions, 0) if k == self.action else (states, start)
            part = source[:, at : at + self.size(port)]
            found[port.node] = part.reshape(len(part), *graph.shape(port.node))
            start += 0 if k == self.action else self.size(port)
        return found

    def evaluate(self, states: Array, actions: Array) -> Array:
        """All outputs, flattened and in their order, at (B, n) states and (B, d) actions -> (B, outputs)."""
        states, actions = np.asarray(states, np.float64), np.asarray(actions, np.float64)
        rows = max(len(states), len(actions))
        values = self.graph.evaluate(self.given(states, actions), [port.node for port in self.outputs])
        flat = [np.broadcast_to(value, (rows, *value.shape[1:])).reshape(rows, -1) for value in values]
        return np.concatenate(flat, axis=1)

    def weights(self, output: Any) -> Array:
        """How much each of the flattened outputs counts: an index, the name of an output of one number, or weights."""
        sizes = [self.size(port) for port in self.outputs]
        total = sum(sizes)
        names = [port.name for port in self.outputs]
        if output is None:
            if total != 1:
                shown = ", ".join(f"{name} ({size})" for name, size in zip(names, sizes, strict=True))
                raise CaqlError(f"the network has {total} outputs, {shown}; say which: output=k, or weights over them")
            output = 0
        if isinstance(output, str):
            if output not in names or sizes[names.index(output)] != 1:
                able = [name for name, size in zip(names, sizes, strict=True) if size == 1]
                raise CaqlError(
                    f"output = {output!r} is not an output of one number; such are {', '.join(able) or '-'}"
                )
            output = sum(sizes[: names.index(output)])
        return output_weights(output, total)


def output_weights(output: Any, total: int) -> Array:
    """Weights over `total` outputs, of an index or of weights."""
    if isinstance(output, int | np.integer) and not isinstance(output, bool):
        if not 0 <= output < total:
            raise CaqlError(f"output = {output} is not an output; the network has {total}, counted from 0")
        return np.eye(total)[int(output)]
    try:
        weights = np.asarray(output, np.float64)
    except (TypeError, ValueError):
        weights = np.empty(0)
    if weights.shape != (total,) or not np.isfinite(weights).all() or isinstance(output, bool):
        raise CaqlError(
            f"output = {output!r} must be an index below {total}, or {total} finite weights, one per output"
        )
    return weights
