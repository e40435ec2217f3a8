"""How the exact solver's inner loops are compiled: one decorator, and a clock that compiled code can read.

`reassoc` and `contract` let the compiler vectorise sums; NaN and infinity keep their IEEE meaning, because a
certificate must notice them.  Numba's own cache notices an edit of the file a function lives in, but not of
the files it calls into; `compiled` therefore stamps each function with the newest of all the solver's files.
"""

# mypy: disable-error-code="attr-defined,call-overload,untyped-decorator"
from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic

from caql.maxq.exact.linking import linked_only

Function = TypeVar("Function", bound=Callable[..., Any])
NATURAL = 0x7FFFFFFF
"""`size & NATURAL` is `size`, but tells the compiler that it is not negative.  Python counts negative indices from the
end, and a loop over `row[size + i]` that might have to is not vectorised."""
SOURCES = (
    "compilation.py",
    "block.py",
    "linking.py",
    "presolve.py",
    "relaxation.py",
    "tightening.py",
    "pivoting.py",
    "simplex.py",
    "workspace.py",
    "tableau.py",
    "climb.py",
    "node.py",
    "search.py",
    "threads.py",
    "xla_call.py",
)


def _stamp() -> tuple[float, int]:
    stats = [(Path(__file__).parent / source).stat() for source in SOURCES]
    return max(stat.st_mtime for stat in stats), sum(stat.st_size for stat in stats)


def called_from_c(function: Function) -> Function:
    """A function of one integer, an address, with an address of its own (`address_of`); kept on disk as machine code.

    The bridge from Python takes long to compile, so there is none: Python calls by address as C does, which also
    releases the interpreter's lock.
    """
    return _compile(function, counted=True, called_from_c=True)


def allocating(function: Function) -> Function:
    """For functions that only compiled ones call; they become part of those that are called from C."""
    return _compile(function, counted=True)


def compiled(function: Function) -> Function:
    """As `allocating`, for functions that make no arrays: they need not count references to the ones they get."""
    return _compile(function, counted=False)


def address_of(function: Any) -> int:
    """Where the machine code of a `called_from_c` function lives; compiles it the first time."""
    with linked_only(function.py_func.__name__):
        function.compile((types.int64,))
    (result,) = function.overloads.values()
    return int(result.library.get_pointer_to_function(result.fndesc.llvm_cfunc_wrapper_name))


def _compile(function: Function, counted: bool, called_from_c: bool = False) -> Function:
    dispatcher = numba.njit(
        cache=called_from_c,
        nogil=True,
        error_model="numpy",
        fastmath={"contract", "reassoc", "nsz"},
        _nrt=counted,
        no_cpython_wrapper=True,
        no_cfunc_wrapper=not called_from_c,
    )(function)
    if called_from_c:  # the others live inside these
        with contextlib.suppress(AttributeError):  # a private attribute: without it only developers can see stale code
            dispatcher._cache._cache_file._source_stamp = _stamp()
    return cast(Function, dispatcher)


@intrinsic
def pointer(_: Any, address: Any) -> Any:
    """An address as what `numba.carray` takes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.voidptr(address), generate


@intrinsic
def take(_: Any, counter: Any) -> Any:
    """The first entry of an array of integers, which grows by one: no two threads get the same number."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.atomic_rmw("add", array.data, context.get_constant(types.int64, 1), "monotonic")

    return types.int64(counter), generate


if sys.platform == "win32":
    _tick_count = types.ExternalFunction("GetTickCount64", types.uint64())

    @allocating
    def seconds() -> float:
        """A monotonic clock."""
        return _tick_count() * 1e-3

else:
    _clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.CPointer(types.int64)))
    _MONOTONIC = 6 if sys.platform == "darwin" else 1

    @allocating
    def seconds() -> float:
        """A monotonic clock."""
        time = np.zeros(2, np.int64)
        _clock_gettime(np.int32(_MONOTONIC), time.ctypes)
        return time[0] + time[1] * 1e-9
