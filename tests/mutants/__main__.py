"""`python -m tests.mutants [--record FILE.json] [WORD ...]`: does some test notice each recorded change to the source?

Every mutant is applied, one at a time, to a copy of the tree, in which its tests are run.  It is killed when they fail,
and survives when they pass.  Before that all those tests must pass without any mutant, or a kill would mean nothing.
Words choose mutants by a part of their file's path.  With `--record` the kills are written down, and a second run
tries only what the first did not kill.  The copy is thrown away; the working tree is never touched.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
LEFT_OUT = {".git", ".venv", ".pytest_cache", "runs", "found", "site"}
"""What the copy does without, at the top of the tree."""
SECONDS = 300
"""A mutant that makes its tests hang is stopped after this time, and counts as killed."""


def mutants(words: list[str]) -> list[dict[str, Any]]:
    """All recorded mutants, those of some files only if `words` says so."""
    found = [mutant for path in sorted(Path(__file__).parent.glob("*.json")) for mutant in json.loads(path.read_text())]
    return [mutant for mutant in found if not words or any(word in mutant["file"] for word in words)]


def digest(mutant: dict[str, Any]) -> str:
    """What a recorded kill is known by: the change, the file that it changes and the tests that noticed."""
    parts = [mutant["old"], mutant["new"], *mutant["tests"], (ROOT / mutant["file"]).read_text()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def first_failure(tree: Path, tests: list[str], seconds: float | None = SECONDS) -> str | None:
    """The first of the tests that fails in the copied tree, or why there is none to name; None if all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-rfE", *tests]
    compiled = os.environ.get("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".pytest_cache" / "jax"))
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "JAX_COMPILATION_CACHE_DIR": compiled}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, timeout=seconds, check=False, text=True
        )
    except subprocess.TimeoutExpired:
        return "time"
    if done.returncode == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (tests/\S+)", done.stdout, re.MULTILINE)
    return failed[1] if failed else done.stdout[-2000:] + done.stderr[-2000:]


def attempt(tree: Path, mutant: dict[str, Any]) -> str | None:
    """The test that notices the mutant, if any does."""
    path = tree / mutant["file"]
    source = path.read_text()
    if source.count(mutant["old"]) != 1:
        raise SystemExit(f"{mutant['file']} holds {source.count(mutant['old'])} times: {mutant['old']!r}")
    path.write_text(source.replace(mutant["old"], mutant["new"]))
    try:
        return first_failure(tree, mutant["tests"])
    finally:
        path.write_text(source)


def copy_of_the_tree(folder: str) -> Path:
    """The tree, in a folder of its own; `.pytest_cache` and the like stay behind."""
    tree = Path(folder) / "tree"
    shutil.copytree(ROOT, tree, ignore=lambda at, names: LEFT_OUT.intersection(names) if Path(at) == ROOT else set())
    return tree


def main(words: list[str], record: Path | None) -> int:
    """Try the mutants; the number of survivors that are not equivalent."""
    kills: dict[str, Any] = json.loads(record.read_text()) if record and record.exists() else {}
    chosen = mutants(words)
    counts: dict[str, Counter[str]] = {mutant["file"]: Counter() for mutant in chosen}
    todo = []
    for mutant in chosen:
        known_by = digest(mutant)
        if mutant.get("equivalent") or known_by in kills:
            counts[mutant["file"]]["equivalent" if mutant.get("equivalent") else "killed"] += 1
        else:
            todo.append((mutant, known_by))
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_of_the_tree(folder)
        tests = sorted({test for mutant, _ in todo for test in mutant["tests"]})
        if todo and (failed := first_failure(tree, tests, seconds=None)):
            raise SystemExit(f"without any mutant this fails: {failed}")
        for mutant, known_by in todo:
            start = time.monotonic()
            noticed = attempt(tree, mutant)
            seconds = round(time.monotonic() - start, 1)
            outcome = "killed" if noticed else "SURVIVED"
            counts[mutant["file"]][outcome] += 1
            print(f"{outcome:8} {seconds:6.1f} s {mutant['file']} | {mutant['new'].strip()}", flush=True)
            if noticed and record:
                kills[known_by] = {
                    "file": mutant["file"],
                    "new": mutant["new"],
                    "by": noticed,
                    "seconds": seconds,
                }
                record.write_text(json.dumps(kills, indent=1) + "\n")
    print(f"\n{'file':45} killed survived equivalent")
    total = sum(counts.values(), Counter())
    for file, count in [*counts.items(), ("in all", total)]:
        print(f"{file:45} {count['killed']:6} {count['SURVIVED']:8} {count['equivalent']:10}")
    return total["SURVIVED"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--record", type=Path, help="a file in which kills are kept, so that a second run goes on")
    parser.add_argument("words", nargs="*", help="parts of the paths of the files to change; all of them if left out")
    arguments = parser.parse_args()
    sys.exit(1 if main(arguments.words, arguments.record) else 0)
