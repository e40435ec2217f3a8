"""DDPG, deep deterministic policy gradient (Lillicrap et al., 2016): one of the paper's baselines.

A critic Q(x, a) learns by temporal differences, and an actor pi(x) climbs it: the actor's loss is
-Q(x, pi(x)).  Slowly moving copies of both make the critic's labels.  The actor's output goes through tanh into
the admissible box, so that a restricted or lopsided range needs no clipping of what was learned.  Where the
admissible actions are more than a box, it goes on to the closest of them, with the gradient of no projection.
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
from caql.losses import l2_loss, one_step_label, saturation
from caql.networks import forward, q_value
from caql.optimisers import FlatNetwork, Learned, adam, begin, descend, soft_update
from caql.replay import Batch


@dataclass(frozen=True)
class DDPGConfig:
    """Hyper-parameters of DDPG: the paper's second table, rates from its sweep.

    Lillicrap et al. use 400 x 300 units with batch normalisation, a critic rate of 0.001 with weight decay 0.01, an
    actor rate of 0.0001, tau = 0.001 and Ornstein-Uhlenbeck noise.
    """

    name: ClassVar[str] = "ddpg"

    hidden: tuple[int, ...] = (32, 16)
    """Units of each hidden layer, for the critic and for the actor."""
    discount: float = 0.99
    """Discount factor (gamma)."""
    target_rate: float = 0.001
    """Soft target update rate (tau)."""
    critic_learning_rate: float = 0.001
    """Adam's rate for the critic; the paper sweeps 0.001, 0.0005, 0.0002, 0.0001."""
    actor_learning_rate: float = 0.001
    """Adam's rate for the actor; the paper sweeps 0.001, 0.0005, 0.0002, 0.0001."""
    saturation_penalty: float = 0.0
    """Weight of the squared excess beyond +-3 of the actor's outputs before tanh, where they hardly have a gradient any
    more; Lillicrap et al. have none."""
    exploration: Exploration = field(default_factory=Exploration)
    """Noise added to the actor's action while collecting."""

    def __post_init__(self) -> None:
        check_common(self)


class DDPGState(NamedTuple):
    """All that learning changes."""

    actor: Learned
    actor_target: jax.Array
    critic: Learned
    critic_target: jax.Array


class DDPG(Agent):
    """Deterministic actor, one critic."""

    name: ClassVar[str] = "ddpg"

    def __init__(self, config: DDPGConfig, spec: Spec) -> None:
        self.config, self.spec = config, spec
        inputs, outputs = spec.observation_size, spec.action_size
        self.actor = FlatNetwork((inputs, *config.hidden, outputs))
        self.critic = FlatNetwork((inputs + outputs, *config.hidden, 1))
        self.actor_adam = adam(config.actor_learning_rate)
        self.critic_adam = adam(config.critic_learning_rate)
        self._update = jax.jit(self._learn, donate_argnums=0)

    def init(self, key: jax.Array) -> DDPGState:
        actor_key, critic_key = jax.random.split(key)
        actor, critic = self.actor.init(actor_key), self.critic.init(critic_key)
        return DDPGState(
            begin(self.actor_adam, actor), jnp.copy(actor), begin(self.critic_adam, critic), jnp.copy(critic)
        )

    def action(self, actor: jax.Array, states: jax.Array, sets: Columns | None = None) -> jax.Array:
        """pi(x), inside the box and the states' action sets."""
        return self.spec.inside(squash(self.spec.action_set, forward(self.actor.layers(actor), states)), sets)

    def labels(self, state: DDPGState, batch: Batch) -> jax.Array:
        """r + gamma Q'(x', pi'(x')), without the second term where the task ended -> (B,)."""
        next_actions = self.action(state.actor_target, batch.next_states, batch.next_sets)
        next_values = q_value(self.critic.layers(state.critic_target), batch.next_states, next_actions)
        return one_step_label(batch.rewards, self.config.discount, batch.continues, next_values)

    def critic_loss(self, critic: jax.Array, batch: Batch, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean squared temporal difference; and the mean value."""
        values = q_value(self.critic.layers(critic), batch.states, batch.actions)
        return jnp.mean(l2_loss(values, labels)), jnp.mean(values)

    def actor_loss(self, actor: jax.Array, critic: jax.Array, batch: Batch) -> tuple[jax.Array, None]:
        """-Q(x, pi(x)), the mean over the batch, and the penalty on saturated outputs."""
        actions = self.action(actor, batch.states, batch.sets)
        loss = -jnp.mean(q_value(self.critic.layers(critic), batch.states, actions))
        if penalty := self.config.saturation_penalty:
            loss += penalty * jnp.mean(saturation(forward(self.actor.layers(actor), batch.states)))
        return loss, None

    def _step(self, state: DDPGState, batch: Batch) -> tuple[DDPGState, dict[str, jax.Array]]:
        labels = self.labels(state, batch)
        critic, loss, q_mean = descend(
            self.critic_adam, state.critic, lambda vector: self.critic_loss(vector, batch, labels)
        )
        actor, actor_loss, _ = descend(
            self.actor_adam, state.actor, lambda vector: self.actor_loss(vector, critic.vector, batch)
        )
        rate = self.config.target_rate
        state = DDPGState(
            actor,
            soft_update(state.actor_target, actor.vector, rate),
            critic,
            soft_update(state.critic_target, critic.vector, rate),
        )
        return state, {"loss": loss, "q_mean": q_mean, "actor_loss": actor_loss}

    def _learn(self, state: DDPGState, batches: Batch) -> tuple[DDPGState, dict[str, jax.Array]]:
        state, statistics = jax.lax.scan(self._step, state, batches)
        return state, {name: jnp.mean(values) for name, values in statistics.items()}

    def update(self, state: DDPGState, batches: Batch, key: jax.Array) -> tuple[DDPGState, dict[str, Any]]:
        del key  # Nothing in this algorithm's learning is random.
        learned: tuple[DDPGState, dict[str, Any]] = self._update(state, batches)
        return learned

    def policy(self, state: DDPGState, epoch: int) -> Policy:
        # A copy: the state's own memory is given up to the next update.
        layers = self.actor.layers(np.array(state.actor.vector))
        sigma = self.config.exploration.size(epoch, self.spec.action_set)
        policy = DeterministicPolicy(layers, self.spec.action_set, sigma)
        return exploring(policy, self.spec, self.config.exploration.epsilon(epoch))
