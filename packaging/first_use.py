"""What a new user does, run by `packaging/wheels.py` in an environment that has only the wheel.

python first_use.py core|all EXAMPLE.onnx
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

import caql
from caql.extras import EXTRAS, is_there

PENDULUM = np.array([1.0, 0.0, 0.0])


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`caql ...` as installed beside this interpreter."""
    return subprocess.run(
        [str(Path(sys.executable).parent / "caql"), *arguments], capture_output=True, text=True, check=False
    )


def the_core() -> None:
    """Train, save, load, certify, maximise: all that needs no extra."""
    assert "site-packages" in str(caql.__file__), caql.__file__
    model = caql.CAQL("MlpPolicy", "Pendulum", seed=0, warm_up=200).learn(600)
    model.save("pendulum")
    again = caql.CAQL.load("pendulum")
    certificate = again.certify(PENDULUM)
    assert certificate.gap <= 1e-4, certificate
    np.testing.assert_array_equal(model.predict(PENDULUM)[0], again.predict(PENDULUM)[0])
    rng = np.random.default_rng(0)
    layers = [(rng.normal(size=(2, 8)), rng.normal(size=8)), (rng.normal(size=(8, 1)), np.zeros(1))]
    assert caql.maximize(layers, -1, 1).status[0] == caql.Status.OPTIMAL
    budget = caql.ActionSet.bounds(-1, 1, size=2) & caql.ActionSet.budget([1.0, 1.0], limit=0.5)
    assert budget.contains(budget.project(np.ones(2)))
    trained = command("train", "Pendulum", "--train-steps", "20", "--out", "run")
    assert trained.returncode == 0, trained.stderr
    assert command("evaluate", "run", "--episodes", "1").returncode == 0
    assert command("solve", "run").returncode == 0


def missing(example: str) -> None:
    """Each part that is not there is one sentence and exit status 2."""
    lines = {
        "mujoco": ["train", "Hopper", "--train-steps", "20"],
        "mip": ["solve", "run", "--solver", "highs"],
        "onnx": ["solve", example, "--action-range", "1"],
        "ray": ["sweep", "table1", "--tasks", "pendulum-2", "--methods", "caql-ga", "--seeds", "1", "--ray"],
    }
    for extra, line in lines.items():
        found = command(*line)
        assert found.returncode == 2, (line, found)
        assert found.stderr.strip().endswith(f'pip install "caql[{extra}]"'), found.stderr
        assert len(found.stderr.strip().splitlines()) == 1, found.stderr


def the_parts(example: str) -> None:
    """With `caql[all]`: a task with physics, a mixed-integer solver, an ONNX file, a curve."""
    assert command("train", "Hopper", "--train-steps", "20", "--out", "hopper").returncode == 0
    assert Path("hopper/curve.svg").exists()
    assert Path("hopper/tensorboard").exists()
    for solver in ("exact", "highs", "scip"):
        found = command("solve", example, "--action-range", "1", "--solver", solver)
        assert found.returncode == 0, found.stderr
        assert "2.364" in found.stdout, found.stdout
    import ray

    assert ray.__version__


def main() -> None:
    """The core always; then what is missing, or the parts."""
    extra, example = sys.argv[1:]
    the_core()
    if extra == "core":
        there = [name for name in EXTRAS if is_there(name)]
        assert not there, f"the core brings {there}"
        missing(example)
    else:
        the_parts(example)


if __name__ == "__main__":
    main()
