"""A kill storm: kill a run at random moments, damage what it left, resume, and hold every weight against a whole run.

`storm(seed, folder, whole)` is one of them, decided by its seed; a campaign calls it as often as it likes:

    python -m tests.runs.kill_storm FIRST COUNT [FOLDER [OPTIONS OF caql train ...]]
"""

import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from caql.runs import checkpoints
from caql.runs.folder import is_finished, read_metrics

COMMAND = [sys.executable, "-c", "import sys; from caql.cli import main; sys.argv[0] = 'caql'; main()", "train"]
TINY = (
    "Pendulum --train-steps 600 --episode-steps 30 --warm-up 60 --evaluate-every 100 --evaluation-episodes 2 "
    "--hidden 8 4 --action-hidden 8 4 --solver.iterations 3 --replay-size 400 --checkpoint-seconds 0"
).split()
SLOWEST = 300.0
"""Seconds that a process may take for anything."""


@dataclass
class Outcome:
    """What a storm did, and every way in which the end differs from the whole run's; empty is as it should be."""

    seed: int
    kills: int = 0
    damaged: int = 0
    story: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)


@contextlib.contextmanager
def running(folder: Path, arguments: list[str]) -> Iterator[subprocess.Popen]:
    """A process that trains in `folder`, from its start or its checkpoint; killed (-9) at the end of the block."""
    resume = ["--resume"] if (folder / "config.json").exists() else []
    with (folder.parent / f"{folder.name}.log").open("ab") as log:
        process = subprocess.Popen(
            [*COMMAND, *arguments, "--out", str(folder), *resume], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def newest_step(folder: Path) -> int:
    files = checkpoints.checkpoint_files(folder)
    return int(files[-1].stem.split("-")[1]) if files else -1


def being_written(folder: Path, name: str) -> bool:
    """Whether a temporary file is there that will take the place of `name`..."""
    return any(folder.glob(f".{name}*.tmp")) if folder.exists() else False


def moment(rng: random.Random, folder: Path) -> tuple[str, Callable[[], bool]]:
    """A random moment to kill at, in words and as a condition."""
    began, wait, pause = time.monotonic(), rng.uniform(0.0, 6.0), rng.uniform(0.0, 0.05)
    after = newest_step(folder) + rng.randrange(0, 240)
    inside = folder / "checkpoints"

    def later() -> bool:
        if newest_step(folder) < after:
            return False
        time.sleep(pause)
        return True

    def writing(where: Path, name: str) -> Callable[[], bool]:
        return lambda: newest_step(folder) >= after and being_written(where, name)

    return rng.choice(
        [
            (f"after {wait:.1f} s", lambda: time.monotonic() - began >= wait),
            (f"{pause:.3f} s after step {after}", later),
            (f"writing a checkpoint from step {after} on", writing(inside, "step")),
            (f"writing the metrics from step {after} on", writing(folder, "metrics")),
        ]
    )


def damage(rng: random.Random, folder: Path) -> str | None:
    """Spoil the newest checkpoint, or the one before it; never both, for that is what two are kept for."""
    files = checkpoints.checkpoint_files(folder)
    if len(files) < 2:
        return None
    path = rng.choice(files)
    data = bytearray(path.read_bytes())
    kind = rng.choice(["a bit", "the end", "everything", "zeros"])
    if kind == "a bit":
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == "the end":
        del data[rng.randrange(len(data)) :]
    elif kind == "everything":
        data.clear()
    else:
        at = rng.randrange(len(data))
        data[at : at + 64] = bytes(len(data[at : at + 64]))
        data[at] ^= 1
    path.write_bytes(data)
    return f"{kind} of {path.name}"


def storm(seed: int, folder: Path, whole: Path, arguments: list[str] = TINY, kills: int = 3) -> Outcome:
    """Kill a run up to `kills` times, damage a checkpoint now and then, let it end, and compare it with `whole`."""
    rng, outcome = random.Random(seed), Outcome(seed)
    for _ in range(kills):
        words, now = moment(rng, folder)
        with running(folder, arguments) as process:
            end = time.monotonic() + SLOWEST
            while process.poll() is None and not now() and time.monotonic() < end:
                time.sleep(0.0005)
            if process.poll() is not None:
                outcome.story.append(f"ended before it could be killed ({words})")
                break
        outcome.kills += 1
        outcome.story.append(f"killed: {words}, newest checkpoint {newest_step(folder)}")
        if rng.random() < 0.5 and (spoilt := damage(rng, folder)):
            outcome.damaged += 1
            outcome.story.append(f"damaged: {spoilt}")
    if not is_finished(folder):
        with running(folder, arguments) as process:
            if process.wait(SLOWEST) != 0:
                outcome.differences.append(f"the last process ended with status {process.returncode}")
                return outcome
    outcome.differences += compare(folder, whole)
    return outcome


def compare(folder: Path, whole: Path) -> list[str]:
    """Every difference between two finished runs: bytes of the model, weights, replay buffer, counters, returns."""
    found = []
    if (folder / "model.safetensors").read_bytes() != (whole / "model.safetensors").read_bytes():
        found.append("model.safetensors has other bytes")
    (left, left_meta), (right, right_meta) = (
        checkpoints.load(checkpoints.checkpoint_files(each)[-1]) for each in (folder, whole)
    )
    found += [f"arrays {sorted(left.keys() ^ right.keys())}"] if left.keys() != right.keys() else []
    for name in sorted(left.keys() & right.keys()):
        if left[name].shape != right[name].shape:
            found.append(f"{name} has shape {left[name].shape}, not {right[name].shape}")
        elif left[name].tobytes() != right[name].tobytes():
            gap = np.abs(np.asarray(left[name], np.float64) - right[name]).max()
            found.append(f"{name} differs by up to {gap:.3g}")
    counters = ("epoch", "train_step", "environment_steps", "written")
    found += [
        f"{name} is {left_meta[name]}, not {right_meta[name]}"
        for name in counters
        if left_meta[name] != right_meta[name]
    ]
    timed = {"seconds", "solve_ms", "solve_ms_std"}
    rows = [
        [{n: v for n, v in row.items() if n not in timed} for row in read_metrics(each)] for each in (folder, whole)
    ]
    found += ["metrics.jsonl differs"] if rows[0] != rows[1] else []
    found += [f"left over: {path.name}" for path in folder.rglob(".*.tmp")]
    return found


def main() -> None:
    first, count = int(sys.argv[1]), int(sys.argv[2])
    arguments = [*TINY, *sys.argv[4:]]
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(sys.argv[3]) if len(sys.argv) > 3 else Path(temporary)
        whole = root / "whole"
        whole.parent.mkdir(parents=True, exist_ok=True)
        if not is_finished(whole):
            with running(whole, arguments) as process:
                if process.wait(SLOWEST) != 0:
                    sys.exit(f"the whole run failed; see {whole}.log")
        for seed in range(first, first + count):
            print(storm(seed, root / f"storm-{seed}", whole, arguments), flush=True)


if __name__ == "__main__":
    main()
