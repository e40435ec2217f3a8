"""`make wheel-test`: the wheel in clean environments, one for each Python, with the core alone and with `caql[all]`.

    python packaging/wheels.py [--pythons python3.11 python3.12 ...] [--extras core all]

The wheel is built by `pip wheel`, installed by `pip install`, and used from an empty folder, so that nothing of the
source tree can help.  The core must train, save, load, certify and solve, and must name the extra that brings what is
missing.  With `all` the parts must work too.  Sizes are those of the installed packages.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13")
HERE = Path(__file__).resolve().parent


def find_pythons() -> list[str]:
    """The interpreters on the path, and pyenv's, of the supported versions."""
    found = []
    for version in PYTHONS:
        pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3"))
        path = shutil.which(f"python{version}")
        if pyenv or path:
            found.append(str(pyenv[-1]) if pyenv else str(path))
    return found


def call(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a command; its output, or the end of the script with it."""
    words = [str(part) for part in command]
    # A path of the caller's would bring the sources in beside the wheel.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        raise SystemExit(f"failed: {' '.join(words)}")
    return done.stdout


def build(folder: Path) -> Path:
    """The wheel of the working tree."""
    call(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, ROOT)
    return next(folder.glob("caql-*.whl"))


def megabytes(folder: Path) -> float:
    """The size of what is installed in an environment, in units of 10^6 bytes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink()) / 1e6


def try_out(python: str, wheel: Path, extra: str, folder: Path) -> None:
    """One environment: install, use, measure."""
    began = time.monotonic()
    environment = folder / f"{Path(python).parent.parent.name}-{extra}"
    call(python, "-m", "venv", environment)
    inside = environment / "bin" / "python"
    bare = megabytes(environment)
    what = str(wheel) if extra == "core" else f"{wheel}[{extra}]"
    call(inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt", what)
    size = megabytes(environment) - bare
    call(inside, "-m", "pip", "check")
    installed = time.monotonic() - began
    empty = Path(tempfile.mkdtemp(dir=folder))
    call(inside, HERE / "first_use.py", extra, ROOT / "examples" / "networks" / "example.onnx", cwd=empty)
    version = call(inside, "-c", "import platform; print(platform.python_version())").strip()
    took = time.monotonic() - began
    print(
        f"Python {version:8} {extra:5} {size:6.0f} MB  installed in {installed:.0f} s, works after {took:.0f} s",
        flush=True,
    )


def main() -> None:
    """Build once, try everywhere."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pythons", nargs="+", default=find_pythons())
    parser.add_argument("--extras", nargs="+", default=["core", "all"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build(folder)
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB")
        for python in options.pythons:
            for extra in options.extras:
                try_out(python, wheel, extra, folder)


if __name__ == "__main__":
    main()
