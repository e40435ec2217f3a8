"""Models from files and from the folders of runs, neither of which is trusted.

A task such as `module:Env-v0` is code that the file's author chose: it is imported only if the user names it himself,
or says that he trusts the file; likewise an action set.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from caql.action_sets import require_given
from caql.agents import make_agent
from caql.config import RunConfig, from_json
from caql.environments import is_made_by_name, stored_task
from caql.errors import CaqlError
from caql.model import files
from caql.model.algorithms import MODELS
from caql.model.base import Model
from caql.model.environment import make_environment, require_bounds
from caql.runs import checkpoints
from caql.runs.folder import is_finished, read_config
from caql.runs.memory import state_shapes
from caql.runs.progress import reporter_for_terminal
from caql.runs.training import Training, task_spec
from caql.vector_environments import is_vector


class Given(NamedTuple):
    """What the user names himself, and what else is allowed."""

    env: Any = None
    action_set: Any = None
    trust: bool = False
    """Whether other code that a file names may be imported."""
    allow_other_bounds: bool = False
    """Whether `env` may have other action bounds than the model."""


def load_model(path: Path, env: Any = None, action_set: Any = None, trust: bool = False) -> Model:
    """The model in a file, or a run's folder: its final weights, or those of its latest checkpoint.

    trust: import the modules that the file names.
    Raises `CaqlError` for whatever is wrong with the file.
    """
    return load_model_as(path, Given(env, action_set, trust))


def load_model_as(path: Path, given: Given) -> Model:
    """`load_model` with everything that the user may say."""
    try:
        if path.is_dir():
            return _load_run(path, given)
        file = files.found(path)
    except OSError as problem:
        raise CaqlError(f"{str(path)[:80]!r} is not a usable file name: {problem.strerror}") from problem
    arrays, meta = checkpoints.load(file)
    if not isinstance(meta.get("config"), dict):
        raise CaqlError(f"{file} is not a saved model: it has no configuration")
    with _usable(file):
        return _restore(from_json(meta["config"]), arrays, meta, file, given)


def _load_run(folder: Path, given: Given) -> Model:
    if is_finished(folder) and (folder / "model.safetensors").exists():
        return load_model_as(folder / "model.safetensors", given)
    with _usable(folder / "config.json"):
        config = read_config(folder)
    arrays, meta = checkpoints.latest_checkpoint(folder, reporter_for_terminal().say)
    with _usable(folder):
        return _restore(config, arrays, meta, folder / "config.json", given)


@contextlib.contextmanager
def _usable(path: Path) -> Iterator[None]:
    """Make what a file's wrong values lead to one sentence about the file, with the error as its cause."""
    try:
        yield
    except CaqlError as problem:
        raise CaqlError(str(problem) if str(path) in str(problem) else f"{path}: {problem}") from problem
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as problem:
        reason = (str(problem).strip().splitlines() or [type(problem).__name__])[0][:200]
        raise CaqlError(f"{path} holds values that cannot be used: {reason}") from problem


def _restore(config: RunConfig, arrays: checkpoints.Arrays, meta: dict[str, Any], path: Path, given: Given) -> Model:
    checkpoints.check_meta(meta, epoch=int, train_step=int, environment_steps=int)
    # Files of the first version do not have these.
    later = {"episode": meta["epoch"], "counted_from": 0} | meta
    checkpoints.check_meta(later, episode=int, counted_from=int)
    action_set = given.action_set
    if action_set is None and not given.trust:
        require_given(config.action_set)
    elif action_set is None:
        action_set = config.action_set
    env = given.env
    if env is None:
        env = stored_task(config.task, path, given.trust)
        if not is_made_by_name(env):
            raise CaqlError(
                f"the model was made with an environment, {config.task!r}, that is not stored with it: pass env="
            )
    task, envs = make_environment(
        env, config.action_range, None if is_vector(env) else config.episode_steps, action_set
    )
    _check_spaces(meta.get("spaces"), task, given)
    # The saved arrays are held against the agent's shapes before it makes arrays of its own.
    state = checkpoints.unflatten(state_shapes(make_agent(config.agent, task_spec(task, config))), arrays, "state")
    training = Training(config, task, envs)
    training.state = state
    training.epoch, training.train_step = meta["epoch"], meta["train_step"]
    training.environment_steps, training.explorer.episode = meta["environment_steps"], later["episode"]
    model = MODELS[config.agent.name].of(training, (env, action_set))
    model.counted_from = later["counted_from"]
    return model


def _check_spaces(spaces: Any, task: Any, given: Given) -> None:
    """Hold the environment's sizes and bounds against the stored ones; a checkpoint stores none."""
    if not isinstance(spaces, dict):
        return
    size = spaces.get("observation_size")
    if size != task.observation_size:
        raise CaqlError(
            f"env has observations of {task.observation_size} numbers; the model was made for {str(size)[:20]}"
        )
    low, high = spaces.get("low"), spaces.get("high")
    if not (isinstance(low, list) and isinstance(high, list)):
        raise CaqlError("the saved state does not fit: spaces has no lists low and high")
    if given.allow_other_bounds:
        return
    try:
        require_bounds(low, high, task)
    except CaqlError as problem:
        raise CaqlError(f"{problem}; allow_other_bounds=True takes it all the same") from problem
