"""The solver's tolerance: a constant, or dynamic (Section 4).

    tau_t = mean |r + gamma Q'(x', pi(x')) - Q(x, a)| * k1 * k2^t,    within [tolerance, tolerance_maximum]

While the TD errors are large a rough maximum is as good as an exact one.  t counts epochs: by gradient steps the
slowest decay of the paper's grid would be over after a tenth of a run, and the paper's iteration counts show
that it was not (docs/explanation/fidelity.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from caql.errors import require
from caql.losses import one_step_label
from caql.targets.context import Context, target_value


@dataclass(frozen=True)
class ToleranceSettings:
    """CAQL's settings of the solver's tolerance."""

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

    def __post_init__(self) -> None:
        k1 = self.dynamic_tolerance
        require(self, "tolerance", "at least 0", self.tolerance >= 0)
        require(self, "relative_tolerance", "at least 0", self.relative_tolerance >= 0)
        require(self, "dynamic_tolerance", "positive, or None for a constant tolerance", k1 is None or k1 > 0)
        require(self, "tolerance_decay", "more than 0 and at most 1", 0 < self.tolerance_decay <= 1)
        enough = self.tolerance_maximum >= self.tolerance
        require(self, "tolerance_maximum", f"at least tolerance = {self.tolerance}", enough)


def tolerance_at(settings: ToleranceSettings, context: Context) -> jax.Array:
    """The tolerance of a minibatch, ()."""
    if settings.dynamic_tolerance is None:
        return jnp.float32(settings.tolerance)
    batch = context.batch
    value = target_value(context.targets[:1], batch.next_states, context.guess)
    error = one_step_label(batch.rewards, context.discount, batch.continues, value) - context.q_values
    decay = jnp.float32(settings.tolerance_decay) ** context.epoch
    dynamic = jnp.mean(jnp.abs(error)) * settings.dynamic_tolerance * decay
    return jnp.clip(dynamic, settings.tolerance, settings.tolerance_maximum)
