"""How far an actor falls short of its own critic: Q(x, pi(x)) beside the proved maximum of Q(x, .).

An actor-critic method never maximises its critic; its actor is trained to follow it.  At states x that the actor
visits, the shortfall is

    max over a of Q(x, a) - Q(x, pi(x)),      at least best - actor,  at most upper - actor,

with Q the smallest of the model's critics, as its own target has it, over all actions in the box.  `best` is the value
of the best action found and `upper` a proof that no action is worth more.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from caql.errors import CaqlError, CaqlWarning
from caql.importers.stable_baselines import Imported, actions_of
from caql.maxq.host import Array
from caql.maxq.maximize import maximize
from caql.maxq.problem import Status


class Audit(NamedTuple):
    """One row per state: the actor's value, the best found, the proved bound, and whether the gap is closed."""

    states: Array
    actor: Array
    best: Array
    upper: Array
    proved: Array

    @property
    def shortfall(self) -> Array:
        """What is known to be missing."""
        return np.maximum(self.best - self.actor, 0.0)


def visited_states(model: Imported, env: str, count: int, seed: int) -> Array:
    """Observations spread over episodes that the actor plays in the environment, (count, n)."""
    try:
        task: Any = gym.make(env)
    except Exception as problem:
        reason = (str(problem).strip().splitlines() or [type(problem).__name__])[0][:200]
        raise CaqlError(f"env = {env!r} cannot be made: {reason}") from problem
    spaces = task.observation_space, task.action_space
    if any(not isinstance(space, gym.spaces.Box) for space in spaces):
        raise CaqlError(f"env = {env!r} has spaces {spaces[0]} and {spaces[1]}; right would be two boxes")
    n, d = (int(np.prod(space.shape)) for space in spaces)
    if (n, d) != (model.observation_size, model.action_size):
        raise CaqlError(
            f"env = {env!r} has {n} observations and {d} actions; the model takes {model.observation_size} and "
            f"{model.action_size}"
        )
    low, high = (np.asarray(side, np.float64).ravel() for side in (spaces[1].low, spaces[1].high))
    seen: list[Array] = []
    rng = np.random.default_rng(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        state, _ = task.reset(seed=seed)
        # Neighbours in time are nearly alike: one state in ten, on average, is kept.
        while len(seen) < count:
            flat = np.asarray(state, np.float64).ravel()
            if not seen or rng.random() < 0.1:
                seen.append(flat)
            scaled = actions_of(model, flat[None])[0]
            action = np.clip(low + 0.5 * (scaled + 1.0) * (high - low), low, high)
            state, _, ended, cut, _ = task.step(action.astype(spaces[1].dtype).reshape(spaces[1].shape))
            if ended or cut:
                state, _ = task.reset()
    task.close()
    return np.stack(seen)


def audit(model: Imported, states: Array, tolerance: float, time_limit: float, threads: int | None = None) -> Audit:
    """The shortfall at (B, n) states; `tolerance` is relative, `time_limit` in seconds for each state."""
    actions = actions_of(model, states)
    actor = model.critic.evaluate(states, actions)[:, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaqlWarning)  # what is not proved is said in the table
        solution = maximize(
            model.critic,
            -1.0,
            1.0,
            states,
            warm_start=np.clip(actions, -1.0, 1.0),
            tolerance=1e-6,
            relative_tolerance=tolerance,
            time_limit=time_limit,
            threads=threads,
            output="q",
        )
    proved = np.asarray(solution.status) == int(Status.OPTIMAL)
    return Audit(states, actor, np.maximum(solution.values, actor), np.asarray(solution.upper), proved)


def text_histogram(numbers: Array, bins: int = 12, width: int = 40) -> str:
    """The distribution of the numbers, one line per bin."""
    counts, edges = np.histogram(numbers, bins=bins if np.ptp(numbers) > 0 else 1)
    lines = []
    for count, low, high in zip(counts, edges[:-1], edges[1:], strict=True):
        bar = "#" * round(width * int(count) / max(int(counts.max()), 1))
        lines.append(f"{low:>10.4g} to {high:>10.4g}  {int(count):>6}  {bar}")
    return "\n".join(lines)


def draw_histogram(found: Audit, path: Path, title: str) -> None:
    """The distribution of the shortfall as a picture, .svg or .png."""
    if path.suffix.lower() not in (".svg", ".png", ".pdf"):
        raise CaqlError(f"out = {str(path)!r} ends in {path.suffix!r}; right would be .svg, .png or .pdf")
    from caql.extras import needed_for

    with needed_for("a picture"):
        from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.hist(found.shortfall, bins=30, color="#3b6ea5")
    axes.set_xlabel("value of the best action minus value of the actor's, by the critic")
    axes.set_ylabel("states")
    axes.set_title(title)
    figure.savefig(path)
