"""Clustering (Section 4): solve max-Q only at centroids, and extend to the states near them by a Taylor step.

By the envelope theorem the gradient of max-Q in the state is Q's at the maximiser, so a next state x' whose
centroid is c' gets the value

    q(c') + <grad_x Q(c', a*_c'), x' - c'>

Centroids are picked so that every row lies within the radius r_t = k3 * k4^t of one, t counting epochs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp

from caql.bounds import dual_bound
from caql.errors import require
from caql.networks import Layers, q_value
from caql.targets.context import EXTRAPOLATED, Answer, Context, target_bound


@dataclass(frozen=True)
class ClusterSettings:
    """CAQL's settings of the clusters of next states."""

    cluster_radius: float = 0.0
    """Radius of the clusters of next states (b, or k3 of the schedule k3 * k4^t); 0 is no clustering."""
    cluster_decay: float = 1.0
    """Factor on the radius after each epoch (k4); 1 keeps it."""
    cluster_p: float = 2.0
    """Exponent of the clusters' metric, at least 1; inf is the largest difference."""
    cluster_relative: bool = False
    """Measure the radius in mean state lengths, as the authors' code does."""
    cluster_method: Literal["online", "farthest_first"] = "online"
    """How centroids are picked."""
    cluster_cap_by_bound: bool = False
    """Never extrapolate above the dual bound (the authors' code)."""

    def __post_init__(self) -> None:
        require(self, "cluster_radius", "at least 0", self.cluster_radius >= 0)
        require(self, "cluster_decay", "more than 0 and at most 1", 0 < self.cluster_decay <= 1)
        require(self, "cluster_p", "at least 1", self.cluster_p >= 1)
        known = self.cluster_method in ("online", "farthest_first")
        require(self, "cluster_method", "'online' or 'farthest_first'", known)

    def radius_at(self, epoch: jax.Array) -> jax.Array:
        """r_t = k3 * k4^t."""
        return self.cluster_radius * jnp.float32(self.cluster_decay) ** epoch


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
    """The stage: rows that are not centroids get their centroid's value, moved to where they are."""

    settings: ClusterSettings

    def plan(self, context: Context, need: jax.Array) -> tuple[jax.Array, Any]:
        states = context.batch.next_states
        settings = self.settings
        distance = distances(states, settings.cluster_p)
        radius = settings.radius_at(context.epoch)
        if settings.cluster_relative:
            radius = radius * jnp.mean(jnp.linalg.norm(states, ord=settings.cluster_p, axis=-1))
        if settings.cluster_method == "online":
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
        if self.settings.cluster_cap_by_bound:
            values = jnp.minimum(values, target_bound(context))
            best = jnp.minimum(best, dual_bound(context.network, context.action_set))
        return Answer(
            values=jnp.where(member, values, answer.values),
            best=jnp.where(member, best, answer.best),
            actions=jnp.where(member[:, None], actions, answer.actions),
            provenance=jnp.where(member, EXTRAPOLATED, answer.provenance).astype(jnp.int8),
        )
