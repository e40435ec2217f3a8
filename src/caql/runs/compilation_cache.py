"""Keep what JAX compiles between processes: the second start of a run takes seconds less than the first."""

from __future__ import annotations

import os
from pathlib import Path

import jax


def keep_compiled() -> None:
    """Use a persistent compilation cache, unless the user has chosen one or the folder cannot be made."""
    if getattr(jax.config, "jax_compilation_cache_dir", None) or os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "caql" / "jax"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
