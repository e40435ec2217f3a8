"""The checks that every algorithm's settings go through."""

import math
from dataclasses import dataclass
from typing import Literal

import pytest

from caql.agents.agent import check_common
from caql.errors import CaqlError


@dataclass(frozen=True)
class Settings:
    hidden: tuple[int, ...] = (8,)
    action_hidden: tuple[int, ...] = (8,)
    discount: float = 0.9
    target_rate: float = 0.5
    q_learning_rate: float = 0.1
    penalty_learning_rate: float = 0.0
    loss: Literal["l2", "hinge"] = "l2"


def test_good_settings_pass_and_edges_belong_to_them():
    check_common(Settings())
    check_common(Settings(discount=0.0, target_rate=1.0, penalty_learning_rate=0.5, loss="hinge"))
    check_common(Settings(hidden=(), action_hidden=()), fewest_layers=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden": ()}, r"hidden = \(\) must be a tuple of at least one positive whole number"),
        ({"action_hidden": (4, 0)}, r"action_hidden = \(4, 0\) must be"),
        ({"discount": 1.0}, r"discount = 1.0 must be at least 0 and less than 1"),
        ({"discount": -0.1}, r"discount = -0.1 must be"),
        ({"target_rate": 0.0}, r"target_rate = 0.0 must be more than 0 and at most 1"),
        ({"target_rate": 1.1}, r"target_rate = 1.1 must be"),
        ({"q_learning_rate": 0.0}, r"q_learning_rate = 0.0 must be a positive finite number"),
        ({"q_learning_rate": math.inf}, r"q_learning_rate = inf must be a positive finite number"),
        ({"penalty_learning_rate": -0.1}, r"penalty_learning_rate = -0.1 must be 0 or a positive finite number"),
        ({"penalty_learning_rate": math.nan}, r"penalty_learning_rate = nan must be 0 or"),
        ({"loss": "l1"}, r"loss = 'l1' must be 'l2' or 'hinge'"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(CaqlError, match=message):
        check_common(Settings(**settings))


def test_a_network_may_be_linear_where_the_algorithm_allows_it():
    with pytest.raises(CaqlError, match=r"hidden = \(0,\) must be positive whole numbers"):
        check_common(Settings(hidden=(0,)), fewest_layers=0)
