"""One number of a network's outputs, as a node of its graph: what is maximised over the action."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from caql.graphs.builder import Builder
from caql.graphs.graph import Graph, Network
from caql.graphs.operations import Array, Multiply, SumLast, Take


@dataclass(frozen=True)
class Objective:
    """A weighted sum of a network's outputs, or its negative for a minimum."""

    network: Network
    graph: Graph
    node: int

    @classmethod
    def of(cls, network: Network, output: Any = None, minimize: bool = False) -> Objective:
        """The output that is meant: an index, a name, or weights over all outputs; None if there is only one."""
        weights = network.weights(output) * (-1.0 if minimize else 1.0)
        graph = Builder(nodes=list(network.graph.nodes), entries=network.graph.entries)
        parts, factors, start = [], [], 0
        for port in network.outputs:
            size = network.size(port)
            used = np.flatnonzero(weights[start : start + size])
            if len(used):
                parts.append(graph.add(Take(used), graph.reshape(port.node, (size,))))
                factors.append(weights[start + used])
            start += size
        if not parts:
            return cls(network, graph, graph.constant(0.0))
        joined, factor = graph.concat(parts, 0), np.concatenate(factors)
        if (factor != 1.0).any():
            joined = graph.add(Multiply(), joined, graph.constant(factor))
        alone = len(factor) == 1
        return cls(network, graph, graph.reshape(joined, ()) if alone else graph.add(SumLast(), joined))

    @classmethod
    def all_of(cls, network: Network) -> Objective:
        """All outputs, as one vector instead of one number."""
        graph = Builder(nodes=list(network.graph.nodes), entries=network.graph.entries)
        flat = [graph.reshape(port.node, (network.size(port),)) for port in network.outputs]
        return cls(network, graph, graph.concat(flat, 0))

    def values(self, states: Array, actions: Array) -> Array:
        """The objective at (B, n) states and (B, d) actions -> (B,)."""
        (found,) = self.graph.evaluate(self.network.given(states, actions), [self.node])
        return np.broadcast_to(found.reshape(-1), max(len(states), len(actions))).copy()
