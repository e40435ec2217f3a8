"""torch: any `nn.Module` whose forward pass torch.fx can trace into modules and functions that are known here.

Parameters are taken as they are and everything is read as at inference: dropout does nothing, batch normalisation uses
its stored statistics.  Values have the batch as their first side, of one sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from caql.errors import CaqlError
from caql.graphs import Network
from caql.graphs.builder import Builder
from caql.graphs.graph import Port
from caql.importers.parameters import network_of_parameters
from caql.importers.torch_functions import FUNCTIONS, IN_PLACE, METHODS
from caql.importers.torch_layers import LAYERS
from caql.importers.torch_shaping import VIEWS
from caql.importers.torch_values import Known, Value

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

    if isinstance(module, Mapping):  # a state_dict is torch's own kind of dictionary
        return network_of_parameters(module, "relu" if activation is None else activation)
    if not isinstance(module, torch.nn.Module):
        raise CaqlError(f"a torch {type(module).__name__} is not a network; right would be an nn.Module")
    if type(module).__module__.startswith("torch.nn.") and not isinstance(module, torch.nn.Sequential):
        module = torch.nn.Sequential(module)  # one of torch's own layers, which would be traced into otherwise
    for name, part in module.named_modules():
        if part._forward_hooks or part._forward_pre_hooks:
            raise CaqlError(
                f"{name or 'the module'} ({type(part).__name__}) has hooks, which may change what it computes; remove "
                "them first (torch.nn.utils.remove_weight_norm and its like)"
            )
    return _Reader(_traced(module), dict(shapes or {})).network(action)


def _traced(module: Any) -> Any:
    """The module's forward pass as torch.fx's graph, at inference; the module stays in the mode that it is in."""
    import torch.fx

    modes = [(part, part.training) for part in module.modules()]
    try:
        module.eval()
        return torch.fx.symbolic_trace(module)
    except Exception as problem:
        raise CaqlError(
            f"the forward pass of {type(module).__name__} cannot be traced ({_reason(problem)}); export it to ONNX and "
            "read that"
        ) from problem
    finally:
        for part, training in modes:
            part.training = training


def _reason(problem: Exception) -> str:
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0][:160]


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
        given = [str(node.target) for node in self.traced.graph.nodes if node.op == "placeholder"]
        for name in self.shapes:
            if name not in given:
                raise CaqlError(f"shapes names {name!r}, which is not an input; its inputs are {', '.join(given)}")
        for node in self.traced.graph.nodes:
            self.builder.label = f"{node.name} ({self._called(node)})"
            if node.op == "placeholder":
                self._input(node)
            elif node.op == "output":
                outputs = self._outputs(node.args[0])
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

    def _input(self, node: Any) -> None:
        if node.args and node.target not in self.shapes:  # it has a default, and may be left out
            self.values[node] = Known(node.args[0])
            return
        self.values[node] = self.builder.input(self._shape(node), f"input {node.target!r}")
        self.inputs.append(Port(str(node.target), self.values[node]))

    def _outputs(self, found: Any) -> list[Port]:
        """What is returned: one value, several, or several by name."""
        if isinstance(found, Mapping):
            named = {str(name): each for name, each in found.items()}
        else:
            several = found if isinstance(found, tuple | list) else (found,)
            named = {"output" if len(several) == 1 else f"output{k}": each for k, each in enumerate(several)}
        for name, each in named.items():
            if not isinstance(each, self.node_type):
                raise CaqlError(f"{name} of the module is a {type(each).__name__}; right would be one value each")
        return [Port(name, self._value(each)) for name, each in named.items()]

    def _called(self, node: Any) -> str:
        if node.op == "call_module":
            return type(self.modules[node.target]).__name__
        return str(getattr(node.target, "__name__", node.target))

    def _shape(self, node: Any) -> tuple[int, ...]:
        if node.target in self.shapes:
            given = self.shapes[node.target]
            sides = (given,) if isinstance(given, int) else given
            if not isinstance(sides, tuple | list) or not all(type(side) is int and side > 0 for side in sides):
                raise CaqlError(
                    f"shapes[{node.target!r}] = {given!r} must be the size of one sample: a number, or a tuple of them"
                )
            return (1, *sides)
        for user in node.users:
            layer = self.modules.get(user.target) if user.op == "call_module" else None
            if layer is not None and self._kind(layer) == "Linear":
                return (1, int(layer.in_features))
        example = f"shapes={{{node.target!r}: 17}}"
        raise CaqlError(f"the length of the input {node.target!r} does not follow from the module; give {example}")

    def _kind(self, layer: Any) -> str:
        """The name of a layer's class; of one with parametrised weights (spectral_norm), that of what it was before."""
        kind = type(layer)
        return (kind.__mro__[1] if kind.__name__.startswith("Parametrized") else kind).__name__

    def _attribute(self, path: str) -> Any:
        found: Any = self.traced
        for part in path.split("."):
            found = getattr(found, part)
        return found.detach().cpu().double().numpy()

    def _computed(self, node: Any) -> Any:
        if node.op == "call_module":
            layer = self.modules[node.target]
            kind, operands = self._kind(layer), [*node.args, *node.kwargs.values()]
            if kind not in LAYERS:
                raise CaqlError(f"{self.builder.label}: torch's {kind} cannot be read; known are {', '.join(LAYERS)}")
            if len(operands) != 1 or not isinstance(operands[0], self.node_type):
                raise CaqlError(
                    f"{self.builder.label}: it is given {len(operands)} arguments; right would be one value"
                )
            if getattr(layer, "inplace", False):
                self._require_alone(operands[0])
            return self._read(LAYERS[kind], layer, self._value(operands[0]))
        table = FUNCTIONS if node.op == "call_function" else METHODS
        name = self._called(node)
        arguments = [self._argument(each) for each in node.args]
        settings = {key: self._argument(each) for key, each in node.kwargs.items()}
        plain = node.op == "call_function" and not settings and not any(isinstance(k, Value | list) for k in arguments)
        if plain and getattr(node.target, "__module__", "") in ("_operator", "builtins", "math"):
            return Known(node.target(*arguments))  # sizes are known, and what is computed from them
        if name not in table:
            raise CaqlError(f"{self.builder.label}: torch's {name} cannot be read; known are {', '.join(table)}")
        for place, key in enumerate(("input", "other")):
            if key in settings and len(arguments) == place:
                arguments.append(settings.pop(key))
        if "tensors" in settings and not arguments:
            arguments.append(settings.pop("tensors"))
        if name in IN_PLACE or settings.get("inplace"):
            self._require_alone(node.args[0])
        return self._read(table[name], *arguments, **settings)

    def _read(self, function: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        """What a function of the tables makes of its arguments, whatever is wrong with them one sentence."""
        try:
            return function(self.builder, *arguments, **settings)
        except CaqlError:
            raise
        except Exception as problem:
            given = ", ".join(["its operands", *settings])
            raise CaqlError(
                f"{self.builder.label}: it is called in a way that cannot be read, with {given} ({_reason(problem)}); "
                "export the module to ONNX and read that"
            ) from problem

    def _require_alone(self, node: Any) -> None:
        """Raise unless nobody else sees a value that is changed in place, neither itself nor what it is a view of."""
        while isinstance(node, self.node_type):
            if len(node.users) > 1:
                raise CaqlError(
                    f"{self.builder.label}: it changes {node.name} in place, which is used elsewhere too; right would "
                    "be inplace=False, or the function without the underscore"
                )
            called = self._called(node)
            through = called in VIEWS or "dropout" in called.lower() or called in ("Identity", "Flatten", "Unflatten")
            through = (
                through or called in IN_PLACE or bool(getattr(self.modules.get(str(node.target)), "inplace", False))
            )
            node = node.args[0] if through and node.args else None

    def _argument(self, given: Any) -> Any:
        if isinstance(given, list | tuple):
            return (tuple if isinstance(given, tuple) else list)(self._argument(each) for each in given)
        if isinstance(given, slice):
            return slice(*(self._argument(each) for each in (given.start, given.stop, given.step)))
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
