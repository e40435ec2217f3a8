"""A worker: one process with one thread of arithmetic, which does one run after another.

It reads a job per line from its standard input and answers with an outcome per line; between runs it keeps
what is expensive to start.  Its input ends when the sweep has ended or was killed: the worker then writes a
checkpoint of the run it is at, and exits.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import queue
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
}
"""Environment of a worker: it must be there before JAX and NumPy are imported."""
ASIDE = ".sweep"
"""Folder in the results for locks and logs, which are no part of a run."""


@dataclass(frozen=True)
class Outcome:
    """How a job ended: finished, stopped (by a signal), busy (another sweep has it), failed, or died."""

    kind: str
    message: str = ""


def perform(job: dict[str, Any]) -> Outcome:
    """Do one run, from its checkpoint if it has one; every error becomes a `failed` outcome."""
    folder = Path(job["folder"])
    try:
        with _alone(folder) as mine:
            if not mine:
                return Outcome("busy", "another sweep is running it")
            with _log(folder):
                return _train(job, folder)
    except Exception as problem:
        from caql.errors import CaqlError

        # Told by its words, for the checkpoint's library does not raise an OSError.
        if os.strerror(errno.ENOSPC) in str(problem):
            return Outcome("failed", f"no space left for {folder}; its last checkpoint is intact, and it can go on")
        known = isinstance(problem, CaqlError | OSError)
        return Outcome("failed", str(problem) if known else traceback.format_exc(limit=-6))


def _train(job: dict[str, Any], folder: Path) -> Outcome:
    import jax

    from caql.config import from_json
    from caql.experiments.sweep.latency import Probe
    from caql.runs.compilation_cache import keep_compiled
    from caql.runs.folder import Busy, run

    keep_compiled()
    (folder / "failed.json").unlink(missing_ok=True)
    if folder.exists() and not (folder / "config.json").exists():
        # A worker killed before its very first file was in place leaves a half-written one.
        for left_over in folder.glob(".*.tmp"):
            left_over.unlink()
    config = from_json(job["config"])
    _warm_up(config, folder.parent / ASIDE)
    probe = Probe(folder) if job["latency"] else None
    try:
        if not run(config, folder, True, probe, job["checkpoint_seconds"]):
            return Outcome("stopped")
    except Busy as problem:
        return Outcome("busy", str(problem))
    finally:
        jax.clear_caches()
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return Outcome("finished")


def _warm_up(config: Any, aside: Path) -> None:
    """Let a solver on the host compile itself, one worker at a time, before anything is timed."""
    solver = getattr(config.agent, "solver", None)
    if solver is None or solver.traceable:
        return
    import jax

    from caql.actions import make_box
    from caql.maxq.problem import Problem
    from caql.maxq.solvers import inside_jit
    from caql.networks import fold_state, init_layers

    network = fold_state(init_layers(jax.random.key(0), (3, 4, 4, 1)), jax.numpy.zeros((1, 1)))
    with (aside / "compilation.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        solve = inside_jit(solver) or solver.solve
        solve(Problem(network, make_box([-1.0, -1.0], [1.0, 1.0])), None)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Hold the run's lock, which the system gives back however this process ends."""
    from caql.runs.lock import alone

    lock = folder.parent / ASIDE / f"{folder.name}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    with alone(lock) as mine:
        yield mine


@contextlib.contextmanager
def _log(folder: Path) -> Iterator[None]:
    """Send what the run and its libraries print to a file beside it, which is kept only if anything came."""
    path = folder.parent / ASIDE / f"{folder.name}.log"
    sys.stdout.flush()
    sys.stderr.flush()
    before = [os.dup(1), os.dup(2)]
    with path.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, old in enumerate(before, start=1):
            os.dup2(old, number)
            os.close(old)
        if path.stat().st_size == 0:
            path.unlink()


def _listen(jobs: queue.Queue[bytes | None]) -> None:
    """Lines of the standard input into a queue; at its end, None and a request to stop."""
    rest = b""
    while block := os.read(0, 1 << 16):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            jobs.put(line)
    jobs.put(None)
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Serve jobs until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    jobs: queue.Queue[bytes | None] = queue.Queue()
    threading.Thread(target=_listen, args=(jobs,), daemon=True).start()
    while (line := jobs.get()) is not None:
        outcome = perform(json.loads(line))
        try:
            answers.write(json.dumps({"kind": outcome.kind, "message": outcome.message}) + "\n")
            answers.flush()
        except BrokenPipeError:  # the sweep was killed: nobody is left to hear it
            os._exit(0)
        if outcome.kind == "stopped":
            return


if __name__ == "__main__":
    main()
