"""`make demo`: CAQL learns to swing up a pendulum that may only push with a third of its usual torque."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from caql.agents.caql import CAQLConfig
from caql.config import RunConfig
from caql.runs.compilation_cache import keep_compiled
from caql.runs.folder import read_metrics, run
from caql.runs.progress import reporter_for_terminal

FOLDER = Path("demo")


def main() -> None:
    """Train from scratch in the folder `demo`, and say what came of it."""
    if (FOLDER / "config.json").exists():
        shutil.rmtree(FOLDER)
    keep_compiled()
    config = RunConfig("Pendulum", action_range=0.66, train_steps=40_000, agent=CAQLConfig())
    print("CAQL with gradient ascent on Pendulum, actions in [-0.66, 0.66], 40,000 training steps")
    began = time.perf_counter()
    if not run(config, FOLDER, reporter=reporter_for_terminal()):
        return
    rows = read_metrics(FOLDER)
    best = max(rows, key=lambda row: row["return"])
    print(f"return before training: {rows[0]['return']:.0f}")
    print(f"return after training:  {rows[-1]['return']:.0f} (best {best['return']:.0f} at step {best['train_step']})")
    print(f"learning curve: {FOLDER / 'curve.svg'}   ({time.perf_counter() - began:.0f} s)")


if __name__ == "__main__":
    main()
