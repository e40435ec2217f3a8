"""CAQL: Q-learning whose greedy action is found by a plug-in max-Q solver (Appendix B).

One minibatch: fold the next states away, let the speed-ups plan, solve max-Q, label, descend on the
Bellman loss and on the action function's, move the targets.  With a traceable solver the S minibatches
of an epoch are one jitted scan; otherwise two jitted halves stand around the solver on the host.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from caql.actions import squash
from caql.agents.agent import DeterministicPolicy, Exploration, Policy, Spec
from caql.bounds import dual_bound
from caql.errors import CaqlError
from caql.losses import action_function_loss, hinge_loss, l2_loss
from caql.maxq.gradient_ascent import GradientAscent
from caql.maxq.problem import Solution
from caql.networks import fold_state, folded_value, forward, q_value
from caql.optimisers import FlatNetwork, Learned, adam, begin, descend, soft_update
from caql.replay import Batch
from caql.speedups import BOUNDED, EXTRAPOLATED, SOLVED, Clustering, Context, Dual, DualFilter, Stage, Tolerance
from caql.targets import Posed, Targets


@dataclass(frozen=True)
class CAQLConfig:
    """Hyper-parameters of CAQL; the defaults are the paper's where it gives one (see docs/fidelity.md)."""

    name: ClassVar[str] = "caql"

    solver: Any = field(default_factory=GradientAscent)
    """The max-Q solver with its settings."""
    hidden: tuple[int, ...] = (32, 16)
    """Units of the Q-network's hidden layers."""
    action_hidden: tuple[int, ...] = (32, 16)
    """Units of the action function's hidden layers."""
    discount: float = 0.99
    """gamma."""
    q_learning_rate: float = 0.001
    """Adam's step for the Q-network."""
    action_learning_rate: float = 0.001
    """Adam's step for the action function."""
    target_rate: float = 0.001
    """tau of the soft target update."""
    loss: Literal["l2", "hinge"] = "l2"
    """Bellman loss: Eq. 1 or Eq. 2."""
    hinge_penalty: float = 1.0
    """lambda of the hinge loss; where it starts when learned."""
    hinge_penalty_learning_rate: float = 0.0
    """Learn lambda by ascent on the mean violation; 0 keeps it constant."""
    clipped_double_q: bool = True
    """Label with the smaller of the soft target and a second one, copied every `second_target_every` steps."""
    second_target_every: int = 5000
    """Training steps between hard copies into the second target network."""
    squash: Literal["tanh", "straight_through", "clip"] = "tanh"
    """How the action function's output enters the range; `clip` is the paper's, whose gradient can die."""
    action_labels: Literal["primal", "dual"] = "primal"
    """What the action function regresses on: max-Q, or its dual upper bound (the paper's footnote)."""
    exploration: Exploration = Exploration()
    """Gaussian noise on the action."""
    tolerance: float = 1e-6
    """The solver's tolerance (exact solvers: absolute gap); the floor of the dynamic one."""
    relative_tolerance: float = 0.0
    """The same as a fraction of |Q|; the larger of the two counts."""
    dynamic_tolerance: float | None = None
    """k1: tolerance = mean |TD error| * k1 * k2^t; None keeps it constant."""
    tolerance_decay: float = 0.9995
    """k2 of the dynamic tolerance."""
    tolerance_maximum: float = 100.0
    """Ceiling of the dynamic tolerance."""
    dual_filter: bool = False
    """Skip the rows that the dual bound shows to be inactive."""
    cluster_radius: float = 0.0
    """Radius b of the clusters of next states; 0 is no clustering."""
    cluster_decay: float = 1.0
    """Factor on the radius per training step (k4)."""
    cluster_p: float = 2.0
    """Exponent of the clusters' metric."""
    cluster_relative: bool = False
    """Measure the radius in mean state lengths."""
    cluster_method: Literal["online", "farthest_first"] = "online"
    """How centroids are picked."""
    cluster_cap_by_bound: bool = False
    """Never extrapolate above the dual bound."""
    dual_only: bool = False
    """No max-Q solve: every next value is its dual bound (the paper's 'Dual')."""

    def __post_init__(self) -> None:
        if not 0 <= self.discount < 1:
            raise CaqlError(f"discount = {self.discount} must lie in [0, 1)")
        for name in ("q_learning_rate", "action_learning_rate"):
            if not getattr(self, name) > 0:
                raise CaqlError(f"{name} = {getattr(self, name)} must be positive")
        if not 0 < self.target_rate <= 1:
            raise CaqlError(f"target_rate = {self.target_rate} must lie in (0, 1]")
        for name in ("hidden", "action_hidden"):
            if any(units < 1 for units in getattr(self, name)):
                raise CaqlError(f"{name} = {getattr(self, name)} must be positive numbers of units")
        if self.hinge_penalty <= 0 or self.hinge_penalty_learning_rate < 0:
            raise CaqlError(
                f"hinge_penalty = {self.hinge_penalty} must be positive and its learning rate "
                f"{self.hinge_penalty_learning_rate} not negative"
            )
        if self.hinge_penalty_learning_rate and self.loss != "hinge":
            raise CaqlError("hinge_penalty_learning_rate means nothing with loss = 'l2'; set loss = 'hinge'")
        if self.second_target_every < 1:
            raise CaqlError(f"second_target_every = {self.second_target_every} must be at least 1")
        if self.dual_only and (self.dual_filter or self.cluster_radius):
            raise CaqlError("dual_only leaves nothing to solve: turn dual_filter and cluster_radius off with it")
        self.stages()
        self.schedule()

    def stages(self) -> tuple[Stage, ...]:
        """The speed-ups, in the order of Appendix B: filter first, then cluster what is left."""
        stages: list[Stage] = []
        if self.dual_only:
            stages.append(Dual())
        if self.dual_filter:
            stages.append(DualFilter())
        clustering = Clustering(
            radius=self.cluster_radius,
            decay=self.cluster_decay,
            p=self.cluster_p,
            relative=self.cluster_relative,
            method=self.cluster_method,
            cap_by_bound=self.cluster_cap_by_bound,
        )
        if clustering.radius > 0:
            stages.append(clustering)
        return tuple(stages)

    def schedule(self) -> Tolerance:
        """The tolerance, constant or dynamic."""
        return Tolerance(self.tolerance, self.dynamic_tolerance, self.tolerance_decay, self.tolerance_maximum)


class CAQLState(NamedTuple):
    """Everything that learning changes.  Networks are flat vectors (see `optimisers`)."""

    q: Learned
    action_function: Learned
    target: jax.Array
    second_target: jax.Array
    hinge_penalty: jax.Array
    step: jax.Array


class CAQL:
    """The algorithm bound to a task."""

    name: ClassVar[str] = "caql"

    def __init__(self, config: CAQLConfig, spec: Spec) -> None:
        self.config, self.spec = config, spec
        self.q_network = FlatNetwork((spec.observation_size + spec.action_size, *config.hidden, 1))
        self.action_network = FlatNetwork((spec.observation_size, *config.action_hidden, spec.action_size))
        self.q_adam, self.action_adam = adam(config.q_learning_rate), adam(config.action_learning_rate)
        self.targets = Targets(config.stages(), config.schedule(), config.relative_tolerance)
        self.scan = jax.jit(self._scan, donate_argnums=0)
        self.pose = jax.jit(self._pose)
        self.learn = jax.jit(self._learn)

    def init(self, key: jax.Array) -> CAQLState:
        q_key, action_key = jax.random.split(key)
        q = self.q_network.init(q_key)
        return CAQLState(
            q=begin(self.q_adam, q),
            action_function=begin(self.action_adam, self.action_network.init(action_key)),
            target=q + 0,
            second_target=q + 0,
            hinge_penalty=jnp.float32(self.config.hinge_penalty),
            step=jnp.int32(0),
        )

    def update(self, state: CAQLState, batches: Batch, key: jax.Array) -> tuple[CAQLState, dict[str, Any]]:
        if self.config.solver.traceable:
            return self.scan(state, batches, key)  # type: ignore[no-any-return]
        statistics = []
        for row in range(len(batches.rewards)):
            batch = Batch(*(column[row] for column in batches))
            posed = self.pose(state, batch)
            solution = self.config.solver.solve(posed.problem, key)
            state, found = self.learn(state, batch, posed, Solution(*(np.asarray(x) for x in solution)))
            statistics.append(found)
        return state, {name: np.mean([float(s[name]) for s in statistics]) for name in statistics[0]}

    def policy(self, state: CAQLState, epoch: int) -> Policy:
        layers = self.action_network.layers(np.asarray(state.action_function.vector))
        sigma = self.config.exploration.size(epoch, self.spec.actions)
        return DeterministicPolicy(layers, self.spec.actions, sigma, self.config.squash)

    def greedy(self, vector: jax.Array, states: jax.Array) -> jax.Array:
        """The action function: (B, n) states -> (B, d) admissible actions."""
        raw = forward(self.action_network.layers(vector), states)
        if self.config.squash == "tanh":
            return squash(self.spec.actions, raw)
        inside = self.spec.actions.clip(raw)
        if self.config.squash == "straight_through":
            return raw + jax.lax.stop_gradient(inside - raw)
        return inside

    def _context(self, state: CAQLState, batch: Batch) -> Context:
        layers = self.q_network.layers
        q = layers(state.q.vector)
        second = (layers(state.second_target),) if self.config.clipped_double_q else ()
        return Context(
            batch=batch,
            q=q,
            network=fold_state(q, batch.next_states),
            targets=(layers(state.target), *second),
            actions=self.spec.actions,
            discount=self.config.discount,
            taken=q_value(q, batch.states, batch.actions),
            step=state.step,
        )

    def _pose(self, state: CAQLState, batch: Batch) -> Posed:
        guess = self.greedy(state.action_function.vector, batch.next_states)
        return self.targets.pose(self._context(state, batch), guess)

    def _learn(
        self, state: CAQLState, batch: Batch, posed: Posed, solution: Solution
    ) -> tuple[CAQLState, dict[str, jax.Array]]:
        config, context = self.config, self._context(state, batch)
        labels, answer = self.targets.label(context, posed, solution)
        best = answer.best
        if config.action_labels == "dual":
            best = dual_bound(context.network, context.actions)

        def bellman_loss(vector: jax.Array) -> tuple[jax.Array, jax.Array]:
            values = q_value(self.q_network.layers(vector), batch.states, batch.actions)
            if config.loss == "hinge":
                return jnp.mean(hinge_loss(values, labels, state.hinge_penalty)), values
            return jnp.mean(l2_loss(values, labels)), values

        def distillation_loss(vector: jax.Array) -> tuple[jax.Array, jax.Array]:
            values = folded_value(context.network, self.greedy(vector, batch.next_states))
            return jnp.mean(action_function_loss(values, best)), values

        q, loss, values = descend(self.q_adam, state.q, bellman_loss)
        action_function, action_loss, reached = descend(self.action_adam, state.action_function, distillation_loss)
        step = state.step + 1
        violation = jnp.mean(jax.nn.relu(labels - values))
        second = jnp.where(step % config.second_target_every == 0, q.vector, state.second_target)
        new = CAQLState(
            q=q,
            action_function=action_function,
            target=soft_update(state.target, q.vector, config.target_rate),
            second_target=second,
            hinge_penalty=state.hinge_penalty + config.hinge_penalty_learning_rate * violation,
            step=step,
        )
        solved = answer.provenance == SOLVED
        statistics = {
            "loss": loss,
            "action_loss": action_loss,
            "q_mean": jnp.mean(values),
            "td_error": jnp.mean(jnp.abs(labels - values)),
            "shortfall": jnp.mean(answer.best - reached),
            "tolerance": jnp.mean(jnp.asarray(posed.problem.tolerance)),
            "filtered": jnp.mean(answer.provenance == BOUNDED),
            "clustered": jnp.mean(answer.provenance == EXTRAPOLATED),
            "work": jnp.sum(solution.work * solved) / jnp.maximum(jnp.sum(solved), 1),
            "hinge_penalty": state.hinge_penalty,
        }
        return new, statistics

    def _scan(self, state: CAQLState, batches: Batch, key: jax.Array) -> tuple[CAQLState, dict[str, jax.Array]]:
        def one(state: CAQLState, inputs: tuple[Batch, jax.Array]) -> tuple[CAQLState, dict[str, jax.Array]]:
            batch, step_key = inputs
            posed = self._pose(state, batch)
            return self._learn(state, batch, posed, self.config.solver.solve(posed.problem, step_key))

        keys = jax.random.split(key, len(batches.rewards))
        state, statistics = jax.lax.scan(one, state, (batches, keys))
        return state, jax.tree.map(partial(jnp.mean, axis=0), statistics)
