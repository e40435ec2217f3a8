"""The user's object, after the habits of Stable-Baselines3's users: learn, predict, save, load."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import gymnasium as gym
import numpy as np

from caql.action_sets import require_given, set_name
from caql.agents import config_class, make_agent, with_preset
from caql.agents.agent import Policy
from caql.config import RunConfig, from_json
from caql.encoders import choose_encoder
from caql.environments import Task, episode_limit, make_task, stored_task
from caql.errors import CaqlError, nearest
from caql.maxq.arguments import checked_network, chosen_solver
from caql.maxq.maximize import maximize_over
from caql.maxq.problem import Solver
from caql.maxq.solvers import make_solver, proving_solver
from caql.networks import Layers
from caql.runs import checkpoints
from caql.runs.compilation_cache import keep_compiled
from caql.runs.folder import is_finished, save_model
from caql.runs.memory import state_shapes
from caql.runs.progress import reporter_for_terminal
from caql.runs.training import Epoch, Training, task_spec

Callback = Callable[["Model", Epoch], bool | None]
"""Called after every epoch; returning False stops the learning."""


class Certificate(NamedTuple):
    """What `certify` proves: no admissible action is worth more than `upper`; `gap` = upper - value.

    Where no action is admissible the status is `Status.INFEASIBLE`, value and upper are -inf and the gap is NaN.

    action (B, d), the others (B,), all float64 but `status`, of `caql.Status`; without the axis B for one observation.
    """

    action: np.ndarray
    value: np.ndarray
    upper: np.ndarray
    gap: np.ndarray
    status: np.ndarray


class Model:
    """An agent with its task; use one of the subclasses CAQL, NAF, DDPG, TD3, SAC."""

    agent_name: ClassVar[str]

    def __init__(
        self,
        policy: str = "MlpPolicy",
        env: Any = None,
        *,
        seed: int = 0,
        policy_kwargs: dict[str, Any] | None = None,
        action_range: Any = None,
        action_set: Any = None,
        episode_steps: int | None = 0,
        **settings: Any,
    ) -> None:
        """Bind an algorithm to a task.

        env: a Gymnasium environment, a Gymnasium id or a paper task's name.
        action_range: narrow the actions to [-r, r], or to (low, high).
        action_set: the admissible actions: an `ActionSet`, a function of a batch of observations (B, n) that gives one
            for each, or `MODULE:NAME` of either; by default the environment's own (see `make_task`).
        episode_steps: steps after which an episode is cut off; None is the environment's own limit, and 0 is 200 for
            a task that has a name here and the environment's own limit for everything else.
        settings: fields of the agent's configuration (`q_learning_rate=...`) or of the loop's (`batch_size=...`), and
            `preset="recommended"` or another of CAQL's, under whatever else is set.
        Raises `CaqlError` for a setting or a value that does not fit.
        """
        settings = with_preset(self.agent_name, settings)
        choose_encoder(policy, self.agent_name, settings)
        if env is None:
            raise CaqlError("env is missing: give an environment, a Gymnasium id or a paper task's name")
        episode_steps = episode_limit(env, episode_steps)
        agent = self._agent_config(settings, policy_kwargs or {})
        loop = {name: settings.pop(name) for name in list(settings) if name in _loop_fields()}
        if settings:
            unknown = next(iter(settings))
            known = [*(f.name for f in dataclasses.fields(agent)), *_loop_fields()]
            raise CaqlError(f"{type(self).__name__} has no setting {unknown!r}; {nearest(unknown, known)}")
        name = env if isinstance(env, str) else (env.spec.id if getattr(env, "spec", None) else type(env).__name__)
        loop = {"evaluate_every": 0, **loop}
        task = make_task(env, action_range, episode_steps, action_set)
        loop |= {"action_range": _plain(action_range), "action_set": set_name(action_set)}
        config = RunConfig(name, episode_steps=episode_steps, seed=seed, agent=agent, **loop)
        self._begin(Training(config, task))

    @classmethod
    def _from_training(cls, training: Training) -> Self:
        """A model of a training that is already there, such as one that was loaded from a file."""
        model = cls.__new__(cls)
        model._begin(training)
        return model

    def _begin(self, training: Training) -> None:
        keep_compiled()
        self.training = training
        self._policy: tuple[int, Policy] | None = None

    @classmethod
    def _agent_config(cls, settings: dict[str, Any], policy_kwargs: dict[str, Any]) -> Any:
        config = config_class(cls.agent_name)
        fields = {f.name for f in dataclasses.fields(config)}
        chosen = {name: settings.pop(name) for name in list(settings) if name in fields}
        for name, value in policy_kwargs.items():
            if name != "net_arch":
                raise CaqlError(f"policy_kwargs has no {name!r}; known: net_arch, a list of hidden units")
            chosen |= {each: tuple(value) for each in ("hidden", "action_hidden") if each in fields}
        if isinstance(chosen.get("solver"), str):
            backend = {"backend": settings.pop("backend")} if "backend" in settings else {}
            chosen["solver"] = make_solver(chosen["solver"], **backend, **settings.pop("solver_kwargs", {}))
        return config(**chosen)

    @property
    def config(self) -> RunConfig:
        return self.training.config

    @property
    def task(self) -> Task:
        return self.training.task

    @property
    def num_timesteps(self) -> int:
        """Environment steps taken so far."""
        return self.training.environment_steps

    @property
    def train_step(self) -> int:
        """Gradient steps taken so far."""
        return self.training.train_step

    def learn(self, total_timesteps: int, callback: Callback | None = None, progress_bar: bool = False) -> Self:
        """Train for `total_timesteps` more environment steps.

        An episode still going on when they are used up is stopped there, as by a time limit: its transitions are kept
        and learned from, and the next `learn` begins a new episode.  So the result depends only on the seed and
        on the steps asked for, also if the model is saved and loaded in between.
        callback: called after every episode with the model and an `Epoch`; returning False stops the learning.
        Raises `CaqlError` if `total_timesteps` is not positive, and `Misbehaviour`, a `CaqlError` too, if the
            environment fails; the model is then as it was before that episode.
        """
        if total_timesteps < 1:
            raise CaqlError(f"total_timesteps = {total_timesteps} must be at least 1")
        first = self.num_timesteps
        with _steps_bar(total_timesteps, progress_bar) as advance:
            for epoch in self.training.epochs(first + total_timesteps):
                advance(self.num_timesteps - first, epoch)
                if callback is not None and callback(self, epoch) is False:
                    break
        self._policy = None
        return self

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
        Raises `CaqlError` where no action is admissible.
        """
        del state, episode_start
        states = self._states(observation)
        policy = self.greedy_policy(greedy)
        if deterministic:
            actions = policy.act(states)
        else:
            noise = np.random.default_rng().standard_normal((len(states), len(self.task.low)), np.float32)
            actions = np.stack([policy.explore(x, e) for x, e in zip(states, noise, strict=True)])
        taken = self._taken(observation, actions)
        return (taken if self._is_batch(observation) else taken[0]), None

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

    def greedy_policy(self, greedy: str = "action_function") -> Policy:
        """Who acts: the learned network on the host, or the max-Q solver."""
        if greedy == "solver":
            return self._solver_policy()
        if greedy != "action_function":
            raise CaqlError(f"greedy = {greedy!r} must be 'action_function' or 'solver'")
        if self._policy is None or self._policy[0] != self.train_step:
            self._policy = self.train_step, self.training.agent.policy(self.training.state, self.training.epoch)
        return self._policy[1]

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

    def save(self, path: str | Path) -> None:
        """Write weights, optimiser and configuration to one file, `path` with the suffix .safetensors."""
        save_model(_with_suffix(Path(path)), self.training)

    @classmethod
    def load(cls, path: str | Path, env: Any = None, action_set: Any = None) -> Self:
        """A model from `save` or from a run's folder; `env` to act or learn in another environment.

        action_set: must be given again if the model was made with one: no file says which code to run.
        """
        model = load_model(Path(path), env, action_set)
        if not isinstance(model, cls):
            raise CaqlError(f"{path} holds a {type(model).__name__}, not a {cls.__name__}")
        return model


class CAQL(Model):
    """Q-learning whose maximiser comes from a solver: `CAQL("MlpPolicy", env, solver="ga")`."""

    agent_name = "caql"

    def certify(
        self,
        observation: Any,
        tolerance: float = 1e-4,
        solver: str | Solver | None = None,
        *,
        time_limit: float | None = None,
        node_limit: int | None = None,
    ) -> Certificate:
        """The best action at an observation (n,), or at each of a batch (B, n), with a proof of how good it is.

        Q is the network with exactly the weights learned, and everything is computed in float64: its first layer is
        not rounded to float32 when the state is folded in.  The proof is over the admissible actions of each state; by
        default the solver is `exact` if it takes such sets, and `mip` if not.
        `solver`, `tolerance`, `time_limit` and `node_limit`, warnings, errors and Ctrl-C are as in `caql.maximize`.
        """
        states = np.asarray(observation, np.float64).reshape(self._states(observation).shape)
        action_set = self.task.sets_at(states)
        solver = solver or proving_solver(action_set)
        guess: Any = self.training.agent.max_q(self.training.state, states.astype(np.float32)).warm_start
        solution = maximize_over(
            checked_network(
                [(np.asarray(weights), np.asarray(bias)) for weights, bias in self.q_layers()], self.q_inputs(states)
            ),
            action_set,
            chosen_solver(solver, {"threads": None, "time_limit": time_limit, "node_limit": node_limit}),
            tolerance,
            # A diverged action function must not keep anyone from knowing what Q is worth.
            guess if guess is not None and np.isfinite(guess).all() else None,
        )
        with np.errstate(invalid="ignore"):  # where no action is admissible, both are -inf
            gap = solution.upper - solution.values
        certificate = Certificate(solution.actions, solution.values, solution.upper, gap, solution.status)
        if self._is_batch(observation):
            return certificate
        return Certificate(*(np.asarray(part)[0] for part in certificate))

    def q_layers(self) -> Layers:
        """The Q-network's layers `(W, b)`, for `caql.maximize` and the like: of `q_inputs` and the action."""
        layers: Layers = self.training.agent.q_network.layers(np.asarray(self.training.state.q.vector))
        return layers

    def q_inputs(self, observations: Any) -> np.ndarray:
        """What the Q-network's layers see of (B, n) observations: an encoder's features, or the observations."""
        inputs: np.ndarray = self.training.agent.inputs(self.training.state, observations)
        return inputs

    def _solver_policy(self) -> Policy:
        sigma = self.config.agent.exploration.size(self.training.epoch, self.task.action_set)
        policy: Policy = self.training.agent.solver_policy(self.training.state, sigma)
        return policy


class NAF(Model):
    """Normalised advantage functions: a Q-function quadratic in the action."""

    agent_name = "naf"


class DDPG(Model):
    """Deep deterministic policy gradient."""

    agent_name = "ddpg"


class TD3(Model):
    """Twin delayed deterministic policy gradient."""

    agent_name = "td3"


class SAC(Model):
    """Soft actor-critic."""

    agent_name = "sac"


MODELS: dict[str, type[Model]] = {cls.agent_name: cls for cls in (CAQL, NAF, DDPG, TD3, SAC)}


def load_model(path: Path, env: Any = None, action_set: Any = None, trust: bool = False) -> Model:
    """The model in a file, or a run's folder: its final weights, or those of its latest checkpoint.

    A task such as `module:Env-v0` is code that the file's author chose: it is imported only if `env` names it or
    `trust` says so; likewise its action set, which `action_set` names.  Raises `CaqlError` for whatever is wrong with
    the file.
    """
    try:
        folder, file = path.is_dir(), path if path.exists() else _with_suffix(path)
    except OSError as problem:
        raise CaqlError(f"{str(path)[:80]!r} is not a usable file name: {problem.strerror}") from problem
    if folder:
        return _load_run(path, _Given(env, action_set, trust))
    arrays, meta = checkpoints.load(file)
    if not isinstance(meta.get("config"), dict):
        raise CaqlError(f"{file} is not a saved model: it has no configuration")
    with _usable(file):
        return _restore(from_json(meta["config"]), arrays, meta, file, _Given(env, action_set, trust))


class _Given(NamedTuple):
    """What the user names himself, and whether other code that a file names may be imported."""

    env: Any
    action_set: Any
    trust: bool


def _load_run(folder: Path, given: _Given) -> Model:
    from caql.runs.folder import read_config

    if is_finished(folder) and (folder / "model.safetensors").exists():
        return load_model(folder / "model.safetensors", *given)
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


def _restore(config: RunConfig, arrays: checkpoints.Arrays, meta: dict[str, Any], path: Path, given: _Given) -> Model:
    checkpoints.check_meta(meta, epoch=int, train_step=int, environment_steps=int)
    action_set = given.action_set
    if action_set is None and not given.trust:
        require_given(config.action_set)
    elif action_set is None:
        action_set = config.action_set
    known = stored_task(config.task, path, given.trust) if given.env is None else given.env
    task = make_task(known, config.action_range, config.episode_steps, action_set)
    # The saved arrays are held against the agent's shapes before it makes arrays of its own.
    state = checkpoints.unflatten(state_shapes(make_agent(config.agent, task_spec(task, config))), arrays, "state")
    model = object.__new__(MODELS[config.agent.name])
    training = Training(config, task)
    training.state = state
    training.epoch, training.train_step = meta["epoch"], meta["train_step"]
    training.environment_steps = meta["environment_steps"]
    model._begin(training)
    return model


def _loop_fields() -> list[str]:
    chosen = {"task", "action_range", "action_set", "episode_steps", "seed", "agent", "train_steps"}
    return [f.name for f in dataclasses.fields(RunConfig) if f.name not in chosen]


def _plain(action_range: Any) -> Any:
    if action_range is None or isinstance(action_range, int | float):
        return action_range
    return tuple(tuple(float(number) for number in np.atleast_1d(side)) for side in action_range)


def _with_suffix(path: Path) -> Path:
    return path if path.suffix == ".safetensors" else path.with_name(path.name + ".safetensors")


class _steps_bar:
    """A bar over environment steps, if wanted."""

    def __init__(self, total: int, wanted: bool) -> None:
        from rich.progress import Progress

        self.bar = Progress(disable=not wanted)
        self.task = self.bar.add_task("learning", total=total)

    def __enter__(self) -> Callable[[int, Epoch], None]:
        self.bar.__enter__()
        return lambda done, epoch: self.bar.update(
            self.task, completed=done, description=f"return {epoch.episode_return:.1f}"
        )

    def __exit__(self, *problem: Any) -> None:
        self.bar.__exit__(*problem)
