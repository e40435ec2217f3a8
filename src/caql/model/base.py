"""The user's object, after the habits of Stable-Baselines3's users: learn, predict, save, load.

What differs from that library is on the page docs/tutorials/from-stable-baselines3.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

import gymnasium as gym
import jax
import numpy as np

from caql.action_sets import set_name
from caql.agents.agent import Policy
from caql.config import SEEDS, RunConfig
from caql.encoders import choose_encoder
from caql.environments import Task, episode_limit, known_task
from caql.errors import CaqlError, nearest
from caql.model.acting import Acting
from caql.model.environment import environment_name, make_environment, normaliser, require_alike, vector_of
from caql.model.learning import Asked, Log, learn
from caql.model.logger import Logger
from caql.model.names import Defaults, choose
from caql.model.noise import NoisyPolicy, as_exploration
from caql.model.storage import Stored, check_device
from caql.replay import Replay
from caql.runs.compilation_cache import keep_compiled
from caql.runs.streams import Purpose, stream
from caql.runs.training import Training
from caql.vector_environments import is_vector

DEFAULTS = ("paper", "stable-baselines3")


class Model(Acting, Stored):
    """An agent with its task; use one of the subclasses CAQL, NAF, DDPG, TD3, SAC."""

    agent_name: ClassVar[str]
    action_noise: Any
    """The object that gives noise for exploring, where it is no setting of the agent."""
    verbose: int
    tensorboard_log: str | Path | None

    def __init__(
        self,
        policy: str = "MlpPolicy",
        env: Any = None,
        *,
        seed: int | None = 0,
        policy_kwargs: dict[str, Any] | None = None,
        action_range: Any = None,
        action_set: Any = None,
        episode_steps: int | None = 0,
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        action_noise: Any = None,
        device: str = "auto",
        stats_window_size: int = 100,
        defaults: str | None = None,
        **settings: Any,
    ) -> None:
        """Bind an algorithm to a task.

        env: a Gymnasium environment, several of them (a vector of Gymnasium's or of Stable-Baselines3's), a Gymnasium
            id or a paper task's name.
        seed: decides everything random; None draws one, which `config.seed` then says.
        policy_kwargs: `net_arch`, hidden units as a list or as dict(qf=[...], pi=[...]).
        action_range: narrow the actions to [-r, r], or to (low, high).
        action_set: the admissible actions: an `ActionSet`, a function of a batch of observations (B, n) that gives one
            for each, or `MODULE:NAME` of either; by default the environment's own (see `make_task`).
        episode_steps: steps after which an episode is cut off; None is the environment's own limit, and 0 is 200 for
            a task that has a name here and the environment's own limit for everything else.
        verbose: 1 prints a table of the learning's progress.
        tensorboard_log: folder for TensorBoard.
        action_noise: noise for exploring, a number or an object of Stable-Baselines3, in place of the agent's own.
        device: "auto", or the one that JAX computes on.
        defaults: "stable-baselines3" for a loop as that library's users expect it, or "paper" for everything that the
            paper has; by default the paper's loop for a task that has a name here, the other one for any other
            environment, and CAQL's recommended preset in both, but not with an encoder or a solver that proves.
        settings: fields of the agent's configuration (`q_learning_rate=...`) or of the loop's (`batch_size=...`), also
            by Stable-Baselines3's names (`gamma=...`, `train_freq=...`); and `preset="paper"` or another of CAQL's,
            under whatever else is set.
        Raises `CaqlError` for a setting or a value that does not fit.
        """
        choose_encoder(policy, self.agent_name, settings)
        if env is None:
            raise CaqlError("env is missing: give an environment, a Gymnasium id or a paper task's name")
        if defaults is not None and defaults not in DEFAULTS:
            raise CaqlError(f"defaults = {defaults!r} is not known; {nearest(str(defaults), DEFAULTS)}")
        check_device(device)
        own_noise = as_exploration(action_noise) if self.agent_name != "sac" else None
        if own_noise is not None:
            settings.setdefault("exploration", own_noise)
        elif action_noise is not None and not callable(action_noise):
            right = "an object" if self.agent_name == "sac" else "a number, or an object"
            raise CaqlError(f"action_noise = {action_noise!r} must be {right} that is called for noise")
        named = isinstance(env, str) and known_task(env) is not None
        kind = self.agent_name, type(self).__name__
        paper_loop = named if defaults is None else defaults == "paper"
        chosen = choose(kind, settings, policy_kwargs, Defaults(paper_loop, preset=defaults != "paper"))
        episode_steps = episode_limit(env, episode_steps)
        task, envs = make_environment(env, action_range, episode_steps, action_set)
        loop = chosen.loop | {"action_range": _plain(action_range), "action_set": set_name(action_set)}
        seed = int(np.random.SeedSequence().generate_state(1)[0]) % SEEDS if seed is None else seed
        name = environment_name(env)
        config = RunConfig(name, episode_steps=episode_steps, seed=seed, agent=chosen.agent, **loop)
        self._begin(Training(config, task, envs), (env, action_set))
        self.action_noise = None if own_noise is not None else action_noise
        self.verbose, self.tensorboard_log = verbose, tensorboard_log
        self.stats_window_size = stats_window_size
        self.apply_noise()

    @classmethod
    def of(cls, training: Training, made_from: tuple[Any, Any]) -> Self:
        """A model of a training that is already there; `made_from` are the environment and action set given for it."""
        model = cls.__new__(cls)
        model._begin(training, made_from)
        return model

    def _begin(self, training: Training, made_from: tuple[Any, Any]) -> None:
        keep_compiled()
        self.made_from = made_from
        self.training = training
        self.verbose, self.tensorboard_log, self.stats_window_size = 0, None, 100
        self.action_noise = None
        self.log: Log | None = None
        self.logger_is_set = False
        self._logger = Logger()
        self.counted_from = 0
        self._policy = None
        self._draws = stream(training.config.seed, Purpose.PREDICTION)

    def apply_noise(self) -> None:
        """Let `action_noise`, if it is an object, be called while exploring."""
        if self.action_noise is not None:
            self.training.around = self._with_noise

    def _with_noise(self, policy: Policy) -> Policy:
        half = (self.task.high - self.task.low) / 2
        return NoisyPolicy(policy, self.action_noise, half, own=self.agent_name == "sac")

    @property
    def config(self) -> RunConfig:
        """All settings of the run."""
        return self.training.config

    @property
    def num_timesteps(self) -> int:
        """Environment steps taken since they were last counted from 0 (see `learn`)."""
        return self.training.steps_so_far - self.counted_from

    @property
    def train_step(self) -> int:
        """Gradient steps taken so far."""
        return self.training.train_step

    @property
    def seed(self) -> int:
        """What decides everything random."""
        return self.config.seed

    @property
    def device(self) -> str:
        """Where JAX computes."""
        return str(jax.default_backend())

    @property
    def n_envs(self) -> int:
        """Environments that collect together."""
        return self.training.explorer.size

    @property
    def observation_space(self) -> gym.Space[Any]:
        """The environment's own."""
        return self.task.env.observation_space

    @property
    def action_space(self) -> gym.Space[Any]:
        """The environment's own; actions are narrower where an action range or set was given."""
        return self.task.env.action_space

    @property
    def replay_buffer(self) -> Replay:
        """The transitions that are learned from: `len(model.replay_buffer)`, `model.replay_buffer.data`."""
        return self.training.replay

    @property
    def logger(self) -> Any:
        """Where numbers are recorded by name."""
        return self._logger

    def set_logger(self, logger: Any) -> None:
        """Record into another log, an object with Stable-Baselines3's `record` and `dump`, from now on."""
        if not (hasattr(logger, "record") and hasattr(logger, "dump")):
            raise CaqlError(f"logger = {logger!r} must have record(name, value) and dump(step)")
        self._logger, self.logger_is_set = logger, True

    def use_logger(self, logger: Logger) -> None:
        """The log of one call of `learn`."""
        self._logger = logger

    def dump_logs(self) -> None:
        """Write the present state of the learning to the log."""
        if self.log is not None:
            self.log.dump()

    def learn(
        self,
        total_timesteps: int,
        callback: Any = None,
        log_interval: int | None = 4,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train for `total_timesteps` more environment steps.

        An episode still going on when they are used up is stopped there, as by a time limit: its transitions are kept
        and learned from, and the next `learn` begins a new episode.  So the result depends only on the seed and
        on the steps asked for, also if the model is saved and loaded in between.
        callback: a function called after every epoch (what is collected between two updates) with the model and an
            `Epoch`, returning False to stop; an object of Stable-Baselines3's `BaseCallback`; or a list of these.
        log_interval: episodes between two rows of the log; None for no log.
        tb_log_name: name of the run in `tensorboard_log`; by default the class's.
        reset_num_timesteps: count `num_timesteps` from 0 again.  What was learned stays in any case.
        Raises `CaqlError` if an argument is wrong, and `Misbehaviour`, a `CaqlError` too, if the environment fails;
            the model is then as it was before that epoch.
        """
        if reset_num_timesteps:
            self.counted_from = self.training.environment_steps
        name = type(self).__name__ if tb_log_name is None else tb_log_name
        learn(self, Asked(total_timesteps, callback, log_interval, name, reset_num_timesteps, progress_bar))
        self._policy = None
        return self

    def get_env(self) -> Any:
        """The environment as Stable-Baselines3 gives it: a vector of one, or the vector that was given."""
        return vector_of(self.task, getattr(self.training.explorer, "envs", None))

    def get_vec_normalize_env(self) -> Any:
        """Stable-Baselines3's `VecNormalize` around the given environments, or None."""
        return normaliser(getattr(self.training.explorer, "envs", None))

    def set_env(self, env: Any, force_reset: bool = True) -> None:
        """Go on in another environment, with observations and action bounds as before; an episode ends here."""
        if not force_reset:
            raise CaqlError(
                "force_reset = False is not supported: another environment begins with an episode of its own"
            )
        config = self.config
        if config.action_set is not None and not isinstance(env, Task):
            raise CaqlError("the model has an action set: give make_task(env, action_set=...) with the same one")
        steps = None if is_vector(env) or isinstance(env, Task) else config.episode_steps
        bounds = None if isinstance(env, Task) else config.action_range
        task, envs = make_environment(env, bounds, steps, None)
        require_alike(self.task, task)
        self.training.use(task, envs)
        self.made_from = env, self.made_from[1]


def _plain(action_range: Any) -> Any:
    if action_range is None or isinstance(action_range, int | float):
        return action_range
    return tuple(tuple(float(number) for number in np.atleast_1d(side)) for side in action_range)
