"""From a batch to its Bellman labels: plan -> solve -> fill -> label (Appendix B, the inner loop).

`pose` and `label` are pure JAX; the solver runs between them, inside the same jit when it is traceable and
on the host when it is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from caql.maxq.problem import Problem, Solution
from caql.targets.speedups import SOLVED, Answer, Context, Stage, Tolerance, target_value


class Posed(NamedTuple):
    """A max-Q problem for a batch's next states, and what the stages noted while planning it."""

    problem: Problem
    notes: tuple[Any, ...]


class Labels(NamedTuple):
    """labels: (B,) r + gamma * value.  The rest as in `Answer`."""

    labels: jax.Array
    answer: Answer


@dataclass(frozen=True)
class Targets:
    """How labels are made: the speed-ups, outermost first, and the solver's tolerance."""

    stages: tuple[Stage, ...] = ()
    tolerance: Tolerance = Tolerance()
    relative_tolerance: float = 0.0

    def pose(self, context: Context, guess: jax.Array) -> Posed:
        """The max-Q problem: argmax of Q_theta at the next states, for the rows that no stage takes away."""
        need = jnp.ones(context.q_values.shape, bool)
        notes = []
        for stage in self.stages:
            need, note = stage.plan(context, need)
            notes.append(note)
        problem = Problem(
            network=context.network,
            action_set=context.action_set,
            warm_start=guess,
            tolerance=self.tolerance.at(context, guess),
            relative_tolerance=jnp.float32(self.relative_tolerance),
            mask=need if self.stages else None,
        )
        return Posed(problem, tuple(notes))

    def label(self, context: Context, posed: Posed, solution: Solution) -> Labels:
        """Double-Q labels: the maximiser comes from Q_theta, its value from the target networks."""
        batch = context.batch
        actions = solution.actions
        answer = Answer(
            values=target_value(context.targets, batch.next_states, actions),
            best=solution.values.astype(context.q_values.dtype),
            actions=actions,
            provenance=jnp.full(context.q_values.shape, SOLVED, jnp.int8),
        )
        for stage, note in zip(reversed(self.stages), reversed(posed.notes), strict=True):
            answer = stage.fill(context, note, answer)
        labels = batch.rewards + context.discount * batch.continues * answer.values
        return Labels(labels, answer)
