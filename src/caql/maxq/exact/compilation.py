"""How the exact solver's inner loops are compiled: one decorator, and a clock that compiled code can read.

`reassoc` and `contract` let the compiler vectorise sums; NaN and infinity keep their IEEE meaning, because a
certificate must notice them.  Numba's own cache notices an edit of the file a function lives in, but not of
the files it calls into; `compiled` therefore stamps each function with the newest of all the solver's files.

This is the one file that knows parts of Numba that its documentation does not promise: `missing_parts` says which
of them an installed version lacks.  Then everything is compiled through the public interface instead, which takes
longer and computes the same.
"""

# mypy: disable-error-code="attr-defined,call-overload,untyped-decorator"
from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
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
    "screen.py",
    "rows.py",
    "presolve.py",
    "relaxation.py",
    "tightening.py",
    "tangent.py",
    "facets.py",
    "limits.py",
    "tangent_bound.py",
    "pivoting.py",
    "simplex.py",
    "workspace.py",
    "written_rows.py",
    "tableau.py",
    "climb.py",
    "branching.py",
    "node.py",
    "open_nodes.py",
    "tree.py",
    "parts.py",
    "search.py",
    "threads.py",
    "xla_interface.py",
    "xla_call.py",
)
OPTIONS = ("_nrt", "no_cpython_wrapper", "no_cfunc_wrapper")
"""Options of `njit` that are not documented."""


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


@cache
def missing_parts() -> tuple[str, ...]:
    """The undocumented parts of Numba that this file uses and the installed version does not have."""
    from numba.core.caching import FunctionCache
    from numba.core.codegen import JITCodeLibrary
    from numba.core.cpu import CPUTargetOptions
    from numba.core.funcdesc import FunctionDescriptor

    missing = [f"the option {name} of njit" for name in OPTIONS if not hasattr(CPUTargetOptions, name)]
    parts: list[tuple[Any, str]] = [
        (JITCodeLibrary, "get_pointer_to_function"),
        (FunctionDescriptor, "llvm_cfunc_wrapper_name"),
        (FunctionCache(missing_parts.__wrapped__)._cache_file, "_source_stamp"),
    ]
    return (*missing, *(name for owner, name in parts if not hasattr(owner, name)))


@cache
def is_known_numba() -> bool:
    """Whether Numba has everything that `_compile` and `address_of` would like; if not, says so once."""
    try:
        missing = missing_parts()
    except (ImportError, AttributeError) as problem:
        missing = (str(problem),)
    if missing:
        print(
            f"caql: numba {numba.__version__} lacks {', '.join(missing)}; "
            "the exact solver is compiled without it, which takes longer",
            file=sys.stderr,
        )
    return not missing


def address_of(function: Any) -> int:
    """Where the machine code of a `called_from_c` function lives; compiles it the first time."""
    if not is_known_numba():
        made = numba.cfunc(types.int64(types.int64), cache=True, **PUBLIC)(function.py_func)
        _KEPT.append(made)
        return int(made.address)
    with linked_only(function.py_func.__name__):
        function.compile((types.int64,))
    (result,) = function.overloads.values()
    return int(result.library.get_pointer_to_function(result.fndesc.llvm_cfunc_wrapper_name))


PUBLIC: dict[str, Any] = {
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc", "nsz"},
}
_KEPT: list[Any] = []
"""Numba frees a C function's machine code with the object."""


def _compile(function: Function, counted: bool, called_from_c: bool = False) -> Function:
    if not is_known_numba():
        return cast(Function, numba.njit(nogil=True, cache=True, **PUBLIC)(function))
    private = {"_nrt": counted, "no_cpython_wrapper": True, "no_cfunc_wrapper": not called_from_c}
    # The functions below live inside those that are called from C, so only these are worth keeping on disk.
    dispatcher = numba.njit(nogil=True, cache=called_from_c, **PUBLIC, **private)(function)
    if called_from_c:
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


LARGEST = np.finfo(np.float64).max


@compiled
def is_finite(number: float) -> bool:
    """Neither NaN nor infinite.

    By comparison: Numba's `isfinite(x)` is x - x == 0, which the compiler, free to reorder sums, may call true where
    x is itself a sum.
    """
    return abs(number) <= LARGEST
