"""`caql play RUN`: a trained agent to look at, in a window or as a video."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from caql.cli.output import require_output
from caql.errors import CaqlError
from caql.playing import screen


@dataclass(frozen=True)
class Play:
    """Run a trained agent without exploration noise and show it.

    In a window where there is a screen (space holds, Esc ends); with --video as a file, which needs no screen.
    """

    path: Annotated[Path, tyro.conf.Positional]
    """A run's folder, or a file that `model.save` wrote."""
    video: Path | None = None
    """Write FILE.mp4 or FILE.gif instead of opening a window."""
    overlay: bool = False
    """Write step, return and, for CAQL, Q over the frames."""
    episodes: int = 1
    """Episodes to show, each with a seed of its own; `caql evaluate` runs the same ones."""
    seed: int = 1_000_000
    """Decides the episodes' first states; the default is none that training used."""
    greedy: str = "action_function"
    """Who acts: the action_function, or the max-Q solver (CAQL only)."""
    width: int | None = None
    """Width of the frames in pixels; by default the environment's own."""
    speed: float = 1.0
    """1 is as fast as it is, 0.5 half as fast."""
    trust: bool = False
    """Import the module that the run's task names, as in `module:Env-v0`."""
    action_set: str | None = None
    """MODULE:NAME of the action set, for a run that was made with one."""


def main(arguments: list[str]) -> None:
    """Run `caql play`."""
    options = tyro.cli(Play, prog="caql play", args=arguments)
    require_output()
    _check(options)
    screen.prepare()
    # After `prepare`: these bring in the libraries that draw.
    from caql.model import load_model
    from caql.playing.episodes import episode, frame_rate, visible_task
    from caql.playing.overlay import resized, write_numbers
    from caql.playing.sinks import Window, file_sink

    video = None if options.video is None else file_sink(options.video)
    model = load_model(options.path, action_set=options.action_set, trust=options.trust)
    policy = model.greedy_policy(options.greedy)
    task = visible_task(model, options.action_set)
    title = f"{model.config.task}: {model.config.agent.name} after {model.train_step} training steps"
    sink = video or Window(title)
    rate = options.speed * frame_rate(task)
    every = max(1, math.ceil(rate / sink.fastest - 1e-6))
    print(title)
    with contextlib.closing(task), sink:
        for number in range(options.episodes):
            worth: list[float] = []
            for moment in episode(model, policy, task, (options.seed, number)):
                worth += [] if moment.q is None else [moment.q]
                if moment.step % every:
                    continue
                assert moment.frame is not None
                image = resized(moment.frame, options.width)
                if not sink.show(write_numbers(image, moment, worth) if options.overlay else image, rate / every):
                    return
            print(f"  episode {number + 1}: return {moment.total:.1f} in {moment.step} steps")
    if options.video is not None:
        print(options.video)


def _check(options: Play) -> None:
    if options.episodes < 1:
        raise CaqlError(f"--episodes = {options.episodes} must be at least 1")
    if options.seed < 0:
        raise CaqlError(f"--seed = {options.seed} must not be negative")
    if options.width is not None and not 16 <= options.width <= 4096:
        raise CaqlError(f"--width = {options.width} must be a number of pixels, at least 16 and at most 4096")
    if not 0.01 <= options.speed <= 100:
        raise CaqlError(f"--speed = {options.speed} must be at least 0.01 and at most 100")
    if options.video is None and not screen.has_screen():
        raise CaqlError("there is no screen to open a window on; give --video FILE.mp4 or FILE.gif")
