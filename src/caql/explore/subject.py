"""What a page is about: a Q-network, some states, the admissible actions there, and the policy's choice.

The states of a run are those of one greedy episode, seen at even distances; those of a network file are stored with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from caql.actions import ActionSet
from caql.errors import CaqlError
from caql.maxq.solvers import make_solver
from caql.model import CAQL, load_model
from caql.network_files import read_network
from caql.playing.episodes import Moment, episode, visible_task
from caql.playing.strips import spread

Array = np.ndarray[Any, np.dtype[Any]]
MOST_ACTIONS = 40
"""More of them than anybody would look at one by one."""


class Subject(NamedTuple):
    """A network to look at.

    title, facts: for the head of the page.  names: of the d actions.
    layers: `(W, b)` pairs.  states: (S, n).  labels: of each state.  sets: the admissible actions, shared or (S, ...).
    guess: (S, d) what the action function chooses, or None.  moments: the episode's, or None.
    ascent, cross_entropy: the two searching solvers, with the run's own settings where it has some.
    """

    title: str
    facts: list[tuple[str, str]]
    names: list[str]
    layers: list[tuple[Array, Array]]
    states: Array
    labels: list[str]
    sets: ActionSet
    guess: Array | None
    moments: list[Moment] | None
    ascent: Any
    cross_entropy: Any


class Choice(NamedTuple):
    """How a run is looked at: the episode's seed, how many of its states, and what the run may import."""

    seed: int = 1_000_000
    states: int = 40
    frames: bool = True
    action_set: str | None = None
    trust: bool = False


def from_run(path: Path, choice: Choice, say: Callable[[str], None]) -> Subject:
    """A CAQL run's Q-network along one of its greedy episodes.

    say: told in a sentence why there are no frames, where there are none.
    Raises `CaqlError` for anything that is not a run of CAQL.
    """
    model = load_model(path, action_set=choice.action_set, trust=choice.trust)
    if not isinstance(model, CAQL):
        raise CaqlError(f"{path} holds a {type(model).__name__}, not a CAQL: only CAQL has a max-Q problem")
    moments = _moments(model, choice, say)
    total, length = moments[-1].total, moments[-1].step
    kept = [moments[index] for index in spread(len(moments), choice.states)]
    states = np.stack([moment.state for moment in kept]).astype(np.float64)
    config, agent = model.config, model.config.agent
    if agent.encoder is not None:
        raise CaqlError(f"the run has encoder = {agent.encoder!r}; only Q-networks of the observations can be explored")
    guess = None
    if agent.action_function != "none":
        guess = np.asarray(model.training.agent.max_q(model.training.state, states.astype(np.float32)).warm_start)
    own = {agent.solver.name: agent.solver}
    layers = [(np.asarray(weights), np.asarray(bias)) for weights, bias in model.q_layers()]
    facts = [
        ("task", config.task),
        ("learned with", f"CAQL, {agent.solver.name}"),
        ("training steps", f"{model.train_step:,}"),
        ("Q-network", _shape(layers)),
        ("this episode", f"return {total:.1f} in {length} steps"),
    ]
    return Subject(
        config.task,
        facts,
        _names(model.task, len(model.task.low)),
        layers,
        states,
        [f"step {moment.step}" for moment in kept],
        model.task.sets_at(states),
        guess,
        kept,
        own.get("ga") or make_solver("ga"),
        own.get("cem") or make_solver("cem"),
    )


def from_network(path: Path, choice: Choice) -> Subject:
    """A network file with its own states and bounds, as `caql solve` reads it."""
    network = read_network(path)
    if network.low is None or network.high is None:
        raise CaqlError(f"{path} holds no bounds of the actions (`low` and `high`), so there is nothing to draw over")
    size = int(np.asarray(network.layers[0][0]).shape[0])
    states = np.zeros((1, 0)) if network.states is None else np.asarray(network.states, np.float64)
    actions = size - states.shape[1]
    kept = spread(len(states), choice.states)
    low, high = (
        np.broadcast_to(np.asarray(side, np.float64), (actions,)).copy() for side in (network.low, network.high)
    )
    layers = [(np.asarray(weights), np.asarray(bias)) for weights, bias in network.layers]
    facts = [("file", path.name), ("network", _shape(layers)), ("states", f"{len(kept)} of {len(states)}")]
    return Subject(
        path.stem,
        facts,
        [f"a{index + 1}" for index in range(actions)],
        layers,
        states[kept],
        [f"state {index}" for index in kept],
        ActionSet.box(low, high),
        None,
        None,
        make_solver("ga"),
        make_solver("cem"),
    )


def _moments(model: CAQL, choice: Choice, say: Callable[[str], None]) -> list[Moment]:
    """The whole episode; frames only of the states that can be kept, because drawing is what takes time."""
    policy = model.greedy_policy()
    seed = (choice.seed, 0)
    plain = list(episode(model, policy, model.task, seed, drawn=False))
    if not choice.frames:
        return plain
    wanted = {plain[index].step for index in spread(len(plain), choice.states)}
    try:
        task = visible_task(model, choice.action_set)
        with contextlib.closing(task):
            return list(episode(model, policy, task, seed, drawn=wanted))
    except CaqlError as problem:
        say(f"no frames on the page: {problem}")
        return plain


def _names(task: Any, size: int) -> list[str]:
    """The joints that the actions drive, where a MuJoCo model names them; a1, a2, ... elsewhere."""
    with contextlib.suppress(AttributeError, KeyError, IndexError, TypeError, ValueError):
        body = task.unwrapped.model
        joints = [str(body.joint(int(index)).name) for index in body.actuator_trnid[:, 0]]
        short = [name.removesuffix("_joint").replace("_", " ") for name in joints]
        if len(short) == size and all(short):
            return short
    return [f"a{index + 1}" for index in range(size)]


def _shape(layers: Sequence[tuple[Array, Array]]) -> str:
    return " → ".join(str(size) for size in (layers[0][0].shape[0], *(weights.shape[1] for weights, _ in layers)))


def check(subject: Subject) -> Subject:
    """Refuse what a page cannot show."""
    if len(subject.names) > MOST_ACTIONS:
        raise CaqlError(f"the actions have {len(subject.names)} numbers; a page shows at most {MOST_ACTIONS}")
    return subject
