"""torch: any `nn.Module` whose forward pass torch.fx can trace into modules and functions that are known here.

Parameters are taken as they are and everything is read as at inference: dropout does nothing, batch normalisation uses
its stored statistics.  Values have the batch as their first side, of one sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from caql.errors import CaqlError
from caql.graphs import Network
from caql.graphs.builder import Builder
from caql.graphs.graph import Port
from caql.importers.parameters import network_of_parameters
from caql.importers.torch_functions import FUNCTIONS, METHODS
from caql.importers.torch_layers import LAYERS
from caql.importers.torch_shaping import Known, Value

OPTIONS = ("shapes", "action", "activation")


def read(
    module: Any,
    shapes: Mapping[str, Any] | None = None,
    action: str | None = None,
    activation: str | None = None,
) -> Network:
    """The network of a module.

    shapes: of each input for one sample, by its name in `forward`: a number or a tuple; may be left out for a module of
        one input whose first layer is a `Linear`.
    action: the name of the input that is the action, if there are several and none is called so.
    activation: the name of the one between the layers, for a `state_dict`.
    """
    import torch
    import torch.fx

    if isinstance(module, Mapping):  # a state_dict is torch's own kind of dictionary
        return network_of_parameters(module, "relu" if activation is None else activation)
    if not isinstance(module, torch.nn.Module):
        raise CaqlError(f"a torch {type(module).__name__} is not a network; right would be an nn.Module")
    if type(module).__module__.startswith("torch.nn.") and not isinstance(module, torch.nn.Sequential):
        module = torch.nn.Sequential(module)  # one of torch's own layers, which would be traced into otherwise
    try:
        traced = torch.fx.symbolic_trace(module)
    except Exception as problem:
        reason = (str(problem).strip().splitlines() or [type(problem).__name__])[0][:160]
        raise CaqlError(
            f"the forward pass of {type(module).__name__} cannot be traced ({reason}); export it to ONNX and read that"
        ) from problem
    return _Reader(traced, dict(shapes or {})).network(action)


class _Reader:
    """The traced graph read so far."""

    def __init__(self, traced: Any, shapes: dict[str, Any]) -> None:
        self.traced, self.shapes, self.builder = traced, shapes, Builder()
        self.modules = dict(traced.named_modules())
        self.node_type = type(next(iter(traced.graph.nodes)))
        self.values: dict[Any, Any] = {}
        self.inputs: list[Port] = []

    def network(self, action: str | None) -> Network:
        outputs: list[Port] = []
        for node in self.traced.graph.nodes:
            self.builder.label = f"{node.name} ({self._called(node)})"
            if node.op == "placeholder":
                self.values[node] = self.builder.input(self._shape(node), f"input {node.target!r}")
                self.inputs.append(Port(str(node.target), self.values[node]))
            elif node.op == "output":
                found = node.args[0] if isinstance(node.args[0], tuple | list) else (node.args[0],)
                names = ["output"] if len(found) == 1 else [f"output{k}" for k in range(len(found))]
                outputs = [Port(name, self._value(each)) for name, each in zip(names, found, strict=True)]
            elif node.op == "get_attr":
                self.values[node] = self.builder.constant(self._attribute(node.target))
            else:
                self.values[node] = self._computed(node)
        names = [port.name for port in self.inputs]
        position = None
        if len(names) > 1:
            chosen = action or next((name for name in names if name == "a" or "action" in name.lower()), "")
            if chosen not in names:
                raise CaqlError(
                    f"the module has the inputs {', '.join(names)}; say which is the action (action='NAME')"
                )
            position = names.index(chosen)
        return Network(self.builder, tuple(self.inputs), tuple(outputs), position)

    def _called(self, node: Any) -> str:
        if node.op == "call_module":
            return type(self.modules[node.target]).__name__
        return str(getattr(node.target, "__name__", node.target))

    def _shape(self, node: Any) -> tuple[int, ...]:
        if node.target in self.shapes:
            given = self.shapes[node.target]
            return (1, given) if isinstance(given, int) else (1, *given)
        for user in node.users:
            layer = self.modules.get(user.target) if user.op == "call_module" else None
            if layer is not None and type(layer).__name__ == "Linear":
                return (1, int(layer.in_features))
        example = f"shapes={{{node.target!r}: 17}}"
        raise CaqlError(f"the length of the input {node.target!r} does not follow from the module; give {example}")

    def _attribute(self, path: str) -> Any:
        found: Any = self.traced
        for part in path.split("."):
            found = getattr(found, part)
        return found.detach().cpu().double().numpy()

    def _computed(self, node: Any) -> Any:
        if node.op == "call_module":
            layer = self.modules[node.target]
            kind = type(layer).__name__
            if kind not in LAYERS:
                raise CaqlError(f"{self.builder.label}: torch's {kind} cannot be read; known are {', '.join(LAYERS)}")
            return LAYERS[kind](self.builder, layer, self._value(node.args[0]))
        table = FUNCTIONS if node.op == "call_function" else METHODS
        name = self._called(node)
        if name not in table:
            raise CaqlError(f"{self.builder.label}: torch's {name} cannot be read; known are {', '.join(table)}")
        arguments = [self._argument(each) for each in node.args]
        settings = {key: self._argument(each) for key, each in node.kwargs.items()}
        try:
            return table[name](self.builder, *arguments, **settings)
        except TypeError as problem:
            raise CaqlError(f"{self.builder.label}: {name} is called in a way that cannot be read") from problem

    def _argument(self, given: Any) -> Any:
        if isinstance(given, list | tuple):
            return (tuple if isinstance(given, tuple) else list)(self._argument(each) for each in given)
        known = isinstance(given, self.node_type) and given in self.values
        if not known:
            return given
        found = self.values[given]
        if isinstance(found, Known):
            return found.value
        return [Value(each) for each in found] if isinstance(found, list) else Value(found)

    def _value(self, node: Any) -> int:
        found = self.values[node]
        if isinstance(found, list):
            raise CaqlError(f"{self.builder.label}: it is given the {len(found)} parts of {node.name}; one is meant")
        if isinstance(found, Known):
            raise CaqlError(f"{self.builder.label}: it is given a shape, {found.value}, where a value is meant")
        return int(found)
