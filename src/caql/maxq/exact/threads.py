"""What the exact solver does with the `Block` it is called with: find the arrays, and share out the rows.

Rows are shared out to POSIX threads, made when the first row shows that they pay; compiled code has no Python thread
to wake.
"""

# mypy: disable-error-code="call-overload,untyped-decorator"
from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
from numba import carray
from numba.core import types
from numpy.typing import NDArray

from caql.maxq.exact.block import BATCH, FIELDS, ITSELF, THREADS
from caql.maxq.exact.compilation import allocating, pointer
from caql.maxq.exact.presolve import Stack
from caql.maxq.exact.relaxation import Floats

CAN_SHARE = sys.platform != "win32"
"""Whether there are POSIX threads."""
WORTH_A_THREAD = 2e-4
"""Seconds of remaining work for which one more thread is made; below half a millisecond it gains a fifth at best."""
PROBED = 1
"""Rows solved alone before that is decided."""


Words = NDArray[np.int64]

if CAN_SHARE:
    _create = types.ExternalFunction("pthread_create", types.int32(types.int64, types.int64, types.int64, types.int64))
    _join = types.ExternalFunction("pthread_join", types.int32(types.int64, types.int64))


class Batch(NamedTuple):
    """The arrays of a block."""

    stack: Stack
    low: Floats
    high: Floats
    tolerance: Floats
    limits: Floats
    wanted: NDArray[np.bool_]
    counter: Words
    actions: Floats
    answer: Floats
    stop: Words


@allocating
def unpack(block: Words) -> Batch:
    """The arrays behind the addresses."""
    batch, hidden, width, parameters = block[0], block[1], block[2], block[3]
    sizes = carray(pointer(block[4]), (hidden + 1,), np.int64)
    d = sizes[0]
    return Batch(
        Stack(
            sizes,
            carray(pointer(block[5]), (parameters,), np.float64),
            carray(pointer(block[6]), (batch, width), np.float64),
        ),
        carray(pointer(block[7]), (batch, d), np.float64),
        carray(pointer(block[8]), (batch, d), np.float64),
        carray(pointer(block[9]), (2, batch), np.float64),
        carray(pointer(block[14]), (2,), np.float64),
        carray(pointer(block[10]), (batch,), np.bool_),
        carray(pointer(block[11]), (2,), np.int64),
        carray(pointer(block[12]), (batch, d), np.float64),
        carray(pointer(block[13]), (batch, 5), np.float64),
        carray(pointer(block[17]), (1,), np.int64),
    )


@allocating
def share_out(block: Words, elapsed: float, wanted: NDArray[np.bool_], first: int, helpers: Words) -> int:
    """Make threads for the rows from `first` on if they are worth it, given the time that `PROBED` rows took.

    `helpers` has a row for each: its own block, and its handle.  Returns how many were made.
    """
    left = 0
    for b in range(first, block[BATCH]):
        left += wanted[b]
    worth = np.int64(elapsed / PROBED * left / WORTH_A_THREAD)
    made = 0
    for helper in range(min(helpers.shape[0], left - 1, worth)):
        for field in range(FIELDS):
            helpers[helper, field] = block[field]
        helpers[helper, THREADS] = 1
        row = np.int64(helpers[helper].ctypes.data)
        if not CAN_SHARE or _create(row + 8 * FIELDS, 0, block[ITSELF], row) != 0:
            break
        made += 1
    return made


@allocating
def join(helpers: Words, made: int) -> None:
    """Wait for the threads that were made."""
    for helper in range(made):
        if CAN_SHARE:
            _join(helpers[helper, FIELDS], 0)
