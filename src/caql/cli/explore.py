"""`caql explore RUN`: a page that shows Q over the actions, what each solver finds, and the proof."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from caql.cli.output import require_output
from caql.errors import CaqlError
from caql.playing import screen


@dataclass(frozen=True)
class Explore:
    """Write one page, complete in itself, on which Q(x, .) can be looked at along an episode of a trained agent.

    It shows Q over each pair of actions and each action alone, its linear pieces, what the action function, gradient
    ascent and cross-entropy choose, the proved maximum, and the upper bound closing on it node by node.
    """

    path: Annotated[Path, tyro.conf.Positional]
    """A run's folder, a file that `model.save` wrote, or a network with bounds (.npz, .safetensors, .onnx)."""
    out: Path = Path("explore.html")
    """The page."""
    states: int = 40
    """States of the episode that are shown, at even distances."""
    seed: int = 1_000_000
    """Decides the episode's first state; the default is none that training used."""
    frames: bool = True
    """Show the environment beside each state."""
    trust: bool = False
    """Import the module that the run's task names, as in `module:Env-v0`."""
    action_set: str | None = None
    """MODULE:NAME of the action set, for a run that was made with one."""


def main(arguments: list[str]) -> None:
    """Run `caql explore`."""
    options = tyro.cli(Explore, prog="caql explore", args=arguments)
    require_output()
    if not 1 <= options.states <= 1000:
        raise CaqlError(f"--states = {options.states} must be at least 1 and at most 1000")
    if options.seed < 0:
        raise CaqlError(f"--seed = {options.seed} must not be negative")
    if options.out.suffix.lower() not in (".html", ".htm"):
        raise CaqlError(f"out = {options.out} must end in .html")
    screen.prepare()
    # After `prepare`: these bring in the libraries that draw.
    from caql.explore.page import html
    from caql.explore.subject import Choice, check, from_network, from_run
    from caql.explore.traces import trace
    from caql.runs.checkpoints import is_saved
    from caql.whole_files import write_atomically

    choice = Choice(options.seed, options.states, options.frames, options.action_set, options.trust)
    if os.path.isdir(options.path) or is_saved(options.path) or not options.path.exists():
        subject = from_run(options.path, choice, lambda sentence: print(f"caql: {sentence}", file=sys.stderr))
    else:
        subject = from_network(options.path, choice)
    page = html(check(subject), trace(subject), f"caql explore {shlex.quote(str(options.path))}")
    write_atomically(options.out, partial(Path.write_text, data=page, encoding="utf-8"))
    print(f"{options.out}: {len(subject.states)} states, {len(page) / 1e6:.1f} MB")
