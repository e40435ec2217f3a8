"""`exact`: max over a of Q(x, a) with a proof, by our own branch and bound (Section 3.1's question, not its MIP).

The state is folded away, so the question is one of a few dozen ReLUs and a handful of actions, and a general
MIP solver spends its time elsewhere.  `branching` searches over the phases of the ReLUs, `relaxation` holds
the bounds that the certificate rests on, `simplex` and `tableau` the linear programs, `presolve` what happens once
per state and `evaluation` what happens at a node.
All of these are compiled by Numba on first use, never at import, and kept on disk.

Rows of a batch are independent, so the answer does not depend on the number of threads.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from caql.errors import CaqlError
from caql.maxq.exact.block import FIELDS, Block
from caql.maxq.problem import Problem, Solution

Floats = NDArray[np.float64]
_compilation = threading.Lock()


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
        first_bias = np.asarray(problem.network.first_bias)
        if first_bias.ndim != 2:
            raise CaqlError(f"network.first_bias has shape {first_bias.shape}, but must have a row for each state")
        batch, width = first_bias.shape
        sizes, parameters = _layers(problem, width)
        d = sizes[0]
        # One array holds all the numbers: few calls, and one look for what is not finite.
        start = problem.warm_start
        fields: list[tuple[str, Any, tuple[int, ...]]] = [
            ("network.first_bias", first_bias, (batch, width)),
            ("action_set.low", problem.action_set.low, (batch, d)),
            ("action_set.high", problem.action_set.high, (batch, d)),
            ("tolerance", problem.tolerance, (batch,)),
            ("relative_tolerance", problem.relative_tolerance, (batch,)),
            ("warm_start", 0.0 if start is None else start, (batch, d)),
        ]
        spare = 2 + 5 * batch
        views, starts, numbers = _gather([*parameters, *fields], spare)
        _, low, high, _, _, actions = views[len(parameters) :]
        if (low > high).any():
            raise CaqlError("action_set.low must not exceed action_set.high in any action dimension")
        if start is None:
            actions[...] = 0.5 * (low + high)
        else:
            np.minimum(np.maximum(actions, low, out=actions), high, out=actions)
        used = numbers.size - spare
        numbers[used : used + 2] = self.node_limit, self.time_limit
        answer = numbers[used + 2 :].reshape((batch, 5))
        wanted = np.empty(batch, np.bool_)
        wanted[...] = True if problem.mask is None else np.asarray(problem.mask)
        integers = np.empty(FIELDS + len(sizes) + 3, np.int64)
        # An address costs a microsecond, so there are three of them, and the rest is counting.
        here, there = integers.ctypes.data, numbers.ctypes.data
        flat, first, lows, highs, gaps, _, points = (there + 8 * at for at in [0, *starts[len(parameters) :]])
        block = Block(
            batch=batch,
            hidden=len(sizes) - 1,
            width=width,
            parameters=starts[len(parameters)],
            sizes=here + 8 * FIELDS,
            flat=flat,
            first_bias=first,
            low=lows,
            high=highs,
            tolerance=gaps,
            wanted=wanted.ctypes.data,
            counter=here + 8 * (FIELDS + len(sizes)),
            actions=points,
            answer=there + 8 * (used + 2),
            limits=there + 8 * used,
            threads=self.threads or os.cpu_count() or 1,
            itself=entry_address(),
            stop=here + 8 * (FIELDS + len(sizes) + 2),
        )
        integers[:] = (*block, *sizes, 0, batch, 0)
        entry()(here)
        status = answer[:, 2].astype(np.int32)
        return Solution(actions.copy(), answer[:, 0].copy(), answer[:, 1].copy(), status, answer[:, 3].astype(np.int64))

    def inside_jit(self) -> Callable[[Problem, Any], Solution] | None:
        """What compiled code calls instead of `solve`, in float32; only on the CPU."""
        import jax

        if jax.default_backend() != "cpu":
            return None
        from caql.maxq.exact.xla_call import solve

        return partial(solve, self)


def _gather(parts: list[tuple[str, Any, tuple[int, ...]]], spare: int) -> tuple[list[Floats], list[int], Floats]:
    """Named values spread over their shapes, end to end in one array of float64, with some room after them.

    Returns a view of each, where each starts, and the array.
    """
    ends = list(itertools.accumulate((math.prod(shape) for _, _, shape in parts), initial=0))
    numbers = np.empty(ends[-1] + spare)
    views = []
    for (name, values, shape), start, end in zip(parts, ends, ends[1:], strict=False):
        view = numbers[start:end].reshape(shape)
        try:
            view[...] = values
        except ValueError:
            raise CaqlError(f"{name} has shape {np.shape(values)}, which does not fit {shape}") from None
        views.append(view)
    if not np.isfinite(numbers[: ends[-1]]).all():
        name = next(name for (name, _, _), view in zip(parts, views, strict=True) if not np.isfinite(view).all())
        raise CaqlError(f"{name} must be finite, but has NaN or infinite entries")
    return views, ends[:-1], numbers


def _layers(problem: Problem, width: int) -> tuple[list[int], list[tuple[str, Any, tuple[int, ...]]]]:
    """(actions, hidden sizes...), and the layers' weights and biases but for the first bias, with name and shape."""
    first = np.asarray(problem.network.action_weights)
    if first.ndim != 2 or first.shape[1] != width:
        raise CaqlError(f"network.action_weights has shape {first.shape}, but first_bias has {width} columns")
    sizes = [first.shape[0]]
    parts: list[tuple[str, Any, tuple[int, ...]]] = [("network.action_weights", first, first.shape)]
    for index, (weights, bias) in enumerate(problem.network.later):
        matrix, vector = np.asarray(weights), np.asarray(bias)
        if matrix.ndim != 2 or matrix.shape[0] != width or vector.shape != matrix.shape[1:]:
            raise CaqlError(
                f"network.later[{index}] has weights {matrix.shape} and bias {vector.shape}, but {width} inputs"
            )
        sizes.append(width)
        width = matrix.shape[1]
        parts.append((f"network.later[{index}] weights", matrix, matrix.shape))
        parts.append((f"network.later[{index}] bias", vector, vector.shape))
    if width != 1:
        raise CaqlError(f"network must have one output, but has {width}")
    return sizes, parts


@cache
def entry() -> Any:
    """`branching.solve_block` as a C function of one address; only a compilation lasts long enough to be announced."""
    with _compilation:
        notice = threading.Timer(
            1.5, lambda: print("compiling the exact solver, once ...", file=sys.stderr, flush=True)
        )
        notice.daemon = True
        notice.start()
        try:
            from caql.maxq.exact.compilation import address_of
            from caql.maxq.exact.search import solve_block

            # ctypes releases the interpreter's lock while the function runs.
            return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address_of(solve_block))
        finally:
            notice.cancel()


@cache
def entry_address() -> int:
    """Where that function lives."""
    address = ctypes.cast(entry(), ctypes.c_void_p).value
    assert address is not None
    return address
