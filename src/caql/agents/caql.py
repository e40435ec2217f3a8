"""CAQL: Q-learning whose greedy action is found by a plug-in max-Q solver (Appendix B).

One minibatch: fold the next states away, let the speed-ups plan, solve max-Q, label, descend on the
Bellman loss and on the action function's, move the targets.  With a solver that runs inside `jit` the S minibatches
of an epoch are one jitted scan; otherwise two jitted halves stand around the solver on the host.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from caql.agents.action_functions import Absent, ActionFunction, Deterministic, SolverPolicy, Stochastic
from caql.agents.agent import Array, Exploration, Policy, Spec, require
from caql.bounds import dual_bound
from caql.errors import CaqlError
from caql.losses import hinge_loss, l2_loss
from caql.maxq.gradient_ascent import GradientAscent
from caql.maxq.problem import Problem, Solution, Status
from caql.maxq.solvers import inside_jit
from caql.networks import fold_state, folded_value, q_value
from caql.optimisers import FlatNetwork, Learned, adam, begin, descend, soft_update
from caql.replay import Batch
from caql.targets.label import Posed, Targets
from caql.targets.speedups import BOUNDED, EXTRAPOLATED, SOLVED, Clustering, Context, Dual, DualFilter, Stage, Tolerance


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
    clipped_double_q: bool = False
    """Label with the smaller of the soft target and a second one, copied every `second_target_every` steps."""
    second_target_every: int = 5000
    """Training steps between hard copies into the second target network."""
    action_function: Literal["deterministic", "stochastic", "none"] = "deterministic"
    """The network that imitates the maximiser; `none`: the solver itself acts."""
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
    """k2 of the dynamic tolerance: its factor after each epoch."""
    tolerance_maximum: float = 100.0
    """Ceiling of the dynamic tolerance."""
    dual_filter: bool = False
    """Skip the rows that the dual bound shows to be inactive."""
    cluster_radius: float = 0.0
    """Radius b of the clusters of next states; 0 is no clustering."""
    cluster_decay: float = 1.0
    """Factor on the radius after each epoch (k4)."""
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
    audit: int = 0
    """Every so many training steps solve a batch exactly too, and record how far the labels and the action
    function fall short of the true max-Q; 0 is never.  Changes no weights."""

    def __post_init__(self) -> None:
        require(self, "hidden", "positive whole numbers", all(units >= 1 for units in self.hidden))
        require(self, "action_hidden", "positive whole numbers", all(units >= 1 for units in self.action_hidden))
        require(self, "discount", "at least 0 and less than 1", 0 <= self.discount < 1)
        require(self, "q_learning_rate", "positive", self.q_learning_rate > 0)
        require(self, "action_learning_rate", "positive", self.action_learning_rate > 0)
        require(self, "target_rate", "more than 0 and at most 1", 0 < self.target_rate <= 1)
        require(self, "audit", "0 or a positive number of training steps", self.audit >= 0)
        require(self, "hinge_penalty", "positive", self.hinge_penalty > 0)
        require(self, "hinge_penalty_learning_rate", "0 or positive", self.hinge_penalty_learning_rate >= 0)
        require(self, "second_target_every", "at least 1", self.second_target_every >= 1)
        if self.hinge_penalty_learning_rate and self.loss != "hinge":
            raise CaqlError("hinge_penalty_learning_rate means nothing with loss = 'l2'; set loss = 'hinge'")
        if self.dual_only and (self.dual_filter or self.cluster_radius):
            raise CaqlError("dual_only leaves nothing to solve: turn dual_filter and cluster_radius off with it")
        if self.dual_only and self.action_function == "stochastic":
            raise CaqlError("action_function = 'stochastic' imitates maximisers, and dual_only computes none")
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


STATISTICS = (
    *("loss", "action_loss", "q_mean", "td_error", "tolerance", "filtered", "clustered", "work"),
    *("hinge_penalty", "cluster_radius"),
)
"""What a training step reports."""


def _row(batches: Batch, row: Any) -> Batch:
    return Batch(*(column[row] for column in batches))


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
        self.action_function = self._make_action_function()
        self.q_adam, self.action_adam = adam(config.q_learning_rate), adam(config.action_learning_rate)
        self.targets = Targets(config.stages(), config.schedule(), config.relative_tolerance)
        self.scan = jax.jit(self._scan, donate_argnums=0)
        self.pose = jax.jit(self._pose)
        self.start = jax.jit(self._start)
        self.advance = jax.jit(self._advance, donate_argnums=(0, 1))
        self.inside_jit = inside_jit(config.solver)
        self.solve = config.solver.solve if self.inside_jit is None else jax.jit(self.inside_jit)

    def _make_action_function(self) -> ActionFunction:
        config, spec = self.config, self.spec
        if config.action_function == "deterministic":
            return Deterministic(config.action_hidden, spec, config.squash)
        return Stochastic(config.action_hidden, spec) if config.action_function == "stochastic" else Absent(spec)

    def init(self, key: jax.Array) -> CAQLState:
        q_key, action_key = jax.random.split(key)
        q = self.q_network.init(q_key)
        return CAQLState(
            q=begin(self.q_adam, q),
            action_function=begin(self.action_adam, self.action_function.init(action_key)),
            target=q + 0,
            second_target=q + 0,
            hinge_penalty=jnp.float32(self.config.hinge_penalty),
            step=jnp.int32(0),
        )

    def update(self, state: CAQLState, batches: Batch, key: jax.Array) -> tuple[CAQLState, dict[str, Any]]:
        before = int(state.step)
        if self.inside_jit is not None:
            state, statistics = self.scan(state, batches, key)
        else:
            state, statistics = self._update_around_host_solver(state, batches, key)
        every = self.config.audit
        if every and (before + len(batches.rewards)) // every > before // every:
            statistics |= self.audit(state, _row(batches, -1), key)
        return state, statistics

    def _update_around_host_solver(
        self, state: CAQLState, batches: Batch, key: jax.Array
    ) -> tuple[CAQLState, dict[str, Any]]:
        # On the device once: twenty minibatches handed over one by one would cost more than learning them.
        batches = jax.device_put(batches)
        steps = len(batches.rewards)
        posed, totals = self.start(state, batches)
        seconds, per_state = [], []
        for row in range(steps):
            jax.block_until_ready(posed)
            began = time.perf_counter()
            solution = Solution(*(np.asarray(part) for part in self.solve(posed.problem, key)))
            seconds.append(time.perf_counter() - began)
            per_state.append(1e3 * seconds[-1] / max(1, int((solution.status != Status.SKIPPED).sum())))
            state, posed, totals = self.advance(state, totals, posed, solution, batches, row)
        return state, {name: float(total) / steps for name, total in jax.device_get(totals).items()} | {
            "solve_seconds": float(np.mean(seconds)),
            "solve_ms": float(np.median(per_state)),
            "solve_ms_std": float(np.std(per_state)),
        }

    def probe(self, state: CAQLState, batches: Batch, key: jax.Array) -> dict[str, float]:
        """Time max-Q alone on each minibatch: inside the scan it cannot be told from the rest."""
        if self.inside_jit is None:
            return {}
        seconds, per_state = [], []
        for row in range(-1, len(batches.rewards)):
            problem = jax.block_until_ready(self.pose(state, _row(batches, row)).problem)
            began = time.perf_counter()
            jax.block_until_ready(self.solve(problem, key))
            if row >= 0:  # the first call may compile
                seconds.append(time.perf_counter() - began)
                rows = len(batches.rewards[row]) if problem.mask is None else int(problem.mask.sum())
                per_state.append(1e3 * seconds[-1] / max(1, rows))
        return {
            "solve_seconds": float(np.mean(seconds)),
            "solve_ms": float(np.median(per_state)),
            "solve_ms_std": float(np.std(per_state)),
        }

    def audit(self, state: CAQLState, batch: Batch, key: jax.Array) -> dict[str, float]:
        """How far the solver's and the action function's values fall short of the proven max-Q on a batch."""
        from caql.maxq.exact.solver import Exact

        problem = self.pose(state, batch).problem._replace(mask=None)
        found = np.asarray(self.solve(problem, key).values)
        guessed = np.asarray(folded_value(problem.network, problem.warm_start))
        true = np.asarray(Exact().solve(problem._replace(tolerance=1e-6, relative_tolerance=1e-6), None).values)
        return {
            "audit_solver_shortfall": float(np.mean(true - found)),
            "audit_solver_worst": float(np.max(true - found)),
            "audit_action_shortfall": float(np.mean(true - guessed)),
        }

    def policy(self, state: CAQLState, epoch: int) -> Policy:
        sigma = self.config.exploration.size(epoch, self.spec.action_set)
        if self.config.action_function == "none":
            return self.solver_policy(state, sigma)
        return self.action_function.policy(state.action_function.vector, sigma)

    def solver_policy(self, state: CAQLState, sigma: Array) -> SolverPolicy:
        """Acting with the max-Q solver itself instead of the action function."""
        return SolverPolicy(lambda states: self.best_actions(state, states), self.spec, sigma)

    def best_actions(self, state: CAQLState, states: Array) -> Array:
        """The solver's maximisers at (B, n) states."""
        solution = self.solve(self.max_q(state, states), jax.random.key(0))
        if (np.asarray(solution.status) == Status.FAILED).any():
            raise CaqlError(f"solver {self.config.solver.name!r} failed at a state; the action function still acts")
        return np.asarray(solution.actions, np.float32)

    def max_q(self, state: CAQLState, states: Any, tolerance: float | None = None) -> Problem:
        """The max-Q problem of Q_theta at (B, n) states, warm-started by the action function."""
        q = self.q_network.layers(state.q.vector)
        return Problem(
            fold_state(q, states),
            self.spec.action_set,
            self.action_function.guess(state.action_function.vector, jnp.asarray(states)),
            jnp.float32(self.config.tolerance if tolerance is None else tolerance),
            jnp.float32(self.config.relative_tolerance if tolerance is None else 0.0),
        )

    def _context(self, state: CAQLState, batch: Batch) -> Context:
        layers = self.q_network.layers
        q = layers(state.q.vector)
        second = (layers(state.second_target),) if self.config.clipped_double_q else ()
        return Context(
            batch=batch,
            q=q,
            network=fold_state(q, batch.next_states),
            targets=(layers(state.target), *second),
            action_set=self.spec.action_set,
            discount=self.config.discount,
            q_values=q_value(q, batch.states, batch.actions),
            epoch=state.step // self.spec.epoch_steps,
        )

    def _pose(self, state: CAQLState, batch: Batch) -> Posed:
        guess = self.action_function.guess(state.action_function.vector, batch.next_states)
        return self.targets.pose(self._context(state, batch), guess)

    def _learn(
        self, state: CAQLState, batch: Batch, posed: Posed, solution: Solution
    ) -> tuple[CAQLState, dict[str, jax.Array]]:
        config, context = self.config, self._context(state, batch)
        labels, answer = self.targets.label(context, posed, solution)
        distilled = answer
        if config.action_labels == "dual":
            distilled = answer._replace(best=dual_bound(context.network, context.action_set))

        def bellman_loss(vector: jax.Array) -> tuple[jax.Array, jax.Array]:
            values = q_value(self.q_network.layers(vector), batch.states, batch.actions)
            if config.loss == "hinge":
                return jnp.mean(hinge_loss(values, labels, state.hinge_penalty)), values
            return jnp.mean(l2_loss(values, labels)), values

        def distillation_loss(vector: jax.Array) -> tuple[jax.Array, None]:
            return jnp.mean(self.action_function.loss(vector, batch.next_states, context.network, distilled)), None

        q, loss, values = descend(self.q_adam, state.q, bellman_loss)
        action_function, action_loss, _ = descend(self.action_adam, state.action_function, distillation_loss)
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
            "tolerance": jnp.mean(jnp.asarray(posed.problem.tolerance)),
            "filtered": jnp.mean(answer.provenance == BOUNDED),
            "clustered": jnp.mean(answer.provenance == EXTRAPOLATED),
            "work": jnp.sum(solution.work * solved) / jnp.maximum(jnp.sum(solved), 1),
            "hinge_penalty": state.hinge_penalty,
            "cluster_radius": config.cluster_radius * jnp.float32(config.cluster_decay) ** context.epoch,
        }
        return new, statistics

    def _start(self, state: CAQLState, batches: Batch) -> tuple[Posed, dict[str, jax.Array]]:
        """The first minibatch's problem, and sums of statistics to add to."""
        posed = self._pose(state, _row(batches, 0))
        return posed, dict.fromkeys(STATISTICS, jnp.float32(0))

    def _advance(
        self,
        state: CAQLState,
        totals: dict[str, jax.Array],
        posed: Posed,
        solution: Solution,
        batches: Batch,
        row: jax.Array,
    ) -> tuple[CAQLState, Posed, dict[str, jax.Array]]:
        """Learn a minibatch from the host solver's answer and pose the next: one call between two solves."""
        state, found = self._learn(state, _row(batches, row), posed, solution)
        following = self._pose(state, _row(batches, (row + 1) % len(batches.rewards)))
        return state, following, {name: totals[name] + found[name] for name in STATISTICS}

    def _scan(self, state: CAQLState, batches: Batch, key: jax.Array) -> tuple[CAQLState, dict[str, jax.Array]]:
        solve = self.inside_jit
        assert solve is not None

        def one(state: CAQLState, inputs: tuple[Batch, jax.Array]) -> tuple[CAQLState, dict[str, jax.Array]]:
            batch, step_key = inputs
            posed = self._pose(state, batch)
            return self._learn(state, batch, posed, solve(posed.problem, step_key))

        keys = jax.random.split(key, len(batches.rewards))
        state, statistics = jax.lax.scan(one, state, (batches, keys))
        return state, jax.tree.map(partial(jnp.mean, axis=0), statistics)
