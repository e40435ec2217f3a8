"""Which graphs are plain networks already: a chain of dense layers with ReLU between, of the state and then the action.

Lowering would give back the same numbers; to see it in the graph's form is what makes a plain network as quick as a
file or as another library's model as it is as layers.  Only what is the same number for number counts: a dense layer is
one product with a constant matrix and at most one bias, all of finite numbers.
"""

from __future__ import annotations

import numpy as np

from caql.graphs.activations import Relu
from caql.graphs.graph import Network
from caql.graphs.operations import Add, Array, Concat, MatMul, Reshape

Layer = tuple[Array, Array]


def chain_of(network: Network) -> list[Layer] | None:
    """The layers, from the first to the last; None if the network is anything else."""
    if len(network.outputs) != 1:
        return None
    layers: list[Layer] = []
    index: int | None = network.outputs[0].node
    while index is not None:
        found = _dense(network, _flat(network, index))
        if found is None:
            return None
        source, layer = found
        layers.append(layer)
        if _all_inputs(network, source):
            return layers[::-1]
        source = _flat(network, source)
        node = network.graph.nodes[source]
        index = node.operands[0] if isinstance(node.operation, Relu) else None
    return None


def _flat(network: Network, index: int) -> int:
    """The value itself, before it was given another shape."""
    node = network.graph.nodes[index]
    while isinstance(node.operation, Reshape):
        index = node.operands[0]
        node = network.graph.nodes[index]
    return index


def _is_row(shape: tuple[int, ...]) -> bool:
    return len(shape) == 1 or (len(shape) == 2 and shape[0] == 1)


def _dense(network: Network, index: int) -> tuple[int, Layer] | None:
    """What goes into a dense layer, and the layer, if the value is that of one."""
    nodes = network.graph.nodes
    node, bias = nodes[index], None
    if isinstance(node.operation, Add):
        constants = [k for k in node.operands if nodes[k].constant is not None]
        if len(constants) != 1 or not _is_row(node.shape):
            return None
        (index,) = (k for k in node.operands if k != constants[0])
        if nodes[index].shape != node.shape:
            return None
        bias, node = np.broadcast_to(nodes[constants[0]].constant, node.shape).reshape(-1), nodes[index]  # type: ignore[arg-type]
    if not isinstance(node.operation, MatMul):
        return None
    left, right = node.operands
    weights = nodes[right].constant
    if weights is None or weights.ndim != 2 or nodes[left].constant is not None or not _is_row(nodes[left].shape):
        return None
    bias = np.zeros(weights.shape[1]) if bias is None else bias
    return (left, (weights, bias)) if np.isfinite(weights).all() and np.isfinite(bias).all() else None


def _all_inputs(network: Network, index: int) -> bool:
    """Whether the value is the whole input: the only one, or the others in their order and then the action."""
    index = _flat(network, index)
    if network.action is None:
        return index == network.inputs[0].node
    others = [port.node for k, port in enumerate(network.inputs) if k != network.action]
    wanted = [*others, network.inputs[network.action].node]
    node = network.graph.nodes[index]
    if not isinstance(node.operation, Concat) or not _is_row(node.shape):
        return wanted == [index]
    along = node.operation.axis == len(node.shape) - 1
    return along and [_flat(network, each) for each in node.operands] == wanted
