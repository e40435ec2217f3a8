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

from caql.maxq.exact.block import ANSWER, AT, FIELDS
from caql.maxq.exact.compilation import allocating, compiled, pointer
from caql.maxq.exact.presolve import Stack
from caql.maxq.exact.relaxation import Floats
from caql.maxq.exact.rows import Region

CAN_SHARE = sys.platform != "win32"
"""Whether there are POSIX threads."""
WORTH_A_THREAD = 2e-4
"""Seconds of remaining work for which one more thread is made; below half a millisecond it gains a fifth at best."""
PROBED = 1
"""Rows solved alone before that is decided."""

Words = NDArray[np.int64]
Bytes = NDArray[np.uint8]

if CAN_SHARE:
    _create = types.ExternalFunction("pthread_create", types.int32(types.int64, types.int64, types.int64, types.int64))
    _join = types.ExternalFunction("pthread_join", types.int32(types.int64, types.int64))


class Sets(NamedTuple):
    """The action sets of all states; `rows` may be shared."""

    low: Floats
    high: Floats
    rows: Floats
    row_low: Floats
    row_high: Floats
    whole: Floats


class Batch(NamedTuple):
    """The arrays of a block."""

    stack: Stack
    sets: Sets
    tolerance: Floats
    limits: Floats
    wanted: Bytes
    counter: Words
    actions: Floats
    answer: Floats
    stop: Words


@allocating
def unpack(block: Words) -> Batch:
    """The arrays behind the addresses."""
    batch, width, parameters = block[AT.batch], block[AT.width], block[AT.parameters]
    sizes = carray(pointer(block[AT.sizes]), (block[AT.hidden] + 1,), np.int64)
    d, rows = block[AT.variables], block[AT.row_count]
    return Batch(
        Stack(
            sizes,
            carray(pointer(block[AT.flat]), (parameters,), np.float64),
            carray(pointer(block[AT.first_bias]), (batch, width), np.float64),
        ),
        Sets(
            carray(pointer(block[AT.low]), (batch, d), np.float64),
            carray(pointer(block[AT.high]), (batch, d), np.float64),
            carray(pointer(block[AT.rows]), (block[AT.row_states], rows, d), np.float64),
            carray(pointer(block[AT.row_low]), (batch, rows), np.float64),
            carray(pointer(block[AT.row_high]), (batch, rows), np.float64),
            carray(pointer(block[AT.whole]), (d,), np.float64),
        ),
        carray(pointer(block[AT.tolerance]), (2, batch), np.float64),
        carray(pointer(block[AT.limits]), (2,), np.float64),
        carray(pointer(block[AT.wanted]), (batch,), np.uint8),
        carray(pointer(block[AT.counter]), (2,), np.int64),
        carray(pointer(block[AT.actions]), (batch, d), np.float64),
        carray(pointer(block[AT.answer]), (batch, ANSWER), np.float64),
        carray(pointer(block[AT.stop]), (1,), np.int64),
    )


@compiled
def region_of(sets: Sets, b: int) -> Region:
    """The action set of state b."""
    shared = sets.rows.shape[0] == 1
    rows = sets.rows[0 if shared else b]
    return Region(sets.low[b], sets.high[b], rows, sets.row_low[b], sets.row_high[b], sets.whole)


@allocating
def share_out(block: Words, elapsed: float, wanted: Bytes, first: int, helpers: Words) -> int:
    """Make threads for the rows from `first` on if they are worth it, given the time that `PROBED` rows took.

    `helpers` has a row for each: its own block, and its handle.  Returns how many were made.
    """
    left = 0
    for b in range(first, block[AT.batch]):
        left += wanted[b] == 1
    worth = np.int64(elapsed / PROBED * left / WORTH_A_THREAD)
    made = 0
    for helper in range(min(helpers.shape[0], left - 1, worth)):
        for field in range(FIELDS):
            helpers[helper, field] = block[field]
        helpers[helper, AT.threads] = 1
        row = np.int64(helpers[helper].ctypes.data)
        if not CAN_SHARE or _create(row + 8 * FIELDS, 0, block[AT.itself], row) != 0:
            break
        made += 1
    return made


@allocating
def join(helpers: Words, made: int) -> None:
    """Wait for the threads that were made."""
    for helper in range(made):
        if CAN_SHARE:
            _join(helpers[helper, FIELDS], 0)
