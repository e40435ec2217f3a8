"""`caql train TASK`: one run in one folder.

`--agent`, `--preset` and `--solver` decide which other options exist, so they are read first; everything else is the
configuration's fields, by tyro.  With `--resume` the stored configuration takes the place of the defaults.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from caql.action_sets import require_given
from caql.agents import AGENTS, PRESETS, agent_config, preset_loop, preset_settings
from caql.config import RunConfig
from caql.encoders import use
from caql.environments import ActionRange, known_task, stored_task
from caql.errors import CaqlError
from caql.maxq.solvers import SOLVERS, make_solver
from caql.runs.compilation_cache import keep_compiled
from caql.runs.folder import read_config, run
from caql.runs.progress import reporter_for_terminal


@dataclass(frozen=True)
class Train:
    """Train an agent on a task; results go to one folder.

    --agent chooses the algorithm (caql by default), --preset CAQL's settings to begin with and --solver its max-Q
    solver (ga by default); the options below are those of the choice.
    """

    config: Annotated[RunConfig, tyro.conf.arg(name="")]
    out: Path | None = None
    """Folder of the run; runs/TASK-AGENT-ID by default."""
    resume: bool = False
    """Go on with the run in --out; its own settings are the defaults."""
    checkpoint_seconds: float = 60.0
    """Seconds between checkpoints, or more where writing them would take a twentieth of the time; 0 writes one after
    every epoch."""
    trust: bool = False
    """With --resume: import the module that the stored task names, as in `module:Env-v0`."""


def read_range(text: str) -> ActionRange:
    """`0.5` is [-0.5, 0.5]; `-1,-0.5:1,0.25` gives each dimension its low and high; `none` the environment's own."""
    if text.lower() == "none":
        return None
    try:
        if ":" not in text:
            return float(text)
        low, high = (tuple(float(number) for number in side.split(",")) for side in text.split(":"))
    except ValueError as problem:
        raise CaqlError(
            f"--action-range = {text!r} must be a number r for [-r, r], or LOW:HIGH with a number per dimension each, "
            "as in --action-range=-1,-0.5:1,0.25"
        ) from problem
    return low, high


def write_range(value: ActionRange) -> str:
    """Undo `read_range`."""
    if isinstance(value, tuple):
        return ":".join(",".join(str(number) for number in side) for side in value)
    return "none" if value is None else str(value)


REGISTRY = tyro.constructors.ConstructorRegistry()


@REGISTRY.primitive_rule
def _action_range(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
    if info.type != ActionRange:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="R|LOW:HIGH",
        instance_from_str=lambda texts: read_range(texts[0]),
        is_instance=lambda value: value is None or isinstance(value, float | int | tuple),
        str_from_instance=lambda value: [write_range(value)],
    )


def take(arguments: list[str], option: str) -> tuple[str | None, list[str]]:
    """The value of `--option VALUE` or `--option=VALUE`, and the arguments without it."""
    rest, value = [], None
    waiting = False
    for argument in arguments:
        if waiting:
            value, waiting = argument, False
        elif argument == f"--{option}":
            waiting = True
        elif argument.startswith(f"--{option}="):
            value = argument.split("=", 1)[1]
        else:
            rest.append(argument)
    if waiting:
        raise CaqlError(f"--{option} needs a value")
    return value, rest


def parse(arguments: list[str]) -> Train:
    """The command line as data."""
    agent_name, arguments = take(arguments, "agent")
    preset, arguments = take(arguments, "preset")
    if preset is not None:
        if agent_name not in (None, "caql"):
            raise CaqlError(f"--preset = {preset!r} belongs to --agent caql; {agent_name} has none")
        preset_settings(preset)
        agent_name = preset
    solver_name, arguments = take(arguments, "solver")
    stored = _stored(arguments)
    agent: Any = stored.agent if stored and not agent_name else agent_config(agent_name or "caql")
    if solver_name:
        if not hasattr(agent, "solver"):
            raise CaqlError(f"--solver = {solver_name!r} belongs to --agent caql; {agent.name} has no max-Q solver")
        agent = replace(agent, solver=make_solver(solver_name))
    loop = preset_loop(agent_name or "caql")
    default = replace(stored, agent=agent, **loop) if stored else RunConfig(task=tyro.MISSING, agent=agent, **loop)
    kinds: dict[str, Any] = {"Agents": AGENTS, "Presets": PRESETS, "Solvers": SOLVERS}
    options = tyro.cli(
        Train,
        prog="caql train",
        description="\n\n".join(
            [str(Train.__doc__), *(f"{kind}: {', '.join(names)}" for kind, names in kinds.items())]
        ),
        args=arguments,
        default=Train(config=default),
        registry=REGISTRY,
    )
    if stored and stored.task not in arguments:
        stored_task(stored.task, options.out, options.trust)
    return options


def _stored(arguments: list[str]) -> RunConfig | None:
    out, _ = take(arguments, "out")
    if "--resume" not in arguments:
        return None
    if out is None:
        raise CaqlError("--resume needs --out, the folder of the run to go on with")
    stored = read_config(Path(out))
    named, _ = take(arguments, "action-set")
    if named is None:
        require_given(stored.action_set)
    return stored


def _use_encoder(options: Train, arguments: list[str]) -> None:
    """Import the encoder that the command line names; one that only a stored run names is not, without --trust."""
    encoder = getattr(options.config.agent, "encoder", None)
    if encoder is not None and (options.trust or not options.resume or take(arguments, "encoder")[0] == encoder):
        use(encoder)


def main(arguments: list[str]) -> None:
    """Run `caql train`."""
    options = parse(arguments)
    _use_encoder(options, arguments)
    config = replace(options.config, task=known_task(options.config.task) or options.config.task)
    folder = options.out or Path("runs") / f"{config.task}-{config.agent.name}-{config.id}"
    keep_compiled()
    reporter = reporter_for_terminal()
    reporter.say(f"{config.task}: {config.agent.name}, {config.train_steps} training steps, in {folder}")
    if run(config, folder, options.resume, reporter, options.checkpoint_seconds):
        curve = folder / "curve.svg"
        drawn = f"learning curve in {curve}, " if curve.exists() else ""
        reporter.say(f"finished; {drawn}weights in {folder / 'model.safetensors'}")
    else:
        sys.exit(130)
