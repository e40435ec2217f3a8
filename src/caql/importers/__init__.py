"""`caql.network(obj)`: networks from where people have them.

Each library is looked for by the name of the object's own module and imported, if at all, by the one file here that
knows it: whoever hands over a torch module has torch already.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from caql.errors import CaqlError
from caql.graphs import Network
from caql.graphs.chain import network_of_layers
from caql.importers.parameters import network_of_parameters

MODULES = {
    "stable_baselines3": "stable_baselines",
    "torch": "torch_modules",
    "keras": "keras_models",
    "sklearn": "scikit_learn",
    "equinox": "equinox_modules",
}
"""Where objects whose class, or one of its bases, comes from a library are read."""


def network(obj: Any, **options: Any) -> Network:
    """The network that an object of another library holds, for `caql.maximize`.

    obj: a torch `nn.Module`; a torch `state_dict`, or Flax parameters, of dense layers; a Keras model; a fitted
        scikit-learn `MLPRegressor`; an Equinox `nn.MLP` or `nn.Sequential`; a Stable-Baselines3 SAC, TD3 or DDPG
        model, or the path of its .zip; the path of an .onnx, .npz or .safetensors file; or layers `(W, b)`.
    options: `activation`, the name of the one between the layers of a mere dictionary of parameters ("relu");
        `shapes`, of a torch module's inputs by name, where they do not follow from its first layer; `action`, the name
        of the input that is the action, if there are several.

    A Stable-Baselines3 model's network is the minimum of its critics, over observations and actions scaled to [-1, 1].
    Raises `CaqlError` for an object, or a part of it, that is not known.
    """
    if isinstance(obj, Network):
        return obj.with_action(options["action"]) if "action" in options else obj
    if isinstance(obj, str | Path):
        return _of_file(Path(obj), options)
    for base in type(obj).__mro__:
        library = (base.__module__ or "").split(".")[0]
        if library in MODULES:
            module = importlib.import_module(f"caql.importers.{MODULES[library]}")
            found: Network = module.read(obj, **_known(options, module.OPTIONS))
            return found
    if isinstance(obj, Mapping):
        return network_of_parameters(obj, **_known(options, ("activation",)))
    if isinstance(obj, list | tuple) and obj:
        from caql.maxq.arguments import checked_layers

        return network_of_layers(checked_layers(obj))
    raise CaqlError(
        f"a {type(obj).__module__}.{type(obj).__name__} is not a network that can be read; known are torch, Keras, "
        "scikit-learn, Equinox and Stable-Baselines3 models, dictionaries of parameters, and .onnx files"
    )


def _known(options: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    for name in options:
        if name not in names:
            right = f"it takes {', '.join(names)}" if names else "it takes none"
            raise CaqlError(f"{name} = {options[name]!r} has no meaning for this network; {right}")
    return options


def _of_file(path: Path, options: dict[str, Any]) -> Network:
    if path.suffix.lower() == ".zip":
        from caql.importers.stable_baselines import read

        return read(path, **_known(options, ()))
    from caql.network_files import read_network

    found = read_network(path, **_known(options, ("action",))).network
    return found if isinstance(found, Network) else network_of_layers(found)
