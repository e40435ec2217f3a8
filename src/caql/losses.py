"""Labels and losses, one small function per equation, each for one sample; average outside.

Labels are constants: no gradient flows into them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def widened(reach: jax.Array, rewards: jax.Array) -> jax.Array:
    """The smallest and largest reward seen, (2,), with those of another batch; 0 is one, for an episode may end."""
    return jnp.stack([jnp.minimum(reach[0], jnp.min(rewards)), jnp.maximum(reach[1], jnp.max(rewards))])


def within_reach(label: jax.Array, reach: jax.Array, discount: float) -> jax.Array:
    """Labels no further than the smallest or the largest reward for ever: sum over t of gamma^t r = r / (1 - gamma)."""
    return jnp.clip(label, reach[0] / (1 - discount), reach[1] / (1 - discount))


def one_step_label(reward: jax.Array, discount: float, continues: jax.Array, next_value: jax.Array) -> jax.Array:
    """The Bellman label (Eq. 1): y = r + gamma * continues * V(x').

    Every algorithm has its own next value V(x'); `continues` is 0 where the task ended, where there is none.
    All arguments are scalars or arrays of one shape, which the label has too.
    """
    return reward + discount * continues * next_value


def l2_loss(value: jax.Array, label: jax.Array) -> jax.Array:
    """Squared error (label - value)^2: of Bellman (Eq. 1), or of the action function against q* (Section 3.2)."""
    return jnp.square(jax.lax.stop_gradient(label) - value)


def huber_loss(value: jax.Array, label: jax.Array, width: float) -> jax.Array:
    """The squared error where it is at most `width` off, beyond that a straight line of the same slope.

    A label that is far off, as beside a jump of Q, then pulls no harder than one that is `width` off.
    """
    error = jnp.abs(jax.lax.stop_gradient(label) - value)
    near = jnp.minimum(error, width)
    return near * (2 * error - near)


def l1_loss(value: jax.Array, label: jax.Array) -> jax.Array:
    """Absolute error |label - value|, whose slope does not fade as the value comes near."""
    return jnp.abs(jax.lax.stop_gradient(label) - value)


def hinge_loss(value: jax.Array, label: jax.Array, penalty: jax.Array | float) -> jax.Array:
    """Hinge Q-learning (Eq. 2, Appendix A): Q(x, a) + lambda (label - Q(x, a))+, where lambda is `penalty`.

    Its slope in Q is 1 above the label and 1 - lambda below it: only a lambda above 1 ever pushes Q up.
    """
    return value + penalty * jax.nn.relu(jax.lax.stop_gradient(label) - value)


LIVE = 3.0
"""How large an output in front of tanh may be without a penalty: 99.5 % of the range, where tanh still has a slope."""


def excess(outputs: jax.Array) -> jax.Array:
    """By how much outputs lie beyond +-`LIVE`, from where no gradient through tanh brings them back.

    Adam steps by its rate however small a gradient is, so outputs whose tanh should be +-1 go on growing until, in
    float32, the slope 1 - tanh^2 is 0.
    """
    return jnp.maximum(jnp.abs(outputs) - LIVE, 0)


def saturation(outputs: jax.Array) -> jax.Array:
    """The squared excess of each row of outputs, (B, d) -> (B,)."""
    return jnp.sum(excess(outputs) ** 2, axis=-1)
