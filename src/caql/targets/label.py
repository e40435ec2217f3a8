"""From a minibatch to its Bellman labels: plan -> solve -> fill -> label (Appendix B, the inner loop).

    y = r + gamma * continues * Q'(x', argmax_a Q(x', a))

Double Q-learning: the maximiser comes from Q, its value from the target networks.  The speed-ups stand around the
solve like the layers of an onion; no speed-ups is the empty tuple, the same code with nothing in it.

`labels` is the whole of it, for solvers that run inside `jit`.  With a solver on the host its two halves, `ask` and
`answer`, are compiled apart and the solver runs between them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from caql.losses import one_step_label
from caql.maxq.problem import Problem, Solution, Status
from caql.networks import folded_value
from caql.targets.context import SOLVED, Answer, Context, Stage, target_value
from caql.targets.tolerance import ToleranceSettings, tolerance_at


class Question(NamedTuple):
    """A minibatch's max-Q problem, and what the stages noted while planning it."""

    problem: Problem
    notes: tuple[Any, ...]


class Labels(NamedTuple):
    """labels: (B,) r + gamma * value.  answer: what they are made from.

    tolerance: () of the solve.  work: () the solver's mean over the rows that it solved.
    dropped: () share of the rows asked of the solver that it has no answer to: it failed, or saw no admissible action.
    """

    labels: jax.Array
    answer: Answer
    tolerance: jax.Array
    work: jax.Array
    dropped: jax.Array


@dataclass(frozen=True)
class Targets:
    """How labels are made: the speed-ups, outermost first, and the solver's tolerance."""

    stages: tuple[Stage, ...] = ()
    tolerance: ToleranceSettings = ToleranceSettings()

    def labels(self, context: Context, solve: Callable[[Problem], Solution]) -> Labels:
        """Plan, solve, fill, label; `solve` must be traceable where this is traced."""
        question = self.ask(context)
        return self.answer(context, question, solve(question.problem))

    def ask(self, context: Context) -> Question:
        """Plan: argmax of Q at the next states, for the rows that no stage takes away."""
        need = jnp.ones(context.q_values.shape, bool)
        notes = []
        for stage in self.stages:
            need, note = stage.plan(context, need)
            notes.append(note)
        problem = Problem(
            network=context.network,
            action_set=context.action_set,
            warm_start=context.guess,
            tolerance=tolerance_at(self.tolerance, context),
            relative_tolerance=jnp.float32(self.tolerance.relative_tolerance),
            mask=need if self.stages else None,
        )
        return Question(problem, tuple(notes))

    def answer(self, context: Context, question: Question, solution: Solution) -> Labels:
        """Fill, innermost stage first, and label."""
        batch = context.batch
        actions, best = solution.actions, solution.values.astype(context.q_values.dtype)
        if not context.action_set.is_box:
            # A set as thin as its float32 rounding may look empty to a solver: the guess stands in.
            empty = solution.status == Status.INFEASIBLE
            actions = jnp.where(empty[:, None], context.guess, actions)
            best = jnp.where(empty, folded_value(context.network, context.guess), best)
        answer = Answer(
            values=target_value(context.targets, batch.next_states, actions),
            best=best,
            actions=actions,
            provenance=jnp.full(context.q_values.shape, SOLVED, jnp.int8),
        )
        for stage, note in zip(reversed(self.stages), reversed(question.notes), strict=True):
            answer = stage.fill(context, note, answer)
        labels = one_step_label(batch.rewards, context.discount, batch.continues, answer.values)
        solved = answer.provenance == SOLVED
        work = jnp.sum(solution.work * solved) / jnp.maximum(jnp.sum(solved), 1)
        status = jnp.asarray(solution.status)
        lost = (status == Status.FAILED) | (status == Status.INFEASIBLE)
        dropped = jnp.sum(lost) / jnp.maximum(jnp.sum(status != Status.SKIPPED), 1)
        return Labels(labels, answer, jnp.mean(jnp.asarray(question.problem.tolerance)), work, dropped)
