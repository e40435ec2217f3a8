"""TD3, twin delayed deterministic policy gradient (Fujimoto et al., 2018): one of the paper's baselines.

DDPG with three remedies against overestimation: two critics, whose smaller value makes the label; noise on the
target policy's action, which smooths the label over similar actions; and an actor, with all target networks,
that moves only once in `policy_delay` steps.  The actor's output goes through tanh into the admissible box, and the
smoothing noise is scaled to the box, so that restricted and lopsided ranges are treated like any other.  Where the
admissible actions are more than a box, actions go on to the closest of them, with the gradient of no projection.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from caql.action_sets import Columns
from caql.actions import squash
from caql.agents.agent import Agent, Policy, Spec, check_common
from caql.agents.policies import DeterministicPolicy, Exploration, exploring
from caql.agents.twin_critics import TwinCritics
from caql.errors import require
from caql.losses import one_step_label, saturation
from caql.networks import forward, q_value
from caql.optimisers import FlatNetwork, Learned, adam, begin, descend, soft_update
from caql.replay import Batch


@dataclass(frozen=True)
class TD3Config:
    """Hyper-parameters of TD3: the paper's second table, rates from its sweep, the rest as Fujimoto et al.

    Fujimoto et al. use 400 x 300 units, both rates 0.001, tau = 0.005, and exploration noise of a constant 0.1 of the
    range after 10,000 (or 1,000) purely random steps.
    """

    name: ClassVar[str] = "td3"

    hidden: tuple[int, ...] = (32, 16)
    """Units of each hidden layer, for the critics and for the actor."""
    discount: float = 0.99
    """Discount factor (gamma)."""
    target_rate: float = 0.001
    """Soft target update rate (tau), applied whenever the actor moves."""
    critic_learning_rate: float = 0.001
    """Adam's rate for the critics; the paper sweeps 0.001, 0.0005, 0.0002, 0.0001."""
    actor_learning_rate: float = 0.001
    """Adam's rate for the actor; the paper sweeps 0.001, 0.0005, 0.0002, 0.0001."""
    policy_delay: int = 2
    """The actor and the target networks move once in so many steps."""
    smoothing_sigma: float = 0.2
    """Standard deviation of the noise on the target policy's action, in half action ranges."""
    smoothing_clip: float = 0.5
    """Largest noise on the target policy's action, in half action ranges."""
    saturation_penalty: float = 0.0
    """Weight of the squared excess beyond +-3 of the actor's outputs before tanh, where they hardly have a gradient any
    more; Fujimoto et al. have none."""
    exploration: Exploration = field(default_factory=Exploration)
    """Noise added to the actor's action while collecting."""

    def __post_init__(self) -> None:
        check_common(self)
        require(self, "policy_delay", "a whole number, at least 1", self.policy_delay >= 1)
        require(self, "smoothing_sigma", "a finite number, at least 0", 0 <= self.smoothing_sigma < float("inf"))
        require(self, "smoothing_clip", "at least 0", self.smoothing_clip >= 0)


class TD3State(NamedTuple):
    """All that learning changes; the two critics are rows of one array."""

    actor: Learned
    actor_target: jax.Array
    critics: Learned
    critics_target: jax.Array
    steps: jax.Array


class TD3(Agent):
    """Deterministic actor, twin critics."""

    name: ClassVar[str] = "td3"

    def __init__(self, config: TD3Config, spec: Spec) -> None:
        self.config, self.spec = config, spec
        inputs, outputs = spec.observation_size, spec.action_size
        self.actor = FlatNetwork((inputs, *config.hidden, outputs))
        self.twin_critics = TwinCritics((inputs + outputs, *config.hidden, 1))
        self.actor_adam = adam(config.actor_learning_rate)
        self.critic_adam = adam(config.critic_learning_rate)
        self._update = jax.jit(self._learn, donate_argnums=0)

    def init(self, key: jax.Array) -> TD3State:
        actor_key, *critic_keys = jax.random.split(key, 3)
        actor = self.actor.init(actor_key)
        critics = self.twin_critics.init(critic_keys)
        return TD3State(
            begin(self.actor_adam, actor),
            jnp.copy(actor),
            begin(self.critic_adam, critics),
            jnp.copy(critics),
            jnp.zeros((), jnp.int32),
        )

    def action(self, actor: jax.Array, states: jax.Array, sets: Columns | None = None) -> jax.Array:
        """pi(x), inside the box and the states' action sets."""
        return self.spec.inside(squash(self.spec.action_set, forward(self.actor.layers(actor), states)), sets)

    def labels(self, state: TD3State, batch: Batch, noise: jax.Array) -> jax.Array:
        """r + gamma min_i Q'_i(x', pi'(x') + clipped noise), `noise` standard normal (B, d) -> (B,)."""
        box, config = self.spec.action_set, self.config
        smoothing = jnp.clip(config.smoothing_sigma * noise, -config.smoothing_clip, config.smoothing_clip)
        next_actions = self.action(state.actor_target, batch.next_states, batch.next_sets)
        next_actions = self.spec.inside(box.clip(next_actions + box.radius * smoothing), batch.next_sets)
        next_values = self.twin_critics.smaller_value(state.critics_target, batch.next_states, next_actions)
        return one_step_label(batch.rewards, config.discount, batch.continues, next_values)

    def actor_loss(self, actor: jax.Array, critics: jax.Array, batch: Batch) -> tuple[jax.Array, None]:
        """-Q_1(x, pi(x)), the mean over the batch, of the first critic alone, as Fujimoto et al.; and the penalty on
        saturated outputs."""
        actions = self.action(actor, batch.states, batch.sets)
        loss = -jnp.mean(q_value(self.twin_critics.network.layers(critics[0]), batch.states, actions))
        if penalty := self.config.saturation_penalty:
            loss += penalty * jnp.mean(saturation(forward(self.actor.layers(actor), batch.states)))
        return loss, None

    def _step(self, state: TD3State, inputs: tuple[Batch, jax.Array]) -> tuple[TD3State, dict[str, jax.Array]]:
        batch, noise = inputs
        labels = self.labels(state, batch, noise)
        critics, loss, q_mean = descend(
            self.critic_adam, state.critics, lambda vector: self.twin_critics.loss(vector, batch, labels)
        )

        def move_actor(state: TD3State) -> tuple[TD3State, jax.Array]:
            actor, actor_loss, _ = descend(
                self.actor_adam, state.actor, lambda vector: self.actor_loss(vector, critics.vector, batch)
            )
            rate = self.config.target_rate
            actor_target = soft_update(state.actor_target, actor.vector, rate)
            critics_target = soft_update(state.critics_target, critics.vector, rate)
            return state._replace(actor=actor, actor_target=actor_target, critics_target=critics_target), actor_loss

        steps = state.steps + 1
        state, actor_loss = jax.lax.cond(
            steps % self.config.policy_delay == 0, move_actor, lambda state: (state, jnp.zeros(())), state
        )
        statistics = {"loss": loss, "q_mean": q_mean, "actor_loss": actor_loss}
        return state._replace(critics=critics, steps=steps), statistics

    def _learn(self, state: TD3State, batches: Batch, key: jax.Array) -> tuple[TD3State, dict[str, jax.Array]]:
        noise = jax.random.normal(key, jnp.shape(batches.actions))
        moves = -(state.steps // self.config.policy_delay)
        state, statistics = jax.lax.scan(self._step, state, (batches, noise))
        moves += state.steps // self.config.policy_delay
        # The actor's mean loss is over the steps on which it moved: 0 if there were none.
        actor_loss = jnp.sum(statistics.pop("actor_loss")) / jnp.maximum(moves, 1)
        return state, {"actor_loss": actor_loss} | {name: jnp.mean(values) for name, values in statistics.items()}

    def update(self, state: TD3State, batches: Batch, key: jax.Array) -> tuple[TD3State, dict[str, Any]]:
        learned: tuple[TD3State, dict[str, Any]] = self._update(state, batches, key)
        return learned

    def policy(self, state: TD3State, epoch: int) -> Policy:
        # A copy: the state's own memory is given up to the next update.
        layers = self.actor.layers(np.array(state.actor.vector))
        sigma = self.config.exploration.size(epoch, self.spec.action_set)
        policy = DeterministicPolicy(layers, self.spec.action_set, sigma)
        return exploring(policy, self.spec, self.config.exploration.epsilon(epoch))
