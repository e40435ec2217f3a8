"""The half of a model that acts: predictions, who makes them, and the same as an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from caql.agents.agent import Policy
from caql.config import SEEDS
from caql.environments import Task
from caql.errors import CaqlError
from caql.exports import policy_graph
from caql.graphs import Network
from caql.network_files.export import write_onnx
from caql.runs.streams import Purpose, stream
from caql.runs.training import Training


class Acting:
    """Actions for observations."""

    training: Training
    _policy: tuple[Any, Policy] | None
    """The policy on the host, and the agent's state that it was made of."""
    _draws: np.random.Generator
    """The noise of predictions."""

    @property
    def task(self) -> Task:
        """The environment with its narrowed actions; of several, the first."""
        return self.training.task

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
        greedy: str = "action_function",
    ) -> tuple[Any, None]:
        """Actions for one observation (n,) or a batch (B, n); `greedy="solver"` asks the max-Q solver (CAQL).

        Each is admissible at its observation and in the form that the environment takes: an array for a Box, a whole
        number for a Discrete space.  Of a batch they are stacked or, for Tuple and Dict spaces, in a list.
        deterministic: without exploration noise; the noise follows the model's seed (see `set_random_seed`).
        Raises `CaqlError` where no action is admissible.
        """
        del state, episode_start
        states = self._states(observation)
        policy = self.greedy_policy(greedy)
        if deterministic:
            actions = policy.act(states)
        else:
            noise = self._draws.standard_normal((len(states), len(self.task.low)), np.float32)
            actions = np.stack([policy.explore(x, e) for x, e in zip(states, noise, strict=True)])
        taken = self._taken(observation, actions)
        return (taken if self._is_batch(observation) else taken[0]), None

    def set_random_seed(self, seed: int | None = None) -> None:
        """Let the noise of `predict(deterministic=False)` begin again, from a seed or by default the model's own."""
        if seed is not None and not 0 <= seed < SEEDS:
            raise CaqlError(f"seed = {seed} must not be negative and must be less than 2^31 = {SEEDS}")
        self._draws = stream(self.training.config.seed if seed is None else seed, Purpose.PREDICTION)

    def _taken(self, observation: Any, actions: np.ndarray) -> Any:
        """The actions as the environment takes them, where that is more than a box."""
        possible = self.task.actions
        if possible is None:
            return actions
        given = np.asarray(observation).reshape(len(actions), -1)
        taken = [
            possible.decode(possible.admissible(action, self.task.set_at(x)))
            for x, action in zip(given, actions, strict=True)
        ]
        simple = not isinstance(possible.flat.space, gym.spaces.Tuple | gym.spaces.Dict)
        return np.stack(taken) if simple else taken

    @property
    def policy(self) -> ActingPolicy:
        """Who acts, on its own: `model.policy.predict(observation)`."""
        return ActingPolicy(self)

    def greedy_policy(self, greedy: str = "action_function") -> Policy:
        """Who acts: the learned network on the host, or the max-Q solver."""
        if greedy == "solver":
            return self._solver_policy()
        if greedy != "action_function":
            raise CaqlError(f"greedy = {greedy!r} must be 'action_function' or 'solver'")
        training = self.training
        if self._policy is None or self._policy[0] is not training.state:
            self._policy = training.state, training.agent.policy(training.state, training.decays)
        return self._policy[1]

    def export(self, path: str | Path, what: str = "policy") -> None:
        """Write the greedy policy, or with `what="q"` the Q-network (CAQL), as an ONNX file.

        The policy takes `observation` (N, n), of images (N, height, width, channels), as float32, and gives `action`
        (N, d) inside the action box, as `predict` does before an action set with rows or whole numbers is applied; Q
        takes `observation` and `action` and gives `q` (N, 1).  An encoder of caql's own is part of both.
        Raises `CaqlError` for a policy that is not a network alone, such as the max-Q solver, and for an encoder of
        your own.
        """
        if what not in ("policy", "q"):
            raise CaqlError(f"what = {what!r} must be 'policy' or 'q'")
        write_onnx(self._policy_graph() if what == "policy" else self._q_graph(), path)

    def _policy_graph(self) -> Network:
        return policy_graph(self.greedy_policy())

    def _q_graph(self) -> Network:
        raise CaqlError(f"what = 'q' needs CAQL; {type(self).__name__} keeps its critics to itself")

    def _solver_policy(self) -> Policy:
        raise CaqlError(f"greedy = 'solver' needs CAQL; {type(self).__name__} has no max-Q solver")

    def _is_batch(self, observation: Any) -> bool:
        """Whether these are several observations; one may have any number of axes itself."""
        return np.ndim(observation) > 1 and np.shape(observation) != self.task.observation_shape

    def _states(self, observation: Any) -> np.ndarray:
        states = np.asarray(observation, np.float32)
        size = self.task.observation_size
        states = states.reshape(-1, size) if states.ndim != 1 and states.size % size == 0 else states
        if states.shape[-1] != size:
            raise CaqlError(f"observation has shape {np.shape(observation)}; the task's have {size} numbers each")
        if not np.isfinite(states).all():
            raise CaqlError("observation holds a non-finite number; the action for it would mean nothing")
        return np.atleast_2d(states)


class ActingPolicy:
    """A model's policy with the call that Stable-Baselines3's have."""

    def __init__(self, model: Acting) -> None:
        self.model = model
        env = model.task.env
        self.observation_space, self.action_space = env.observation_space, env.action_space

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, None]:
        """As `Model.predict`."""
        return self.model.predict(observation, state, episode_start, deterministic)
