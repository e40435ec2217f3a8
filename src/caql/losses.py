"""The losses, one small function per equation, each for one sample; average outside.

Labels are constants: no gradient flows into them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def l2_loss(value: jax.Array, label: jax.Array) -> jax.Array:
    """Squared Bellman error (Eq. 1): (label - Q(x, a))^2."""
    return jnp.square(jax.lax.stop_gradient(label) - value)


def hinge_loss(value: jax.Array, label: jax.Array, penalty: jax.Array | float) -> jax.Array:
    """Hinge Q-learning (Eq. 2, Appendix A): Q(x, a) + lambda (label - Q(x, a))+."""
    return value + penalty * jax.nn.relu(jax.lax.stop_gradient(label) - value)


def action_function_loss(value: jax.Array, label: jax.Array) -> jax.Array:
    """Distilling the maximiser (Section 3.2): (q* - Q(x', pi(x')))^2."""
    return jnp.square(jax.lax.stop_gradient(label) - value)
