"""The exact solver inside `jit`: a call that XLA's compiled code makes by itself, without returning to Python.

An epoch's minibatches can then be one scan with the proof inside, as they are with gradient ascent.  XLA hands a
`CallFrame` to the functions registered with it (`xla_interface` has its layout); `serve` reads that frame,
widens the numbers to float64, and leaves the rest to `search.solve_block`.

The answer is float32 again.  Upper bounds are rounded up, so that they stay proofs, and a row is called optimal only
if the numbers returned, not those before rounding, are within the tolerance of each other.

Only for the CPU: elsewhere the solver runs on the host, between two compiled halves of a training step.
"""

# mypy: disable-error-code="call-overload,untyped-decorator,no-untyped-call"
from __future__ import annotations

import ctypes
import os
import sys
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

from caql.actions import ActionSet
from caql.maxq.exact.block import ANSWER, AT, FIELDS
from caql.maxq.exact.compilation import address_of, allocating, called_from_c, pointer
from caql.maxq.exact.solver import entry_address
from caql.maxq.exact.xla_interface import (
    METADATA_EXTENSION,
    VERSION,
    Buffer,
    CallFrame,
    Extension,
    Metadata,
    difference,
    word,
)
from caql.maxq.problem import Problem, Solution, Status, require_support, spread_out

TARGET = "caql_exact"
OPTIMAL, LIMIT = int(Status.OPTIMAL), int(Status.LIMIT)
FIXED = 12
"""Operands besides the later layers: first bias, action weights, six of `_sets`, start, tolerances, limits, wanted."""
RECEIVES = np.array(
    [
        *(AT.first_bias, AT.flat, AT.low, AT.high, AT.rows, AT.row_low, AT.row_high, AT.whole),
        *(AT.actions, AT.tolerance, AT.limits),
    ]
)
"""Which fields of the block the operands go to; all but the first layer's bias go to `flat`."""

SOLVER = "caql_solve_block"
"""The name under which compiled code finds `search.solve_block`."""

_solve_block = types.ExternalFunction(SOLVER, types.int64(types.int64))

# Where things lie in XLA's structures, in words of eight bytes.
_FRAME = ctypes.sizeof(CallFrame) // 8
_EXTENSION = word(CallFrame, "extension_start")
_ARGUMENTS, _ARGUMENT_LIST = word(CallFrame, "args", "size"), word(CallFrame, "args", "values")
_RESULT_LIST = word(CallFrame, "rets", "values")
_EXTENSION_TYPE, _METADATA = word(Extension, "type"), word(Extension, "metadata")
_METADATA_VERSION, _TRAITS = word(Metadata, "api_version", "major_version"), word(Metadata, "traits")
_DATA, _RANK, _DIMENSIONS = word(Buffer, "data"), word(Buffer, "rank"), word(Buffer, "dims")
_BUFFER = ctypes.sizeof(Buffer) // 8
_DECLARED = VERSION[0] + (VERSION[1] << 32)
"""The two halves of a word: major and minor version."""


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
def buffer_data(buffer: int) -> int:
    """Where a buffer's numbers are."""
    return words(buffer, _BUFFER)[_DATA]


@allocating
def dimension(buffer: int, axis: int) -> int:
    """The length of a buffer along an axis."""
    return words(words(buffer, _BUFFER)[_DIMENSIONS], axis + 1)[axis]


@allocating
def matrix_shape(buffer: int) -> tuple[int, int, int]:
    """The shape of a buffer of three axes."""
    return dimension(buffer, 0), dimension(buffer, 1), dimension(buffer, 2)


@allocating
def widen(buffer: int, target: np.ndarray, start: int) -> int:
    """Copy a buffer of floats into a vector of doubles; how many there were."""
    count = 1
    for axis in range(words(buffer, _BUFFER)[_RANK]):
        count *= dimension(buffer, axis)
    source = carray(pointer(buffer_data(buffer)), (count,), np.float32)
    for i in range(count):
        target[start + i] = np.float64(source[i])
    return count


@allocating
def write_down(results: np.ndarray, found: np.ndarray, actions: np.ndarray, tolerance: np.ndarray) -> None:
    """Actions, values, upper bounds, status and nodes as XLA's results; rounding never narrows what is proved."""
    batch, d = found.shape[0], dimension(results[0], 1)
    action_results = carray(pointer(buffer_data(results[0])), (batch, d), np.float32)
    values = carray(pointer(buffer_data(results[1])), (batch,), np.float32)
    upper = carray(pointer(buffer_data(results[2])), (batch,), np.float32)
    status = carray(pointer(buffer_data(results[3])), (batch,), np.int32)
    work = carray(pointer(buffer_data(results[4])), (batch,), np.int32)
    for b in range(batch):
        for k in range(d):
            action_results[b, k] = np.float32(actions[b, k])
        value, bound = np.float32(found[b, 0]), np.float32(found[b, 1])
        if bound < found[b, 1]:
            bound = np.nextafter(bound, np.float32(np.inf))
        values[b], upper[b], work[b] = value, bound, np.int32(found[b, 3])
        status[b] = np.int32(found[b, 2])
        if status[b] == OPTIMAL:
            # Once exactly, and once as whoever compares the float32 numbers would.
            exact = np.float64(bound) - np.float64(value) <= max(
                tolerance[b], tolerance[batch + b] * abs(np.float64(value))
            )
            single = np.float32(tolerance[batch + b]) * abs(value)
            if not (exact and np.float32(bound - value) <= max(np.float32(tolerance[b]), single)):
                status[b] = LIMIT


@called_from_c
def serve(frame: int) -> int:
    """XLA's question answered; 0 is its sign that nothing went wrong."""
    call = words(frame, _FRAME)
    if call[_EXTENSION] != 0:
        extension = words(call[_EXTENSION], _METADATA + 1)
        if np.int32(extension[_EXTENSION_TYPE]) == METADATA_EXTENSION:  # which version of the interface is this for?
            answer = words(extension[_METADATA], _TRAITS + 1)
            answer[_METADATA_VERSION] = _DECLARED
            carray(pointer(extension[_METADATA]), (2 * _TRAITS + 1,), np.int32)[2 * _TRAITS] = 0
            return 0
    count = call[_ARGUMENTS]
    arguments, results = words(call[_ARGUMENT_LIST], count), words(call[_RESULT_LIST], 5)
    batch, width, d = dimension(arguments[0], 0), dimension(arguments[0], 1), dimension(arguments[1], 0)
    hidden = (count - FIXED) // 2
    states, rows, variables = matrix_shape(arguments[4 + 2 * hidden])
    # One array of integers: the block, the sizes, the counter, the sign to stop, which nobody gives, and the bytes of
    # `wanted`, which `screen` writes into and which are therefore a copy.  Numba frees an array after its last use,
    # and an address is not a use, so the two arrays are read once more after the solver has returned.
    integers = np.zeros(FIELDS + hidden + 4 + (batch + 7) // 8, np.int64)
    integers[FIELDS] = d
    parameters = d * width
    for layer in range(hidden):
        units = dimension(arguments[2 + 2 * layer], 0)
        integers[FIELDS + 1 + layer] = units
        parameters += (units + 1) * dimension(arguments[2 + 2 * layer], 1)
    counter = FIELDS + 1 + hidden
    integers[counter + 1] = batch
    # One array of numbers: the operands one after the other, then space for the answer.
    of_sets = (batch * variables, batch * variables, states * rows * variables, batch * rows, batch * rows, variables)
    operands = (batch * width, parameters) + of_sets + (batch * variables, 2 * batch, 3)  # noqa: RUF005 - for Numba
    total = ANSWER * batch
    for size in operands:
        total += size
    numbers = np.zeros(total)
    start, here = np.int64(numbers.ctypes.data), np.int64(integers.ctypes.data)
    offset, operand = 0, 0
    for field in range(len(operands)):
        integers[RECEIVES[field]] = start + 8 * offset
        for _ in range(1 + 2 * hidden if field == 1 else 1):
            offset += widen(arguments[operand], numbers, offset)
            operand += 1
    wanted = carray(pointer(here + 8 * (counter + 3)), (batch,), np.uint8)
    asked = carray(pointer(buffer_data(arguments[count - 1])), (batch,), np.uint8)
    for b in range(batch):
        wanted[b] = asked[b]
    integers[AT.batch], integers[AT.hidden], integers[AT.width] = batch, hidden, width
    integers[AT.variables], integers[AT.row_count], integers[AT.row_states] = variables, rows, states
    integers[AT.parameters], integers[AT.sizes] = parameters, here + 8 * FIELDS
    integers[AT.counter], integers[AT.stop] = here + 8 * counter, here + 8 * (counter + 2)
    integers[AT.wanted], integers[AT.answer] = here + 8 * (counter + 3), start + 8 * offset
    integers[AT.threads] = np.int64(numbers[offset - 1])
    integers[AT.itself] = address_of_solver()
    _solve_block(here)
    tolerance = offset - 3 - 2 * batch
    write_down(
        results,
        numbers[offset:].reshape((integers[AT.batch], ANSWER)),
        numbers[tolerance - batch * variables : tolerance].reshape((batch, variables)),
        numbers[tolerance : tolerance + 2 * batch],
    )
    return 0


@cache
def register() -> bool:
    """Tell XLA of `serve`, compiled or read from the disk; False, and a sentence, where its interface is another."""
    reason = difference()
    if reason is not None:
        print(
            f"caql: jax {jax.__version__} has another call interface than the exact solver was written for: {reason}; "
            "the solver runs outside jit, which takes longer",
            file=sys.stderr,
        )
        return False
    llvmlite.binding.add_symbol(SOLVER, entry_address())
    function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address_of(serve))
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(function), platform="cpu")
    return True


def _sets(action_set: ActionSet, box: ActionSet) -> tuple[list[Any], Any]:
    """Low, high, rows, row_low, row_high and whole, for each state but for shared rows; and the auxiliaries' start."""
    batch, d = box.low.shape
    m, variables = action_set.rows.shape[-2:]
    sides = [action_set.auxiliary_low, action_set.auxiliary_high]
    low, high = (jnp.broadcast_to(side, (batch, variables - d)) for side in sides)
    rows = action_set.rows if action_set.rows.ndim == 3 else action_set.rows[None]
    bottom, top = (jnp.broadcast_to(side, (batch, m)) for side in (action_set.row_low, action_set.row_high))
    whole = np.zeros(variables, np.float32)
    whole[list(action_set.integer)] = 1.0
    middle = 0.5 * (low + high)
    bounds = [jnp.concatenate(pair, axis=1) for pair in ((box.low, low), (box.high, high))]
    return [*bounds, rows, bottom, top, whole], jnp.where(jnp.isfinite(middle), middle, 0.0)


def solve(solver: Any, problem: Problem, key: Any) -> Solution:  # noqa: ARG001 - nothing here is random
    """`solver`, an `Exact`, for traced arrays, in float32: upper bounds are rounded up, the rest to nearest."""
    require_support(solver, problem.action_set)
    register()
    box, start, wanted = spread_out(problem)
    batch, d = start.shape
    sets, extra = _sets(problem.action_set, box)
    start = jnp.concatenate([start, extra], axis=1)
    tolerance = jnp.stack([jnp.broadcast_to(each, batch) for each in (problem.tolerance, problem.relative_tolerance)])
    limits = np.array([solver.node_limit, solver.time_limit, solver.threads or os.cpu_count() or 1], np.float32)
    network = problem.network
    later = [part for layer in network.later for part in layer]
    floats = [network.first_bias, network.action_weights, *later, *sets, start, tolerance]
    operands = [jnp.asarray(each, jnp.float32) for each in floats]
    of_batch = [((batch, d), np.float32), ((batch,), np.float32), ((batch,), np.float32)]
    results = [jax.ShapeDtypeStruct(*each) for each in (*of_batch, ((batch,), np.int32), ((batch,), np.int32))]
    return Solution(*jax.ffi.ffi_call(TARGET, results)(*operands, limits, wanted))
