"""Stable-Baselines3: the critics and the actor of a SAC, TD3 or DDPG model, or of the .zip that it was saved to.

The weights are a torch `state_dict`: of a file they are read by torch with `weights_only`, which runs no code, and what
else the file holds pickled is left alone.  The critics are networks of the observation and of the action scaled to
[-1, 1] in every dimension; the model's own target takes the smallest of them, and so does `critic` here.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from caql.errors import CaqlError
from caql.graphs import Network
from caql.graphs.activations import Clip
from caql.graphs.builder import Builder
from caql.graphs.graph import Port
from caql.graphs.operations import Array
from caql.importers.activations import activation
from caql.importers.parameters import Layers, as_array, layers_of_parameters

OPTIONS: tuple[str, ...] = ()
CLIP_MEAN = 2.0
"""What SAC clips its mean to with gSDE, by default."""
NAMES = {
    "LeakyReLU": "leaky_relu",
    "Hardswish": "hard_swish",
    "Hardsigmoid": "hard_sigmoid",
    "LogSigmoid": "log_sigmoid",
    "Softshrink": "soft_shrink",
    "Tanhshrink": "tanh_shrink",
}
"""torch's names of activations that are called in another way here."""
LARGEST = 2**31
"""Bytes of weights that a file may hold."""


class Imported(NamedTuple):
    """Q(observation, action), whose outputs are the smallest critic `q` and each critic; and the deterministic actor.

    Actions of both are scaled to [-1, 1].
    """

    critic: Network
    actor: Network
    observation_size: int
    action_size: int


def read(model: Any) -> Network:
    """The smallest critic of a model, or of the path of its .zip."""
    critic = imported(model).critic
    return Network(critic.graph, critic.inputs, critic.outputs[:1], critic.action)


def imported(model: Any) -> Imported:
    """Critics and actor of a model, or of the path of its .zip."""
    if isinstance(model, str | Path):
        return _networks(*_of_zip(Path(model)))
    policy = getattr(model, "policy", None)
    if policy is None or not hasattr(policy, "critic"):
        raise CaqlError(f"a {type(model).__name__} has no critic of actions; right would be a SAC, TD3 or DDPG model")
    clip = float(getattr(getattr(policy, "actor", None), "clip_mean", CLIP_MEAN))
    return _networks(policy.state_dict(), policy.activation_fn.__name__, clip)


def _of_zip(path: Path) -> tuple[Mapping[str, Any], str, float]:
    """The weights, the name of the activation, and `clip_mean`, in a saved model."""
    try:
        import torch
    except ImportError:
        raise CaqlError(f"{path} holds torch tensors; pip install torch to read it") from None
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo("policy.pth").file_size > LARGEST:
                raise CaqlError(f"{path}: its weights take more than {LARGEST} bytes")
            weights = torch.load(io.BytesIO(archive.read("policy.pth")), map_location="cpu", weights_only=True)
            settings = json.loads(archive.read("data"))
        chosen = settings.get("policy_kwargs") or {}
        told = str(chosen.get("activation_fn", "ReLU"))
        clip = float(chosen.get("clip_mean", CLIP_MEAN))
        return dict(weights), re.sub(r"[^A-Za-z0-9]*$", "", told).split(".")[-1], clip
    except CaqlError:
        raise
    except Exception as problem:
        reason = (str(problem).strip().splitlines() or [type(problem).__name__])[0][:200]
        raise CaqlError(f"{path} is not a model that Stable-Baselines3 saved: {reason}") from problem


def _networks(weights: Mapping[str, Any], function: str, clip: float) -> Imported:
    if any("features_extractor" in name for name in weights):
        raise CaqlError("the model has a features extractor with weights; right would be an MlpPolicy")
    critics = _part(weights, r"critic\.qf(\d+)\.(.+)")
    if not critics:
        raise CaqlError("the model has no critic of actions (critic.qf0); right would be SAC, TD3 or DDPG")
    # SAC has hidden layers, latent_pi, and a mean; TD3 and DDPG one stack of layers.
    latent = {name: value for name, value in weights.items() if name.startswith("actor.latent_pi.")}
    mean = {name: value for name, value in weights.items() if name.startswith("actor.mu.")}
    actor = [*(layers_of_parameters(latent) if latent else []), *layers_of_parameters(mean)]
    d = actor[-1][0].shape[1]
    stacks = [layers_of_parameters(part) for part in critics]
    n = len(stacks[0][0][0]) - d
    if len(actor[0][0]) != n or any(stack[-1][0].shape[1] != 1 or len(stack[0][0]) != n + d for stack in stacks):
        raise CaqlError(f"the critics do not take the actor's {len(actor[0][0])} observations and {d} actions")
    # SAC with state-dependent exploration (gSDE) has its mean in a Sequential, which clips it unless clip_mean is 0.
    clipped = clip > 0 and "actor.log_std" in weights and "actor.mu.0.weight" in weights
    return Imported(_critic(stacks, function, n, d), _actor(actor, function, clip if clipped else None), n, d)


def _part(weights: Mapping[str, Any], pattern: str) -> list[dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for name, value in weights.items():
        match = re.fullmatch(pattern, name)
        if match:
            found.setdefault(int(match[1]), {})[match[2]] = value
    return [found[k] for k in sorted(found)]


def _stack(builder: Builder, value: int, layers: Layers, function: str) -> int:
    for k, (weights, bias) in enumerate(layers):
        value = builder.dense(value, weights, bias)
        value = value if k == len(layers) - 1 else activation(_plain(function))(builder, value)
    return value


def _plain(name: str) -> str:
    return NAMES.get(name, name)


def _critic(stacks: list[Layers], function: str, n: int, d: int) -> Network:
    builder = Builder()
    state, action = builder.input((n,), "observation"), builder.input((d,), "action")
    both = builder.concat([state, action], 0)
    values = []
    for k, layers in enumerate(stacks):
        builder.label = f"critic {k}"
        values.append(_stack(builder, both, layers, function))
    builder.label = "the smallest critic"
    ports = [Port("q", builder.minimum(values) if len(values) > 1 else values[0])]
    ports += [Port(f"q{k}", value) for k, value in enumerate(values)]
    return Network(builder, (Port("observation", state), Port("action", action)), tuple(ports), 1)


def _actor(layers: Layers, function: str, clip: float | None) -> Network:
    builder = Builder(label="actor")
    state = builder.input((len(layers[0][0]),), "observation")
    mean = _stack(builder, state, layers, function)
    action = activation("tanh")(builder, mean if clip is None else builder.add(Clip(-clip, clip), mean))
    return Network(builder, (Port("observation", state),), (Port("action", action),))


def actions_of(model: Imported, observations: Array) -> Array:
    """The actor's deterministic actions, (B, d) in [-1, 1], at (B, n) observations."""
    return model.actor.evaluate(as_array("observations", observations), as_array("nothing", [[]])[:, :0])
