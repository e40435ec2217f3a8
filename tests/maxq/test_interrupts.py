"""Ctrl-C in a real process during a search that would take a minute: an answer within a second or so."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from caql.maxq.interrupts import interruptible

from .problems import he_layers

ROOT = Path(__file__).parents[2]
HARD = he_layers(0, (10 + 8, 64, 64, 1))
"""One state takes minutes at this tolerance."""
STATES = np.random.default_rng(0).normal(size=(3, 10))
SECONDS = 1.0
"""From the signal to the answer; the search itself would take 60 a state."""


LISTENING = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""A process that a shell started in the background ignores Ctrl-C, and so would its children."""


def start(code: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    process = subprocess.Popen(
        [sys.executable, "-c", LISTENING + code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    while process.stdout.readline().strip() != "searching":
        assert process.poll() is None, process.stderr and process.stderr.read()
    time.sleep(1.0)
    return process


def interrupt(process: subprocess.Popen[str]) -> tuple[list[str], float]:
    """The lines printed, and the seconds until the first: ending the process takes longer than the answer."""
    began = time.perf_counter()
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        first = process.stdout.readline()
        seconds = time.perf_counter() - began
        lines, problem = process.stdout.readlines(), process.stderr.read()
    assert "Traceback" not in problem, problem
    return [first, *lines], seconds


@pytest.mark.parametrize(("solver", "threads"), [("exact", 1), ("exact", 2), ("highs", 1), ("scip", 1)])
def test_maximize_raises_with_what_it_knows(solver: str, threads: int) -> None:
    process = start(
        "from caql import Interrupted, maximize\n"
        "from tests.maxq.test_interrupts import HARD, STATES\n"
        f"maximize([([[1.0]], [0.0])], 0, 1, solver={solver!r})\n"
        "print('searching', flush=True)\n"
        "try:\n"
        f"    maximize(HARD, -1, 1, STATES, {solver!r}, tolerance=1e-9, threads={threads})\n"
        "except Interrupted as interruption:\n"
        "    found = interruption.solution\n"
        "    print(*found.status, *found.values, (found.upper >= found.values).all(), flush=True)\n"
    )
    (line, *_), seconds = interrupt(process)
    words = line.split()
    assert words[:3] == ["2", "2", "2"]
    assert np.isfinite([float(word) for word in words[3:6]]).all()
    assert words[6] == "True"
    assert seconds < SECONDS


def test_the_command_prints_its_table(tmp_path: Path) -> None:
    stored = {f"W{k}": w for k, (w, _) in enumerate(HARD)} | {f"b{k}": b for k, (_, b) in enumerate(HARD)}
    np.savez(tmp_path / "hard.npz", **stored, low=-np.ones(8), high=np.ones(8), states=STATES)
    process = start(
        "import sys\n"
        "from caql.cli import main\n"
        "from caql.maxq.exact.solver import Exact\n"
        "solve = Exact.solve\n"
        "def announced(solver, problem, key=None):\n"
        "    if len(problem.network.first_bias) == 3: print('searching', flush=True)\n"
        "    return solve(solver, problem, key)\n"
        "Exact.solve = announced\n"
        f"sys.argv = ['caql', 'solve', {str(tmp_path / 'hard.npz')!r}, '--tolerance', '1e-9', '--threads', '1']\n"
        "main()\n"
    )
    lines, _ = interrupt(process)
    assert process.returncode == 130
    assert sum("interrupted" in line for line in lines) == 3
    assert "3 states, 0 proved optimal" in lines[-1]


def test_a_program_with_its_own_handler_decides_itself() -> None:
    caught: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: caught.append(number))
    try:
        with interruptible(lambda: pytest.fail("it was told to stop")) as attempt:
            signal.raise_signal(signal.SIGINT)
        assert caught == [signal.SIGINT]
        assert not attempt.listening
        assert not attempt.interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_listened_before_still_hears() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    outer = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        with interruptible(lambda: None) as attempt:
            signal.raise_signal(signal.SIGINT)
        assert attempt.interrupted
        assert os.read(reader, 1) == bytes([signal.SIGINT])
        assert signal.set_wakeup_fd(writer, warn_on_full_buffer=False) == writer
    finally:
        signal.set_wakeup_fd(outer)
        signal.signal(signal.SIGINT, before)
        os.close(reader)
        os.close(writer)
