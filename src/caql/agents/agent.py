"""What every algorithm is to the training loop: a few pure functions over one pytree of state.

    init(key) -> state
    update(state, batches, key) -> state, statistics     learns S minibatches
    policy(state, epoch) -> Policy                        NumPy on the host, for acting
    measure(state, batches, key) -> statistics            timings and the like; learns nothing

An agent file holds one algorithm, all of it: a frozen `...Config` with its hyper-parameters and a class
that follows this protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, get_args, get_origin, get_type_hints

import jax
import numpy as np

from caql.action_sets import Columns, StateSets, relaxed
from caql.actions import ActionSet
from caql.errors import require
from caql.replay import Batch

Array = np.ndarray[Any, np.dtype[np.float32]]


class Spec(NamedTuple):
    """What an agent must know: the observation's length, the admissible actions, gradient steps in an epoch.

    action_set: the set of all states or, where it depends on the state, the box around all of them.
    sets: the sets of the states, if they differ.
    sets_at: (B, n) states -> their sets on the host; needed only by agents that act with a solver.
    observation_shape, observation_dtype: as the environment gives them; what an agent sees is a flat float32 vector.
    """

    observation_size: int
    action_set: ActionSet
    epoch_steps: int = 20
    sets: StateSets | None = None
    sets_at: Callable[[Any], ActionSet] | None = None
    observation_shape: tuple[int, ...] = ()
    observation_dtype: Any = np.float32

    @property
    def action_size(self) -> int:
        return int(self.action_set.low.shape[-1])

    @property
    def constrained(self) -> bool:
        """Whether the admissible actions are more than one box."""
        return self.sets is not None or not self.action_set.is_box

    @property
    def integer(self) -> tuple[int, ...]:
        """Which actions and, after them, auxiliary variables are whole numbers."""
        return (self.action_set if self.sets is None else self.sets.template).integer

    def set_of(self, columns: Columns | None) -> ActionSet:
        """The sets of a minibatch's states, from what the replay buffer stores of them."""
        return self.action_set if self.sets is None or columns is None else self.sets.of(columns)

    def inside(self, actions: jax.Array, columns: Columns | None) -> jax.Array:
        """The actions (B, d) of a box brought to the closest ones of their states' sets, whole numbers relaxed.

        The gradient passes straight through: with that of the projection an actor outside the set would never learn
        in the directions that the set's edge cuts off.
        """
        if not self.constrained:
            return actions
        given = jax.lax.stop_gradient(actions)
        return actions + (relaxed(self.set_of(columns)).project(given) - given)


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

    @property
    def stored_dtype(self) -> Any:
        """What the replay buffer keeps observations in."""
        return np.float32

    def init(self, key: jax.Array) -> Any:
        """A fresh state: a pytree of arrays, everything that learning changes."""
        ...

    def update(self, state: Any, batches: Batch, key: jax.Array) -> tuple[Any, dict[str, Any]]:
        """Learn the S minibatches of `batches` (leading axes S, B) in order; scalar statistics for the records."""
        ...

    def policy(self, state: Any, epoch: int) -> Policy:
        """The policy for the epoch's episode; exploration noise depends on `epoch` alone."""
        ...

    def measure(self, state: Any, batches: Batch, key: jax.Array) -> dict[str, float]:
        """What can only be measured apart from learning, on the latest update's batches; most agents have nothing."""
        del state, batches, key
        return {}


def check_common(config: Any, fewest_layers: int = 1) -> None:
    """The checks of the settings that every algorithm has, by what their names end in or their types say.

    ...hidden, discount, target_rate, ...learning_rate, saturation_penalty, and every setting that is a choice of a few
    words.  A learning rate whose default is 0 may be 0, which turns that learning off.

    config: the algorithm's frozen dataclass.  fewest_layers: hidden layers that its networks must have.
    Raises CaqlError for the first setting that is wrong.
    """
    types = get_type_hints(type(config))
    require(config, "discount", "at least 0 and less than 1", 0 <= config.discount < 1)
    require(config, "target_rate", "more than 0 and at most 1", 0 < config.target_rate <= 1)
    for field in fields(config):
        name, value = field.name, getattr(config, field.name)
        if name.endswith("hidden"):
            right = "a tuple of at least one positive whole number" if fewest_layers else "positive whole numbers"
            require(config, name, right, len(value) >= fewest_layers and all(units >= 1 for units in value))
        elif name.endswith("learning_rate"):
            off = field.default == 0
            right = "0 or a positive finite number" if off else "a positive finite number"
            require(config, name, right, 0 < value < float("inf") or (off and value == 0))
        elif name == "saturation_penalty":
            require(config, name, "a finite number, at least 0", 0 <= value < float("inf"))
        elif get_origin(types[name]) is Literal:
            choices = get_args(types[name])
            require(config, name, " or ".join(map(repr, choices)), value in choices)
