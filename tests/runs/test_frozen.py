"""Actors that no longer move are counted in every evaluation and told of once."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from caql.actions import make_box
from caql.agents.caql import CAQLConfig
from caql.agents.ddpg import DDPG, DDPGConfig
from caql.agents.sac import SACConfig
from caql.agents.td3 import TD3Config
from caql.config import RunConfig
from caql.runs.folder import read_metrics, run
from caql.runs.frozen import IN_A_ROW, Extent, warning
from caql.runs.progress import Silent


class Scripted:
    """Gives one action after the other."""

    def __init__(self, actions: list[list[float]]) -> None:
        self.actions = [np.array(action, np.float32) for action in actions]

    def act(self, state: Any) -> Any:
        del state
        return self.actions.pop(0)

    def explore(self, state: Any, noise: Any) -> Any:
        return self.act(state) + noise


def frozen(actions: list[list[float]], low: list[float], high: list[float]) -> int:
    policy = Extent(Scripted(actions))
    for action in actions:
        np.testing.assert_array_equal(policy.act(np.zeros(1)), np.float32(action))
    return policy.frozen(make_box(low, high))


@pytest.mark.parametrize(
    ("first", "then", "low", "high", "counts"),
    [
        (1.0, 1.0, -1.0, 1.0, True),
        (-1.0, 1.0, -1.0, 1.0, False),  # from end to end
        (0.0009, 0.0, 0.0, 20.0, True),  # within 1e-4 half ranges of the low end
        (0.0, 0.0011, 0.0, 20.0, False),
        (19.9991, 20.0, 0.0, 20.0, True),
        (0.5, 0.5, -1.0, 1.0, False),  # not at an end
        (2.0, 2.0, 2.0, 2.0, False),  # without a range
    ],
)
def test_entries_that_stay_at_one_end_are_counted(first, then, low, high, counts):
    assert frozen([[first], [then]], [low], [high]) == counts
    # The others, one that moves and one that does not, count for themselves.
    assert frozen([[0.0, first, 3.0], [0.1, then, 3.0]], [-1.0, low, -3.0], [1.0, high, 3.0]) == counts + 1


def test_it_explores_as_its_policy_does_and_does_not_count_that():
    policy = Extent(Scripted([[1.0], [0.0]]))
    policy.act(np.zeros(1))
    assert policy.explore(np.zeros(1), np.array([0.25])) == 0.25
    assert policy.frozen(make_box([-1.0], [1.0])) == 1
    assert Extent(Scripted([])).frozen(make_box([-1.0], [1.0])) == 0


def rows(*counts: int | None) -> list[dict[str, Any]]:
    return [{} if count is None else {"frozen": count} for count in counts]


def test_it_is_told_once_and_only_of_the_whole_action():
    still = [2] * IN_A_ROW
    assert "saturation_penalty = 1" in warning(rows(0, *still), DDPGConfig(), 2)
    assert "ddpg" in warning(rows(*still), DDPGConfig(), 2)
    assert warning(rows(*still[1:]), DDPGConfig(), 2) is None
    assert warning(rows(*still, 2), DDPGConfig(), 2) is None
    assert warning(rows(*still[1:], 1), DDPGConfig(), 2) is None
    assert warning(rows(None, *still[1:]), DDPGConfig(), 2) is None
    assert warning([], DDPGConfig(), 2) is None


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        (TD3Config(), True),
        (CAQLConfig(), True),
        (CAQLConfig(squash="clip"), False),
        (CAQLConfig(action_function="none"), False),
        (TD3Config(saturation_penalty=1.0), False),
        (SACConfig(), False),
    ],
)
def test_nothing_is_told_of_an_actor_that_the_penalty_could_not_help(agent, told):
    assert (warning(rows(*[1] * IN_A_ROW), agent, 1) is not None) == told


class Heard(Silent):
    def __init__(self) -> None:
        self.sentences: list[str] = []

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)


def test_a_run_with_a_frozen_actor_says_so(tmp_path, monkeypatch):
    begin = DDPG.init

    def far_out(self: DDPG, key: Any) -> Any:
        state = begin(self, key)
        # The last bias: the output before tanh is near 50 at every state.
        vector = state.actor.vector.at[-1].set(50.0)
        return state._replace(actor=state.actor._replace(vector=vector), actor_target=jnp.copy(vector))

    steps = 10 * IN_A_ROW
    config = RunConfig(
        "Pendulum",
        train_steps=steps,
        steps_per_epoch=10,
        episode_steps=20,
        warm_up=20,
        evaluate_every=10,
        evaluation_episodes=1,
        agent=DDPGConfig(hidden=(4,)),
    )
    lively, stuck = Heard(), Heard()
    run(config, tmp_path / "lively", reporter=lively)
    monkeypatch.setattr(DDPG, "init", far_out)
    run(config, tmp_path / "stuck", reporter=stuck)
    assert {row["frozen"] for row in read_metrics(tmp_path / "lively")} == {0}
    assert {row["frozen"] for row in read_metrics(tmp_path / "stuck")} == {1}
    assert not any("stayed at one end" in sentence for sentence in lively.sentences)
    assert sum("stayed at one end" in sentence for sentence in stuck.sentences) == 1
