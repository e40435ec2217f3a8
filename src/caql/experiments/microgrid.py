"""The microgrid from training to table: three learned policies beside what an engineer would compare them with.

Every policy runs the same episodes, none of which was trained on, and its cost is divided by the proved lower bound of
the episode's own plan in hindsight (`tasks/microgrid_planning.py`): 1.00 is what no policy can beat.  The learners are

    caql-exact   whole numbers in the labels and in every action
    caql-ga      labels over the relaxed set; the action function's action is rounded to the closest admissible one
    sac          an actor whose samples are projected

and beside them stand rolling-horizon control with a naive forecast, and a plant that only buys what it needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from caql.config import RunConfig, from_json
from caql.environments import Task, make_task
from caql.errors import CaqlError
from caql.experiments.methods import METHODS as PAPER_METHODS
from caql.experiments.methods import Settings, lay_over
from caql.runs.checkpoints import resume_from
from caql.runs.folder import run
from caql.runs.progress import Reporter
from caql.runs.training import Training
from caql.tasks.microgrid import GENERATORS, Microgrid
from caql.tasks.microgrid_planning import RollingHorizon, hindsight

FIRST_EPISODE = 1_000_000
"""Seed of the first episode of the comparison; training draws its seeds elsewhere."""
LEAST_NOISE = 0.05
"""What exploration has come down to at the end of training."""

_EXPLORING: Settings = {"agent.exploration.minimum": LEAST_NOISE}
METHODS: dict[str, Settings] = {
    "caql-exact": {**PAPER_METHODS["caql-exact"], **_EXPLORING},
    "caql-ga": {**PAPER_METHODS["caql-ga"], **_EXPLORING, "agent.relaxed": True},
    "sac": PAPER_METHODS["sac"],
}


class Found(NamedTuple):
    """What a policy came to: its cost and the bound on it for each episode, violations, seconds a decision."""

    name: str
    costs: np.ndarray
    bounds: np.ndarray
    violations: int
    decisions: int
    seconds: float
    train_steps: int = 0

    @property
    def over_bound(self) -> float:
        """Total cost over total bound."""
        return float(self.costs.sum() / self.bounds.sum())

    @property
    def spread(self) -> float:
        """The standard error of that, over the episodes."""
        return (
            float(np.std(self.costs / self.bounds, ddof=1) / np.sqrt(len(self.costs))) if len(self.costs) > 1 else 0.0
        )


def configuration(method: str, train_steps: int, seed: int, settings: Settings | None = None) -> RunConfig:
    """The run of one method; exploration decays to its minimum over the run, whatever its length."""
    base = lay_over({"task": "Microgrid", "train_steps": train_steps, "seed": seed}, METHODS[method])
    epochs = max(1, train_steps // from_json(base).steps_per_epoch)
    values = {"evaluate_every": max(1, train_steps // 10), "evaluation_episodes": 5}
    if method != "sac":
        values["agent.exploration.decay"] = LEAST_NOISE ** (1 / epochs)
    return from_json(lay_over(base, values | (settings or {})))


@dataclass
class Episodes:
    """The episodes that all policies are judged on, with their bounds."""

    seeds: Sequence[int]
    bounds: np.ndarray

    @classmethod
    def draw(cls, count: int) -> Episodes:
        """So many episodes, always the same ones."""
        seeds = range(FIRST_EPISODE, FIRST_EPISODE + count)
        bounds = []
        for seed in seeds:
            env = Microgrid()
            env.reset(seed=seed)
            bounds.append(hindsight(env).bound)
        return cls(seeds, np.array(bounds))

    def judge(self, name: str, decide: Callable[[Task, np.ndarray], np.ndarray], task: Task | None = None) -> Found:
        """Run all of them in a task of their own, or in the one that a policy was trained on.

        decide: the task and what is observed -> the action that the environment is given; its processor time counts.
        """
        task = make_task("Microgrid") if task is None else task
        env: Any = task.unwrapped
        before = env.violations
        costs, spent, decisions = [], 0.0, 0
        for seed in self.seeds:
            observation, _ = task.reset(seed=seed)
            cost, over = 0.0, False
            while not over:
                began = time.process_time()
                action = decide(task, observation)
                spent += time.process_time() - began
                observation, _, over, _, info = task.step(action)
                decisions, cost = decisions + 1, cost + info["cost"]
            costs.append(cost)
        return Found(name, np.array(costs), self.bounds, env.violations - before, decisions, spent / decisions)


def trained(config: RunConfig, folder: Path, reporter: Reporter | None = None) -> Training | None:
    """The run in `folder`, trained to its end if it is not there yet; None if a signal stopped it before that."""
    if not run(config, folder, resume=True, reporter=reporter):
        return None
    training = Training(config)
    found = resume_from(folder, lambda _: None)
    if found is None:
        raise CaqlError(f"{folder} is finished but holds no checkpoint to judge; train it again in another folder")
    training.restore(*found[1:])
    return training


def judge_learned(name: str, training: Training, episodes: Episodes) -> Found:
    """A trained agent's greedy policy; a decision is the policy's answer and the closest admissible action to it."""
    policy = training.agent.policy(training.state, training.epoch)

    def decide(task: Task, observation: np.ndarray) -> np.ndarray:
        assert task.actions is not None
        return task.actions.admissible(policy.act(observation))

    return episodes.judge(name, decide, training.task)._replace(train_steps=training.train_step)


def judge_rolling_horizon(episodes: Episodes, horizon: int = 24) -> Found:
    """Model-predictive control with the naive forecast."""
    control = RollingHorizon(horizon)

    def decide(task: Task, _: np.ndarray) -> np.ndarray:
        env: Any = task.unwrapped
        return control.act(env) / env.unit

    return episodes.judge("rolling horizon", decide)


def judge_buying(episodes: Episodes) -> Found:
    """Generators off and battery idle: the grid gives whatever is needed."""

    def decide(task: Task, _: np.ndarray) -> np.ndarray:
        env: Any = task.unwrapped
        powers = np.zeros(GENERATORS + 2)
        powers[-1] = env.profiles.load[env.hour] - env.profiles.sun[env.hour]
        return powers / env.unit

    return episodes.judge("grid alone", decide)
