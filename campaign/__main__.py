"""`python -m campaign`: the four parts side by side until the time is over, then a table of what was done and found.

Each worker is a process of its own that turns to whichever part is furthest behind its share of the time.  A start
never repeats another's seeds: a seed is (start, worker, part, number).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from campaign.ledger import FOUND, Ledger, table

PARTS = {"proofs": 0.5, "kills": 0.3, "files": 0.12, "commands": 0.08}
"""Each part's share of the time."""
MEASURE = {"proofs": "problems", "kills": "kills", "files": "files", "commands": "lines"}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (60)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes side by side (the cores)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="which parts (all)")
    for part, what in MEASURE.items():
        parser.add_argument(f"--{part}", type=int, help=f"stop {part} after so many {what} in this start")
    parser.add_argument("--out", type=Path, default=FOUND, help="where counts and findings go")
    parser.add_argument("--again", type=Path, nargs="+", help="check these findings (their .json) once more")
    parser.add_argument("--worker", type=int, nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def module(part: str) -> Any:
    """The code of a part."""
    return importlib.import_module(f"campaign.{part}")


def serve(options: argparse.Namespace) -> None:
    """One worker: the part furthest behind its share, again and again."""
    session, slot = options.worker
    ledger = Ledger(options.out, f"{session}-{slot}")
    end = time.monotonic() + 60 * options.minutes
    spent, number, saved = dict.fromkeys(options.parts, 0.0), dict.fromkeys(options.parts, 0), time.monotonic()
    wanted = {part: getattr(options, part) for part in options.parts}
    stop: list[int] = []
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda number, _: stop.append(number))
    while not stop and time.monotonic() < end:
        left = [p for p in options.parts if wanted[p] is None or ledger.total(p, MEASURE[p]) < wanted[p]]
        if not left or (any(wanted.values()) and all(wanted[p] is None for p in left)):
            break
        part = min(left, key=lambda p: spent[p] / PARTS[p])
        began = time.monotonic()
        module(part).work([session, slot, list(PARTS).index(part)], number[part], ledger)
        spent[part] += time.monotonic() - began
        number[part] += 1
        if time.monotonic() - saved > 5:
            ledger.save()
            saved = time.monotonic()
    ledger.save()


def lead(options: argparse.Namespace) -> int:
    """Start the workers, wait for them, print the table; the number of failures kept decides the exit status."""
    options.out.mkdir(parents=True, exist_ok=True)
    starts = [int(path.stem.split("-")[0]) for path in (options.out / "counts").glob("*-*.json")]
    session = max(starts, default=0) + 1
    before = set(options.out.glob("*.json"))
    limits = []
    for part in MEASURE:
        total = getattr(options, part)
        limits += [] if total is None else [f"--{part}", str(-(-total // options.workers))]
    command = [sys.executable, "-m", "campaign", "--minutes", str(options.minutes), "--out", str(options.out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    print(f"campaign, start {session}: {options.minutes:g} minutes, {options.workers} workers, into {options.out}")
    workers = [
        subprocess.Popen(
            [*command, "--parts", *options.parts, *limits, "--worker", str(session), str(k)], env=environment
        )
        for k in range(options.workers)
    ]
    try:
        for worker in workers:
            worker.wait()
    except KeyboardInterrupt:
        print("ending after what is going on; that may take a minute or two", flush=True)
        for worker in workers:
            with contextlib.suppress(KeyboardInterrupt):
                worker.wait()
    print(table(options.out))
    died = [worker.returncode for worker in workers if worker.returncode]
    if died:
        print(f"workers ended with status {died}")
    return 1 if died or set(options.out.glob("*.json")) - before else 0


def repeat(paths: list[Path]) -> int:
    """Check findings once more."""
    failed = 0
    for path in paths:
        story = json.loads(path.read_text())
        if story["part"] == "kills":
            print(f"{path.name}: a storm cannot be repeated to the millisecond; its run is in {story['files']}")
            continue
        file = path.with_name(story["files"][0]) if story["files"] else path
        wrong = module(story["part"]).again(story, file)
        failed += bool(wrong)
        print(f"{path.name}: {'still wrong' if wrong else 'in order now'}")
        for each in wrong:
            print(f"  {each}")
    return int(failed > 0)


def main() -> None:
    """Run the command."""
    options = arguments()
    if options.worker:
        serve(options)
    else:
        sys.exit(repeat(options.again) if options.again else lead(options))


if __name__ == "__main__":
    main()
