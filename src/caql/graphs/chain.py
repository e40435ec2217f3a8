"""Plain networks as graphs and graphs as plain networks: layers `(W, b)` with the same activation between them."""

from __future__ import annotations

from collections.abc import Sequence

from caql.graphs.activations import Activation, Relu
from caql.graphs.builder import Builder
from caql.graphs.graph import Network, Port
from caql.graphs.lowering import plain_layers
from caql.graphs.objective import Objective
from caql.graphs.operations import Array


def network_of_layers(layers: Sequence[tuple[Array, Array]], activation: Activation | None = None) -> Network:
    """x -> ... -> activation(x W + b) -> ..., linear at the end, W of shape (inputs, outputs); ReLU by default."""
    builder = Builder()
    first = builder.input((len(layers[0][0]),), "input")
    value = dense_chain(builder, first, layers, Relu() if activation is None else activation)
    return Network(builder, (Port("input", first),), (Port("output", value),))


def dense_chain(builder: Builder, value: int, layers: Sequence[tuple[Array, Array]], activation: Activation) -> int:
    """The layers on top of a value, with the activation between them."""
    for k, (weights, bias) in enumerate(layers):
        builder.label = f"layer {k}"
        value = builder.dense(value, weights, bias)
        if k < len(layers) - 1:
            value = builder.add(activation, value)
    return value


def layers_of_network(network: Network) -> list[tuple[Array, Array]]:
    """The layers of a network that is such a chain with ReLU; `CaqlError` if it is another."""
    return plain_layers(Objective.all_of(network))
