"""`caql evaluate DIR`: greedy episodes of a trained agent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from caql.cli.output import require_output
from caql.errors import CaqlError
from caql.model import load_model
from caql.runs.episodes import evaluate_policy


@dataclass(frozen=True)
class Evaluate:
    """Run a trained agent without exploration noise and print its returns."""

    path: Annotated[Path, tyro.conf.Positional]
    """A run's folder, or a file that `model.save` wrote."""
    episodes: int = 10
    """Episodes to run, each with a seed of its own."""
    seed: int = 1_000_000
    """Decides the episodes' first states; the default is none that training used."""
    greedy: str = "action_function"
    """Who acts: the action_function, or the max-Q solver (CAQL only)."""
    trust: bool = False
    """Import the module that the run's task names, as in `module:Env-v0`."""
    action_set: str | None = None
    """MODULE:NAME of the action set, for a run that was made with one."""


def main(arguments: list[str]) -> None:
    """Run `caql evaluate`."""
    options = tyro.cli(Evaluate, prog="caql evaluate", args=arguments)
    require_output()
    if options.episodes < 1:
        raise CaqlError(f"--episodes = {options.episodes} must be at least 1")
    if options.seed < 0:
        raise CaqlError(f"--seed = {options.seed} must not be negative")
    model = load_model(options.path, action_set=options.action_set, trust=options.trust)
    policy = model.greedy_policy(options.greedy)
    returns = evaluate_policy(policy, model.task, options.episodes, (options.seed, 0))
    print(f"{model.config.task}: {model.config.agent.name} after {model.train_step} training steps")
    for index, value in enumerate(returns):
        print(f"  episode {index + 1}: {value:.1f}")
    print(f"mean {np.mean(returns):.1f} ± {np.std(returns):.1f} over {len(returns)} episodes")
