"""Without the extras: the core works, and what needs a library that is not there says how to install it.

The libraries are hidden from a process of its own; `make wheel-test` does the same in environments without them.
"""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from caql.errors import CaqlError
from caql.extras import EXTRAS, is_there, needed_for

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

HIDDEN = """
import sys, warnings
warnings.simplefilter("error")
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
for name in {names}:
    sys.modules[name] = None
sys.meta_path.insert(0, Hide())
"""
CORE = """
from pathlib import Path
import caql
from caql.config import RunConfig
from caql.agents.caql import CAQLConfig
from caql.runs.folder import run

class Said:
    lines = []
    def say(self, sentence): self.lines.append(sentence)
    def epoch(self, epoch): pass
    def follow(self, training):
        import contextlib
        return contextlib.nullcontext()

config = RunConfig("Pendulum", train_steps=2, steps_per_epoch=2, episode_steps=5, warm_up=5, evaluation_episodes=1,
                   agent=CAQLConfig(hidden=(4,)))
assert run(config, Path("run"), reporter=Said())
print(Said.lines)
print(sorted(path.name for path in Path("run").iterdir()))
for what in (
    lambda: caql.make_task("Hopper"),
    lambda: caql.make_task("Hopper-v5"),
    lambda: caql.maximize([([[1.0], [1.0]], [0.0]), ([[1.0]], [0.0])], -1, 1, solver="highs"),
    lambda: __import__("caql.network_files").network_files.read_network(sys.argv[1]),
):
    try:
        what()
    except caql.CaqlError as problem:
        print(problem)
"""


def hidden(modules) -> str:
    return HIDDEN.format(names=sorted(modules))


def test_the_core_runs_without_any_extra_and_says_what_is_missing(tmp_path):
    example = ROOT / "examples" / "networks" / "example.onnx"
    script = [sys.executable, "-c", hidden(EXTRAS) + CORE, str(example)]
    found = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    said, files, *sentences = found.stdout.strip().splitlines()
    assert 'without tensorboard/ and curve.svg; what draws them comes with: pip install "caql[report]"' in said
    assert "model.safetensors" in files
    assert "curve.svg" not in files
    assert sentences == [
        """task = 'Hopper' needs mujoco, which is not installed: pip install "caql[mujoco]\"""",
        """task = 'Hopper-v5' needs mujoco, which is not installed: pip install "caql[mujoco]\"""",
        """backend = 'highs' needs highspy, which is not installed: pip install "caql[mip]\"""",
        f'file = {str(example)!r}: reading an .onnx file needs onnx, which is not installed: pip install "caql[onnx]"',
    ]


def test_only_libraries_of_the_table_are_translated():
    sentence = r'the sky needs ray, which is not installed: pip install "caql\[ray\]"'
    with pytest.raises(CaqlError, match=sentence), needed_for("the sky"):
        raise ModuleNotFoundError(name="ray.data")
    with pytest.raises(ModuleNotFoundError), needed_for("the sky"):
        raise ModuleNotFoundError(name="numpy.nonsense")
    assert is_there("numpy")
    assert not is_there("nonsense")


def test_each_library_of_the_table_comes_with_its_extra():
    distributions = {"pyscipopt": "pyscipopt", "mujoco": "gymnasium[mujoco]", "PIL": "pillow", "pygame": "pygame-ce"}
    for module, extra in EXTRAS.items():
        wanted = distributions.get(module, module.replace("_", "-")).lower()
        there = [re.split(r"[>=<]", line)[0].lower() for line in PROJECT["optional-dependencies"][extra]]
        assert wanted in there, f"{module} is not brought by caql[{extra}]"


def test_nothing_imports_an_optional_library_at_the_top_of_a_module():
    for path in (ROOT / "src" / "caql").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.split(".")[0] not in EXTRAS, f"{path}: import {name} where it is used, in needed_for"


def test_the_version_is_said_once():
    import caql

    assert caql.__version__ == PROJECT["version"]
