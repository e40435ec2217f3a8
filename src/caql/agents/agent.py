"""What every algorithm is to the training loop: a few pure functions over one pytree of state.

    init(key) -> state
    update(state, batches, key) -> state, statistics     learns S minibatches
    policy(state, epoch) -> Policy                        NumPy on the host, for acting

An agent file holds one algorithm, all of it: a frozen `...Config` with its hyper-parameters and a class
that follows this protocol.  Policies run on the host because a jit call per environment step would cost
more than the physics of the small tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import numpy as np

from caql.actions import ActionSet
from caql.errors import CaqlError
from caql.networks import Layers
from caql.replay import Batch

Array = np.ndarray[Any, np.dtype[np.float32]]


class Spec(NamedTuple):
    """What an agent must know: the observation's length, the admissible actions, gradient steps in an epoch."""

    observation_size: int
    action_set: ActionSet
    epoch_steps: int = 20

    @property
    def action_size(self) -> int:
        return int(self.action_set.low.shape[-1])


class Policy(Protocol):
    """One state in, one admissible action out."""

    def act(self, state: Array) -> Array:
        """The greedy action, (n,) -> (d,); also accepts (B, n) -> (B, d)."""
        ...

    def explore(self, state: Array, noise: Array) -> Array:
        """An exploring action; `noise` is (d,) standard normal numbers drawn by the caller."""
        ...


class Agent(Protocol):
    """An algorithm bound to a task."""

    name: ClassVar[str]
    spec: Spec

    def init(self, key: jax.Array) -> Any:
        """A fresh state: a pytree of arrays, everything that learning changes."""
        ...

    def update(self, state: Any, batches: Batch, key: jax.Array) -> tuple[Any, dict[str, Any]]:
        """Learn the S minibatches of `batches` (leading axes S, B) in order; scalar statistics for the records."""
        ...

    def policy(self, state: Any, epoch: int) -> Policy:
        """The policy for the epoch's episode; exploration noise depends on `epoch` alone."""
        ...


def require(config: object, field: str, right: str, valid: bool) -> None:
    """Reject a setting in one sentence: the field, the value it has and what would be `right`."""
    if not valid:
        raise CaqlError(f"{field} = {getattr(config, field)!r} must be {right}")


def check_common(config: Any) -> None:
    """The checks of the settings that every algorithm has: hidden, discount, target_rate, ...learning_rate."""
    hidden = config.hidden
    require(config, "hidden", "a tuple of at least one positive whole number", bool(hidden) and min(hidden) >= 1)
    require(config, "discount", "at least 0 and less than 1", 0 <= config.discount < 1)
    require(config, "target_rate", "more than 0 and at most 1", 0 < config.target_rate <= 1)
    for field in fields(config):
        if field.name.endswith("learning_rate"):
            rate = getattr(config, field.name)
            require(config, field.name, "a positive finite number", 0 < rate < float("inf"))


@dataclass(frozen=True)
class Exploration:
    """Gaussian noise whose size decays once an epoch (Appendix D)."""

    sigma: float = 1.0
    """Standard deviation of the noise in the first epoch."""
    decay: float = 0.9995
    """Factor on the standard deviation after each epoch."""
    minimum: float = 0.01
    """Standard deviation below which the noise never falls."""
    relative: bool = True
    """Scale the noise to half the action range; False is the paper's absolute size."""

    def __post_init__(self) -> None:
        require(self, "sigma", "a finite number, at least 0", 0 <= self.sigma < float("inf"))
        require(self, "decay", "more than 0 and at most 1", 0 < self.decay <= 1)
        require(self, "minimum", "a finite number, at least 0", 0 <= self.minimum < float("inf"))

    def size(self, epoch: int, actions: ActionSet) -> Array:
        """The standard deviation in each action dimension."""
        sigma = max(self.minimum, self.sigma * self.decay**epoch)
        radius = np.asarray(actions.radius, np.float32)
        return np.float32(sigma) * (radius if self.relative else np.ones_like(radius))


class DeterministicPolicy:
    """An action network on the host: hidden ReLU layers, then `squash` into the box; Gaussian exploration."""

    def __init__(self, layers: Layers, actions: ActionSet, sigma: Array, squash: str = "tanh") -> None:
        self.hidden = [(np.asarray(w), np.asarray(b)) for w, b in layers[:-1]]
        self.last_weights, self.last_bias = (np.asarray(part) for part in layers[-1])
        self.low, self.high = np.asarray(actions.low), np.asarray(actions.high)
        self.centre, self.radius = np.asarray(actions.centre), np.asarray(actions.radius)
        self.sigma = sigma
        self.tanh = squash == "tanh"

    def act(self, state: Array) -> Array:
        state = np.asarray(state, np.float32)
        for weights, bias in self.hidden:
            state = np.maximum(state.dot(weights) + bias, 0)
        raw = state.dot(self.last_weights) + self.last_bias
        action = self.centre + self.radius * np.tanh(raw) if self.tanh else raw
        # Rounding in centre + radius can leave the box by one unit in the last place.
        inside: Array = np.minimum(np.maximum(action, self.low), self.high)
        return inside

    def explore(self, state: Array, noise: Array) -> Array:
        inside: Array = np.minimum(np.maximum(self.act(state) + self.sigma * noise, self.low), self.high)
        return inside
