"""`caql audit MODEL.zip --env ID`: how far a Stable-Baselines3 actor falls short of the maximum of its own critic."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from caql.cli.output import require_output
from caql.errors import CaqlError


@dataclass(frozen=True)
class Arguments:
    """Compare a Stable-Baselines3 actor (SAC, TD3 or DDPG) with the proved maximum of its own critic.

    The actor plays its environment; at some of the states that it visits, the smallest of its critics is maximised over
    all actions, with a proof.  Printed are the critic's values of the actor's action and of the best one, and
    a histogram of the difference.  The file's weights are read without running any code that it may hold.
    """

    model: tyro.conf.Positional[Path]
    """The .zip that `model.save` of Stable-Baselines3 wrote."""
    env: str
    """The Gymnasium id of its environment."""
    states: int = 50
    """How many states to look at."""
    tolerance: float = 1e-3
    """Relative gap at which a maximum counts as proved."""
    time_limit: float = 10.0
    """Seconds for each state; where they do not suffice, what is proved by then is reported."""
    seed: int = 0
    """Of the environment and of the choice of states."""
    threads: int | None = None
    """Threads over the states."""
    out: Path | None = None
    """Write the histogram to this .svg, .png or .pdf too."""


def main(args: list[str]) -> None:
    """Run the command."""
    options = tyro.cli(Arguments, args=args, prog="caql audit")
    require_output()
    if options.states < 1:
        raise CaqlError(f"states = {options.states} must be at least 1")
    from caql.audits import Audit, audit, draw_histogram, text_histogram, visited_states
    from caql.importers.stable_baselines import imported

    model = imported(options.model)
    states = visited_states(model, options.env, options.states, options.seed)
    began = time.perf_counter()
    found: Audit = audit(model, states, options.tolerance, options.time_limit, options.threads)
    seconds = time.perf_counter() - began
    missing, most = found.shortfall, np.maximum(found.upper - found.actor, 0.0)
    scale = np.maximum(np.abs(found.best), 1e-12)
    print(f"{options.model.name} in {options.env}: {len(states)} states that its actor visits, {seconds:.1f} s")
    print(f"{'':34}{'median':>12}{'mean':>12}{'largest':>12}")
    rows = (
        ("critic's value of the actor's action", found.actor),
        ("critic's value of the best action", found.best),
        ("shortfall, at least", missing),
        ("shortfall, at most (proved)", most),
        ("shortfall as a fraction of the best", missing / scale),
    )
    for name, numbers in rows:
        print(f"{name:36}{np.median(numbers):>10.4g}{np.mean(numbers):>12.4g}{np.max(numbers):>12.4g}")
    print(f"{int(found.proved.sum())} of {len(states)} maxima proved to a relative gap of {options.tolerance:g}")
    print("\nshortfall, at least                 states")
    print(text_histogram(missing))
    if options.out is not None:
        draw_histogram(found, options.out, f"{options.model.stem}, {options.env}")
        print(f"written: {options.out}")
