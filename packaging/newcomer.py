"""`make newcomer`: clone the repository, run `make demo` in the clone, and say how long it took to the first picture.

    python packaging/newcomer.py

The clone is made from this repository's last commit, in a folder of its own that is removed again; pip may use its
cache, as it would on a second machine of the same user.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Clone, install, train, look."""
    with tempfile.TemporaryDirectory() as name:
        clone = Path(name) / "caql"
        began = time.monotonic()
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(clone)], check=True)
        cloned = time.monotonic()
        subprocess.run(["make", "--silent", ".venv/.core"], cwd=clone, check=True)
        installed = time.monotonic()
        subprocess.run(["make", "--silent", "demo"], cwd=clone, check=True)
        done = time.monotonic()
        assert (clone / "demo" / "curve.svg").exists()
        size = sum(path.stat().st_size for path in (clone / ".venv").rglob("*") if path.is_file()) / 1e6
    parts = f"clone {cloned - began:.0f} s, install {installed - cloned:.0f} s, demonstration {done - installed:.0f} s"
    print(f"first picture after {done - began:.0f} s ({parts}); the environment has {size:.0f} MB")


if __name__ == "__main__":
    main()
