"""Keras: sequential and functional models, walked back from their outputs."""

from __future__ import annotations

from typing import Any

from caql.errors import CaqlError
from caql.graphs import Network
from caql.graphs.builder import Builder
from caql.graphs.graph import Port
from caql.importers.activations import activation_of
from caql.importers.keras_layers import FUNCTIONS, LAYERS
from caql.importers.parameters import as_array

OPTIONS = ("action",)


def read(model: Any, action: str | None = None) -> Network:
    """The network of a model whose sizes are all known."""
    if not getattr(model, "built", False) or not hasattr(model, "inputs"):
        raise CaqlError(f"the Keras {type(model).__name__} is not built; call it once, or begin it with an Input layer")
    builder, values, inputs = Builder(), {}, []
    for tensor in model.inputs:
        name = tensor._keras_history.operation.name
        if any(side is None for side in tensor.shape[1:]):
            raise CaqlError(f"input {name!r} has shape {tensor.shape}; every side but the first must be fixed")
        values[id(tensor)] = builder.input((1, *tensor.shape[1:]), f"input {name!r}")
        inputs.append(Port(name, values[id(tensor)]))
    for tensor in model.outputs:
        _walk(builder, values, tensor)
    outputs = [Port(tensor._keras_history.operation.name, values[id(tensor)]) for tensor in model.outputs]
    position = None
    if len(inputs) > 1:
        names = [port.name for port in inputs]
        chosen = action or next((name for name in names if "action" in name.lower()), "")
        if chosen not in names:
            raise CaqlError(f"the model has the inputs {', '.join(names)}; say which is the action (action='NAME')")
        position = names.index(chosen)
    return Network(builder, tuple(inputs), tuple(outputs), position)


def _walk(builder: Builder, values: dict[int, int], wanted: Any) -> None:
    """Compute a tensor's value, and before it all that it depends on."""
    stack = [wanted]
    while stack:
        tensor = stack[-1]
        if id(tensor) in values:
            stack.pop()
            continue
        history = tensor._keras_history
        node = history.operation._inbound_nodes[history.node_index]
        missing = [each for each in node.input_tensors if id(each) not in values]
        if missing:
            stack += missing
            continue
        layer = history.operation
        builder.label = f"layer {layer.name!r} ({type(layer).__name__})"
        operands = [values[id(each)] for each in node.input_tensors]
        if hasattr(layer, "outputs") and hasattr(layer, "layers"):
            values[id(tensor)] = _inner(builder, layer, operands, history.tensor_index)
        elif ".ops." in type(layer).__module__:
            values[id(tensor)] = _function(builder, node, values)
        else:
            values[id(tensor)] = _layer(builder, layer, operands)
        stack.pop()


def _inner(builder: Builder, model: Any, operands: list[int], output: int) -> int:
    """An output of a model that is a layer of another."""
    values = {id(tensor): value for tensor, value in zip(model.inputs, operands, strict=True)}
    _walk(builder, values, model.outputs[output])
    return values[id(model.outputs[output])]


def _function(builder: Builder, node: Any, values: dict[int, int]) -> int:
    """A function of tensors and numbers, `x + 1` say; other settings would not be seen, and are refused."""
    kind, arguments = type(node.operation).__name__, node.arguments
    given = [*arguments.args, *arguments.kwargs.values()]
    operands = []
    for each in given:
        if id(each) in values:
            operands.append(values[id(each)])
        elif each is not None:
            operands.append(builder.constant(as_array("a number", each)))
    if kind not in FUNCTIONS or any(isinstance(each, list | tuple) for each in given):
        raise CaqlError(f"{builder.label} cannot be read; known functions are {', '.join(FUNCTIONS)}; or take a layer")
    return FUNCTIONS[kind](builder, operands)


def _layer(builder: Builder, layer: Any, operands: list[int]) -> int:
    kind = type(layer).__name__
    if kind not in LAYERS or not type(layer).__module__.startswith("keras"):
        raise CaqlError(f"{builder.label} cannot be read; known are {', '.join(LAYERS)}")
    value = LAYERS[kind](builder, layer, operands)
    function = getattr(layer, "activation", None)
    if function is None:
        return value
    return activation_of(function, str(getattr(function, "__name__", type(function).__name__)))(builder, value)
