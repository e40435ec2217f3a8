"""Run folders without training: what a sweep would have left, with made-up but plausible numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from caql.config import RunConfig, to_json
from caql.experiments.sweep.sweep import method_name, run_name


def write_run(
    out: Path,
    config: RunConfig,
    target: float = 300.0,
    evaluations: int = 200,
    finished: bool = True,
    latency: bool = False,
    broken: int = 0,
) -> Path:
    """A folder as `runs.folder.run` leaves it: a curve from 0 to `target`, its noise decided by the configuration.

    broken: violations in the last row of a task with its own action set.
    """
    rng = np.random.default_rng(int(config.id, 16))
    folder = out / (("latency-" if latency else "") + run_name(config))
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(to_json(config)))
    shares = {"acting": 0.2, "physics": 1.0, "updating": 0.8, "evaluating": 0.15}
    lines = []
    for index in range(evaluations + 1):
        step = index * config.train_steps // evaluations
        level = target * (1 - np.exp(-4 * index / evaluations)) + rng.normal(0, 0.06 * abs(target))
        returns = (level + rng.normal(0, 20, 10)).tolist()
        row = {"train_step": step, "return": float(np.mean(returns)), "return_std": float(np.std(returns))}
        row["training_return"] = float(level) - 10 if index else None
        row |= {"epoch": step // 20, "environment_steps": step * 10, "returns": returns, "loss": float(rng.uniform())}
        if method_name(config).startswith("caql"):
            row |= {"filtered": 0.1, "clustered": 0.2, "work": 7.0, "tolerance": 1e-6}
            row |= {"action_loss": 0.01 * index, "td_error": 0.5}
        if config.action_range is None:
            row |= {"actions": 200, "violations": int(index == evaluations) * broken}
        row["seconds"] = {part: share * step / 1000 for part, share in shares.items()}
        if method_name(config) == "caql-exact":
            row["seconds"]["max_q"] = 0.5 * step / 1000
            row["solve_ms"] = 0.01 * rng.uniform(0.9, 1.1)
        lines.append(json.dumps(row) + "\n")
    (folder / "metrics.jsonl").write_text("".join(lines))
    if latency:
        times = {"ga": 0.02, "cem": 0.1, "exact": 0.05, "mip": 60.0}
        (folder / "latency.jsonl").write_text(
            "".join(
                json.dumps(
                    {"train_step": step, "milliseconds": {n: t * rng.uniform(0.8, 1.4) for n, t in times.items()}}
                )
                + "\n"
                for step in range(1000, config.train_steps + 1, config.train_steps // 40)
            )
        )
    if finished:
        (folder / "finished.json").write_text(json.dumps({"train_step": config.train_steps, "seconds": 400.0}))
    return folder
