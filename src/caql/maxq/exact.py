"""`exact`: max over a of Q(x, a) with a proof, by our own branch and bound (Section 3.1's question, not its MIP).

The state is folded away, so the question is one of a few dozen ReLUs and a handful of actions, and a general
MIP solver spends its time elsewhere.  `branching` searches over the phases of the ReLUs, `relaxation` holds
the bounds that the certificate rests on, `simplex` and `tableau` the linear programs, `presolve` what happens once
per state and `evaluation` what happens at a node.
All of these are compiled by Numba on first use, never at import, and kept on disk.

Rows of a batch are independent, so the answer does not depend on the number of threads.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from caql.errors import CaqlError
from caql.maxq.problem import Problem, Solution

Floats = NDArray[np.float64]
_compilation = threading.Lock()
_ready = False


@dataclass(frozen=True)
class Exact:
    """Branch and bound on ReLU phases; `upper - value` is a proof whatever stopped it.

    node_limit: nodes per state; a state that needs more returns `Status.LIMIT`.
    time_limit: seconds per state, likewise.
    threads: at most this many; None lets the amount of work decide.

    A tolerance below the rounding error of Q (about 1e-13 of its scale) is honoured in the only honest way: `LIMIT`.
    """

    name: ClassVar[str] = "exact"
    traceable: ClassVar[bool] = False

    node_limit: int = 100_000
    time_limit: float = 60.0
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.node_limit < 1:
            raise CaqlError(f"node_limit = {self.node_limit} must be at least 1")
        if not self.time_limit > 0.0:
            raise CaqlError(f"time_limit = {self.time_limit} must be positive (seconds per state)")
        if self.threads is not None and self.threads < 1:
            raise CaqlError(f"threads = {self.threads} must be at least 1, or None")

    def solve(self, problem: Problem, key: Any = None) -> Solution:  # noqa: ARG002 - nothing here is random
        """Answer for every row, as NumPy arrays; `key` is not used."""
        first_bias = _array("network.first_bias", problem.network.first_bias)
        batch = first_bias.shape[0]
        flat, sizes = _flatten(problem, first_bias.shape[1])
        d = int(sizes[0])
        low = _array("actions.low", problem.actions.low, (batch, d))
        high = _array("actions.high", problem.actions.high, (batch, d))
        if (low > high).any():
            raise CaqlError("actions.low must not exceed actions.high in any action dimension")
        if problem.warm_start is None:
            actions = 0.5 * (low + high)
        else:
            actions = np.clip(_array("warm_start", problem.warm_start, (batch, d)), low, high)
        tolerance = np.empty((2, batch))
        tolerance[0] = _array("tolerance", problem.tolerance, (batch,))
        tolerance[1] = _array("relative_tolerance", problem.relative_tolerance, (batch,))
        if problem.mask is None:
            wanted = np.ones(batch, np.bool_)
        else:
            wanted = np.array(np.broadcast_to(np.asarray(problem.mask), (batch,)), np.bool_)
        answer = np.empty((batch, 5))
        counter = np.array([0, batch])
        limits = np.array([self.node_limit, self.time_limit], np.float64)
        arrays = (sizes, flat, first_bias, low, high, tolerance, wanted, counter, actions, answer, limits)
        call = compiled_solver()
        shape = (batch, sizes.size - 1, first_bias.shape[1], flat.size)
        call(shape, arrays, self.threads or os.cpu_count() or 1)
        status = answer[:, 2].astype(np.int32)
        return Solution(actions, answer[:, 0].copy(), answer[:, 1].copy(), status, answer[:, 3].astype(np.int64))


def _array(name: str, values: Any, shape: tuple[int, ...] | None = None) -> Floats:
    """A fresh, writable float64 array: one type, so that there is one compilation."""
    array = np.array(values, np.float64, order="C")
    if not np.isfinite(array).all():
        raise CaqlError(f"{name} must be finite, but has NaN or infinite entries")
    if shape is not None and array.shape != shape:
        try:
            array = np.array(np.broadcast_to(array, shape), order="C")
        except ValueError:
            raise CaqlError(f"{name} has shape {array.shape}, which does not fit {shape}") from None
    return array


def _flatten(problem: Problem, width: int) -> tuple[Floats, NDArray[np.int64]]:
    """The layers' weights and biases end to end, and (actions, hidden sizes...)."""
    first = np.asarray(problem.network.action_weights)
    if first.ndim != 2 or first.shape[1] != width:
        raise CaqlError(f"network.action_weights has shape {first.shape}, but first_bias has {width} columns")
    sizes = [first.shape[0]]
    parts = [first.ravel()]
    for index, (weights, bias) in enumerate(problem.network.later):
        matrix, vector = np.asarray(weights), np.asarray(bias)
        if matrix.ndim != 2 or matrix.shape[0] != width or vector.shape != matrix.shape[1:]:
            raise CaqlError(
                f"network.later[{index}] has weights {matrix.shape} and bias {vector.shape}, but {width} inputs"
            )
        sizes.append(width)
        width = matrix.shape[1]
        parts += (matrix.ravel(), vector)
    if width != 1:
        raise CaqlError(f"network must have one output, but has {width}")
    flat = np.concatenate(parts, dtype=np.float64)
    if not np.isfinite(flat).all():
        _array("network.action_weights", first)
        for index, layer in enumerate(problem.network.later):
            _array(f"network.later[{index}] weights", layer[0])
            _array(f"network.later[{index}] bias", layer[1])
    return flat, np.array(sizes, np.int64)


def compiled_solver() -> Callable[..., None]:
    """`native.call`, after compiling or loading what it calls; only a compilation lasts long enough to be announced."""
    global _ready
    with _compilation:
        if not _ready:
            notice = threading.Timer(
                1.5, lambda: print("compiling the exact solver, once ...", file=sys.stderr, flush=True)
            )
            notice.daemon = True
            notice.start()
            try:
                from caql.maxq import native

                native.entry_address()
            finally:
                notice.cancel()
            _ready = True
    from caql.maxq.native import call

    return call
