"""A solution as a table: action, value, proved upper bound and gap, one row per state."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np

from caql.maxq.problem import Solution, Status
from caql.maxq.solvers import proves


def _number(value: float) -> str:
    return "-" if np.isinf(value) else f"{value:.6g}"


def _action(action: Any) -> str:
    shown = " ".join(f"{entry: .4f}" for entry in action[:8])
    return shown + (f" ... ({len(action)})" if len(action) > 8 else "")


class Shown(NamedTuple):
    """What the table says of the question: the network's name, the solver, how many rows, whether it is a minimum."""

    of: str
    solver: str
    limit_rows: int
    minimize: bool = False


def print_solution(solution: Solution, seconds: float, shown: Shown, open_rows: str = "limit") -> None:
    """The table of some rows and a line below it; `open_rows` is what a row that is not solved is called.

    For a minimum the solution is that of the negative.
    """
    from rich.console import Console
    from rich.table import Table

    of, solver, limit_rows, minimize = shown
    sign = -1.0 if minimize else 1.0
    rows = len(solution.values)
    proving = proves(solver)
    work = "nodes" if proving else "iterations"
    table = Table(title=f"{'min' if minimize else 'max'} Q of {of}, solver {solver}")
    table.add_column("state", justify="right")
    table.add_column("action")
    for heading in ("value", "lower" if minimize else "upper", "gap"):
        table.add_column(heading, justify="right")
    table.add_column("status")
    table.add_column(work, justify="right")
    for k in range(min(rows, limit_rows)):
        value, upper = float(solution.values[k]), float(solution.upper[k])
        status = Status(int(solution.status[k]))
        empty = status == Status.INFEASIBLE
        numbers = (
            ("-", "-", "-")
            if empty
            else (
                _number(sign * value),
                _number(sign * upper),
                _number(upper - value),
            )
        )
        called = status.name.lower().replace("limit", open_rows)
        action = "none is admissible" if empty else _action(solution.actions[k])
        table.add_row(str(k), action, *numbers, called, str(int(solution.work[k])))
    # A pipe has no width: rich would fold the table to 80 columns.
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    if rows > limit_rows:
        console.print(f"and {rows - limit_rows} more states (--limit-rows)")
    solved = int(np.sum(solution.status == Status.OPTIMAL))
    compiled = "" if proving else ", compilation included"
    proof = f"{solved} proved optimal" if proving else "nothing is proved by this solver"
    console.print(
        f"{rows} states, {proof}; {seconds * 1e3:.4g} ms in all, {seconds / rows * 1e3:.4g} ms a state{compiled}"
    )
