"""Compile a function and all that it calls once, instead of once for every function above it.

Numba optimises each function together with everything it calls and makes machine code of the result, again at every
level of calls, and only the topmost result is ever run here.  `linked_only` leaves the functions below as they
come from the front end: they are linked into the topmost one, which is optimised and translated with all of them
inside.  That halves the compilation of the exact solver.

The parts of Numba that this touches are private.  Where one is missing nothing changes but the time.
"""

# mypy: disable-error-code="attr-defined,assignment,method-assign,no-any-return"
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

OURS = "caql.maxq.exact."


def _private_parts() -> tuple[Any, Any, Any] | None:
    """The class of a library of compiled functions, that of its compiler, and the maker of callables."""
    try:
        from numba import _dynfunc
        from numba.core.codegen import CPUCodeLibrary
        from numba.core.cpu import CPUContext
    except ImportError:
        return None
    attributes = {"_final_module", "_linking_libraries", "_reload_init"}
    attributes |= {"_get_module_for_linking", "_optimize_final_module"}
    known = attributes <= set(CPUCodeLibrary.finalize.__code__.co_names) and hasattr(CPUCodeLibrary, "_finalized")
    return (CPUCodeLibrary, CPUContext, _dynfunc) if known and hasattr(CPUContext, "get_executable") else None


@contextlib.contextmanager
def linked_only(entry: str) -> Iterator[None]:
    """Within it, functions of this package other than `entry` are linked into their callers and not run themselves."""
    parts = _private_parts()
    if parts is None:
        yield
        return
    library_class, context_class, dynfunc = parts
    finalize, get_executable = library_class.finalize, context_class.get_executable
    optimise = library_class._optimize_final_module
    mangled = "_ZN" + "".join(f"{len(part)}{part}" for part in OURS.strip(".").split("."))

    def own(library: Any) -> list[Any]:
        return [f for f in library._final_module.functions if not f.is_declaration and f.name.startswith(mangled)]

    def link(library: Any) -> None:
        if library.name == entry or not own(library):
            finalize(library)
            return
        for other in dict.fromkeys(library._linking_libraries):
            library._reload_init.update(other._reload_init)
            library._final_module.link_in(other._get_module_for_linking(), preserve=True)
        library._finalized = True

    def optimise_together(library: Any) -> None:
        if library.name == entry:  # nobody else calls these, so they may lose arguments and whole bodies
            for function in own(library):
                if function.linkage.name == "linkonce_odr":
                    function.linkage = "internal"
        optimise(library)

    def callable_of(context: Any, library: Any, description: Any, environment: Any) -> Any:
        if description.modname.startswith(OURS) and description.qualname != entry:
            name = description.qualname.split(".")[-1]
            return dynfunc.make_function(description.lookup_module(), name, "", 0, environment, (library,))
        return get_executable(context, library, description, environment)

    library_class.finalize, context_class.get_executable = link, callable_of
    library_class._optimize_final_module = optimise_together
    try:
        yield
    finally:
        library_class.finalize, context_class.get_executable = finalize, get_executable
        library_class._optimize_final_module = optimise
