"""What `caql bench maxq` measures: every solver on the same max-Q problems, side by side in one run.

The problems are the trained networks that come with the package, at the paper's action ranges, 32 x 16 or larger, and
two kinds of untrained networks that are harder.  Gaps are relative, 1e-4, as in the paper's experiments.

Times per state.  A MIP solver is timed on each state alone.  `exact` is faster than the Python call around it,
so each state is timed as a batch of copies of itself; ga and cem are only ever run on batches, and have one
time for all of their states.  `total` is what a caller waits for the whole batch.

With one thread the clock is the processor time of this process: on an idle machine the same as the time on
the wall, on a busy one the better estimate of it.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from caql.actions import ActionSet
from caql.bounds import METHODS, Method, layer_bounds
from caql.errors import CaqlError, nearest
from caql.maxq.exact.solver import Exact
from caql.maxq.mip.formulation import formulate
from caql.maxq.mip.solver import Mip
from caql.maxq.problem import Problem, Solution, Solver, Status
from caql.maxq.solvers import make_solver, proves
from caql.network_files import read_network
from caql.networks import FoldedNetwork, fold_state, folded_value

TASKS = ("pendulum", "hopper", "halfcheetah", "ant", "humanoid")
SIZES = ("hopper-64x64", "halfcheetah-64x64", "hopper-200x100", "hopper-256x256", "halfcheetah-256x256")
"""Larger networks, by task and units of the hidden layers."""
RELATIVE_GAP = 1e-4
COPIES = 16
WORTH_COPIES = 2e-3
"""Seconds below which the call around a solve would show in its time."""

Array = NDArray[np.float64]


class Measurement(NamedTuple):
    """One solver on one set of states: seconds per state, seconds for the batch, nodes, values, rows proved."""

    task: str
    solver: str
    seconds: Array
    total: float
    work: Array
    values: Array
    proved: int


@dataclass(frozen=True)
class Case:
    """A network with its states folded in, and its admissible actions."""

    name: str
    network: FoldedNetwork
    action_set: ActionSet

    def problem(self, rows: Any = slice(None)) -> Problem:
        """The states `rows` as a problem; a tiny absolute gap serves states of value zero."""
        network = self.network._replace(first_bias=self.network.first_bias[rows])
        return Problem(network, self.action_set[rows], tolerance=1e-7, relative_tolerance=RELATIVE_GAP)


def trained_case(name: str, states: int) -> Case:
    """The trained network of a task, or of a task and a size, and the first of its states."""
    if name not in (*TASKS, *SIZES):
        raise CaqlError(f"tasks = {name!r} is not a task with a trained network; {nearest(name, (*TASKS, *SIZES))}")
    with resources.as_file(resources.files("caql") / "bench" / "networks" / f"{name}.safetensors") as path:
        stored = read_network(path)
    assert stored.states is not None
    if states > len(stored.states):
        raise CaqlError(f"states = {states} exceeds the {len(stored.states)} states that come with each network")
    layers: Any = [(np.asarray(w, np.float64), np.asarray(b, np.float64)) for w, b in stored.layers]
    batch: Any = np.asarray(stored.states[:states], np.float64)
    sides: list[Any] = [np.asarray(side, np.float64) for side in (stored.low, stored.high)]
    return Case(name, fold_state(layers, batch), ActionSet.box(*sides))


def untrained_case(hidden: tuple[int, ...], actions: int, states: int) -> Case:
    """He-initialised weights, ten state dimensions, standard normal states, actions in [-1, 1]."""
    rng = np.random.default_rng(0)
    sizes = (10 + actions, *hidden, 1)
    layers: Any = [(rng.normal(size=(a, b)) * np.sqrt(2 / a), np.zeros(b)) for a, b in itertools.pairwise(sizes)]
    batch: Any = rng.normal(size=(states, 10))
    sides: list[Any] = [-np.ones(actions), np.ones(actions)]
    name = f"He {'x'.join(map(str, hidden))}, {actions} actions"
    return Case(name, fold_state(layers, batch), ActionSet.box(*sides))


CALLS = 20
"""Solves of a batch inside jit that are timed together."""


def best_time(call: Callable[[], object], repeats: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """The shortest of several runs: what the work costs without the machine's other business.

    Long runs are not repeated: noise is a small part of them.
    """
    times: list[float] = []
    while len(times) < repeats and sum(times) < 2.0:
        start = clock()
        call()
        times.append(clock() - start)
    return min(times)


def measure(case: Case, name: str, threads: int = 1) -> Measurement:
    """One solver on all states of a task."""
    if not proves(name):
        return _measure_traceable(case, name)
    if name == "exact":
        return _measure_exact(case, threads)
    return _measure_mip(case, name, threads)


def _finish(case: Case, name: str, seconds: Array, total: float, solution: Solution) -> Measurement:
    actions = np.asarray(solution.actions, np.float64)
    values: Any = folded_value(case.network, np.clip(actions, case.action_set.low, case.action_set.high))
    proved = int(np.sum(np.asarray(solution.status) == Status.OPTIMAL))
    return Measurement(case.name, name, seconds, total, np.asarray(solution.work, np.float64), values, proved)


def _measure_exact(case: Case, threads: int) -> Measurement:
    solver, whole, alone = Exact(threads=threads), case.problem(), Exact(threads=1)
    solution = solver.solve(whole)
    clock = time.process_time if threads == 1 else time.perf_counter
    total = best_time(lambda: solver.solve(whole), 15, clock)
    seconds = np.empty(len(solution.values))
    for row in range(len(seconds)):
        for copies in (1, COPIES):
            problem = case.problem([row] * copies)
            seconds[row] = best_time(lambda problem=problem: alone.solve(problem), 3, time.process_time) / copies  # type: ignore[misc]
            if seconds[row] > WORTH_COPIES:
                break
    total = min(total, best_time(lambda: solver.solve(whole), 15, clock))  # a batch is so short that all 15 can be slow
    return _finish(case, "exact", seconds, total, solution)


def _measure_mip(case: Case, name: str, threads: int) -> Measurement:
    solver = make_solver(name, threads=threads)
    rows = len(case.network.first_bias)
    clock = time.process_time if threads == 1 else time.perf_counter
    seconds, found = np.empty(rows), []
    for row in range(rows):
        start = clock()
        found.append(solver.solve(case.problem([row]), None))
        seconds[row] = clock() - start
    fields: list[Any] = [np.concatenate([np.asarray(part) for part in parts]) for parts in zip(*found, strict=True)]
    return _finish(case, name, seconds, float(seconds.sum()), Solution(*fields))


def _jitted(solver: Solver, problem: Problem) -> Callable[[], Any]:
    """A call that solves the batch under jit and waits for the answer."""
    solve, key = jax.jit(solver.solve), jax.random.key(0)

    def run() -> Any:
        solution = solve(problem, key)
        solution.values.block_until_ready()
        return solution

    return run


def _measure_traceable(case: Case, name: str) -> Measurement:
    solver = make_solver(name)
    problem = jax.tree.map(lambda array: jax.numpy.asarray(array, np.float32), case.problem()._replace(tolerance=1e-6))
    problem = problem._replace(relative_tolerance=0.0)
    run = _jitted(solver, problem)
    solution = jax.device_get(run())
    # Of single calls the best processor time was now and then a tenth of all others: XLA computes in other threads.
    total = best_time(lambda: [run() for _ in range(CALLS)], 5, time.process_time) / CALLS
    rows = len(solution.values)
    return _finish(case, name, np.full(rows, total / rows), total, solution)


def thread_times(case: Case) -> tuple[float, float]:
    """Seconds for the whole batch with one thread and with as many as `exact` chooses of two."""
    one, two = (Exact(threads=threads) for threads in (1, 2))
    problem = case.problem()
    pairs = [(best_time(lambda: one.solve(problem), 1), best_time(lambda: two.solve(problem), 1)) for _ in range(15)]
    return min(first for first, _ in pairs), min(second for _, second in pairs)


def two_processes(task: str, states: int, seconds: float = 3.0) -> float:
    """How much more two processes solve at once than one alone: what two threads can hope for."""
    program = (
        "import time\n"
        "from caql.bench.maxq import trained_case\n"
        "from caql.maxq.exact.solver import Exact\n"
        f"problem, solver = trained_case({task!r}, {states}).problem(), Exact(threads=1)\n"
        "solver.solve(problem)\n"
        "print('ready', flush=True)\n"
        "input()\n"
        f"count, end = 0, time.perf_counter() + {seconds}\n"
        "while time.perf_counter() < end:\n"
        "    solver.solve(problem)\n"
        "    count += 1\n"
        "print(count)\n"
    )
    solved = []
    for processes in (1, 2):
        children = [
            subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(processes)
        ]
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        solved.append(sum(int(child.communicate()[0]) for child in children))
    return solved[1] / solved[0]


def gradient_ascent_time(case: Case) -> float:
    """Seconds for a jitted gradient ascent of exactly 20 iterations on the whole batch."""
    solver: Solver = make_solver("ga", iterations=20)
    problem = jax.tree.map(lambda array: jax.numpy.asarray(array, np.float32), case.problem())
    problem = problem._replace(tolerance=0.0, relative_tolerance=0.0)
    run = _jitted(solver, problem)
    run()
    return best_time(run, 50)


def bound_quality(case: Case, method: Method) -> tuple[float, float]:
    """Mean distance of an upper bound to the exact maximum, and mean number of neurons it leaves unstable."""
    *hidden, output = layer_bounds(case.network, case.action_set, method)
    values = np.asarray(Exact().solve(case.problem()).values)
    unstable = [np.sum((lower < 0) & (upper > 0), axis=1).mean() for lower, upper in hidden]
    return float(np.mean(output[1][:, 0] - values)), float(sum(unstable))


MIP_SETTINGS: tuple[dict[str, Any], ...] = (*({"bounds": method} for method in METHODS), {"cut_rounds": 3})


def mip_time(case: Case, backend: str, settings: dict[str, Any]) -> float:
    """Mean processor time a state with the given settings of `Mip`."""
    return best_time(lambda: Mip(backend, **settings).solve(case.problem()), 1, time.process_time) / len(
        case.network.first_bias
    )


def build_times(case: Case) -> Array:
    """Seconds to turn each state into the arrays of its MIP, bounds not included (they are one call a batch)."""
    bounds = layer_bounds(case.network, case.action_set, "backward")

    def build(row: int) -> None:
        formulate(case.network, case.action_set, bounds, row).sparse_rows()

    return np.array([best_time(lambda row=row: build(row), 3) for row in range(len(case.network.first_bias))])  # type: ignore[misc]


def compile_times() -> tuple[float, float]:
    """Seconds until `exact` answers its first question in a new process: with an empty cache, then from it."""
    program = (
        "import time, numpy as np\n"
        "from caql.actions import ActionSet\n"
        "from caql.maxq.exact.solver import Exact\n"
        "from caql.maxq.problem import Problem\n"
        "from caql.networks import FoldedNetwork, fold_state, folded_value\n"
        "network = FoldedNetwork(np.zeros((1, 2)), np.ones((1, 2)), ((np.ones((2, 1)), np.zeros(1)),))\n"
        "start = time.perf_counter()\n"
        "Exact().solve(Problem(network, ActionSet.box(-np.ones(1), np.ones(1))))\n"
        "print(time.perf_counter() - start)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        times = []
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
            )
            times.append(float(done.stdout.split()[-1]))
    return times[0], times[1]
