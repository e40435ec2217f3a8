"""One thread each and one compilation of each program, set before JAX starts."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
# Many tests build the same small agent; what XLA compiled for one serves them all, in every process.
cache = Path(__file__).parent.parent / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")


@pytest.fixture
def as_in_a_clone(tmp_path, monkeypatch):
    """An empty folder with the files that the pages name."""
    for name in ("examples", "results", "docs"):
        (tmp_path / name).symlink_to(Path(__file__).parent.parent / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path
