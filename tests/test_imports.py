"""The rules of docs/explanation/architecture.md about who may know whom."""

import ast
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "caql"

ORDER = [
    {"errors", "extras", "whole_files"},
    {"named_code", "run_ids"},
    {"networks", "actions"},
    {
        "bounds",
        "encoders",
        "ensembles",
        "optimisers",
        "replay",
        "action_ranges",
        "action_sets",
        "answers",
        "tasks",
        "losses",
        "graphs",
        "network_files",
    },
    {"task_actions", "task_names", "mujoco_steps"},
    {"environments"},
    {"vector_environments"},
    {"maxq"},
    {"targets", "importers"},
    {"agents"},
    {"config"},
    {"runs"},
    {"exports", "exported_encoders", "audits"},
    {"model"},
    {"playing"},
    {"bench", "experiments", "explore"},
    {"watching"},
    {"cli"},
    {"__main__"},
]
"""A module or package may import from its own row and the rows above it."""

ONLY = {
    "pyscipopt": {"maxq/mip/backends.py"},
    "highspy": {"maxq/mip/backends.py", "tasks/microgrid_planning.py"},
    "gurobipy": {"maxq/mip/backends.py"},
    "cplex": {"maxq/mip/backends.py"},
    "mujoco": {"mujoco_steps.py"},
    "onnx": {"network_files/tensors.py", "network_files/export.py"},
    "torch": {"importers/torch_modules.py", "importers/stable_baselines.py"},
    "keras": {"importers/keras_models.py"},
    "sklearn": set(),
    "equinox": set(),
    "flax": set(),
    "stable_baselines3": set(),
    "daqp": {"actions/projection.py"},
}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return found


def test_imports_point_one_way():
    level = {room: row for row, rooms in enumerate(ORDER) for room in rooms}
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        assert room in level, f"{path.name}: give the room {room!r} a row in ORDER"
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "caql" and len(parts) > 1 and parts[1] in level:
                assert level[parts[1]] <= level[room], f"{path} must not import {name}"


def test_libraries_stay_in_their_rooms():
    for path in SOURCE.rglob("*.py"):
        where = str(path.relative_to(SOURCE))
        for name in imports(path):
            top = name.split(".")[0]
            if top in ONLY:
                assert where in ONLY[top], f"{where} must not import {top}"
            # Its objects are known by their methods, so that the library is never needed.
            assert top != "stable_baselines3", f"{where} must not import stable_baselines3"
            if top == "ray":
                assert where == "experiments/sweep/ray_workers.py", f"{where} must not import ray"


def test_import_caql_is_quick_and_brings_nothing_heavy():
    code = (
        "import sys, time; t = time.perf_counter(); import caql; s = time.perf_counter() - t; "
        "heavy = {'jax', 'numba', 'mujoco', 'matplotlib', 'highspy', 'ray'} & set(sys.modules); "
        "assert not heavy, heavy; assert s < 1, s"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
