"""The solvers by the name that the user types: the only registry; each is imported only when it is asked for.

`mip` is a class with a setting, its backend, and each backend is a name of its own besides: `solver="gurobi"` is
`mip` with `backend="gurobi"`, and is stored so in a configuration.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Callable
from typing import Any

from caql.actions import ActionSet
from caql.errors import CaqlError, nearest
from caql.maxq.problem import Problem, Solution, Solver

CLASSES = {
    "exact": "caql.maxq.exact.solver:Exact",
    "mip": "caql.maxq.mip.solver:Mip",
    "ga": "caql.maxq.gradient_ascent:GradientAscent",
    "cem": "caql.maxq.cross_entropy:CrossEntropy",
}
BACKENDS = ("scip", "highs", "gurobi", "cplex")
"""Those of `mip`."""
SOLVERS = ("exact", *BACKENDS, "mip", "ga", "cem")
"""Every name."""


def solver_class(name: Any) -> type[Any]:
    """The class behind a name; `CaqlError` for an unknown one."""
    if name not in SOLVERS:
        raise CaqlError(f"solver = {name!r} is not a solver; {nearest(str(name), SOLVERS)}")
    module, attribute = CLASSES["mip" if name in BACKENDS else name].split(":")
    found: type[Any] = getattr(importlib.import_module(module), attribute)
    return found


def implied_settings(name: str) -> dict[str, object]:
    """The settings that a name stands for besides its class: a backend's name is its backend."""
    return {"backend": name} if name in BACKENDS else {}


def make_solver(name: str, **settings: object) -> Solver:
    """A solver with its settings; unknown settings are named."""
    cls = solver_class(name)
    implied = implied_settings(name)
    fields = [field.name for field in dataclasses.fields(cls) if field.name not in implied]
    for setting in settings:
        if setting not in fields:
            raise CaqlError(f"solver {name!r} has no setting {setting!r}; {nearest(setting, fields)}")
    solver: Solver = cls(**implied, **settings)
    return solver


def proves(name: str) -> bool:
    """Whether the solver of that name proves what it finds; the others search."""
    return not solver_class(name).traceable


def solvers_for(*, rows: bool = False, integers: bool = False) -> list[str]:
    """The solvers that take rows, and whole numbers, where these are asked for."""
    classes = {name: solver_class(name) for name in CLASSES}
    return [
        name
        for name, each in classes.items()
        if (each.accepts_rows or not rows) and (each.accepts_integers or not integers)
    ]


def proving_solver(action_set: ActionSet) -> str:
    """The first solver that proves its answer over such a set: what is used where the user names none."""
    able = solvers_for(rows=action_set.rows.shape[-2] > 0, integers=bool(action_set.integer))
    return next(name for name in able if proves(name))


def without_clock(solver: Solver) -> Solver:
    """The solver as training uses it: limited by its nodes alone, if it counts them (`exact` does).

    What a clock cuts short depends on how busy the machine is, and so would everything learned from it.
    """
    if not (hasattr(solver, "node_limit") and hasattr(solver, "time_limit")):
        return solver
    unhurried: Solver = dataclasses.replace(solver, time_limit=math.inf)  # type: ignore[type-var]
    return unhurried


def inside_jit(solver: Solver) -> Callable[[Problem, Any], Solution] | None:
    """The solver's `solve` as `jit` can trace it; None for a solver that has to run on the host."""
    if solver.traceable:
        return solver.solve
    way: Callable[[], Callable[[Problem, Any], Solution] | None] = getattr(solver, "inside_jit", lambda: None)
    return way()
