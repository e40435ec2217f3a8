"""CAQL: Q-learning whose greedy action is found by a plug-in max-Q solver (Appendix B).

One minibatch: fold the next states away, label them (`targets/label.py`: the speed-ups plan, the solver solves),
descend on the Bellman loss and on the action function's, move the targets.  With a solver that runs inside `jit` the
S minibatches of an epoch are one jitted scan; otherwise two jitted halves stand around the solver on the host.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from caql.action_sets import Columns, relaxed
from caql.actions import ActionSet
from caql.agents.action_functions import make_action_function
from caql.agents.agent import Agent, Array, Policy, Spec
from caql.agents.caql_settings import CAQLConfig, check_solver
from caql.agents.critics import Critics, encoder_for
from caql.agents.measurement import SolveTimes, shortfalls, solve_times
from caql.agents.policies import AveragedPolicy, EncodedPolicy, SolverPolicy, exploring
from caql.bounds import dual_bound
from caql.errors import CaqlError
from caql.losses import hinge_loss, huber_loss, l2_loss, widened, within_reach
from caql.maxq.problem import Problem, Solution, Status
from caql.maxq.solvers import inside_jit, without_clock
from caql.networks import FoldedNetwork, fold_state
from caql.optimisers import FlatNetwork, Learned, adam, begin, descend, soft_update
from caql.replay import Batch
from caql.targets.context import BOUNDED, EXTRAPOLATED, Context
from caql.targets.label import Labels, Question, Targets

__all__ = ["CAQL", "CAQLConfig", "CAQLState"]

STATISTICS = (
    *("loss", "action_loss", "q_mean", "td_error", "tolerance", "filtered", "clustered", "work"),
    *("hinge_penalty", "cluster_radius", "dropped"),
)
"""What a training step reports."""


class CAQLState(NamedTuple):
    """Everything that learning changes.  Networks are flat vectors (see `optimisers`)."""

    q: Learned
    action_function: Learned
    target: jax.Array
    second_target: jax.Array
    hinge_penalty: jax.Array
    step: jax.Array
    rewards: jax.Array | None = None
    """(2,) the smallest and the largest seen, and 0; None unless labels are clipped."""
    averaged: jax.Array | None = None
    """The action function's weights averaged over training; None unless they are asked for."""


class CAQL(Agent):
    """The algorithm bound to a task."""

    name: ClassVar[str] = "caql"

    def __init__(self, config: CAQLConfig, spec: Spec) -> None:
        config.check_it_can_learn()
        check_solver(config, spec)
        self.config, self.spec = config, spec
        encoder, seen = encoder_for(config, spec)
        network = FlatNetwork((seen.observation_size + spec.action_size, *config.hidden, 1))
        self.q_network = Critics(network, config.critics, config.combine, encoder)
        self.action_function = make_action_function(
            config.action_function, config.action_hidden, seen, config.squash, config.action_loss
        )
        self.q_adam, self.action_adam = adam(config.q_learning_rate), adam(config.action_learning_rate)
        self.targets = Targets(config.stages(), config)
        self.scan = jax.jit(self._scan, donate_argnums=0)
        self.ask = jax.jit(self._ask)
        self.start = jax.jit(self._start)
        self.advance = jax.jit(self._advance, donate_argnums=(0, 1))
        self.pose = jax.jit(self._pose)
        self.solver = without_clock(config.solver)
        self.inside_jit = inside_jit(self.solver)
        self.solve = self.solver.solve if self.inside_jit is None else jax.jit(self.inside_jit)
        self.encode = jax.jit(self.q_network.features)

    @property
    def stored_dtype(self) -> Any:
        return np.float32 if self.q_network.encoder is None else self.q_network.encoder.dtype

    def init(self, key: jax.Array) -> CAQLState:
        q_key, action_key = jax.random.split(key)
        q, actions = self.q_network.init(q_key), self.action_function.init(action_key)
        return CAQLState(
            q=begin(self.q_adam, q),
            action_function=begin(self.action_adam, actions),
            target=q + 0,
            second_target=q + 0,
            hinge_penalty=jnp.float32(self.config.hinge_penalty),
            step=jnp.int32(0),
            rewards=jnp.zeros(2) if self.config.clip_labels else None,
            averaged=actions + 0 if self.config.average_rate and self.q_network.encoder is None else None,
        )

    def update(self, state: CAQLState, batches: Batch, key: jax.Array) -> tuple[CAQLState, dict[str, Any]]:
        before = int(state.step)
        learn = self._update_around_host_solver if self.inside_jit is None else self.scan
        state, statistics = learn(state, batches, key)
        every = self.config.audit
        if every and (before + len(batches.rewards)) // every > before // every:
            statistics |= shortfalls(self.solve, self.ask(state, batches.pick(-1)).problem, key)
        return state, statistics

    def _scan(self, state: CAQLState, batches: Batch, key: jax.Array) -> tuple[CAQLState, dict[str, jax.Array]]:
        """An epoch's minibatches with a solver that runs inside jit."""
        solve = self.inside_jit
        assert solve is not None

        def step(state: CAQLState, inputs: tuple[Batch, jax.Array]) -> tuple[CAQLState, dict[str, jax.Array]]:
            batch, step_key = inputs
            context = self._context(state, batch)
            labels = self.targets.labels(context, lambda problem: solve(problem, step_key))
            return self._learn(state, context, labels)

        keys = jax.random.split(key, len(batches.rewards))
        state, statistics = jax.lax.scan(step, state, (batches, keys))
        return state, jax.tree.map(partial(jnp.mean, axis=0), statistics)

    def _context(self, state: CAQLState, batch: Batch) -> Context:
        """What the labels of a minibatch are made from."""
        second = (state.second_target,) if self.config.clipped_double_q else ()
        vectors = (self.maximised(state), state.target, *second)
        seen, (q, *targets) = self.q_network.side_by_side(vectors, batch.next_states)
        batch = batch._replace(next_states=seen)
        guess = self.action_function.guess(state.action_function.vector, self._own(seen), batch.next_sets)
        action_set = self._searched(self.spec.set_of(batch.next_sets))
        if self.config.trust_region is not None:
            action_set = action_set.near(guess, self.config.trust_region * self.spec.action_set.radius)
        return Context(
            batch=batch,
            q=q,
            network=fold_state(q, seen),
            targets=tuple(targets),
            action_set=action_set,
            guess=guess,
            discount=self.config.discount,
            q_values=jnp.min(self.q_network.values(state.q.vector, batch.states, batch.actions), axis=0),
            epoch=state.step // self.spec.epoch_steps,
        )

    def maximised(self, state: CAQLState) -> jax.Array:
        """The Q-function whose maximiser the labels and the action function learn from."""
        return state.target if self.config.maximised == "target" else state.q.vector

    def _own(self, seen: jax.Array) -> jax.Array:
        """The part of the context's next states that Q itself and the action function see."""
        encoder = self.q_network.encoder
        return seen if encoder is None else seen[..., : encoder.features]

    def _learn(self, state: CAQLState, context: Context, found: Labels) -> tuple[CAQLState, dict[str, jax.Array]]:
        """One step on the minibatch's labels: both networks, both targets, lambda."""
        config, batch, labels, answer = self.config, context.batch, found.labels, found.answer
        rewards = state.rewards
        if rewards is not None:
            rewards = widened(rewards, batch.rewards)
            labels = within_reach(labels, rewards, config.discount)
        distilled = answer
        if config.action_labels == "dual":
            distilled = answer._replace(best=dual_bound(context.network, context.action_set))

        def bellman_loss(vector: jax.Array) -> tuple[jax.Array, jax.Array]:
            values = self.q_network.values(vector, batch.states, batch.actions)
            if config.loss == "hinge":
                losses = hinge_loss(values, labels, state.hinge_penalty)
            elif config.loss == "huber":
                losses = huber_loss(values, labels, config.huber_width)
            else:
                losses = l2_loss(values, labels)
            return jnp.sum(jnp.mean(losses, axis=1)), self.q_network.combined(values)

        seen = batch._replace(next_states=self._own(batch.next_states))

        def distillation_loss(vector: jax.Array) -> tuple[jax.Array, jax.Array]:
            away = jnp.mean(self.action_function.loss(vector, seen, context.network, distilled))
            if not config.saturation_penalty:
                return away, away
            saturation = jnp.mean(self.action_function.saturation(vector, seen.next_states))
            return away + config.saturation_penalty * saturation, away

        share = config.share_at(context.epoch)
        q, loss, values = descend(self.q_adam, state.q, bellman_loss, share)
        action_function, _, action_loss = descend(self.action_adam, state.action_function, distillation_loss, share)
        step = state.step + 1
        violation = jnp.mean(jax.nn.relu(labels - values))
        second = jnp.where(step % config.second_target_every == 0, q.vector, state.second_target)
        averaged = state.averaged
        if averaged is not None:
            averaged = soft_update(averaged, action_function.vector, config.averaging_at(state.step))
        new = CAQLState(
            q=q,
            action_function=action_function,
            target=soft_update(state.target, q.vector, config.target_rate),
            second_target=second,
            hinge_penalty=state.hinge_penalty + config.hinge_penalty_learning_rate * violation,
            step=step,
            rewards=rewards,
            averaged=averaged,
        )
        statistics = {
            "loss": loss,
            "action_loss": action_loss,
            "q_mean": jnp.mean(values),
            "td_error": jnp.mean(jnp.abs(labels - values)),
            "tolerance": found.tolerance,
            "filtered": jnp.mean(answer.provenance == BOUNDED),
            "clustered": jnp.mean(answer.provenance == EXTRAPOLATED),
            "work": found.work,
            "hinge_penalty": state.hinge_penalty,
            "cluster_radius": config.radius_at(context.epoch),
            "dropped": found.dropped,
        }
        return new, statistics

    def _update_around_host_solver(
        self, state: CAQLState, batches: Batch, key: jax.Array
    ) -> tuple[CAQLState, dict[str, Any]]:
        """An epoch's minibatches with a solver on the host."""
        # On the device once: twenty minibatches handed over one by one would cost more than learning them.
        batches = jax.device_put(batches)
        steps = len(batches.rewards)
        question, totals = self.start(state, batches)
        times = SolveTimes()
        for row in range(steps):
            solution = times.time(self.solve, question.problem, key)
            state, question, totals = self.advance(state, totals, question, solution, batches, row)
        means = {name: float(total) / steps for name, total in jax.device_get(totals).items()}
        return state, means | times.statistics()

    def _ask(self, state: CAQLState, batch: Batch) -> Question:
        return self.targets.ask(self._context(state, batch))

    def _start(self, state: CAQLState, batches: Batch) -> tuple[Question, dict[str, jax.Array]]:
        """The first minibatch's question, and sums of statistics to add to."""
        return self._ask(state, batches.pick(0)), dict.fromkeys(STATISTICS, jnp.float32(0))

    def _advance(
        self,
        state: CAQLState,
        totals: dict[str, jax.Array],
        question: Question,
        solution: Solution,
        batches: Batch,
        row: jax.Array,
    ) -> tuple[CAQLState, Question, dict[str, jax.Array]]:
        """Learn a minibatch from the host solver's answer and ask about the next: one call between two solves.

        The context is computed again: that is quicker than to hand its fifty arrays out of jit and in again.
        """
        context = self._context(state, batches.pick(row))
        state, found = self._learn(state, context, self.targets.answer(context, question, solution))
        following = self._ask(state, batches.pick((row + 1) % len(batches.rewards)))
        return state, following, {name: totals[name] + found[name] for name in STATISTICS}

    def measure(self, state: CAQLState, batches: Batch, key: jax.Array) -> dict[str, float]:
        """Time max-Q alone: inside the scan it cannot be told from the rest, on the host it was timed already."""
        if self.inside_jit is None:
            return {}
        rows = range(len(batches.rewards))
        return solve_times(self.solve, (self.ask(state, batches.pick(row)).problem for row in rows), key)

    def policy(self, state: CAQLState, epoch: int) -> Policy:
        exploration = self.config.exploration
        sigma = exploration.size(epoch, self.spec.action_set)
        if self.config.action_function == "none" or (self.spec.integer and not self.config.relaxed):
            policy: Policy = self.solver_policy(state, sigma)
        else:
            policy = self.action_function.policy(state.action_function.vector, sigma)
            if state.averaged is not None:
                policy = AveragedPolicy(self.action_function.policy(state.averaged, sigma), policy)
            if self.q_network.encoder is not None:
                vector = jnp.copy(self.maximised(state))  # The state's own memory is given up to the next update.
                policy = EncodedPolicy(lambda states: np.asarray(self.encode(vector, states)), policy)
        return exploring(policy, self.spec, exploration.epsilon(epoch))

    def _searched(self, action_set: ActionSet) -> ActionSet:
        """The set that max-Q is sought over."""
        return relaxed(action_set) if self.config.relaxed else action_set

    def solver_policy(self, state: CAQLState, sigma: Array) -> SolverPolicy:
        """Acting with the max-Q solver itself instead of the action function."""
        return SolverPolicy(lambda states: self.best_actions(state, states), self.spec.action_set, sigma)

    def best_actions(self, state: CAQLState, states: Array) -> Array:
        """The solver's maximisers at (B, n) states; where no action is admissible, the centre of the box."""
        if self.solver.traceable:
            solution = self.solve(self.max_q(state, states), jax.random.key(0))
        else:  # a call of JAX takes longer than one of `exact`
            layers = self.q_network.layers(np.asarray(state.q.vector))
            action_set = self._searched(self._set_at(states))
            gaps = self.config.tolerance, self.config.relative_tolerance
            network: Any = fold_state(layers, self.inputs(state, states))
            solution = self.solver.solve(Problem(network, action_set, None, *gaps), None)
        status = np.asarray(solution.status)
        if (status == Status.FAILED).any():
            raise CaqlError(f"solver {self.config.solver.name!r} failed at a state; the action function still acts")
        actions = np.asarray(solution.actions, np.float32)
        if (status == Status.INFEASIBLE).any():
            actions = np.where((status == Status.INFEASIBLE)[:, None], np.asarray(self.spec.action_set.centre), actions)
        return actions

    def inputs(self, state: CAQLState, states: Any) -> Any:
        """What Q's layers see of (B, n) states: the encoder's features, or the states."""
        return states if self.q_network.encoder is None else np.asarray(self.encode(state.q.vector, states))

    def max_q(self, state: CAQLState, states: Any, tolerance: float | None = None) -> Problem:
        """The max-Q problem of Q_theta at (B, n) states, warm-started by the action function."""
        action_set, sets = self._set_at(states), None
        if self.spec.constrained and self.spec.sets is not None:
            sets = {name: jnp.float32(array) for name, array in self.spec.sets.columns(action_set).items()}
        network, guess = self.pose(state.q.vector, state.action_function.vector, jnp.asarray(states), sets)
        return Problem(
            network,
            self._searched(action_set),
            guess,
            jnp.float32(self.config.tolerance if tolerance is None else tolerance),
            jnp.float32(self.config.relative_tolerance if tolerance is None else 0.0),
        )

    def _set_at(self, states: Any) -> ActionSet:
        """The admissible set of each of (B, n) states, as it is and not as float32 has it."""
        if self.spec.constrained and self.spec.sets_at is not None:
            return self.spec.sets_at(states)
        return self.spec.action_set

    def _pose(
        self, q: jax.Array, action_function: jax.Array, states: jax.Array, sets: Columns | None
    ) -> tuple[FoldedNetwork, jax.Array]:
        """Q at (B, n) states with the states folded away, and the action function's actions there."""
        seen = self.q_network.features(q, states)
        return fold_state(self.q_network.layers(q), seen), self.action_function.guess(action_function, seen, sets)
