"""CAQL with the paper's settings and with the recommended preset, and SAC, on environments that are not the paper's.

"penalty" is the recommended preset with a penalty on saturated outputs of the action function.

    python benchmarks/other_environments.py [--steps 50000] [--seeds 3] [--first-seed 0] [--envs Hopper-v5 ...]

What a user's script does: `CAQL("MlpPolicy", env).learn(steps)`, one gradient step for each environment step.  After
every tenth of the steps ten episodes without noise are scored, from the same starts for everybody.  `end` is the mean
of the last three of these, `all` of the ten.  Finished runs are appended to `--out`, one JSON object a line, and are
not made again; `--table` only prints them.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import gymnasium as gym
import numpy as np

from caql import CAQL, SAC

ENVIRONMENTS = (
    "Pendulum-v1",
    "InvertedDoublePendulum-v5",
    "Reacher-v5",
    "Swimmer-v5",
    "Pusher-v5",
    "Hopper-v5",
    "Walker2d-v5",
    "HalfCheetah-v5",
)
CONTENDERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "paper": (CAQL, {"preset": "paper"}),
    "recommended": (CAQL, {"preset": "recommended"}),
    "penalty": (CAQL, {"preset": "recommended", "saturation_penalty": 1.0}),
    "sac": (SAC, {}),
}
POINTS, EPISODES, LAST = 10, 10, 3


def score(model: Any, env: Any) -> float:
    """The mean return of `EPISODES` episodes, always from the same starts."""
    total = 0.0
    for episode in range(EPISODES):
        observation, done = env.reset(seed=1000 + episode)[0], False
        while not done:
            action, _ = model.predict(observation, deterministic=True)
            observation, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            done = terminated or truncated
    return total / EPISODES


def run(name: str, contender: str, seed: int, steps: int) -> dict[str, Any]:
    """Learn and score; what the run's line says."""
    kind, settings = CONTENDERS[contender]
    model, env = kind("MlpPolicy", gym.make(name), seed=seed, **settings), gym.make(name)
    scores, spent = [], 0.0
    for point in range(POINTS):
        began = time.process_time()
        model.learn(steps // POINTS, reset_num_timesteps=point == 0)
        spent += time.process_time() - began
        scores.append(score(model, env))
    return {
        "env": name,
        "contender": contender,
        "seed": seed,
        "steps": steps,
        "scores": scores,
        "seconds": round(spent, 1),
    }


def table(rows: list[dict[str, Any]], steps: int) -> None:
    """One line for each environment and contender, the mean over seeds and its standard error."""
    print(f"{'':28}{'':24}{'end':>9}{'se':>8}{'all':>10}{'se':>8}{'seconds':>9}{'seeds':>7}")
    for name in ENVIRONMENTS:
        for contender in CONTENDERS:
            found = [row for row in rows if (row["env"], row["contender"], row["steps"]) == (name, contender, steps)]
            if not found:
                continue
            scores = np.array([row["scores"] for row in found])
            columns = []
            for each in (scores[:, -LAST:].mean(1), scores.mean(1)):
                columns += [each.mean(), each.std(ddof=1) / len(each) ** 0.5 if len(each) > 1 else float("nan")]
            seconds = np.mean([row["seconds"] for row in found])
            numbers = f"{columns[0]:9.1f}{columns[1]:8.1f}{columns[2]:10.1f}{columns[3]:8.1f}"
            print(f"{name:28}{contender:24}{numbers}{seconds:9.0f}{len(found):7}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--envs", nargs="*", default=ENVIRONMENTS)
    parser.add_argument("--contenders", nargs="*", default=list(CONTENDERS))
    parser.add_argument("--out", type=Path, default=Path("results/other-environments.jsonl"))
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    lines = options.out.read_text().splitlines() if options.out.exists() else []
    rows = [json.loads(line) for line in lines]
    made = {(row["env"], row["contender"], row["seed"], row["steps"]) for row in rows}
    wanted = [
        (name, contender, seed, options.steps)
        for seed in range(options.first_seed, options.first_seed + options.seeds)
        for name in options.envs
        for contender in options.contenders
    ]
    for each in wanted if not options.table else []:
        if each not in made:
            rows.append(run(*each))
            with options.out.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(f"{each}: {[round(score, 1) for score in rows[-1]['scores']]}", flush=True)
    table(rows, options.steps)


if __name__ == "__main__":
    main()
