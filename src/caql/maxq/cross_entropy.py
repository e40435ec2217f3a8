"""The cross-entropy method (Section 3.1), traceable: sample actions, keep the best, refit, repeat.

The random numbers of an iteration are shared by all states, and the elite is found by a threshold instead of
a sort: with a few hundred samples those two would otherwise cost more than the network.  States are searched
in small groups, so that one slow state keeps only its group waiting and a group's samples stay in the cache.
Samples are projected on the action set, which for a box is clipping, so every candidate is admissible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from caql.errors import CaqlError
from caql.maxq.problem import Problem, Solution, require_support, row_by_row, searched, without_empty
from caql.networks import FoldedNetwork, folded_value

GROUPS = (8, 4)
"""States searched together, where the batch divides so; otherwise the whole batch."""
RESOLUTION = 4
"""Roundings of a value: elites closer than that cannot come closer, whatever tolerance is asked for."""


class _Search(NamedTuple):
    iteration: jax.Array
    mean: jax.Array
    spread: jax.Array
    actions: jax.Array
    values: jax.Array
    previous: jax.Array
    moving: jax.Array
    work: jax.Array


def elite_threshold(values: jax.Array, count: int) -> jax.Array:
    """A value that about `count` of the (N, B) values reach, by bisection, -> (B,)."""
    low, high = values.min(axis=0), values.max(axis=0)

    def halve(_: int, interval: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = interval
        middle = (low + high) / 2
        enough = jnp.sum(values >= middle, axis=0) >= count
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    # The lower end always has at least `count` values above it, so the elite is never empty.
    return jax.lax.fori_loop(0, 12, halve, (low, high))[0]


@dataclass(frozen=True)
class CrossEntropy:
    """A diagonal Gaussian that starts at the warm start and narrows onto the elite; best sample returned."""

    name: ClassVar[str] = "cem"
    traceable: ClassVar[bool] = True
    accepts_rows: ClassVar[bool] = True
    accepts_integers: ClassVar[bool] = False

    iterations: int = 20
    """Most refits for a state."""
    samples: int = 64
    """Actions drawn an iteration (N); the authors' code draws 200."""
    elites: int = 8
    """Best actions kept to refit the Gaussian (K)."""
    spread: float = 0.5
    """First standard deviation, as a fraction of half the action range."""

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise CaqlError(f"iterations = {self.iterations} must be at least 1")
        if not 1 <= self.elites < self.samples:
            raise CaqlError(f"elites = {self.elites} must be at least 1 and fewer than samples = {self.samples}")
        if not self.spread > 0:
            raise CaqlError(f"spread = {self.spread} must be positive")

    def solve(self, problem: Problem, key: Any) -> Solution:
        require_support(self, problem.action_set)
        box, start, wanted = row_by_row(problem)
        project = problem.action_set.within(box.low, box.high).projector()
        if not problem.action_set.is_box:
            start = project(start)
        batch, size = start.shape
        noise = jax.random.normal(key, (self.iterations, self.samples, 1, size))
        tolerances = [jnp.broadcast_to(each, batch) for each in (problem.tolerance, problem.relative_tolerance)]
        rows = (problem.network.first_bias, project, box.radius, start, wanted, *tolerances)
        group = next((size for size in GROUPS if batch % size == 0), batch)

        def search(rows: tuple[Any, ...]) -> _Search:
            first_bias, *rest = rows
            return self._search(problem.network._replace(first_bias=first_bias), noise, *rest)

        grouped = jax.tree.map(lambda column: column.reshape(batch // group, group, *column.shape[1:]), rows)
        ended = jax.lax.map(search, grouped)._replace(iteration=None)
        ended = jax.tree.map(lambda column: column.reshape(batch, *column.shape[2:]), ended)
        found = searched(problem, ended.actions, ended.values, ended.moving, ended.work)
        return without_empty(found, project.empty)

    def _search(
        self,
        network: FoldedNetwork,
        noise: jax.Array,
        project: Callable[[jax.Array], jax.Array],
        radius: jax.Array,
        start: jax.Array,
        wanted: jax.Array,
        tolerance: jax.Array,
        relative: jax.Array,
    ) -> _Search:
        """A group of states, until all of them are at rest."""
        relative = jnp.maximum(relative, RESOLUTION * float(np.finfo(start.dtype).eps))

        def step(search: _Search) -> _Search:
            actions = project(search.mean + search.spread * noise[search.iteration])
            values = folded_value(network, actions)
            elite = (values >= elite_threshold(values, self.elites)).astype(values.dtype)
            count = elite.sum(axis=0)[:, None]
            mean = jnp.sum(elite[:, :, None] * actions, axis=0) / count
            spread = jnp.sqrt(jnp.sum(elite[:, :, None] * (actions - mean) ** 2, axis=0) / count)
            top = jnp.argmax(values, axis=0)
            top_value = jnp.max(values, axis=0)
            top_action = jnp.take_along_axis(actions, top[None, :, None], axis=0)[0]
            elite_mean = (elite * values).sum(axis=0) / count[:, 0]
            scale = jnp.maximum(tolerance, relative * jnp.abs(top_value))
            # At rest when the elite agree among themselves and with the elite before.
            still = (jnp.abs(elite_mean - search.previous) < scale) & (top_value - elite_mean < scale)
            better = (top_value > search.values) & search.moving
            keep = search.moving[:, None]
            return _Search(
                search.iteration + 1,
                jnp.where(keep, mean, search.mean),
                jnp.where(keep, spread, search.spread),
                jnp.where(better[:, None], top_action, search.actions),
                jnp.where(better, top_value, search.values),
                elite_mean,
                search.moving & ~still,
                search.work + search.moving,
            )

        values = folded_value(network, start)
        first = _Search(
            iteration=jnp.int32(0),
            mean=start,
            spread=self.spread * radius,
            actions=start,
            values=values,
            previous=jnp.full_like(values, -jnp.inf),
            moving=wanted,
            work=jnp.zeros(len(start), jnp.int32),
        )
        return jax.lax.while_loop(lambda s: (s.iteration < self.iterations) & jnp.any(s.moving), step, first)
