"""Dense layers in a graph: a product with a constant matrix, and the constants that are added and multiplied after it.

    x W,  + b,  * s,  / t,  + c   ->   x (W s / t) + (b s / t + c)

A batch normalisation behind a dense layer is of this form too.  Written as one node, such a run is what other readers
of ONNX files expect of a dense layer: a `Gemm` of an input, a matrix and a bias.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from caql.graphs import Network
from caql.graphs.graph import Node
from caql.graphs.operations import Add, Array, Divide, MatMul, Multiply


class Dense(NamedTuple):
    """x W + b of the value at node `source`; W is (inputs, outputs)."""

    source: int
    weights: Array
    bias: Array


def dense_runs(network: Network) -> tuple[dict[int, Dense], set[int]]:
    """The dense layers by the node that they end at, and the nodes inside them, which nobody else uses."""
    graph = network.graph
    users: dict[int, list[int]] = {}
    for index in graph.reached([port.node for port in network.outputs]):
        for operand in graph.nodes[index].operands:
            users.setdefault(operand, []).append(index)
    outputs = {port.node for port in network.outputs}
    runs, inside = {}, set()
    for start in sorted({user for found in users.values() for user in found}):
        dense = _product(network, start)
        if dense is None:
            continue
        end, passed = start, []
        while end not in outputs and len(users.get(end, ())) == 1:
            longer = _followed(network, dense, end, users[end][0])
            if longer is None:
                break
            passed.append(end)
            dense, end = longer, users[end][0]
        runs[end] = dense
        inside.update(passed)
    return runs, inside


def _product(network: Network, index: int) -> Dense | None:
    """A vector times a constant matrix, if the node is that."""
    graph, node = network.graph, network.graph.nodes[index]
    if not isinstance(node.operation, MatMul):
        return None
    left, right = (graph.nodes[each] for each in node.operands)
    row = len(left.shape) == 1 or (len(left.shape) == 2 and left.shape[0] == 1)
    if left.constant is not None or right.constant is None or right.constant.ndim != 2 or not row:
        return None
    return Dense(node.operands[0], right.constant, np.zeros(right.constant.shape[1]))


def _followed(network: Network, dense: Dense, end: int, user: int) -> Dense | None:
    """The layer with one more operation behind it, if that only adds, multiplies or divides by constants."""
    graph, node = network.graph, network.graph.nodes[user]
    if not isinstance(node.operation, Add | Multiply | Divide) or node.shape != graph.nodes[end].shape:
        return None
    constant = _other(graph.nodes, node, end)
    if constant is None:
        return None
    number = np.broadcast_to(constant, node.shape).reshape(-1)
    if isinstance(node.operation, Add):
        found = dense._replace(bias=dense.bias + number)
    else:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            factor = 1.0 / number if isinstance(node.operation, Divide) else number
            found = dense._replace(weights=dense.weights * factor, bias=dense.bias * factor)
    return found if np.isfinite(found.weights).all() and np.isfinite(found.bias).all() else None


def _other(nodes: list[Node], node: Node, end: int) -> Array | None:
    """The constant beside the value at `end`; None if there is none, or if it is what is divided."""
    first, second = node.operands
    if first == end and second != end:
        return nodes[second].constant
    return None if isinstance(node.operation, Divide) or second != end else nodes[first].constant
