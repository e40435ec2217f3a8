"""`exact`: max over a of Q(x, a) with a proof, by our own branch and bound (Section 3.1's question, not its MIP).

The state is folded away, so the question is one of a few dozen ReLUs and a handful of actions, and a general
MIP solver spends its time elsewhere.  `search` branches on the phases of the ReLUs and on whole numbers, `relaxation`
holds the bounds that the certificate rests on, `rows` the action set, `simplex` and `tableau` the linear programs,
`presolve` what happens once per state and `node` what happens at a node; `screen` sorts out the states that cannot be
solved.
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

from caql.actions import ActionSet, hull
from caql.errors import CaqlError
from caql.maxq.exact.block import ANSWER, FIELDS, Block
from caql.maxq.host import as_float64, is_proved, refused_on_host
from caql.maxq.interrupts import Interrupted, interruptible
from caql.maxq.problem import Problem, Solution, Status, require_support, require_threads
from caql.networks import folded_value

Floats = NDArray[np.float64]
_compilation = threading.Lock()


@dataclass(frozen=True)
class Exact:
    """Branch and bound on ReLU phases and whole numbers; `upper - value` is a proof whatever stopped it.

    node_limit: nodes per state; a state that needs more returns `Status.LIMIT`.
    time_limit: seconds per state, likewise.
    threads: at most this many; None lets the amount of work decide.

    A tolerance below the rounding error of Q (about 1e-13 of its scale) cannot be proved: the status is `LIMIT`.
    """

    name: ClassVar[str] = "exact"
    traceable: ClassVar[bool] = False
    accepts_rows: ClassVar[bool] = True
    accepts_integers: ClassVar[bool] = True

    node_limit: int = 100_000
    time_limit: float = 60.0
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.node_limit < 1:
            raise CaqlError(f"node_limit = {self.node_limit} must be at least 1")
        if not self.time_limit > 0.0:
            raise CaqlError(f"time_limit = {self.time_limit} must be positive (seconds per state)")
        if self.threads is not None:
            require_threads(self.threads)

    def solve(self, problem: Problem, key: Any = None) -> Solution:  # noqa: ARG002 - nothing here is random
        """Answer for every row, as NumPy arrays; `key` is not used.

        Ctrl-C ends the search within a moment: `Interrupted`, with what is known of every row.
        Arrays whose shapes do not fit each other raise `CaqlError`.
        """
        require_support(self, problem.action_set)
        first_bias = np.asarray(problem.network.first_bias)
        if first_bias.ndim != 2:
            raise CaqlError(f"network.first_bias has shape {first_bias.shape}, but must have a row for each state")
        batch, width = first_bias.shape
        sizes, parameters = _layers(problem, width)
        d = sizes[0]
        # One array holds all the numbers, so that few calls of NumPy are needed.
        sets, whole, row_states = _sets(problem.action_set, batch, d)
        fields: list[tuple[str, Any, tuple[int, ...]]] = [
            ("network.first_bias", first_bias, (batch, width)),
            *sets,
            ("tolerance", problem.tolerance, (batch,)),
            ("relative_tolerance", problem.relative_tolerance, (batch,)),
            ("warm_start", 0.0, (batch, len(whole))),
        ]
        spare = 2 + ANSWER * batch
        views, starts, numbers = _gather([*parameters, *fields], spare)
        _, low, high, rows, *_, actions = views[len(parameters) :]
        _write_start(problem.warm_start, low, high, actions[:, :d], actions)
        used = numbers.size - spare
        numbers[used : used + 2] = self.node_limit, self.time_limit
        answer = numbers[used + 2 :].reshape((batch, ANSWER))
        wanted = np.empty(batch, np.bool_)  # `screen` writes other bytes into it
        wanted[...] = True if problem.mask is None else np.asarray(problem.mask)
        integers = np.empty(FIELDS + len(sizes) + 3, np.int64)
        # An address costs a microsecond, so there are three of them, and the rest is counting.
        here, there = integers.ctypes.data, numbers.ctypes.data
        flat, first, lows, highs, matrix, bottoms, tops, wholes, gaps, _, points = (
            there + 8 * at for at in [0, *starts[len(parameters) :]]
        )
        block = Block(
            batch=batch,
            hidden=len(sizes) - 1,
            width=width,
            parameters=starts[len(parameters)],
            sizes=here + 8 * FIELDS,
            flat=flat,
            first_bias=first,
            variables=len(whole),
            low=lows,
            high=highs,
            row_count=rows.shape[1],
            row_states=row_states,
            rows=matrix,
            row_low=bottoms,
            row_high=tops,
            whole=wholes,
            tolerance=gaps,
            wanted=wanted.ctypes.data,
            counter=here + 8 * (FIELDS + len(sizes)),
            stop=here + 8 * (FIELDS + len(sizes) + 2),
            actions=points,
            answer=there + 8 * (used + 2),
            limits=there + 8 * used,
            threads=self.threads or os.cpu_count() or 1,
            itself=entry_address(),
        )
        integers[:] = (*block, *sizes, 0, batch, 0)
        call = entry()
        with interruptible(lambda: integers.__setitem__(-1, 1)) as attempt:
            call(here)
        if attempt.interrupted and integers[-3] < batch:  # before the first row was taken: nothing is known
            raise KeyboardInterrupt
        status = answer[:, 2].astype(np.int32)
        values, upper = answer[:, 0].copy(), answer[:, 1].copy()
        solution = Solution(actions[:, :d].copy(), values, upper, status, answer[:, 3].astype(np.int64))
        if rows.shape[1] and not answer[:, 5].all():
            solution = _brought_inside(problem, solution, answer[:, 5] == 0)
        if attempt.interrupted:
            raise Interrupted(solution)
        return solution

    def compile(self) -> None:
        """Compile the search, or read it from the disk, now rather than at the first question."""
        entry()

    def inside_jit(self) -> Callable[[Problem, Any], Solution] | None:
        """What compiled code calls instead of `solve`, in float32; None where it cannot (another XLA, or no CPU)."""
        import jax

        if jax.default_backend() != "cpu":
            return None
        from caql.maxq.exact.xla_call import register, solve
        from caql.maxq.exact.xla_interface import difference

        # Nothing is compiled here: `solve` registers itself where it is traced, after the first episodes.
        return partial(solve, self) if difference() is None or register() else None


def _sets(action_set: ActionSet, batch: int, d: int) -> tuple[list[tuple[str, Any, tuple[int, ...]]], Floats, int]:
    """The arrays of the action sets with names and shapes, the whole numbers, and how many states have rows."""
    rows = np.asarray(action_set.rows)
    m, variables = rows.shape[-2:]
    row_states = batch if rows.ndim == 3 else 1
    whole = np.zeros(variables)
    whole[list(action_set.integer)] = 1.0
    low, high = action_set.low, action_set.high
    if variables > d:
        low, high = hull.variable_bounds(action_set.on_host())
    return (
        [
            ("action_set.low", low, (batch, variables)),
            ("action_set.high", high, (batch, variables)),
            ("action_set.rows", rows, (row_states, m, variables)),
            ("action_set.row_low", action_set.row_low, (batch, m)),
            ("action_set.row_high", action_set.row_high, (batch, m)),
            ("action_set.integer", whole, (variables,)),
        ],
        whole,
        row_states,
    )


def _write_start(start: Any, low: Floats, high: Floats, own: Floats, actions: Floats) -> None:
    """The warm start, brought into the bounds, or their middle; auxiliary variables start in the middle."""
    d = own.shape[1]
    with np.errstate(invalid="ignore", over="ignore"):
        actions[...] = 0.5 * (low + high)
    actions[:, d:][~np.isfinite(actions[:, d:])] = 0.0
    if start is None:
        return
    try:
        own[...] = start
    except ValueError:
        raise CaqlError(f"warm_start has shape {np.shape(start)}, which does not fit {own.shape}") from None
    np.minimum(np.maximum(own, low[:, :d], out=own), high[:, :d], out=own)


def _brought_inside(problem: Problem, solution: Solution, outside: NDArray[np.bool_]) -> Solution:
    """Actions of the search that rounding keeps outside a row, or that are not of the set at all, projected into it."""
    network, action_set = as_float64(problem.network, problem.action_set)
    actions, values, upper, status, work = solution
    searched = np.isin(status, (int(Status.OPTIMAL), int(Status.LIMIT))) | (
        (status == int(Status.FAILED)) & (refused_on_host(problem) == 0)
    )
    for row in np.flatnonzero(outside & searched).tolist():
        one = action_set[row]
        if one.closest(actions[row]) is None:
            values[row] = upper[row] = -np.inf
            status[row] = int(Status.INFEASIBLE)
            continue
        actions[row] = one.admissible(actions[row], np.float64)
        values[row] = folded_value(network._replace(first_bias=network.first_bias[row]), actions[row])
        upper[row] = max(upper[row], values[row])
        status[row] = int(Status.LIMIT)
    status = np.where(outside & (status == int(Status.LIMIT)) & is_proved(problem, values, upper), 0, status)
    return Solution(actions, values, upper, status.astype(np.int32), work)


def _gather(parts: list[tuple[str, Any, tuple[int, ...]]], spare: int) -> tuple[list[Floats], list[int], Floats]:
    """Named values spread over their shapes, end to end in one array of float64, with some numbers to spare after them.

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
    """`search.solve_block` as a C function of one address; says so where it is compiled and not read from the disk."""
    with _compilation:
        from numba.core import event

        from caql.maxq.exact.compilation import address_of
        from caql.maxq.exact.search import solve_block

        class Notice(event.Listener):  # type: ignore[misc]
            """Hears of every function that Numba begins to compile, and speaks of the first."""

            said = False

            def on_start(self, _: Any) -> None:
                if not self.said:
                    print("compiling the exact solver, once ...", file=sys.stderr, flush=True)
                self.said = True

            def on_end(self, _: Any) -> None:
                pass

        with event.install_listener("numba:compile", Notice()):
            # ctypes releases the interpreter's lock while the function runs.
            return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address_of(solve_block))


@cache
def entry_address() -> int:
    """Where that function lives."""
    address = ctypes.cast(entry(), ctypes.c_void_p).value
    assert address is not None
    return address
