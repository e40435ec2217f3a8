"""The one loop: collect an episode, learn S steps, evaluate, record (Appendix B, the outer loop).

An epoch is one turn of it.  `train_freq` says how much it collects, an episode in the paper or a number of steps, and
`steps_per_epoch` how much it learns then.

The loop is a generator that yields after every epoch, so that progress bars, files and checkpoints stay
outside it.  Everything random is drawn from a stream named by (seed, purpose, index), and every episode
starts from a seeded reset: between epochs the counters, and the actions of an episode that is still going on, say all
there is to say, and a run resumed from a checkpoint goes on bit for bit.  What was collected counts only when all of
it has been, so an environment that fails leaves the run as it was before.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from caql.agents import make_agent
from caql.agents.agent import Policy, Spec
from caql.config import RunConfig
from caql.environments import Misbehaviour, Task, make_task
from caql.errors import CaqlError
from caql.replay import Batch, Replay
from caql.runs import checkpoints
from caql.runs.clock import Clock
from caql.runs.episodes import evaluate_policy
from caql.runs.exploring import Explorer, Rollout, Watch
from caql.runs.frozen import Extent
from caql.runs.keeping import Keeper, Weights
from caql.runs.memory import check_memory
from caql.runs.n_step import n_step
from caql.runs.streams import Purpose, stream, update_key
from caql.runs.vector_exploring import VectorExplorer
from caql.vector_environments import VectorTask

AT_ONCE = 20
"""Gradient steps in one compiled call where their number varies; what is left over is made one by one."""


@dataclass
class Epoch:
    """What one turn of the loop brought: counters, the episode, learning statistics, perhaps an evaluation."""

    epoch: int
    train_step: int
    environment_steps: int
    episode_return: float
    """Of the last exploring episode that ended, or that was stopped; NaN before there is one."""
    statistics: dict[str, float]
    evaluation: dict[str, Any] | None = None
    returns: tuple[float, ...] = ()
    """Of the exploring episodes that ended in this epoch."""
    lengths: tuple[int, ...] = ()
    """Their steps."""


def config_task(config: RunConfig) -> Task:
    """The task that a configuration names."""
    return make_task(config.task, config.action_range, config.episode_steps, config.action_set)


def task_spec(task: Task, config: RunConfig) -> Spec:
    """What an agent must know of a task."""
    shape, dtype = task.observation_shape, task.observation_dtype
    return Spec(task.observation_size, task.action_set, config.epoch_steps, task.sets, task.sets_at, shape, dtype)


class Training:
    """A run in progress: the agent's state, the replay buffer and the counters.

    task: the environment; by default the one that the configuration names.
    envs: several environments that collect together, of which `task` is the first.
    """

    def __init__(self, config: RunConfig, task: Task | None = None, envs: VectorTask | None = None) -> None:
        self.config = config
        self.use(config_task(config) if task is None else task, envs)
        self.agent = make_agent(config.agent, task_spec(self.task, config))
        check_memory(self.agent, config.replay_size, self.task.observation_size)
        self.state = self.agent.init(jax.random.key(config.seed))
        sets = self.task.sets
        example = None if sets is None else sets.columns(sets.template)
        sizes = config.replay_size, self.task.observation_size, self.agent.spec.action_size
        self.replay = Replay(*sizes, example, self.agent.stored_dtype)
        self.epoch = 0
        self.train_step = 0
        self.environment_steps = 0
        self.records: list[dict[str, Any]] = []
        """One row per evaluation so far."""
        self.clock = Clock()
        self.keeper = Keeper()
        """The weights under which exploring episodes scored best."""
        self.watch: Watch | None = None
        """Who is told of every step of the environment."""
        self.around: Callable[[Policy], Policy] = lambda policy: policy
        """What is done to a policy before it explores."""
        self._last_return = math.nan
        self._since: list[dict[str, float]] = []
        """Statistics of the epochs since the last evaluation."""
        self._returns: list[float] = []
        """Returns of the whole exploring episodes since the last evaluation."""
        self._latest: tuple[Batch, jax.Array] | None = None
        """The minibatches learned last and their key, for `Agent.measure`."""

    def use(self, task: Task, envs: VectorTask | None = None) -> None:
        """Go on in another environment, with a new episode."""
        if envs is not None and self.config.by_episode:
            raise CaqlError(
                f"train_freq = {self.config.train_freq} counts episodes, which needs one environment and not "
                f"{envs.size}; give a number of steps"
            )
        if envs is not None and self.config.evaluate_every:
            raise CaqlError(
                f"evaluate_every = {self.config.evaluate_every} needs one environment and not {envs.size}; leave it "
                "out, and evaluate on an environment of its own"
            )
        episode = self.explorer.episode if hasattr(self, "explorer") else 0
        seed = self.config.seed
        self.task = task
        self.explorer: Explorer | VectorExplorer = Explorer(task, seed) if envs is None else VectorExplorer(envs, seed)
        self.explorer.episode = episode

    @property
    def decays(self) -> int:
        """How often what decays once an epoch, such as the noise, has done so."""
        return self.epoch if self.config.by_episode else self.train_step // self.config.epoch_steps

    @property
    def steps_so_far(self) -> int:
        """Environment steps, with those of a collecting that is still going on."""
        return self.environment_steps + self.explorer.taken

    def epochs(self, environment_steps: int | None = None) -> Iterator[Epoch]:
        """Train one epoch at a time, until `config.train_steps` gradient steps have been made.

        environment_steps: train until the environment has made this many steps in all, instead.  An episode still
            going on then is stopped there: its transitions are kept and learned from like any others, and the next
            call begins a new episode.
        Raises `Misbehaviour`, naming the step, if the environment does; the run is then as it was before the epoch
        (or before the evaluation), and another call tries again.
        """
        self._compile_ahead()
        if self._evaluation_due():
            row = self._evaluate()
            yield Epoch(self.epoch, self.train_step, self.environment_steps, row["return"], {}, row)
        while (
            self.train_step < self.config.train_steps
            if environment_steps is None
            else self.environment_steps < environment_steps
        ):
            left = None if environment_steps is None else environment_steps - self.environment_steps
            rollout = self._collect(left)
            if rollout.stopped or (left is not None and self.environment_steps >= (environment_steps or 0)):
                self.explorer.stop()
            # Who says stop in the middle of a collecting does not want to wait for an update.
            statistics = {} if rollout.stopped else self._learn(len(rollout.transitions.rewards))
            self.epoch += 1
            if statistics:
                self.keeper.add(rollout.returns, self.weights)
            evaluation = self._evaluate() if self._evaluation_due() else None
            counters = self.epoch, self.train_step, self.environment_steps
            ended = tuple(rollout.returns), tuple(rollout.lengths)
            yield Epoch(*counters, self._last_return, statistics, evaluation, *ended)
            if rollout.stopped:
                return

    def _compile_ahead(self) -> None:
        """Compile a solver that has to be, beside the first episodes; who needs it sooner waits for it there."""
        compile_now = getattr(getattr(self.config.agent, "solver", None), "compile", None)
        if compile_now is None or self.train_step:
            return

        def compile_quietly() -> None:
            # What goes wrong will go wrong again where the solver is used, and be told there.
            with contextlib.suppress(Exception):
                compile_now()

        threading.Thread(target=compile_quietly, name="compile the solver").start()

    def evaluate(self, episodes: int, seed_index: int, policy: Policy | None = None) -> list[float]:
        """Returns of `episodes` greedy episodes, each with a seed of its own; of the agent's policy unless given."""
        policy = policy or self.agent.policy(self.state, self.decays)
        self.explorer.leave()
        return evaluate_policy(policy, self.task, episodes, (self.config.seed, seed_index))

    @property
    def counters(self) -> dict[str, int]:
        """How far the run has come."""
        return {
            "epoch": self.epoch,
            "train_step": self.train_step,
            "environment_steps": self.environment_steps,
            "episode": self.explorer.episode,
        }

    def weights(self) -> Weights:
        """A copy of the agent's state, and the counters."""
        # The state's own memory is given up to the next update.
        arrays = checkpoints.flatten(self.state, "state")
        return {name: np.array(array) for name, array in arrays.items()}, self.counters

    def snapshot(self) -> tuple[checkpoints.Arrays, dict[str, Any]]:
        """Everything that the rest of the run depends on."""
        arrays = checkpoints.flatten(self.state, "state")
        arrays |= {f"replay.{name}": column for name, column in self.replay.snapshot().items()}
        if self.explorer.said and self.explorer.expected is not None:
            arrays |= {"episode.actions": np.stack(self.explorer.said), "episode.observation": self.explorer.expected}
        kept, keeping = self.keeper.snapshot()
        arrays |= kept
        meta = {
            **self.counters,
            "kept": keeping,
            "written": self.replay.written,
            "records": self.records,
            "seconds": self.clock.seconds,
            "since": self._since,
            "returns": self._returns,
            "counted": {} if self.task.actions is None else dict(self.task.actions.counted),
        }
        return arrays, meta

    def restore(self, arrays: checkpoints.Arrays, meta: dict[str, Any]) -> None:
        """Undo `snapshot`; `CaqlError` for anything missing or mistyped, and then nothing has changed."""
        counters = dict.fromkeys(("epoch", "train_step", "environment_steps", "written"), int)
        # A checkpoint of the first version has an epoch for each episode.
        meta = {"episode": meta.get("epoch")} | meta
        counters["episode"] = int
        checkpoints.check_meta(meta, **counters, records=list, since=list, returns=list, seconds=dict)
        for name, kind in (("records", dict), ("since", dict), ("returns", float)):
            checkpoints.check_entries(name, meta[name], kind)
        checkpoints.check_entries("seconds", meta["seconds"].values(), float | int)
        for row in meta["records"]:
            checkpoints.check_meta(row, train_step=int)
        counted = meta.get("counted", {})  # older checkpoints have none
        checkpoints.check_meta({"counted": counted}, counted=dict)
        checkpoints.check_meta(counted, **dict.fromkeys(counted, int))
        for statistics in meta["since"]:
            checkpoints.check_entries("since", statistics.values(), float)
        names = {name: f"replay.{name}" for name in self.replay.columns}
        columns = {name: arrays[saved] for name, saved in names.items() if saved in arrays}
        state = checkpoints.unflatten(self.state, arrays, "state")
        keeper = Keeper.restored(arrays, meta.get("kept", {}))  # older checkpoints have none
        if keeper.weights is not None:
            checkpoints.unflatten(self.state, keeper.weights[0], "state")
        said, expected = self._going_on(arrays)
        self.replay.restore(columns, meta["written"])
        self.state, self.clock, self.keeper = state, Clock(dict(meta["seconds"])), keeper
        self.records, self._since, self._returns = (list(meta[name]) for name in ("records", "since", "returns"))
        self.epoch, self.train_step = meta["epoch"], meta["train_step"]
        self.environment_steps = meta["environment_steps"]
        self.explorer.stop()
        self.explorer.episode = meta["episode"]
        self.explorer.said, self.explorer.expected = said, expected
        if self.task.actions is not None:
            self.task.actions.counted |= {name: counted[name] for name in self.task.actions.counted if name in counted}

    def _going_on(self, arrays: checkpoints.Arrays) -> tuple[list[np.ndarray], np.ndarray | None]:
        """The actions of the episode that a checkpoint was written in, and where they led."""
        if "episode.actions" not in arrays:
            return [], None
        actions = arrays["episode.actions"]
        checkpoints.check_array(
            arrays, "episode.actions", (len(np.atleast_1d(actions)), len(self.task.low)), np.float32
        )
        size = self.task.observation_size
        return list(actions), checkpoints.check_array(arrays, "episode.observation", (size,), np.float32)

    def _collect(self, most: int | None = None) -> Rollout:
        """An epoch's exploring, of at most so many steps, into the replay buffer."""
        began = time.perf_counter()
        count, unit = self.config.train_freq
        policy = self.around(self.agent.policy(self.state, self.decays))
        steps = count * self.explorer.size if unit == "step" else None
        if most is not None:
            steps = most if steps is None else min(steps, most)
        try:
            rollout = self.explorer.collect(policy, steps, count if unit == "episode" else None, self.watch)
        except Misbehaviour as problem:
            raise Misbehaviour(f"environment step {self.steps_so_far} of {self.config.task}: {problem}") from problem
        finally:
            self.explorer.taken = 0
        transitions = rollout.transitions
        if self.config.zero_terminal_reward:
            transitions.rewards[transitions.continues == 0] = 0.0
        if self.config.label_steps > 1:
            transitions = n_step(transitions, rollout.pieces, self.config.label_steps, self.config.agent.discount)
        sampled = self.config.replay_keeps == "sample"
        self.replay.extend(transitions, stream(self.config.seed, Purpose.KEEPING, self.epoch) if sampled else None)
        self.environment_steps += len(transitions.rewards)
        self._returns += rollout.returns
        if rollout.returns or unit == "episode":
            self._last_return = (rollout.returns or [rollout.total])[-1]
        self.clock.add("acting", rollout.acting)
        self.clock.add("physics", time.perf_counter() - began - rollout.acting)
        return rollout

    def _learn(self, collected: int) -> dict[str, float]:
        """The epoch's gradient steps, once the buffer holds enough; their mean statistics."""
        config = self.config
        if len(self.replay) < config.warm_up:
            return {}
        with self.clock.time("updating"):
            rng, key = stream(config.seed, Purpose.MINIBATCH, self.epoch), update_key(config.seed, self.epoch)
            found: list[tuple[int, dict[str, Any]]] = []
            sizes = _calls(config.steps_per_epoch, collected)
            for number, size in enumerate(sizes):
                batches = self.replay.sample(rng, size, config.batch_size)
                one = key if number == 0 else jax.random.fold_in(key, number)
                if number == 0:
                    self._latest = batches, one
                self.state, brought = self.agent.update(self.state, batches, one)
                found.append((size, brought))
            statistics = _weighted(jax.device_get(found))
            self.train_step += sum(sizes)
        if not all(math.isfinite(value) for value in statistics.values()):
            raise CaqlError(
                f"training step {self.train_step} gave a non-finite loss ({statistics}); "
                "the run stops here with its last checkpoint intact: a smaller learning rate may help"
            )
        if config.evaluate_every:
            self._since.append(statistics)
        return statistics

    def _evaluation_due(self) -> bool:
        """Whether a multiple of `evaluate_every` has been passed, or the start, since the last evaluation."""
        every = self.config.evaluate_every
        if not every or not self.records:
            return bool(every)
        return self.train_step // every > self.records[-1]["train_step"] // every

    def _evaluate(self) -> dict[str, Any]:
        """Greedy episodes and everything since the last ones, as a row of the records."""
        with self.clock.time("evaluating"):
            policy = Extent(self.agent.policy(self.state, self.decays))
            returns = self.evaluate(self.config.evaluation_episodes, len(self.records), policy)
        means = self._means()
        row = {
            "train_step": self.train_step,
            "epoch": self.epoch,
            "environment_steps": self.environment_steps,
            "return": float(np.mean(returns)),
            "return_std": float(np.std(returns)),
            "returns": returns,
            "frozen": policy.frozen(self.agent.spec.action_set),
            "training_return": float(np.mean(self._returns)) if self._returns else None,
            **means,
            **({} if self.task.actions is None else self.task.actions.take_counted()),
            "seconds": {part: round(seconds, 3) for part, seconds in self.clock.seconds.items()},
        }
        self._since, self._returns = [], []
        self.records.append(row)
        return row

    def _means(self) -> dict[str, float]:
        """Statistics since the last evaluation; max-Q's share of the updating time is told apart."""
        if not self._since:
            return {}
        names = dict.fromkeys(name for statistics in self._since for name in statistics)
        means = {name: float(np.mean([each[name] for each in self._since if name in each])) for name in names}
        if self._latest is not None:
            means |= self.agent.measure(self.state, *self._latest)
        steps = self.train_step - (self.records[-1]["train_step"] if self.records else 0)
        solving = means.pop("solve_seconds", 0.0) * steps
        if solving:
            self.clock.move("updating", "max_q", solving)
        return means


def _calls(wanted: int, collected: int) -> list[int]:
    """How an update's gradient steps are divided into compiled calls: each size is compiled once."""
    if wanted > 0:
        return [wanted]
    return [AT_ONCE] * (collected // AT_ONCE) + [1] * (collected % AT_ONCE)


def _weighted(found: list[tuple[int, dict[str, Any]]]) -> dict[str, float]:
    """The mean of each statistic over the gradient steps of the calls that report it."""
    if len(found) == 1:
        return {name: float(value) for name, value in found[0][1].items()}
    names = dict.fromkeys(name for _, statistics in found for name in statistics)
    rows = {name: [(size, float(each[name])) for size, each in found if name in each] for name in names}
    return {name: sum(n * value for n, value in row) / sum(n for n, _ in row) for name, row in rows.items()}
