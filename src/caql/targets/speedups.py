"""The paper's accelerations (Section 4): dynamic tolerance, dual filtering, clustering, and Dual.

A speed-up is a stage with two methods, nested like an onion.  `plan` says which rows of the batch still
need a max-Q solve; after the solve, `fill` gives the rows that it took away their value.  No stages is the
empty tuple: the same code path with nothing in it.  Dynamic tolerance is a schedule, not a stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from caql.actions import ActionSet
from caql.bounds import dual_bound
from caql.errors import CaqlError
from caql.networks import FoldedNetwork, Layers, fold_state, q_value
from caql.replay import Batch

SOLVED, BOUNDED, EXTRAPOLATED = 0, 1, 2
"""Where a row's value came from: the solver, the dual bound, a centroid's Taylor expansion."""


class Context(NamedTuple):
    """What a stage may look at.

    q: the Q-network's layers, whose maximiser is sought.  network: q folded over the next states.
    targets: the target networks, one or two; a value is the smallest that they give.
    action_set: of the next states.  q_values: (B,) Q(x, a) of the batch.
    epoch: epochs so far, which schedules count by.
    """

    batch: Batch
    q: Layers
    network: FoldedNetwork
    targets: tuple[Layers, ...]
    action_set: ActionSet
    discount: float
    q_values: jax.Array
    epoch: jax.Array


class Answer(NamedTuple):
    """One row per transition of the batch.

    values: (B,) next-state value under the targets.  best: (B,) max-Q label under Q itself, for the action
    function.  actions: (B, d) maximisers (of a row's centroid, where extrapolated).  provenance: (B,).
    """

    values: jax.Array
    best: jax.Array
    actions: jax.Array
    provenance: jax.Array


class Stage(Protocol):
    """A speed-up: takes rows away before the solve and gives them their value after it."""

    def plan(self, context: Context, need: jax.Array) -> tuple[jax.Array, Any]:
        """Which of the rows in `need` (B,) still need solving, and a note for `fill`."""
        ...

    def fill(self, context: Context, note: Any, answer: Answer) -> Answer:
        """The answer with this stage's rows given their value."""
        ...


def target_value(targets: tuple[Layers, ...], states: jax.Array, actions: jax.Array) -> jax.Array:
    """The smallest target network's Q(x, a): with two of them, clipped double Q."""
    values = [q_value(layers, states, actions) for layers in targets]
    return values[0] if len(values) == 1 else jnp.minimum(*values)


def target_bound(context: Context) -> jax.Array:
    """Dual upper bound on the targets' next-state value, (B,): the smaller bound bounds the smaller value."""
    states = context.batch.next_states
    bounds = [dual_bound(fold_state(layers, states), context.action_set) for layers in context.targets]
    return bounds[0] if len(bounds) == 1 else jnp.minimum(*bounds)


@dataclass(frozen=True)
class DualFilter:
    """Skip the rows whose TD error is negative even for the dual upper bound on their next value.

    Inactive: r + gamma * bound <= Q(x, a).  The hinge of such a row is exactly zero, so it can be dropped;
    the l2 loss takes the bound itself as its value, a smaller error of the same sign (Section 4).
    """

    def plan(self, context: Context, need: jax.Array) -> tuple[jax.Array, Any]:
        batch = context.batch
        bound = target_bound(context)
        inactive = need & (batch.rewards + context.discount * batch.continues * bound <= context.q_values)
        return need & ~inactive, (bound, inactive)

    def fill(self, context: Context, note: Any, answer: Answer) -> Answer:
        bound, inactive = note
        best = dual_bound(context.network, context.action_set)
        return answer._replace(
            values=jnp.where(inactive, bound, answer.values),
            best=jnp.where(inactive, best, answer.best),
            provenance=jnp.where(inactive, BOUNDED, answer.provenance).astype(jnp.int8),
        )


@dataclass(frozen=True)
class Dual:
    """No max-Q solve at all: every next value is its dual bound (the last column of the paper's Table 3)."""

    def plan(self, context: Context, need: jax.Array) -> tuple[jax.Array, Any]:
        return jnp.zeros_like(need), (target_bound(context), need)

    def fill(self, context: Context, note: Any, answer: Answer) -> Answer:
        bound, taken_away = note
        return answer._replace(
            values=jnp.where(taken_away, bound, answer.values),
            best=jnp.where(taken_away, dual_bound(context.network, context.action_set), answer.best),
            provenance=jnp.where(taken_away, BOUNDED, answer.provenance).astype(jnp.int8),
        )


def distances(states: jax.Array, p: float) -> jax.Array:
    """The p-metric between all pairs of (B, n) states -> (B, B)."""
    columns = states.T  # summed over the first axis, so that whole rows of pairs are added at once
    difference = jnp.abs(columns[:, :, None] - columns[:, None, :])
    if p == float("inf"):
        return difference.max(axis=0)
    if p == 2.0:
        return jnp.sqrt(jnp.sum(difference * difference, axis=0))
    return jnp.sum(difference**p, axis=0) ** (1.0 / p)


def online_centroids(near: jax.Array, need: jax.Array) -> jax.Array:
    """Online aggregation: a row opens a centroid unless an earlier centroid is near, (B, B), (B,) -> (B,).

    The pass over the rows is sequential only where rows are near each other, so it is run as rounds that each
    settle every row whose earlier neighbours are settled: a few of them instead of B.
    """
    size = need.shape[0]
    earlier = near & need[None, :] & need[:, None] & (jnp.arange(size)[None, :] < jnp.arange(size)[:, None])

    def settle(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        centroid, member = carry
        member = member | jnp.any(earlier & centroid[None, :], axis=1)
        blocked = jnp.any(earlier & ~member[None, :], axis=1)
        return centroid | (need & ~member & ~blocked), member

    def unsettled(carry: tuple[jax.Array, jax.Array]) -> jax.Array:
        centroid, member = carry
        return jnp.any(need & ~centroid & ~member)

    none = jnp.zeros_like(need)
    return jax.lax.while_loop(unsettled, settle, (none, none))[0]


def farthest_first_centroids(distance: jax.Array, radius: jax.Array, need: jax.Array) -> jax.Array:
    """Farthest-first traversal until every needed row is within the radius of a centroid -> (B,)."""
    far = jnp.where(need, jnp.inf, -jnp.inf)

    def open_next(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        centroid, far = carry
        chosen = jnp.argmax(far)
        return centroid.at[chosen].set(True), jnp.minimum(far, distance[chosen])

    def uncovered(carry: tuple[jax.Array, jax.Array]) -> jax.Array:
        return jnp.max(carry[1]) > radius

    return jax.lax.while_loop(uncovered, open_next, (jnp.zeros_like(need), far))[0]


@dataclass(frozen=True)
class Clustering:
    """Solve only at centroids; extend to the other states by a first-order Taylor step (Section 4).

    By the envelope theorem the gradient of max-Q in the state is Q's at the maximiser, so a row x' whose
    centroid is c' gets the value q(c') + <grad Q(c', a*_c'), x' - c'>.
    """

    radius: float = 0.25
    """Radius b of a ball, or k3 of the schedule k3 * k4^t."""
    decay: float = 1.0
    """k4: the radius shrinks by this factor every epoch; 1 keeps it."""
    p: float = 2.0
    """The metric's exponent, at least 1; inf is the largest difference."""
    relative: bool = False
    """Measure the radius in mean state lengths, as the authors' code does."""
    method: Literal["online", "farthest_first"] = "online"
    """How centroids are picked."""
    cap_by_bound: bool = False
    """Never extrapolate above the dual bound (the authors' code)."""

    def __post_init__(self) -> None:
        if not self.radius >= 0:
            raise CaqlError(f"cluster radius = {self.radius} must not be negative")
        if not 0 < self.decay <= 1:
            raise CaqlError(f"cluster decay = {self.decay} must lie in (0, 1]")
        if not self.p >= 1:
            raise CaqlError(f"cluster p = {self.p} must be at least 1")
        if self.method not in ("online", "farthest_first"):
            raise CaqlError(f"cluster method = {self.method!r} must be 'online' or 'farthest_first'")

    def current_radius(self, epoch: jax.Array) -> jax.Array:
        """r_t = k3 * k4^t."""
        return self.radius * jnp.asarray(self.decay, jnp.float32) ** epoch

    def plan(self, context: Context, need: jax.Array) -> tuple[jax.Array, Any]:
        states = context.batch.next_states
        distance = distances(states, self.p)
        radius = self.current_radius(context.epoch)
        if self.relative:
            radius = radius * jnp.mean(jnp.linalg.norm(states, ord=self.p, axis=-1))
        if self.method == "online":
            centroid = online_centroids(distance <= radius, need)
        else:
            centroid = farthest_first_centroids(distance, radius, need)
        nearest = jnp.argmin(jnp.where(centroid[None, :], distance, jnp.inf), axis=1)
        return centroid, (nearest, need & ~centroid)

    def fill(self, context: Context, note: Any, answer: Answer) -> Answer:
        nearest, member = note
        states = context.batch.next_states
        centroids, actions = states[nearest], answer.actions[nearest]
        shift = states - centroids

        def extrapolate(layers: Layers) -> jax.Array:
            value, change = jax.jvp(lambda x: q_value(layers, x, actions), (centroids,), (shift,))
            return value + change

        values = jnp.stack([extrapolate(layers) for layers in context.targets]).min(axis=0)
        best = extrapolate(context.q)
        if self.cap_by_bound:
            values = jnp.minimum(values, target_bound(context))
            best = jnp.minimum(best, dual_bound(context.network, context.action_set))
        return Answer(
            values=jnp.where(member, values, answer.values),
            best=jnp.where(member, best, answer.best),
            actions=jnp.where(member[:, None], actions, answer.actions),
            provenance=jnp.where(member, EXTRAPOLATED, answer.provenance).astype(jnp.int8),
        )


@dataclass(frozen=True)
class Tolerance:
    """The solver's tolerance: a constant, or dynamic (Section 4).

    Dynamic: tau_t = mean |TD error with the action function's action| * k1 * k2^t, within [minimum, maximum].
    t counts epochs: by gradient steps the slowest decay of the paper's grid would be over after a tenth of a run, and
    the paper's iteration counts show that it was not (docs/fidelity.md).
    """

    minimum: float = 1e-6
    """The constant, or the floor of the dynamic one."""
    k1: float | None = None
    """Initial factor; None keeps the tolerance constant."""
    k2: float = 0.9995
    """Decay per epoch."""
    maximum: float = 100.0
    """Ceiling of the dynamic tolerance."""

    def __post_init__(self) -> None:
        if not self.minimum >= 0:
            raise CaqlError(f"tolerance = {self.minimum} must not be negative")
        if self.k1 is not None and not self.k1 > 0:
            raise CaqlError(f"dynamic_tolerance = {self.k1} must be positive")
        if not 0 < self.k2 <= 1:
            raise CaqlError(f"tolerance_decay = {self.k2} must lie in (0, 1]")
        if not self.maximum >= self.minimum:
            raise CaqlError(f"tolerance_maximum = {self.maximum} must be at least tolerance = {self.minimum}")

    def at(self, context: Context, guess: jax.Array) -> jax.Array:
        """The batch's tolerance; `guess` (B, d) are the action function's actions at the next states."""
        if self.k1 is None:
            return jnp.float32(self.minimum)
        batch = context.batch
        value = target_value(context.targets[:1], batch.next_states, guess)
        error = batch.rewards + context.discount * batch.continues * value - context.q_values
        tolerance = jnp.mean(jnp.abs(error)) * self.k1 * jnp.float32(self.k2) ** context.epoch
        return jnp.clip(tolerance, self.minimum, self.maximum)
