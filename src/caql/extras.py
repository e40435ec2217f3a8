"""The parts of the package that are installed on demand, and the sentence that installs the one that is missing.

The core (`maximize`, the agents, Gymnasium's classic control) needs none of these libraries.  Whoever needs one
imports it where it is used, inside `needed_for`:

    with needed_for("the task 'Hopper'"):
        import mujoco
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator

from caql.errors import CaqlError

EXTRAS = {
    "mujoco": "mujoco",
    "highspy": "mip",
    "pyscipopt": "mip",
    "onnx": "onnx",
    "matplotlib": "report",
    "tensorboardX": "report",
    "imageio": "video",
    "imageio_ffmpeg": "video",
    "pygame": "video",
    "PIL": "video",
    "ray": "ray",
    "gurobipy": "gurobi",
    "cplex": "cplex",
}
"""The extra of pyproject.toml that brings a module."""


def is_there(module: str) -> bool:
    """Whether a module of `EXTRAS` can be imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # what sys.modules holds under the name is not a module
        return False


def missing(module: str, what: str) -> CaqlError:
    """The error for `what` without `module`: one sentence with the command that installs it."""
    return CaqlError(f'{what} needs {module}, which is not installed: pip install "caql[{EXTRAS[module]}]"')


@contextlib.contextmanager
def needed_for(what: str) -> Iterator[None]:
    """Import inside; a library of `EXTRAS` that is not there raises `CaqlError` with the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as problem:
        name = (problem.name or "").split(".")[0]
        if name not in EXTRAS:
            raise
        raise missing(name, what) from problem
