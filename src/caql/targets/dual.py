"""The dual bound in place of a solve (Section 4): the dual filter, and Dual, which never solves.

The dual of max-Q's relaxation bounds the next value from above for the price of a forward pass (Appendix C):

    max_a Q'(x', a) <= bound(x')
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from caql.bounds import dual_bound
from caql.losses import one_step_label
from caql.targets.context import BOUNDED, Answer, Context, target_bound


def _bounded(context: Context, rows: jax.Array, bound: jax.Array, answer: Answer) -> Answer:
    """The answer whose `rows` (B,) have their dual bounds for values."""
    return answer._replace(
        values=jnp.where(rows, bound, answer.values),
        best=jnp.where(rows, dual_bound(context.network, context.action_set), answer.best),
        provenance=jnp.where(rows, BOUNDED, answer.provenance).astype(jnp.int8),
    )


@dataclass(frozen=True)
class DualFilter:
    """Skip the rows whose TD error is negative even for the dual upper bound on their next value.

    Inactive: r + gamma * bound <= Q(x, a).  The hinge of such a row is exactly zero, so it can be dropped;
    the l2 loss takes the bound itself as its value, a smaller error of the same sign (Section 4).
    """

    def plan(self, context: Context, need: jax.Array) -> tuple[jax.Array, Any]:
        batch = context.batch
        bound = target_bound(context)
        label = one_step_label(batch.rewards, context.discount, batch.continues, bound)
        inactive = need & (label <= context.q_values)
        return need & ~inactive, (bound, inactive)

    def fill(self, context: Context, note: Any, answer: Answer) -> Answer:
        bound, inactive = note
        return _bounded(context, inactive, bound, answer)


@dataclass(frozen=True)
class Dual:
    """No max-Q solve at all: every next value is its dual bound (the last column of the paper's Table 3)."""

    def plan(self, context: Context, need: jax.Array) -> tuple[jax.Array, Any]:
        return jnp.zeros_like(need), (target_bound(context), need)

    def fill(self, context: Context, note: Any, answer: Answer) -> Answer:
        bound, needed = note
        return _bounded(context, needed, bound, answer)
