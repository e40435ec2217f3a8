"""The exact solver inside `jit`: a call that XLA's compiled code makes by itself, without returning to Python.

An epoch's minibatches can then be one scan with the proof inside, as they are with gradient ascent.  XLA hands a
`CallFrame` to the functions registered with it, whose C layout it keeps stable; `serve` reads that frame,
widens the numbers to float64, and leaves the rest to `branching.solve_block`.

Only for the CPU: elsewhere the solver runs on the host, between two compiled halves of a training step.
"""

# mypy: disable-error-code="call-overload,untyped-decorator,no-untyped-call"
from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import carray
from numba.core import cgutils, types
from numba.extending import intrinsic

from caql.maxq.exact.block import COUNTER, FIELDS, ITSELF, THREADS, WANTED, Block
from caql.maxq.exact.compilation import address_of, allocating, called_from_c, pointer
from caql.maxq.exact.solver import entry_address
from caql.maxq.problem import Problem, Solution, Status, row_by_row

TARGET = "caql_exact"
FAILED = int(Status.FAILED)
FIXED = 8
"""Operands besides the later layers: first bias, action weights, low, high, start, tolerances, limits, wanted."""
SIZES, ANSWER, STOP = map(Block._fields.index, ("sizes", "answer", "stop"))
RECEIVES = np.array(
    [Block._fields.index(n) for n in ("first_bias", "flat", "low", "high", "actions", "tolerance", "limits")]
)
"""Which fields of the block the operands go to; all but the first layer's bias go to `flat`."""

SOLVER = "caql_solve_block"
"""The name under which compiled code finds `branching.solve_block`."""

_solve_block = types.ExternalFunction(SOLVER, types.int64(types.int64))

# Where things lie in the frames of XLA's C interface (c_api.h), in words of eight bytes.
_EXTENSION, _API, _ARGUMENTS, _ARGUMENT_LIST, _RESULT_LIST = 1, 2, 7, 9, 14
_METADATA, _METADATA_TYPE = 3, 1
_DATA, _RANK, _DIMENSIONS = 3, 4, 5


@intrinsic
def address_of_solver(_: Any) -> Any:
    """Where the symbol `SOLVER` points."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        word = context.get_value_type(types.int64)
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(word, [word]), SOLVER)
        return builder.ptrtoint(function, word)

    return types.int64(), generate


@allocating
def words(address: int, count: int) -> np.ndarray:
    """Integers at an address."""
    return carray(pointer(address), (count,), np.int64)


@allocating
def widen(buffer: int, count: int, target: np.ndarray, start: int) -> bool:
    """Copy a buffer of floats into a vector of doubles; whether all of them are finite."""
    source = carray(pointer(words(buffer, 6)[_DATA]), (count,), np.float32)
    finite = True
    for i in range(count):
        value = np.float64(source[i])
        finite = finite and np.isfinite(value)
        target[start + i] = value
    return finite


@allocating
def write_down(results: np.ndarray, found: np.ndarray, actions: np.ndarray, finite: bool) -> None:
    """Actions, values, upper bounds, status and nodes as XLA's results; rounding never narrows what is proved."""
    batch = found.shape[0]
    action_results = carray(pointer(words(results[0], 6)[_DATA]), (actions.size,), np.float32)
    values = carray(pointer(words(results[1], 6)[_DATA]), (batch,), np.float32)
    upper = carray(pointer(words(results[2], 6)[_DATA]), (batch,), np.float32)
    status = carray(pointer(words(results[3], 6)[_DATA]), (batch,), np.int32)
    work = carray(pointer(words(results[4], 6)[_DATA]), (batch,), np.int32)
    for i in range(actions.size):
        action_results[i] = np.float32(actions[i])
    for b in range(batch):
        values[b] = np.float32(found[b, 0]) if finite else np.float32(np.nan)
        bound = np.float32(found[b, 1]) if finite else np.float32(np.inf)
        upper[b] = bound if bound >= found[b, 1] else np.nextafter(bound, np.float32(np.inf))
        status[b] = np.int32(found[b, 2]) if finite else FAILED
        work[b] = np.int32(found[b, 3])


@called_from_c
def serve(frame: int) -> int:
    """XLA's question answered; 0 is its sign that nothing went wrong."""
    call = words(frame, 15)
    if call[_EXTENSION] != 0:
        extension = words(call[_EXTENSION], 4)
        if np.int32(extension[1]) == _METADATA_TYPE:  # asked once: which version of the interface is this for?
            answer = words(extension[_METADATA], 6)
            # The fields read here are in every version, so this is for the one that asks.
            answer[3] = words(call[_API], 5)[4]
            answer[4] = 0
            answer[5] = 0
            return 0
    count = call[_ARGUMENTS]
    arguments, results = words(call[_ARGUMENT_LIST], count), words(call[_RESULT_LIST], 5)
    shape = words(words(arguments[0], 6)[_DIMENSIONS], 2)
    batch, width = shape[0], shape[1]
    d = words(words(arguments[1], 6)[_DIMENSIONS], 2)[0]
    hidden = (count - FIXED) // 2
    # One array of integers: the block, the sizes, the counter.  Numba frees an array after its last use, and an
    # address is not a use, so these two arrays are read once more after the solver has returned.
    integers = np.zeros(FIELDS + hidden + 4, np.int64)
    integers[FIELDS] = d
    parameters = d * width
    for layer in range(hidden):
        matrix = words(words(arguments[2 + 2 * layer], 6)[_DIMENSIONS], 2)
        integers[FIELDS + 1 + layer] = matrix[0]
        parameters += (matrix[0] + 1) * matrix[1]
    counter = FIELDS + 1 + hidden
    integers[counter + 1] = batch
    # One array of numbers: the operands one after the other, then room for the answer.
    operands = (batch * width, parameters, batch * d, batch * d, batch * d, 2 * batch, 3)
    total = 5 * batch
    for size in operands:
        total += size
    numbers = np.zeros(total)
    start = np.int64(numbers.ctypes.data)
    here = np.int64(integers.ctypes.data)
    finite = True
    offset, operand = 0, 0
    for field in range(len(operands)):
        integers[RECEIVES[field]] = start + 8 * offset
        end = offset + operands[field]
        while offset < end:
            size = 1
            for dimension in range(words(arguments[operand], 6)[_RANK]):
                size *= words(words(arguments[operand], 6)[_DIMENSIONS], 2)[dimension]
            finite = widen(arguments[operand], size, numbers, offset) and finite
            offset += size
            operand += 1
    integers[0], integers[1], integers[2], integers[3] = batch, hidden, width, parameters
    integers[SIZES] = here + 8 * FIELDS
    integers[COUNTER] = here + 8 * counter
    integers[WANTED] = words(arguments[operand], 6)[_DATA]
    integers[ANSWER] = start + 8 * offset
    integers[THREADS] = np.int64(numbers[offset - 1])
    integers[ITSELF] = address_of_solver()
    integers[STOP] = here + 8 * (counter + 2)
    if finite:
        _solve_block(here)
    actions = offset - operands[6] - operands[5] - operands[4]
    write_down(results, numbers[offset:].reshape((integers[0], 5)), numbers[actions : actions + operands[4]], finite)
    return 0


@cache
def register() -> None:
    """Tell XLA of `serve`; compiles it, or reads it from the disk, the first time."""
    llvmlite.binding.add_symbol(SOLVER, entry_address())
    function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address_of(serve))
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(function), platform="cpu")


def solve(solver: Any, problem: Problem, key: Any) -> Solution:  # noqa: ARG001 - nothing here is random
    """`solver`, an `Exact`, for traced arrays, in float32: upper bounds are rounded up, the rest to nearest."""
    register()
    box, start, wanted = row_by_row(problem)
    batch, d = start.shape
    tolerance = jnp.stack([jnp.broadcast_to(each, batch) for each in (problem.tolerance, problem.relative_tolerance)])
    limits = np.array([solver.node_limit, solver.time_limit, solver.threads or os.cpu_count() or 1], np.float32)
    network = problem.network
    later = [part for layer in network.later for part in layer]
    floats = [network.first_bias, network.action_weights, *later, box.low, box.high, start, tolerance]
    operands = [jnp.asarray(each, jnp.float32) for each in floats]
    of_batch = [((batch, d), np.float32), ((batch,), np.float32), ((batch,), np.float32)]
    results = [jax.ShapeDtypeStruct(*each) for each in (*of_batch, ((batch,), np.int32), ((batch,), np.int32))]
    return Solution(*jax.ffi.ffi_call(TARGET, results)(*operands, limits, wanted))
