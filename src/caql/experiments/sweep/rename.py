"""Give every run's folder the name that the sweep looks for, where an older version gave it another.

    python -m caql.experiments.sweep.rename results

A folder's name ends in its run's id.  When the rule for ids changed (see `caql.run_ids`), the committed runs were
renamed by this; it does nothing to folders whose names are right, nor to anything inside a folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from caql.errors import CaqlError
from caql.experiments.sweep.sweep import run_name
from caql.runs.folder import read_config


def rename_runs(results: Path) -> list[tuple[Path, Path]]:
    """Rename the run folders anywhere below `results`; returns the old and new path of each that was.

    Raises `CaqlError`, before anything is renamed, if a folder holds no readable run or two want the same name.
    """
    if not results.is_dir():
        raise CaqlError(f"results = {results} is not a folder")
    wanted: dict[Path, Path] = {}
    for path in sorted(results.rglob("config.json")):
        folder = path.parent
        prefix = "latency-" if (folder / "latency.jsonl").exists() else ""
        target = folder.with_name(prefix + run_name(read_config(folder)))
        if target in wanted:
            raise CaqlError(f"{wanted[target]} and {folder} are the same run; remove one of them")
        wanted[target] = folder
    moves = [(folder, target) for target, folder in wanted.items() if folder != target]
    for folder, target in moves:
        if target.exists():
            raise CaqlError(f"{folder} should be {target.name}, but that is taken; move it away")
    for folder, target in moves:
        folder.rename(target)
    return moves


def main() -> None:
    """Rename below the folders named on the command line, `results` if there are none."""
    try:
        for results in sys.argv[1:] or ["results"]:
            for old, new in rename_runs(Path(results)):
                print(f"{old} -> {new.name}")
    except CaqlError as problem:
        sys.exit(f"{problem}")


if __name__ == "__main__":
    main()
