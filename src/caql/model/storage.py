"""The half of a model that has to do with files: parameters, save and load, the replay buffer, pickling."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import jax
import numpy as np

from caql.errors import CaqlError, nearest
from caql.model import files
from caql.runs import checkpoints
from caql.runs.keeping import STRETCH
from caql.runs.training import Training


class Stored:
    """What can be written down of a model, and read back."""

    training: Training

    def get_parameters(self) -> dict[str, np.ndarray]:
        """Everything that learning changes, by name: copies of networks and optimisers."""
        return {name: np.array(array) for name, array in checkpoints.flatten(self.training.state, "state").items()}

    def set_parameters(self, parameters: Any, exact_match: bool = True) -> None:
        """Undo `get_parameters`; or take them from a saved model's file.

        exact_match: every parameter must be there; if not, those that are missing stay as they are.
        """
        given = parameters if isinstance(parameters, dict) else checkpoints.load(files.found(Path(parameters)))[0]
        own = self.get_parameters()
        for name in given:
            if name not in own:
                raise CaqlError(f"the model has no parameter {name!r}; {nearest(name, own)}")
        arrays = {name: np.asarray(array) for name, array in given.items()}
        self.training.state = checkpoints.unflatten(
            self.training.state, arrays if exact_match else own | arrays, "state"
        )

    def take_kept(self) -> int:
        """Go back to the weights under which exploring episodes scored best, networks and optimisers alike.

        Every 50 exploring episodes are judged by their mean return.  `predict`, `certify`, `save` and whatever is
        learned next go on from these weights; to have both, save the model before.
        Returns the number of gradient steps that they had learned.
        Raises `CaqlError` if no 50 episodes have been learned from yet.
        """
        kept = self.training.keeper.weights
        if kept is None:
            raise CaqlError(
                f"no weights are kept yet: that takes {STRETCH} exploring episodes after the warm-up, and there were "
                f"{len(self.training.keeper.returns)}"
            )
        arrays, counters = kept
        self.training.state = checkpoints.unflatten(self.training.state, arrays, "state")
        return counters["train_step"]

    def save(self, path: str | Path) -> None:
        """Write weights, optimiser and configuration to one file in the safetensors format.

        path: with the suffix .safetensors or .zip the file's name; .safetensors is appended to any other.
        """
        files.save_model(files.named(Path(path)), self)

    def save_replay_buffer(self, path: str | Path) -> None:
        """Write the replay buffer to one file in the safetensors format; names as of `save`, and .pkl is kept too."""
        columns = {name: np.array(column) for name, column in self.training.replay.snapshot().items()}
        meta = {"replay_buffer": True, "written": self.training.replay.written}
        checkpoints.save(files.named(Path(path)), columns, meta)

    def load_replay_buffer(self, path: str | Path) -> None:
        """Undo `save_replay_buffer`; the buffer must be of the same size and task."""
        file = files.found(Path(path))
        columns, meta = checkpoints.load(file)
        if meta.get("replay_buffer") is not True:
            raise CaqlError(f"{file} is not a saved replay buffer")
        checkpoints.check_meta(meta, written=int)
        self.training.replay.restore(columns, meta["written"])

    @classmethod
    def load(
        cls,
        path: str | Path,
        env: Any = None,
        action_set: Any = None,
        allow_other_bounds: bool = False,
        **habits: Any,
    ) -> Self:
        """A model from `save` or from a run's folder; `env` to act or learn in another environment.

        action_set: must be given again if the model was made with one: no file says which code to run.
        allow_other_bounds: take an environment whose actions have other bounds than those that were learned in.
        habits: `verbose`, `tensorboard_log` and `device`, as of the constructor.
        """
        from caql.model.loading import Given, load_model_as

        check_device(habits.pop("device", "auto"))
        for name in habits:
            if name not in ("verbose", "tensorboard_log"):
                known = ("env", "action_set", "allow_other_bounds", "verbose", "tensorboard_log", "device")
                raise CaqlError(f"load has no argument {name!r}; {nearest(name, known)}")
        model = load_model_as(Path(path), Given(env, action_set, allow_other_bounds=allow_other_bounds))
        if not isinstance(model, cls):
            raise CaqlError(f"{path} holds a {type(model).__name__}, not a {cls.__name__}")
        for name, value in habits.items():
            setattr(model, name, value)
        return model

    def __reduce__(self) -> tuple[Any, ...]:
        """For `pickle` and `copy`, as `multiprocessing` uses them: the bytes of `save` and the replay buffer."""
        return files.reduced(self)


def check_device(device: str) -> None:
    """Raise `CaqlError` unless `device` is the one that JAX computes on, or "auto"."""
    here = jax.default_backend()
    names = {"cpu": "cpu", "cuda": "gpu", "gpu": "gpu", "tpu": "tpu", "auto": here}
    wanted = names.get(str(device).split(":")[0])
    if wanted is None:
        raise CaqlError(f"device = {device!r} is not known; {nearest(str(device), names)}")
    if wanted != here:
        raise CaqlError(
            f"device = {device!r}, but JAX computes on {here}; leave device out, and choose with the environment "
            f"variable JAX_PLATFORMS={wanted.replace('gpu', 'cuda')} (for a GPU, install jax[cuda12])"
        )
