"""The tasks that have a name here: the paper's six, the constrained benchmark's problems, two of our own."""

from __future__ import annotations

from typing import Any, NamedTuple

from caql.tasks import constrained

PAPER_STEPS = 200
"""Steps of an episode in the paper's six tasks, and by default in the others that have a name here."""


class PaperTask(NamedTuple):
    """One of the paper's benchmarks: its Gymnasium id, constructor arguments and tested ranges (Table 6)."""

    id: str
    arguments: dict[str, Any]
    ranges: tuple[float, ...]


TASKS = {
    "Pendulum": PaperTask("Pendulum-v1", {}, (2.0, 1.0, 0.66)),
    "Hopper": PaperTask("Hopper-v4", {}, (1.0, 0.5, 0.25)),
    "Walker2D": PaperTask("Walker2d-v4", {}, (1.0, 0.5, 0.25)),
    "HalfCheetah": PaperTask("HalfCheetah-v4", {}, (1.0, 0.5, 0.25)),
    # Gym's version 2 reported contact forces; only with them does an Ant have the paper's 111 observations.
    "Ant": PaperTask("Ant-v4", {"use_contact_forces": True}, (1.0, 0.5, 0.25, 0.1)),
    "Humanoid": PaperTask("Humanoid-v4", {}, (0.4, 0.25, 0.1)),
}


def paper_task(name: str) -> str | None:
    """The paper's spelling of a task name, whatever the case, or None."""
    return {known.lower(): known for known in TASKS}.get(name.lower())


OWN_TASKS = {"Microgrid": "caql.tasks.microgrid", "Platform": "caql.tasks.platform", "Dot": "caql.tasks.dot"}
"""Environments of this package: name of the class -> its module."""


def known_task(name: str) -> str | None:
    """The spelling of a task that has a name here (the paper's, constrained, our own), whatever the case, or None."""
    return {known.lower(): known for known in (*TASKS, *constrained.PROBLEMS, *OWN_TASKS)}.get(name.lower())


def episode_limit(task: Any, episode_steps: int | None) -> int | None:
    """What `episode_steps` means for a task: 0 is 200 steps for a task with a name here, else no limit of ours.

    Returns the number of steps, or None where the environment's own limit counts.
    """
    if episode_steps == 0:
        return PAPER_STEPS if isinstance(task, str) and known_task(task) else None
    return episode_steps
