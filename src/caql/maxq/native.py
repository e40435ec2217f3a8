"""The exact solver behind one C function: `solve_block(address)`, for Python and for XLA's compiled code alike.

Everything the solver needs is a `Block`: a row of integers, most of them addresses.  One function serves both callers
because Numba optimises everything below a function again for every function above it, and the solver takes
twenty seconds of that.  Rows are shared out to POSIX threads, made when the first rows show that they pay:
making one costs less than waking a Python thread.
"""

# mypy: disable-error-code="call-overload,untyped-decorator"
from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import carray
from numba.core import types
from numpy.typing import NDArray

from caql.maxq.branching import maximise_rows
from caql.maxq.compilation import address_of, allocating, called_from_c, pointer, seconds
from caql.maxq.evaluation import Limits
from caql.maxq.presolve import Stack

CAN_SHARE = sys.platform != "win32"
"""Whether there are POSIX threads."""
WORTH_A_THREAD = 2e-4
"""Seconds of remaining work for which one more thread is made: making it and waiting for it costs a tenth of that."""
PROBED = 2
"""Rows solved alone before that is decided."""


class Block(NamedTuple):
    """A batch of problems.  Arrays by address: float64, except sizes and counter (int64) and wanted (bytes)."""

    batch: int
    hidden: int
    """Hidden layers."""
    width: int
    """Units of the first."""
    parameters: int
    """Length of `flat`."""
    sizes: int
    flat: int
    first_bias: int
    low: int
    high: int
    tolerance: int
    """(2, batch): absolute, relative."""
    wanted: int
    counter: int
    """(2,): the next row, and the row to stop before."""
    actions: int
    answer: int
    limits: int
    """(2,) floats: nodes, seconds."""
    threads: int
    """At most so many."""
    itself: int
    """The address of `solve_block`, for the threads that it makes."""


FIELDS = len(Block._fields)
BATCH, WANTED, COUNTER, THREADS, ITSELF = map(Block._fields.index, ("batch", "wanted", "counter", "threads", "itself"))
Words = NDArray[np.int64]

if CAN_SHARE:
    _create = types.ExternalFunction("pthread_create", types.int32(types.int64, types.int64, types.int64, types.int64))
    _join = types.ExternalFunction("pthread_join", types.int32(types.int64, types.int64))


@allocating
def solve_rows(block: Words) -> None:
    """The rows that the block's counter still has to give away."""
    batch, hidden, width, parameters = block[0], block[1], block[2], block[3]
    sizes = carray(pointer(block[4]), (hidden + 1,), np.int64)
    d = sizes[0]
    maximise_rows(
        Stack(
            sizes,
            carray(pointer(block[5]), (parameters,), np.float64),
            carray(pointer(block[6]), (batch, width), np.float64),
        ),
        carray(pointer(block[7]), (batch, d), np.float64),
        carray(pointer(block[8]), (batch, d), np.float64),
        carray(pointer(block[9]), (2, batch), np.float64),
        Limits(
            0.0,
            0.0,
            np.int64(carray(pointer(block[14]), (2,), np.float64)[0]),
            carray(pointer(block[14]), (2,), np.float64)[1],
        ),
        carray(pointer(block[10]), (batch,), np.bool_),
        carray(pointer(block[11]), (2,), np.int64),
        carray(pointer(block[12]), (batch, d), np.float64),
        carray(pointer(block[13]), (batch, 5), np.float64),
    )


@allocating
def probe_end(wanted: np.ndarray, batch: int) -> tuple[int, int]:
    """The row after the first `PROBED` wanted ones, and how many are wanted after it."""
    seen, left, end = 0, 0, np.int64(0)
    for b in range(batch):
        if wanted[b]:
            if seen < PROBED:
                seen += 1
                end = b + 1
            else:
                left += 1
    return end, left


@called_from_c
def solve_block(address: int) -> int:
    """Solve all rows of the `Block` at an address, on as many of its threads as the work is worth."""
    block = carray(pointer(address), (FIELDS,), np.int64)
    counter = carray(pointer(block[COUNTER]), (2,), np.int64)
    end = counter[1]
    left = 0
    if CAN_SHARE and block[THREADS] > 1:
        counter[1], left = probe_end(carray(pointer(block[WANTED]), (block[BATCH],), np.bool_), block[BATCH])
        if left == 0:
            counter[1] = end
    # A row for each helper: its own block, and its handle.
    helpers = np.empty((max(1, block[THREADS]), FIELDS + 1), np.int64)
    made = 0
    while True:
        started = seconds()
        solve_rows(block)
        if counter[1] == end:
            break
        counter[0], counter[1] = counter[1], end
        worth = np.int64((seconds() - started) / PROBED * left / WORTH_A_THREAD)
        for helper in range(min(block[THREADS] - 1, left - 1, worth)):
            for field in range(FIELDS):
                helpers[helper, field] = block[field]
            helpers[helper, THREADS] = 1
            row = np.int64(helpers[helper].ctypes.data)
            if not CAN_SHARE or _create(row + 8 * FIELDS, 0, block[ITSELF], row) != 0:
                break
            made += 1
    for helper in range(made):
        if CAN_SHARE:
            _join(helpers[helper, FIELDS], 0)
    return 0


@cache
def entry_address() -> int:
    """Where `solve_block` lives; compiles it, or reads it from the disk, the first time."""
    return address_of(solve_block)


def call(shape: tuple[int, int, int, int], arrays: tuple[NDArray[Any], ...], threads: int) -> None:
    """`solve_block` on NumPy arrays: the first four fields of a `Block`, then the arrays, in the block's order."""
    block = np.array([*shape, *(array.ctypes.data for array in arrays), threads, entry_address()], np.int64)
    _caller()(block.ctypes.data)


@cache
def _caller() -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(entry_address())
