"""Callbacks of `learn`: functions of ours, objects of Stable-Baselines3, and lists of either.

A function is called after every epoch (the steps collected between two updates) with the model and an `Epoch`.  An
object with the methods of Stable-Baselines3's `BaseCallback`, such as its `EvalCallback` and `CheckpointCallback`, is
called after every step of the environment, as that library does.  That library is not needed here: a class of one's
own with `init_callback` and `on_step` will do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from caql.errors import CaqlError
from caql.runs.exploring import Seen
from caql.runs.training import Epoch

Function = Callable[[Any, Epoch], bool | None]
"""Called after every epoch; returning False stops the learning."""


def sorted_out(callback: Any) -> tuple[list[Function], list[Any]]:
    """The functions and the objects among one callback or a list of them; `CaqlError` for anything else."""
    if callback is None:
        return [], []
    if isinstance(callback, list | tuple):
        pairs = [sorted_out(each) for each in callback]
        return [each for functions, _ in pairs for each in functions], [each for _, more in pairs for each in more]
    if hasattr(callback, "init_callback") and hasattr(callback, "on_step"):
        return [], [callback]
    if callable(callback):
        return [callback], []
    raise CaqlError(
        f"callback = {callback!r} must be a function of the model and an epoch, an object with Stable-Baselines3's "
        "init_callback and on_step, or a list of these"
    )


class Callbacks:
    """All callbacks of one call of `learn`."""

    def __init__(self, model: Any, callback: Any) -> None:
        self.model = model
        self.functions, self.objects = sorted_out(callback)
        for each in self.objects:
            each.init_callback(model)

    def start(self, said: dict[str, Any]) -> None:
        """Before the first step; `said` are the arguments of `learn`."""
        self._tell("on_training_start", said, {})

    def rollout(self, begins: bool) -> None:
        """Before an epoch, and after it."""
        self._tell("on_rollout_start" if begins else "on_rollout_end")

    def step(self, seen: Seen) -> bool:
        """After a step of the environments; False to stop."""
        found = {
            "new_obs": seen.observations,
            "rewards": seen.rewards,
            "dones": seen.dones,
            "infos": seen.infos,
            "actions": seen.actions,
        }
        go_on = True
        for each in self.objects:
            if hasattr(each, "update_locals"):
                each.update_locals(found)
            go_on = each.on_step() is not False and go_on
        return go_on

    def epoch(self, epoch: Epoch) -> bool:
        """After an epoch; False to stop."""
        answers = [each(self.model, epoch) for each in self.functions]
        return all(answer is not False for answer in answers)

    def end(self) -> None:
        """After the last step."""
        self._tell("on_training_end")

    def _tell(self, method: str, *arguments: Any) -> None:
        for each in self.objects:
            if hasattr(each, method):
                getattr(each, method)(*arguments)
