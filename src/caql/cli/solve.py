"""`caql solve FILE`: maximise a network over its actions, and print what was found and what is proved."""

from __future__ import annotations

import os
import sys
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro

from caql.actions import ActionSet
from caql.answers import told
from caql.cli.output import require_output
from caql.cli.solution_table import Shown, print_solution
from caql.errors import CaqlError, CaqlWarning
from caql.graphs import Network
from caql.maxq.interrupts import Interrupted
from caql.maxq.solvers import SOLVERS, proving_solver
from caql.network_files import Array

Layers = list[tuple[Array, Array]]

SAMPLED = 64
"""States taken from a saved run."""


@dataclass(frozen=True)
class Arguments:
    """Maximise a network's output over its admissible actions, for every state at once.

    The actions of a network are those of a box, and of --rows; of a saved run, those admissible at each of its states.

    Actions, values, the proved upper bound and the gap between them are printed, one row per state.
    """

    file: tyro.conf.Positional[Path]
    """A network (.npz, .safetensors or .onnx), the folder of a run, or a file that `model.save` wrote."""
    low: tuple[float, ...] = ()
    """Lower bounds of the actions: one for all, or one per dimension.  Default: the file's."""
    high: tuple[float, ...] = ()
    """Upper bounds of the actions."""
    action_range: float | None = None
    """Shorthand for the box [-R, R] in every dimension."""
    states: Path | None = None
    """States, one row each (.npz, .npy or .csv): the network's first inputs.  Default: the file's, if any."""
    solver: Annotated[str | None, tyro.conf.arg(metavar="{" + ",".join(SOLVERS) + "}")] = None
    """ga and cem search; the others prove what they find.  Default: exact, if it takes such actions, else mip."""
    tolerance: float = 1e-4
    """Absolute gap at which a state is solved."""
    relative_tolerance: float = 0.0
    """The same as a fraction of |value|; the larger of the two counts."""
    time_limit: float | None = None
    """Seconds for one state (60 where the solver has such a limit)."""
    node_limit: int | None = None
    """Nodes for one state, where the solver has such a limit; of a smooth network, boxes."""
    threads: int | None = None
    """Threads over the states (exact), or within one state (MIP solvers)."""
    limit_rows: Annotated[int, tyro.conf.arg(metavar="N")] = 20
    """Print at most N rows; all states are solved."""
    rows: Path | None = None
    """Rows that the actions a must satisfy too (.npz): C and d for C a <= d, E and f for E a = f, and `integer`, the
    indices of whole numbers; each with or without a leading axis of states."""
    output: tuple[str, ...] = ()
    """Which output of a network with several: its index, its name, or one weight for each of them."""
    minimize: bool = False
    """Seek the least output instead of the largest."""
    action_input: str | None = None
    """The input of an ONNX network with several inputs that is the action.  Default: the one called so."""
    action_set: str | None = None
    """MODULE:NAME of the action set, for a saved run that was made with one."""
    trust: bool = False
    """Import the module that a saved run's task names, as in `module:Env-v0`."""


class Question(NamedTuple):
    """What is to be maximised: the network over `states`, the actions from `action_set`."""

    network: Layers | Network
    states: Array | None
    action_set: Any
    """An `ActionSet`, or the two sides of a box."""


def main(args: list[str]) -> None:
    """Run the command."""
    options = tyro.cli(Arguments, args=args, prog="caql solve")
    from caql.maxq.arguments import chosen_solver
    from caql.maxq.maximize import maximize, maximize_over, posed

    _check(options)
    network, states, given = _question(options)
    question, (count, d) = posed(network, states, _output(options.output), options.minimize)
    action_set = _admissible(options, given, count, d)
    name = options.solver or proving_solver(action_set)
    limits = {"time_limit": options.time_limit, "node_limit": options.node_limit}
    solver = chosen_solver(name, {"threads": options.threads, **limits})
    if name == "exact":
        # Once, on a network of one weight: compiling is no part of the time that is reported.
        maximize([(np.ones((1, 1)), np.zeros(1))], 0.0, 1.0)
    shown = Shown(options.file.name, name, options.limit_rows, options.minimize)
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("always", CaqlWarning)
        try:
            solution = maximize_over(
                question, action_set, solver, options.tolerance, relative_tolerance=options.relative_tolerance
            )
        except Interrupted as interruption:
            print_solution(interruption.solution, time.perf_counter() - start, shown, "interrupted")
            sys.exit(130)
    print_solution(solution, time.perf_counter() - start, shown)
    for remark in remarks:
        print(f"caql: {remark.message}", file=sys.stderr)


def _output(words: tuple[str, ...]) -> int | str | list[float] | None:
    """An index, a name, or weights."""
    if not words:
        return None
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        if len(words) == 1:
            return words[0]
        raise CaqlError(f"output = {' '.join(words)} must be an index, a name, or one weight per output") from None
    return int(numbers[0]) if len(numbers) == 1 and numbers[0].is_integer() else numbers


def _check(options: Arguments) -> None:
    require_output()
    if options.limit_rows < 1:
        raise CaqlError(f"limit_rows = {options.limit_rows} must be at least 1")


def _question(options: Arguments) -> Question:
    """The network, the states and what the file, or the run, says of the actions."""
    from caql.network_files import read_network, read_states
    from caql.runs.checkpoints import is_saved

    states = None if options.states is None else read_states(options.states)
    # A name that the system refuses is no folder, and named when it is read.
    if os.path.isdir(options.file) or is_saved(options.file):
        return _saved_run(options, states)
    if options.action_set is not None:
        raise CaqlError(f"action_set goes with a saved run; for the network {options.file} give --rows FILE.npz")
    found = read_network(options.file, options.action_input)
    states = found.states if states is None else states
    return Question(found.network, states, (found.low, found.high))


def _saved_run(options: Arguments, states: Array | None) -> Question:
    """A CAQL run's Q-network, states from its replay buffer or, without one, fresh resets, and the sets there."""
    from caql.model import CAQL, load_model

    model = load_model(options.file, action_set=options.action_set, trust=options.trust)
    if not isinstance(model, CAQL):
        raise CaqlError(f"{options.file} holds a {type(model).__name__}, not a CAQL: only CAQL has a max-Q problem")
    size = model.task.observation_size
    if states is None:
        seen = _replayed(options.file)
        if seen.ndim == 2 and seen.size and seen.shape[1] == size:
            states = seen[np.linspace(0, len(seen) - 1, min(len(seen), SAMPLED)).astype(int)]
        else:
            states = np.stack([model.task.reset(seed=seed)[0] for seed in range(SAMPLED)])
    states = np.atleast_2d(states)
    if states.shape[1] != size:
        raise CaqlError(f"states has shape {states.shape}; an observation of the run's task has {size} numbers")
    try:
        action_set = model.task.sets_at(states)
    except CaqlError:
        raise
    except Exception as problem:  # the run's own function may raise anything
        raise CaqlError(f"the run's action_set raised {told(problem)}") from problem
    layers = [(np.asarray(weights), np.asarray(bias)) for weights, bias in model.q_layers()]
    return Question(layers, model.q_inputs(states), action_set)


def _replayed(folder: Path) -> Array:
    """The states in the latest checkpoint's replay buffer; none where there is no checkpoint."""
    from caql.runs.checkpoints import checkpoint_files, latest_checkpoint

    nothing = np.empty((0, 0))
    if not (os.path.isdir(folder) and checkpoint_files(folder)):
        return nothing
    return latest_checkpoint(folder, lambda sentence: print(sentence, file=sys.stderr))[0].get("replay.states", nothing)


def _admissible(options: Arguments, given: Any, count: int, d: int) -> ActionSet:
    """The set of a file or a run, in the bounds of the command line, joined with the rows of `--rows`."""
    from caql.maxq.arguments import checked_box, checked_rows
    from caql.network_files import read_rows
    from caql.network_files.arrays import reading

    if not isinstance(given, ActionSet):
        action_set = checked_box(*_box(options, *given), count, d)
    elif options.low or options.high or options.action_range is not None:
        box = checked_box(*_box(options, given.low, given.high), count, d)
        action_set = replace(given, low=box.low, high=box.high)
    else:
        action_set = given
    if options.rows is None:
        return action_set
    more = read_rows(options.rows)
    with reading("rows", options.rows, "cannot be used"):
        return checked_rows(action_set, more.rows, more.equalities, more.integer, count)


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
