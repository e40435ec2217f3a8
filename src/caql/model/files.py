"""A model outside this process: names of files, what is written, and bytes for `pickle`.

Nothing of ours is ever unpickled from a file.  When Python's `multiprocessing` pickles a model, what it carries is
the bytes of a checkpoint, checked by its digest like any file's, and the user's own environment.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from caql.config import from_json, to_json
from caql.errors import CaqlError
from caql.runs import checkpoints
from caql.runs.folder import model_meta

SUFFIXES = (".safetensors", ".zip", ".pkl")
"""Endings that a file's name keeps; the contents are safetensors under any of them."""


def named(path: Path) -> Path:
    """The file that is written for `path`: as it is with a suffix that is kept, else with .safetensors.

    Raises `CaqlError` for a path that can only be a folder.
    """
    if path.name in ("", ".."):
        raise CaqlError(f"path = {str(path)!r} names a folder; give the name of a file, such as 'model.safetensors'")
    return path if path.suffix in SUFFIXES else path.with_name(path.name + ".safetensors")


def found(path: Path) -> Path:
    """The file that is meant by `path`, which may have been given without its suffix.

    Raises `CaqlError` if it is a zip file, as Stable-Baselines3 writes, or can only be a folder.
    """
    written = named(path)
    names = [path, *(path.with_name(path.name + suffix) for suffix in SUFFIXES)]
    file = next((name for name in names if name.is_file()), written)
    if file.is_file():
        with file.open("rb") as opened:
            if opened.read(2) == b"PK":
                raise CaqlError(f"{file} is a zip file of another library; caql reads the files that it wrote")
    return file


def save_model(path: Path, model: Any) -> None:
    """Weights, optimiser, configuration and counters, without the replay buffer."""
    arrays = checkpoints.flatten(model.training.state, "state")
    checkpoints.save(path, arrays, model_meta(model.training) | {"counted_from": model.counted_from})


def reduced(model: Any) -> tuple[Any, ...]:
    """What `pickle` needs of a model; `CaqlError` if its environment or action set cannot be pickled."""
    arrays, meta = model.training.snapshot()
    meta |= {"config": to_json(model.config), "counted_from": model.counted_from}
    for name, value in (("environment", model.made_from[0]), ("action set", model.made_from[1])):
        try:
            pickle.dumps(value)
        except Exception as problem:  # an environment may refuse in any way
            raise CaqlError(
                f"the model's {name} cannot be pickled ({type(problem).__name__}: {problem}); make the model with a "
                "Gymnasium id and functions of a module, or use save and load"
            ) from problem
    kept = {name: getattr(model, name) for name in ("verbose", "tensorboard_log", "stats_window_size", "action_noise")}
    return revived, (type(model), checkpoints.to_bytes(arrays, meta), model.made_from, kept)


def revived(cls: Any, data: bytes, made_from: tuple[Any, Any], kept: dict[str, Any]) -> Any:
    """Undo `reduced`."""
    from caql.model.environment import make_environment
    from caql.runs.training import Training

    arrays, meta = checkpoints.from_bytes(data)
    config = from_json(meta["config"])
    env, action_set = made_from
    task, envs = make_environment(env, config.action_range, config.episode_steps, action_set)
    training = Training(config, task, envs)
    training.restore(arrays, meta)
    model = cls.of(training, made_from)
    model.counted_from = meta["counted_from"]
    for name, value in kept.items():
        setattr(model, name, value)
    model.apply_noise()
    return model
