"""NAF, normalised advantage functions (Gu et al., 2016): the paper's value-based baseline.

Q(x, a) = V(x) - 1/2 |L(x)^T (u - m(x))|^2 is quadratic in the action, so its maximum needs no solver: it is V(x), at
the centre m(x) of the quadratic.  Here u is the action in the box's own coordinates, a = centre + radius * u, and m
goes through tanh: the unconstrained maximum then always lies inside the box, however lopsided its sides, and is
the constrained one as well.  One network gives V, m and L, a lower triangular matrix with a positive diagonal.

A centre far out on tanh's flat ends has no gradient, and a curvature near zero gives it none: together they can stop a
run for good at whatever bound it happened to try first.  A penalty keeps both where they can still learn.

Where the admissible actions are more than a box, the greedy action is the closest of them to m(x), and the next
state's value is Q there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from caql.actions import squash
from caql.agents.agent import Agent, Policy, Spec, check_common
from caql.agents.policies import DeterministicPolicy, Exploration, exploring, head
from caql.losses import LIVE, excess, l2_loss, one_step_label
from caql.networks import forward
from caql.optimisers import FlatNetwork, Learned, adam, begin, descend, soft_update
from caql.replay import Batch


@dataclass(frozen=True)
class NAFConfig:
    """Hyper-parameters of NAF: the paper's first table.

    Gu et al. use 200 x 200 units with batch normalisation, tau = 0.001, rates and noise tuned for each task.
    """

    name: ClassVar[str] = "naf"

    hidden: tuple[int, ...] = (32, 16)
    """Units of each hidden layer."""
    discount: float = 0.99
    """Discount factor (gamma)."""
    target_rate: float = 0.001
    """Soft target update rate (tau)."""
    q_learning_rate: float = 0.001
    """Adam's rate for the Q-function; the paper sweeps 0.001, 0.0005, 0.0002, 0.0001."""
    saturation_penalty: float = 1.0
    """Weight of the squared excess beyond +-3 of the centre before tanh and the log-curvature; Gu et al. have none."""
    exploration: Exploration = field(default_factory=Exploration)
    """Noise added to the greedy action while collecting; the paper sweeps its decay, 0.9995 and 0.9999."""

    def __post_init__(self) -> None:
        check_common(self)


class NAFState(NamedTuple):
    """All that learning changes."""

    network: Learned
    target: jax.Array


class Quadratic(NamedTuple):
    """Q(x, .) in the box's coordinates: maximum (B,), its place (B, d), factor L (B, d, d), saturated excess (B,)."""

    maximum: jax.Array
    centre: jax.Array
    factor: jax.Array
    excess: jax.Array


class NAF(Agent):
    """A Q-function that is quadratic in the action."""

    name: ClassVar[str] = "naf"

    def __init__(self, config: NAFConfig, spec: Spec) -> None:
        self.config, self.spec = config, spec
        size = spec.action_size
        # All d x d entries of L are outputs and the upper ones go unused: masking is cheaper than scattering.
        self.network = FlatNetwork((spec.observation_size, *config.hidden, 1 + size + size * size))
        self.adam = adam(config.q_learning_rate)
        self._update = jax.jit(self._learn, donate_argnums=0)

    def init(self, key: jax.Array) -> NAFState:
        vector = self.network.init(key)
        return NAFState(begin(self.adam, vector), jnp.copy(vector))

    def quadratic(self, vector: jax.Array, states: jax.Array) -> Quadratic:
        """The parts of Q(x, .) for (B, n) states."""
        size = self.spec.action_size
        outputs = forward(self.network.layers(vector), states)
        centre = outputs[..., 1 : 1 + size]
        entries = outputs[..., 1 + size :].reshape(*outputs.shape[:-1], size, size)
        diagonal = jnp.eye(size, dtype=bool)
        log_diagonal = jnp.where(diagonal, entries, 0)
        # Curvatures reach from 0.002 to 400 within +-3. Beyond 3 they stay there, with the slope that they have there:
        # on Humanoid, whose states jump from a norm of 100 to 5,000, the exponential would overflow.
        beyond = jax.lax.stop_gradient(jnp.maximum(log_diagonal - LIVE, 0))
        factor = jnp.where(diagonal, jnp.exp(log_diagonal - beyond), jnp.tril(entries))
        saturated = jnp.sum(excess(centre) ** 2, axis=-1) + jnp.sum(excess(log_diagonal) ** 2, axis=(-2, -1))
        return Quadratic(outputs[..., 0], jnp.tanh(centre), factor, saturated)

    def values(self, quadratic: Quadratic, actions: jax.Array) -> jax.Array:
        """Q(x, a) for the (B, d) actions of B states -> (B,)."""
        box = self.spec.action_set
        # A side of no width has one action, its centre: any divisor keeps it at 0.
        offset = (actions - box.centre) / jnp.where(box.radius > 0, box.radius, 1) - quadratic.centre
        stretched = jnp.sum(quadratic.factor * offset[..., :, None], axis=-2)
        return quadratic.maximum - jnp.sum(stretched**2, axis=-1) / 2

    def greedy(self, vector: jax.Array, states: jax.Array) -> jax.Array:
        """The maximiser of Q(x, .) over the box -> (B, d)."""
        size = self.spec.action_size
        return squash(self.spec.action_set, forward(self.network.layers(vector), states)[..., 1 : 1 + size])

    def labels(self, target: jax.Array, batch: Batch) -> jax.Array:
        """r + gamma V'(x'): over a box, the target network's maximum is its value term -> (B,)."""
        quadratic = self.quadratic(target, batch.next_states)
        next_values = quadratic.maximum
        if self.spec.constrained:
            box = self.spec.action_set
            greedy = self.spec.inside(box.centre + box.radius * quadratic.centre, batch.next_sets)
            next_values = self.values(quadratic, greedy)
        return one_step_label(batch.rewards, self.config.discount, batch.continues, next_values)

    def loss(self, vector: jax.Array, batch: Batch, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean squared temporal difference, and the penalty on saturated outputs; and the mean value."""
        quadratic = self.quadratic(vector, batch.states)
        values = self.values(quadratic, batch.actions)
        penalty = self.config.saturation_penalty * quadratic.excess
        return jnp.mean(l2_loss(values, labels) + penalty), jnp.mean(values)

    def _step(self, state: NAFState, batch: Batch) -> tuple[NAFState, dict[str, jax.Array]]:
        labels = self.labels(state.target, batch)
        network, loss, q_mean = descend(self.adam, state.network, lambda vector: self.loss(vector, batch, labels))
        target = soft_update(state.target, network.vector, self.config.target_rate)
        return NAFState(network, target), {"loss": loss, "q_mean": q_mean}

    def _learn(self, state: NAFState, batches: Batch) -> tuple[NAFState, dict[str, jax.Array]]:
        state, statistics = jax.lax.scan(self._step, state, batches)
        return state, {name: jnp.mean(values) for name, values in statistics.items()}

    def update(self, state: NAFState, batches: Batch, key: jax.Array) -> tuple[NAFState, dict[str, Any]]:
        del key  # Nothing in this algorithm's learning is random.
        learned: tuple[NAFState, dict[str, Any]] = self._update(state, batches)
        return learned

    def policy(self, state: NAFState, epoch: int) -> Policy:
        # A copy: the state's own memory is given up to the next update.
        layers = head(self.network.layers(np.array(state.network.vector)), slice(1, 1 + self.spec.action_size))
        sigma = self.config.exploration.size(epoch, self.spec.action_set)
        policy = DeterministicPolicy(layers, self.spec.action_set, sigma)
        return exploring(policy, self.spec, self.config.exploration.epsilon(epoch))
