"""Part two: training processes killed at random moments, checkpoints damaged, runs resumed, weights compared.

A storm is one run: started, killed with SIGKILL and resumed several times, its newest checkpoint sometimes damaged in
between, and then left to finish.  Its weights and its evaluations must be those of a run that nobody touched.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from campaign.ledger import Ledger
from campaign.networks import Random

SETTINGS = {
    "caql": "--solver ga --solver.iterations 3 --action-hidden 8 4",
    "exact": "--solver exact --action-hidden 8 4",
    "td3": "--agent td3",
    "sac": "--agent sac",
}
COMMON = (
    "Pendulum --train-steps 1200 --episode-steps 30 --warm-up 60 --evaluate-every 100 --evaluation-episodes 2 "
    "--hidden 8 4 --checkpoint-seconds 0"
)
COMMAND = [sys.executable, "-c", "import sys; from caql.cli import main; sys.argv[0] = 'caql'; main()", "train"]


def start(kind: str, folder: Path, resume: bool) -> subprocess.Popen[str]:
    """A `caql train` process of its own."""
    arguments = [*COMMON.split(), *SETTINGS[kind].split(), "--out", str(folder), *(["--resume"] if resume else [])]
    environment = {**os.environ, "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OMP_NUM_THREADS": "1"}
    # In a session of its own, so that Ctrl-C ends the campaign and not, like another kill, the run.
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    )


@cache
def untouched(kind: str) -> tuple[dict[str, Any], list[Any], float]:
    """The weights and evaluations of a run that nobody kills, and the seconds that it takes."""
    with tempfile.TemporaryDirectory() as name:
        folder, began = Path(name) / "run", time.monotonic()
        process = start(kind, folder, resume=False)
        said = process.communicate(timeout=900)[0]
        if process.returncode:
            raise RuntimeError(f"a run that nobody touched ended with status {process.returncode}: {said[-2000:]}")
        return load_file(folder / "model.safetensors"), evaluations(folder), time.monotonic() - began


def evaluations(folder: Path) -> list[Any]:
    """What was measured, without the clock."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(row["train_step"], row["returns"]) for row in rows]


def newest(folder: Path) -> list[Path]:
    """The run's checkpoints, oldest first."""
    return sorted((folder / "checkpoints").glob("step-*.safetensors"))


def wait_and_kill(process: subprocess.Popen[str], folder: Path, rng: Random, seconds: float) -> str | None:
    """Kill at a random moment, most often soon after a new checkpoint; what the process said if it ended before."""
    before = [path.name for path in newest(folder)]
    anywhere = rng.random() < 0.25
    end = time.monotonic() + (rng.uniform(0, seconds) if anywhere else 60 + 10 * seconds)
    while time.monotonic() < end and process.poll() is None:
        if not anywhere and [path.name for path in newest(folder)] != before:
            time.sleep(rng.uniform(0, 0.4) if rng.random() < 0.7 else 0.0)
            break
        time.sleep(0.001)
    if process.poll() is not None:
        return process.communicate()[0]
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    return None


def damage(folder: Path, rng: Random) -> str:
    """Spoil the newest of two checkpoints: the other one must do."""
    files = newest(folder)
    if len(files) < 2 or not files[-1].stat().st_size:  # nothing is left of one that was emptied a moment ago
        return ""
    path, data = files[-1], bytearray(files[-1].read_bytes())
    what = str(rng.choice(["flip", "cut", "zero", "empty", "noise"]))
    at = int(rng.integers(len(data)))
    if what == "flip":
        data[at] ^= 1 << int(rng.integers(8))
    elif what == "cut":
        del data[at:]
    elif what == "zero":
        data[at:] = bytes(len(data) - at)
    elif what == "empty":
        data.clear()
    else:
        data[at : at + 64] = rng.bytes(64)
    path.write_bytes(data)
    return what


def storm(kind: str, rng: Random, folder: Path, counts: Counter[str]) -> list[str]:
    """One run through several kills; what went wrong, in order."""
    weights, measured, seconds = untouched(kind)
    story: list[str] = []
    for _ in range(int(rng.integers(3, 9))):
        process = start(kind, folder, resume=(folder / "config.json").exists())
        said = wait_and_kill(process, folder, rng, seconds)
        if said is not None:
            if process.returncode:
                return [*story, f"status {process.returncode}: {said[-3000:]}"]
            break
        counts["kills"] += 1
        story.append("killed")
        if rng.random() < 0.4 and (what := damage(folder, rng)):
            counts["damaged checkpoints"] += 1
            story.append(f"newest checkpoint damaged: {what}")
    process = start(kind, folder, resume=(folder / "config.json").exists())
    said = process.communicate(timeout=60 + 20 * seconds)[0]
    if process.returncode or "Traceback" in said:
        return [*story, f"status {process.returncode}: {said[-3000:]}"]
    mine = load_file(folder / "model.safetensors")
    wrong = [
        name for name in {*weights, *mine} if name not in mine or not np.array_equal(weights.get(name), mine[name])
    ]
    if wrong:
        return [*story, f"other weights: {', '.join(sorted(wrong))}"]
    if evaluations(folder) != measured:
        return [*story, "other evaluations"]
    if list(folder.rglob("*.tmp")):
        return [*story, f"left over: {[path.name for path in folder.rglob('*.tmp')]}"]
    return []


def work(seed: list[int], number: int, ledger: Ledger) -> None:
    """One storm of the next kind in turn."""
    kind = list(SETTINGS)[number % len(SETTINGS)]
    rng = np.random.default_rng([*seed, number])
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="caql-storm-") as name:
        folder = Path(name) / "run"
        wrong = storm(kind, rng, folder, counts)
        counts["storms"] += 1
        if wrong:
            counts["WRONG"] += 1
            story = {"part": "kills", "kind": kind, "check": wrong[-1][:40], "detail": wrong, "seed": [*seed, number]}
            ledger.found(story, {"-run": lambda path: shutil.copytree(folder, path) if folder.exists() else None})
    ledger.count("kills", kind, counts)
