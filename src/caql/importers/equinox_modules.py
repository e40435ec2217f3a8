"""Equinox: `nn.MLP`, and `nn.Sequential` of `nn.Linear` and `nn.Lambda`; weights are (outputs, inputs)."""

from __future__ import annotations

from typing import Any

from caql.errors import CaqlError
from caql.graphs import Network
from caql.graphs.builder import Builder
from caql.graphs.graph import Port
from caql.importers.activations import activation_of
from caql.importers.parameters import as_array

OPTIONS: tuple[str, ...] = ()


def read(module: Any) -> Network:
    """The network of a module."""
    steps: list[Any] = []
    if hasattr(module, "final_activation"):
        for k, layer in enumerate(module.layers):
            steps += [layer, module.activation if k < len(module.layers) - 1 else module.final_activation]
    elif isinstance(getattr(module, "layers", None), tuple | list):
        steps = [getattr(layer, "fn", layer) for layer in module.layers]
    else:
        raise CaqlError(f"equinox {type(module).__name__} cannot be read; right would be nn.MLP or nn.Sequential")
    sizes = [step.weight.shape[1] for step in steps if hasattr(step, "weight")]
    if not sizes:
        raise CaqlError(f"equinox {type(module).__name__} has no nn.Linear in it")
    builder = Builder()
    value = first = builder.input((sizes[0],), "input")
    for k, step in enumerate(steps):
        builder.label = f"layer {k} ({type(step).__name__})"
        if type(step).__name__ == "Linear":
            weights = as_array(f"layer {k} weight", step.weight).T
            value = builder.dense(value, weights, None if step.bias is None else as_array(f"layer {k} bias", step.bias))
        elif callable(step) and not hasattr(step, "weight"):
            value = activation_of(step, _name(step))(builder, value)
        else:
            raise CaqlError(f"layer {k}, a {type(step).__name__}, cannot be read; known are Linear and Lambda")
    return Network(builder, (Port("input", first),), (Port("output", value),))


def _name(function: Any) -> str:
    """How a function of jax.nn is called, through the wrappers of jit."""
    inner = getattr(function, "__wrapped__", function)
    return str(getattr(function, "__name__", "") or getattr(inner, "__name__", type(function).__name__))
