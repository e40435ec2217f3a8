"""SAC, soft actor-critic (Haarnoja et al., 2018): one of the paper's baselines.

The policy is a distribution, and each step earns, beside its reward, the policy's entropy times a temperature.
An action is a Gaussian sample sent through tanh and then into the admissible box; two critics learn its soft value and
the smaller one teaches the actor.

Densities are those of the unit cube [-1, 1]^d, before the rescaling to the box.  Rescaling adds the constant
-sum(log radius) to every log-probability, which no gradient of the actor sees; leaving it out makes the entropy, the
target entropy of -d and the temperature mean the same for every action range.

Where the admissible actions are more than a box, a sample goes on to the closest of them, with the gradient of no
projection; its probability is that before the projection.  Whole numbers and choices are explored by the samples
alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from caql.action_sets import Columns
from caql.actions import squash
from caql.agents.agent import Agent, Policy, Spec, check_common
from caql.agents.policies import SquashedGaussianPolicy
from caql.agents.twin_critics import TwinCritics
from caql.errors import require
from caql.losses import one_step_label
from caql.networks import forward
from caql.optimisers import FlatNetwork, Learned, adam, begin, descend, soft_update
from caql.replay import Batch

LOG_SIGMA_RANGE = (-20.0, 2.0)
"""Bounds of the Gaussian's log standard deviation, as in Haarnoja et al.'s code."""


@dataclass(frozen=True)
class SACConfig:
    """Hyper-parameters of SAC: the paper's second table, rates from its sweep, the rest as Haarnoja et al.

    Haarnoja et al. use 256 x 256 units, every rate 0.0003, tau = 0.005 and a temperature learned towards an entropy of
    -d; their first version keeps the temperature fixed.
    """

    name: ClassVar[str] = "sac"

    hidden: tuple[int, ...] = (32, 16)
    """Units of each hidden layer, for the critics and for the actor."""
    discount: float = 0.99
    """Discount factor (gamma)."""
    target_rate: float = 0.001
    """Soft target update rate (tau)."""
    critic_learning_rate: float = 0.001
    """Adam's rate for the critics; the paper sweeps 0.001, 0.0005, 0.0002, 0.0001."""
    actor_learning_rate: float = 0.0005
    """Adam's rate for the actor; the paper sweeps 0.001, 0.0005, 0.0002, 0.0001."""
    temperature: Literal["learned", "decayed"] = "learned"
    """Temperature learned towards the target entropy, or decayed at each training step as in the paper's sweep."""
    initial_temperature: float = 1.0
    """Temperature before the first training step."""
    temperature_learning_rate: float = 0.0005
    """Adam's rate for the logarithm of a learned temperature."""
    temperature_decay: float = 0.99995
    """Factor on a decayed temperature after each training step; the paper sweeps 0.99995 and 0.99999."""
    target_entropy: float | None = None
    """Entropy that a learned temperature aims at, of actions rescaled to [-1, 1]; None: minus their number."""

    def __post_init__(self) -> None:
        check_common(self)
        initial = self.initial_temperature
        require(self, "initial_temperature", "a positive finite number", 0 < initial < float("inf"))
        require(self, "temperature_decay", "more than 0 and at most 1", 0 < self.temperature_decay <= 1)
        finite = self.target_entropy is None or bool(np.isfinite(self.target_entropy))
        require(self, "target_entropy", "a finite number or None", finite)


class SACState(NamedTuple):
    """All that learning changes; the two critics are rows of one array."""

    actor: Learned
    critics: Learned
    critics_target: jax.Array
    log_temperature: Learned
    steps: jax.Array


def log_density(log_sigma: jax.Array, noise: jax.Array, raw: jax.Array) -> jax.Array:
    """log p(tanh(raw)) in the unit cube, for raw = mean + sigma * noise, all (..., d) -> (...).

    The Gaussian's log-density less log|d tanh(raw) / d raw| = log(1 - tanh(raw)^2), which is written without the
    difference that rounds to zero for large |raw|.
    """
    gaussian = -(noise**2) / 2 - log_sigma - jnp.log(2 * jnp.pi) / 2
    log_slope = 2 * (jnp.log(2.0) - raw - jax.nn.softplus(-2 * raw))
    return jnp.sum(gaussian - log_slope, axis=-1)


class SAC(Agent):
    """Stochastic actor, twin critics, entropy in the reward."""

    name: ClassVar[str] = "sac"

    def __init__(self, config: SACConfig, spec: Spec) -> None:
        self.config, self.spec = config, spec
        inputs, outputs = spec.observation_size, spec.action_size
        self.actor = FlatNetwork((inputs, *config.hidden, 2 * outputs))
        self.twin_critics = TwinCritics((inputs + outputs, *config.hidden, 1))
        self.actor_adam = adam(config.actor_learning_rate)
        self.critic_adam = adam(config.critic_learning_rate)
        self.temperature_adam = adam(config.temperature_learning_rate)
        self.target_entropy = -float(outputs) if config.target_entropy is None else config.target_entropy
        self._update = jax.jit(self._learn, donate_argnums=0)

    def init(self, key: jax.Array) -> SACState:
        actor_key, *critic_keys = jax.random.split(key, 3)
        critics = self.twin_critics.init(critic_keys)
        return SACState(
            begin(self.actor_adam, self.actor.init(actor_key)),
            begin(self.critic_adam, critics),
            jnp.copy(critics),
            begin(self.temperature_adam, jnp.log(jnp.float32(self.config.initial_temperature))),
            jnp.zeros((), jnp.int32),
        )

    def sample(
        self, actor: jax.Array, states: jax.Array, noise: jax.Array, sets: Columns | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Actions (B, d) drawn with standard normal `noise` (B, d), and their log-probabilities (B,)."""
        mean, log_sigma = jnp.split(forward(self.actor.layers(actor), states), 2, axis=-1)
        log_sigma = jnp.clip(log_sigma, *LOG_SIGMA_RANGE)
        raw = mean + jnp.exp(log_sigma) * noise
        inside = self.spec.inside(squash(self.spec.action_set, raw), sets)
        return inside, log_density(log_sigma, noise, raw)

    def temperature(self, state: SACState) -> jax.Array:
        """The weight of the entropy at this step."""
        if self.config.temperature == "learned":
            return jnp.exp(state.log_temperature.vector)
        # From the float64 logarithm: a decay so close to 1 loses its last digits in float32.
        log_decay = np.log(self.config.temperature_decay)
        return self.config.initial_temperature * jnp.exp(log_decay * state.steps)

    def labels(self, state: SACState, batch: Batch, noise: jax.Array) -> jax.Array:
        """r + gamma (min_i Q'_i(x', a') - temperature log pi(a'|x')), a' drawn from the policy -> (B,)."""
        next_actions, log_probabilities = self.sample(state.actor.vector, batch.next_states, noise, batch.next_sets)
        next_values = self.twin_critics.smaller_value(state.critics_target, batch.next_states, next_actions)
        soft_values = next_values - self.temperature(state) * log_probabilities
        return one_step_label(batch.rewards, self.config.discount, batch.continues, soft_values)

    def critic_loss(self, critics: jax.Array, batch: Batch, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Half the two critics' mean squared temporal differences, added; and the mean value."""
        loss, q_mean = self.twin_critics.loss(critics, batch, labels)
        return loss / 2, q_mean

    def actor_loss(
        self, actor: jax.Array, critics: jax.Array, temperature: jax.Array, batch: Batch, noise: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Temperature log pi(a|x) - min_i Q_i(x, a), a drawn from the policy; and the entropy's estimate."""
        actions, log_probabilities = self.sample(actor, batch.states, noise, batch.sets)
        values = self.twin_critics.smaller_value(critics, batch.states, actions)
        return jnp.mean(temperature * log_probabilities - values), -jnp.mean(log_probabilities)

    def temperature_loss(self, log_temperature: jax.Array, entropy: jax.Array) -> tuple[jax.Array, None]:
        """Falls with the temperature while the entropy is above its target, and with its rise while below."""
        return log_temperature * (entropy - self.target_entropy), None

    def _step(self, state: SACState, inputs: tuple[Batch, jax.Array]) -> tuple[SACState, dict[str, jax.Array]]:
        batch, (target_noise, actor_noise) = inputs
        temperature = self.temperature(state)
        labels = self.labels(state, batch, target_noise)
        critics, loss, q_mean = descend(
            self.critic_adam, state.critics, lambda vector: self.critic_loss(vector, batch, labels)
        )
        actor, actor_loss, entropy = descend(
            self.actor_adam,
            state.actor,
            lambda vector: self.actor_loss(vector, critics.vector, temperature, batch, actor_noise),
        )
        log_temperature = state.log_temperature
        if self.config.temperature == "learned":
            log_temperature, _, _ = descend(
                self.temperature_adam, log_temperature, lambda scalar: self.temperature_loss(scalar, entropy)
            )
        critics_target = soft_update(state.critics_target, critics.vector, self.config.target_rate)
        statistics = {"loss": loss, "q_mean": q_mean, "actor_loss": actor_loss}
        statistics |= {"temperature": temperature, "entropy": entropy}
        return SACState(actor, critics, critics_target, log_temperature, state.steps + 1), statistics

    def _learn(self, state: SACState, batches: Batch, key: jax.Array) -> tuple[SACState, dict[str, jax.Array]]:
        steps, *rest = jnp.shape(batches.actions)
        noise = jax.random.normal(key, (steps, 2, *rest))
        state, statistics = jax.lax.scan(self._step, state, (batches, noise))
        return state, {name: jnp.mean(values) for name, values in statistics.items()}

    def update(self, state: SACState, batches: Batch, key: jax.Array) -> tuple[SACState, dict[str, Any]]:
        learned: tuple[SACState, dict[str, Any]] = self._update(state, batches, key)
        return learned

    def policy(self, state: SACState, epoch: int) -> Policy:
        del epoch  # What the policy explores is learned, not scheduled.
        # A copy: the state's own memory is given up to the next update.
        layers = self.actor.layers(np.array(state.actor.vector))
        return SquashedGaussianPolicy(layers, self.spec.action_set, LOG_SIGMA_RANGE)
