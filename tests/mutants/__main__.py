"""`python -m tests.mutants [--record FILE.json] [WORD ...]`: does some test notice each recorded change to the source?

Every mutant is applied, one at a time, to a copy of the tree, in which its tests are run.  It is killed when they fail,
and survives when they pass.  A test that killed a mutant must pass without it, or the kill would mean nothing.  Words
choose mutants by a part of their file's path.  With `--record` the kills are written down, and a second run tries only
what the first did not kill.  The copy is thrown away; the working tree is never touched.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
LEFT_OUT = {".git", ".venv", ".pytest_cache", "runs", "found", "site"}
"""What the copy does without, at the top of the tree."""
PRELOADED = ("jax", "jax.numpy", "optax", "gymnasium", "numba", "tyro", "safetensors.numpy")
"""Most of the time that a small test takes, before it begins; none of them starts a thread."""
NEEDED = ("-p", "no:cacheprovider", "-p", "pytest_timeout", "--timeout", "0")
"""pytest's plugins; to load all those that are installed takes a second."""
SECONDS = 90
"""Processor time of a mutant's tests; one that makes them go on for ever counts as killed."""


def mutants(words: list[str]) -> list[dict[str, Any]]:
    """All recorded mutants, those of some files only if `words` says so."""
    found = [mutant for path in sorted(Path(__file__).parent.glob("*.json")) for mutant in json.loads(path.read_text())]
    return [mutant for mutant in found if not words or any(word in mutant["file"] for word in words)]


def digest(mutant: dict[str, Any]) -> str:
    """What a recorded kill is known by: the change, the file that it changes and the tests that noticed."""
    parts = [mutant["old"], mutant["new"], *mutant["tests"], (ROOT / mutant["file"]).read_text()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def first_failure(tree: Path, tests: list[str]) -> str | None:
    """The first of the tests that fails in the copied tree, or why there is none to name; None if all pass.

    They run in a fork of this process, which has imported what takes longest to import.
    """
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
            os._exit(_run(tree, tests))
        _, status = os.waitpid(child, 0)
        output.seek(0)
        said = output.read()
    if status == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (tests/.+?)(?: - |$)", said, re.MULTILINE)
    return failed[1] if failed else said[-2000:] or f"status {status}"


def _run(tree: Path, tests: list[str]) -> int:
    """pytest's verdict on the tests, in a process that has the copied tree in place of this one."""
    os.chdir(tree)
    for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "caql")]:
        del sys.modules[name]
    sys.path[:] = [str(tree), str(tree / "src"), *(each for each in sys.path if Path(each) not in (ROOT, ROOT / "src"))]
    os.environ |= {"PYTHONPATH": str(tree / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    try:
        return int(pytest.main(["-x", "-q", "-rfE", *NEEDED, *tests]))
    except BaseException:  # whatever happens, the fork must not go on with what this process was doing
        traceback.print_exc()
        return 1


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
        sound = {""}
        for mutant, known_by in todo:
            start = time.monotonic()
            noticed = attempt(tree, mutant)
            if (by := noticed or "") not in sound:
                named = by.startswith("tests/")
                if failed := first_failure(tree, [by] if named else mutant["tests"]):
                    raise SystemExit(f"without any mutant this fails: {failed}")
                sound.add(by)
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
    # Programs that take no time to compile are most of a small test: those that no mutant changes are kept as well.
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".pytest_cache" / "jax"))
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    for module in PRELOADED:
        importlib.import_module(module)
    sys.exit(1 if main(arguments.words, arguments.record) else 0)
