"""`python -m tests.mutants [WORD ...]`: apply every mutant, one at a time, to a copy of the tree and run its tests.

Words choose mutants by a part of their file's path.  A mutant is killed when its tests fail, and survives when they
pass.  The copy is thrown away; the working tree is never touched.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
SECONDS = 900
"""A mutant that makes its tests hang is killed after this time, and counts as killed."""


def mutants(words: list[str]) -> list[dict[str, Any]]:
    """All recorded mutants, those of some files only if `words` says so."""
    found = [mutant for path in sorted(Path(__file__).parent.glob("*.json")) for mutant in json.loads(path.read_text())]
    for mutant in found:
        mutant["tests"] = tests if isinstance(tests := mutant["tests"], list) else shlex.split(tests)
    return [mutant for mutant in found if not words or any(word in mutant["file"] for word in words)]


def tests_fail(tree: Path, tests: list[str]) -> bool:
    """Whether the tests of a mutant fail in the copied tree."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    try:
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return True
    if done.returncode > 1:
        raise SystemExit(f"pytest did not run {tests!r}:\n{done.stdout.decode()[-2000:]}")
    return done.returncode == 1


def main(words: list[str]) -> int:
    """Try the mutants; the number of survivors that are not equivalent."""
    counts: dict[str, Counter[str]] = {}
    survivors = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".pytest_cache", "runs", "found", "site")
        shutil.copytree(ROOT, tree, ignore=ignored)
        for mutant in mutants(words):
            path = tree / mutant["file"]
            source = path.read_text()
            if source.count(mutant["old"]) != 1:
                raise SystemExit(f"{mutant['file']} holds {source.count(mutant['old'])} times: {mutant['old']!r}")
            count = counts.setdefault(mutant["file"], Counter())
            if mutant.get("equivalent"):
                count["equivalent"] += 1
                continue
            path.write_text(source.replace(mutant["old"], mutant["new"]))
            killed = tests_fail(tree, mutant["tests"])
            path.write_text(source)
            count["killed" if killed else "survived"] += 1
            print("killed  " if killed else "SURVIVED", mutant["file"], "|", mutant["new"].strip(), flush=True)
            survivors += [] if killed else [mutant]
    print(f"\n{'file':45} killed survived equivalent")
    for file, count in counts.items():
        print(f"{file:45} {count['killed']:6} {count['survived']:8} {count['equivalent']:10}")
    total = sum(counts.values(), Counter())
    print(f"{'in all':45} {total['killed']:6} {total['survived']:8} {total['equivalent']:10}")
    return len(survivors)


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
