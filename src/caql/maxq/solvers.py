"""The solvers by the name that the user types; each is imported only when it is asked for."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

from caql.errors import CaqlError, nearest
from caql.maxq.problem import Problem, Solution, Solver

SOLVERS = {
    "ga": "caql.maxq.gradient_ascent:GradientAscent",
    "cem": "caql.maxq.cross_entropy:CrossEntropy",
    "exact": "caql.maxq.exact.solver:Exact",
    "mip": "caql.maxq.mip.solver:Mip",
}


def solver_class(name: str) -> type[Any]:
    """The class behind a name."""
    if name not in SOLVERS:
        raise CaqlError(f"solver = {name!r} is not a solver; {nearest(name, SOLVERS)}")
    module, attribute = SOLVERS[name].split(":")
    found: type[Any] = getattr(importlib.import_module(module), attribute)
    return found


def make_solver(name: str, **settings: object) -> Solver:
    """A solver with its settings; unknown settings are named."""
    cls = solver_class(name)
    fields = [field.name for field in dataclasses.fields(cls)]
    for setting in settings:
        if setting not in fields:
            raise CaqlError(f"solver {name!r} has no setting {setting!r}; {nearest(setting, fields)}")
    solver: Solver = cls(**settings)
    return solver


def inside_jit(solver: Solver) -> Callable[[Problem, Any], Solution] | None:
    """The solver's `solve` as `jit` can trace it; None for a solver that has to run on the host."""
    if solver.traceable:
        return solver.solve
    way: Callable[[], Callable[[Problem, Any], Solution] | None] = getattr(solver, "inside_jit", lambda: None)
    return way()
