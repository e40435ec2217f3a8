"""The replay buffer: NumPy arrays that hand out uniform minibatches.

When it is full it keeps the newest transitions, as a ring, or a uniform sample of all that there ever were (reservoir
sampling: Vitter 1985, Algorithm R), which never forgets what the first policies met.

Termination and the time limit stay apart here: `continues` is 0 only where the task itself ended, so a
transition cut off by the clock still bootstraps from its next state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from caql.errors import CaqlError


class Batch(NamedTuple):
    """Transitions (x, a, r, x'), with any leading axes: states (..., n), actions (..., d), the rest (...).

    sets and next_sets are what varies of the action sets of x and x' (`action_sets.Columns`), where they depend on the
    state; otherwise None.
    """

    states: Any
    actions: Any
    rewards: Any
    next_states: Any
    continues: Any
    sets: Any = None
    next_sets: Any = None

    def pick(self, rows: Any) -> Batch:
        """The transitions at `rows` of the first axis."""
        picked: Batch = jax.tree.map(lambda column: column[rows], self)
        return picked


class Replay:
    """At most `capacity` transitions, float32.

    columns: what is stored of one state's action set, as an example; None if all states have the same.
    dtype: of the states; uint8 for pixels, which take a quarter of float32's memory.
    """

    def __init__(
        self,
        capacity: int,
        observation_size: int,
        action_size: int,
        columns: dict[str, Any] | None = None,
        dtype: Any = np.float32,
    ) -> None:
        if capacity < 1:
            raise CaqlError(f"replay_size = {capacity} must be at least 1")
        self.capacity = capacity

        def sets() -> dict[str, Any] | None:
            if not columns:
                return None
            return {name: np.zeros((capacity, *np.shape(array)), np.float32) for name, array in columns.items()}

        self.data = Batch(
            states=np.zeros((capacity, observation_size), dtype),
            actions=np.zeros((capacity, action_size), np.float32),
            rewards=np.zeros(capacity, np.float32),
            next_states=np.zeros((capacity, observation_size), dtype),
            continues=np.zeros(capacity, np.float32),
            sets=sets(),
            next_sets=sets(),
        )
        self.written = 0
        """Transitions ever added; a ring's write position is this modulo the capacity."""

    def __len__(self) -> int:
        return min(self.written, self.capacity)

    def size(self) -> int:
        """Transitions that it holds now, as Stable-Baselines3 asks for them."""
        return len(self)

    def extend(self, transitions: Batch, draws: np.random.Generator | None = None) -> None:
        """Add some transitions (leading axis: time).

        draws: decides what a full buffer keeps, so that it is a uniform sample of everything ever added; without it
            the oldest transitions are overwritten.
        """
        count = len(transitions.rewards)
        order = self.written + np.arange(count)
        kept: Any
        if draws is None:
            order = order[-self.capacity :]
            rows, kept = order % self.capacity, slice(count - len(order), None)
        else:
            # The n-th transition ever takes a row of 0 .. n - 1, and is dropped if the buffer has no such row.
            drawn = np.where(order < self.capacity, order, draws.integers(order + 1))
            kept = np.flatnonzero(drawn < self.capacity)
            rows = drawn[kept]
        chosen = transitions.pick(kept)
        for column, new in zip(jax.tree.leaves(self.data), jax.tree.leaves(chosen), strict=True):
            column[rows] = new
        self.written += count

    def sample(self, rng: np.random.Generator, batches: int, batch_size: int) -> Batch:
        """`batches` minibatches drawn uniformly with replacement: leading axes (batches, batch_size)."""
        rows = rng.integers(len(self), size=(batches, batch_size))
        return self.data.pick(rows)

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """Every array of the buffer by its name; those of the action sets are `sets.rows` and the like."""
        found: dict[str, np.ndarray] = {}
        for name, column in self.data._asdict().items():
            if isinstance(column, dict):
                found |= {f"{name}.{inner}": array for inner, array in column.items()}
            elif column is not None:
                found[name] = column
        return found

    def snapshot(self) -> dict[str, np.ndarray]:
        """What a checkpoint keeps: the filled rows, in storage order."""
        return {name: column[: len(self)] for name, column in self.columns.items()}

    def restore(self, columns: dict[str, np.ndarray], written: int) -> None:
        """Undo `snapshot`; later samples are as if nothing had happened.

        Raises `CaqlError`, and leaves everything as it was, if a column is missing or of another shape or type.
        """
        filled = min(written, self.capacity)
        for name, column in self.columns.items():
            wanted = (filled, *column.shape[1:])
            found = columns.get(name)
            if found is None or found.shape != wanted or found.dtype != column.dtype:
                held = "missing" if found is None else f"{found.dtype} of shape {found.shape}"
                raise CaqlError(
                    f"the saved replay buffer does not fit: {name} should be {column.dtype} of shape {wanted} "
                    f"and is {held}"
                )
        for name, column in self.columns.items():
            column[:filled] = columns[name]
        self.written = written
