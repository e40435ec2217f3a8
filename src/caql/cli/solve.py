"""`caql solve FILE`: maximise a network over its actions, and print what was found and what is proved."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from caql.cli.output import require_output
from caql.errors import CaqlError
from caql.maxq.interrupts import Interrupted
from caql.maxq.problem import Solution, Status
from caql.maxq.solvers import SOLVERS, proves
from caql.network_files import NetworkFile

SAMPLED = 64
"""States taken from a saved run."""
MOST_THREADS = 1024


@dataclass(frozen=True)
class Arguments:
    """Maximise a network's output over a box of actions, for every state at once.

    Actions, values, the proved upper bound and the gap between them are printed, one row per state.
    """

    file: tyro.conf.Positional[Path]
    """A network (.npz, .safetensors or .onnx), or the folder of a saved run."""
    low: tuple[float, ...] = ()
    """Lower bounds of the actions: one for all, or one per dimension.  Default: the file's."""
    high: tuple[float, ...] = ()
    """Upper bounds of the actions."""
    action_range: float | None = None
    """Shorthand for the box [-R, R] in every dimension."""
    states: Path | None = None
    """States, one row each (.npz, .npy or .csv): the network's first inputs.  Default: the file's, if any."""
    solver: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(SOLVERS) + "}")] = "exact"
    """ga and cem search; the others prove what they find."""
    tolerance: float = 1e-4
    """Absolute gap at which a state is solved."""
    relative_tolerance: float = 0.0
    """The same as a fraction of |value|; the larger of the two counts."""
    time_limit: float | None = None
    """Seconds for one state (60 where the solver has such a limit)."""
    threads: int | None = None
    """Threads over the states (exact), or within one state (MIP solvers)."""
    limit_rows: Annotated[int, tyro.conf.arg(metavar="N")] = 20
    """Print at most N rows; all states are solved."""
    trust: bool = False
    """Import the module that a saved run's task names, as in `module:Env-v0`."""


def main(args: list[str]) -> None:
    """Run the command."""
    options = tyro.cli(Arguments, args=args, prog="caql solve")
    from caql.maxq.maximize import maximize
    from caql.network_files import read_network, read_states

    _check(options)
    saved = os.path.isdir(options.file)  # a name that the system refuses is no folder, and named when it is read
    network = _saved_run(options.file, options.trust) if saved else read_network(options.file)
    low, high = _box(options, network.low, network.high)
    states = network.states if options.states is None else read_states(options.states)
    settings: dict[str, Any] = {
        "solver": options.solver,
        "tolerance": options.tolerance,
        "relative_tolerance": options.relative_tolerance,
        "threads": options.threads,
        "time_limit": options.time_limit,
    }
    if options.solver == "exact":
        # Once, on a network of one weight: compiling is no part of the time that is reported.
        maximize([(np.ones((1, 1)), np.zeros(1))], 0.0, 1.0)
    start = time.perf_counter()
    try:
        solution = maximize(network.layers, low, high, states, **settings)
    except Interrupted as interruption:
        _print(interruption.solution, time.perf_counter() - start, options, open_rows="interrupted")
        sys.exit(130)
    _print(solution, time.perf_counter() - start, options)


def _check(options: Arguments) -> None:
    require_output()
    if options.limit_rows < 1:
        raise CaqlError(f"limit_rows = {options.limit_rows} must be at least 1")
    if options.threads is not None and not 1 <= options.threads <= MOST_THREADS:
        raise CaqlError(f"threads = {options.threads} must be between 1 and {MOST_THREADS}")


def _saved_run(folder: Path, trust: bool) -> NetworkFile:
    """A CAQL run's Q-network and action range, and states from its replay buffer or, without one, fresh resets."""
    from caql.model import CAQL, load_model
    from caql.runs.checkpoints import checkpoint_files, latest_checkpoint

    model = load_model(folder, trust=trust)
    if not isinstance(model, CAQL):
        raise CaqlError(f"{folder} holds a {type(model).__name__}, not a CAQL: only CAQL has a max-Q problem")
    seen: Any = np.empty((0, 0))
    if checkpoint_files(folder):
        arrays = latest_checkpoint(folder, lambda sentence: print(sentence, file=sys.stderr))[0]
        seen = arrays.get("replay.states", seen)
    if seen.ndim == 2 and seen.size and seen.shape[1] == model.task.observation_size:
        states = seen[np.linspace(0, len(seen) - 1, min(len(seen), SAMPLED)).astype(int)]
    else:
        states = np.stack([model.task.reset(seed=seed)[0] for seed in range(SAMPLED)])
    layers = [(np.asarray(weights), np.asarray(bias)) for weights, bias in model.q_layers()]
    return NetworkFile(layers, model.task.low, model.task.high, states)


def _box(options: Arguments, low: Any, high: Any) -> tuple[Any, Any]:
    """The box from the command line, else from the file."""
    if options.action_range is not None:
        if options.low or options.high:
            raise CaqlError("action_range gives both bounds; leave out low and high, or use them alone")
        return -options.action_range, options.action_range
    sides = []
    for name, given, stored in (("low", options.low, low), ("high", options.high, high)):
        if not given and stored is None:
            raise CaqlError(
                f"{name} is missing and {options.file} holds none; give --low and --high, or --action-range"
            )
        sides.append((given[0] if len(given) == 1 else np.array(given)) if given else stored)
    return sides[0], sides[1]


def _number(value: float) -> str:
    return "-" if np.isposinf(value) else f"{value:.6g}"


def _action(action: Any) -> str:
    shown = " ".join(f"{entry: .4f}" for entry in action[:8])
    return shown + (f" ... ({len(action)})" if len(action) > 8 else "")


def _print(solution: Solution, seconds: float, options: Arguments, open_rows: str = "limit") -> None:
    """The table and a line below it; `open_rows` is what a row that is not solved is called."""
    from rich.console import Console
    from rich.table import Table

    rows = len(solution.values)
    proving = proves(options.solver)
    work = "nodes" if proving else "iterations"
    table = Table(title=f"max Q of {options.file.name}, solver {options.solver}")
    table.add_column("state", justify="right")
    table.add_column("action")
    for heading in ("value", "upper", "gap"):
        table.add_column(heading, justify="right")
    table.add_column("status")
    table.add_column(work, justify="right")
    for k in range(min(rows, options.limit_rows)):
        gap = solution.upper[k] - solution.values[k]
        numbers = (f"{solution.values[k]:.6g}", _number(float(solution.upper[k])), _number(float(gap)))
        status = Status(int(solution.status[k])).name.lower().replace("limit", open_rows)
        table.add_row(str(k), _action(solution.actions[k]), *numbers, status, str(int(solution.work[k])))
    # A pipe has no width: rich would fold the table to 80 columns.
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    if rows > options.limit_rows:
        console.print(f"and {rows - options.limit_rows} more states (--limit-rows)")
    solved = int(np.sum(solution.status == Status.OPTIMAL))
    compiled = "" if proving else ", compilation included"
    proof = f"{solved} proved optimal" if proving else "nothing is proved by this solver"
    console.print(
        f"{rows} states, {proof}; {seconds * 1e3:.4g} ms in all, {seconds / rows * 1e3:.4g} ms a state{compiled}"
    )
