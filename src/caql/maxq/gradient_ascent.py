"""Gradient ascent on the action (Section 3.1), traceable, one step size or one line search per state.

Paper: a <- a + eta * gradient, until |Q(a_t+1) - Q(a_t)| < tolerance or the iterations run out.  Q's scale
changes by orders of magnitude during training, so by default the gradient is normalised in each state and
the step is a fraction of the action range; `normalise=False` is the paper's raw step.  The line search
tries one step size an iteration: an action that does not improve is refused and the step halved, one that
does is taken and the step grown again.  Every step is projected on the action set, which for a box is clipping.

Inside the loop everything is feature-major, (features, states), and the backward pass is written out: the
small matrices then multiply over a long contiguous axis, and nothing is stored but the activation signs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from caql.errors import CaqlError
from caql.maxq.problem import Problem, Solution, require_support, row_by_row, searched, without_empty
from caql.networks import FoldedNetwork


class _Columns(NamedTuple):
    """The folded network with outputs first and states last."""

    first_bias: jax.Array
    action_weights: jax.Array
    later: tuple[tuple[jax.Array, jax.Array], ...]


def _columns(network: FoldedNetwork) -> _Columns:
    return _Columns(network.first_bias.T, network.action_weights.T, tuple((w.T, b[:, None]) for w, b in network.later))


def _value_and_gradient(net: _Columns, actions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Q and its gradient for (d, B) actions -> (B,), (d, B)."""
    pre = [net.action_weights @ actions + net.first_bias]
    for weights, bias in net.later:
        pre.append(weights @ jax.nn.relu(pre[-1]) + bias)
    slope = jnp.ones_like(pre[-1])
    for (weights, _), inputs in zip(reversed(net.later), reversed(pre[:-1]), strict=True):
        # The last layer has one row: a product with it is an outer product, which fuses with the mask.
        back = weights.T * slope if weights.shape[0] == 1 else weights.T @ slope
        slope = jnp.where(inputs > 0, back, 0.0)
    return pre[-1][0], net.action_weights.T @ slope


class _Search(NamedTuple):
    iteration: jax.Array
    actions: jax.Array
    values: jax.Array
    gradients: jax.Array
    steps: jax.Array
    moving: jax.Array
    work: jax.Array


@dataclass(frozen=True)
class GradientAscent:
    """Ascent from the warm start, and from `restarts` further random actions.

    The best action seen is returned: never worse than the warm start.
    """

    name: ClassVar[str] = "ga"
    traceable: ClassVar[bool] = True
    accepts_rows: ClassVar[bool] = True
    accepts_integers: ClassVar[bool] = False

    iterations: int = 20
    """Most steps for a state."""
    step_size: float = 0.3
    """Fraction of half the action range (normalised gradient), or the factor on the raw gradient."""
    normalise: bool = True
    """Scale each state's gradient to unit length; False: the raw gradient."""
    line_search: bool = True
    """Halve a state's step when it fails to improve and grow it when it does; False: a fixed step."""
    restarts: int = 0
    """Further starts, uniform in the action set; the best of all is returned."""

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise CaqlError(f"iterations = {self.iterations} must be at least 1")
        if not self.step_size > 0:
            raise CaqlError(f"step_size = {self.step_size} must be positive")
        if self.restarts < 0:
            raise CaqlError(f"restarts = {self.restarts} must not be negative")

    def solve(self, problem: Problem, key: Any) -> Solution:
        require_support(self, problem.action_set)
        box, start, wanted = row_by_row(problem)
        project = problem.action_set.within(box.low, box.high).projector()
        batch, size = start.shape
        if not problem.action_set.is_box:
            start = project(start)
        tolerance = jnp.broadcast_to(jnp.asarray(problem.tolerance, jnp.float32), (batch,))
        relative = jnp.broadcast_to(jnp.asarray(problem.relative_tolerance, jnp.float32), (batch,))
        network = problem.network
        copies = 1 + self.restarts
        radius = box.radius
        if copies > 1:
            start = jnp.concatenate([start[None], project(box.sample(key, self.restarts))]).reshape(-1, size)
            network = network._replace(first_bias=jnp.tile(network.first_bias, (copies, 1)))
            radius = jnp.tile(radius, (copies, 1))
            wanted, tolerance, relative = (jnp.tile(x, copies) for x in (wanted, tolerance, relative))

        def inside(columns: jax.Array) -> jax.Array:
            return project(columns.T.reshape(copies, batch, size)).reshape(copies * batch, size).T

        ended = self._ascend(_columns(network), (inside, radius.T), start.T, (tolerance, relative), wanted)
        actions, values, moving = ended.actions.T, ended.values, ended.moving
        work = ended.work
        if copies > 1:
            best = jnp.argmax(values.reshape(copies, batch), axis=0)
            row = best * batch + jnp.arange(batch)
            actions, values, moving = actions[row], values[row], moving[row]
            work = work.reshape(copies, batch).sum(axis=0)
        return without_empty(searched(problem, actions, values, moving, work), project.empty)

    def _ascend(
        self,
        net: _Columns,
        action_set: tuple[Callable[[jax.Array], jax.Array], jax.Array],
        start: jax.Array,
        tolerances: tuple[jax.Array, jax.Array],
        wanted: jax.Array,
    ) -> _Search:
        """`action_set`: what brings (d, B) actions into it, and half the width of its box, (d, B)."""
        inside, radius = action_set
        tolerance, relative = tolerances

        def direction(gradients: jax.Array) -> jax.Array:
            if not self.normalise:
                return gradients
            scaled = gradients * radius
            length = jnp.sqrt(jnp.sum(scaled * scaled, axis=0))
            return radius * scaled / jnp.maximum(length, 1e-30)

        def step(search: _Search) -> _Search:
            trial = inside(search.actions + search.steps * direction(search.gradients))
            values, gradients = _value_and_gradient(net, trial)
            gain = values - search.values
            better = gain > 0
            small = jnp.abs(gain) < jnp.maximum(tolerance, relative * jnp.abs(values))
            accept = (better if self.line_search else jnp.ones_like(better)) & search.moving
            if self.line_search:
                steps = search.steps * jnp.where(better, 1.5, 0.5)
                # A refused step may have been too long, so only a taken one can show that the search is at rest;
                # steps halved twelve times over have come to rest at a kink.
                stop = (better & small) | (steps < self.step_size / 4096)
            else:
                steps, stop = search.steps, small
            return _Search(
                search.iteration + 1,
                jnp.where(accept, trial, search.actions),
                jnp.where(accept, values, search.values),
                jnp.where(accept, gradients, search.gradients),
                steps,
                search.moving & ~stop,
                search.work + search.moving,
            )

        def fixed_step(carry: tuple[_Search, jax.Array, jax.Array]) -> tuple[_Search, jax.Array, jax.Array]:
            search, actions, values = carry
            search = step(search)
            better = search.values > values
            return search, jnp.where(better, search.actions, actions), jnp.where(better, search.values, values)

        values, gradients = _value_and_gradient(net, start)
        first = _Search(
            iteration=jnp.int32(0),
            actions=start,
            values=values,
            gradients=gradients,
            steps=jnp.full(values.shape, self.step_size, values.dtype),
            moving=wanted,
            work=jnp.zeros(values.shape, jnp.int32),
        )
        if self.line_search:
            return jax.lax.while_loop(lambda s: (s.iteration < self.iterations) & jnp.any(s.moving), step, first)
        ended, actions, values = jax.lax.while_loop(
            lambda c: (c[0].iteration < self.iterations) & jnp.any(c[0].moving), fixed_step, (first, start, values)
        )
        return ended._replace(actions=actions, values=values)
