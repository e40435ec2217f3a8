import dataclasses

import pytest

from caql.agents import AGENTS, config_class
from caql.agents.caql import CAQLConfig
from caql.config import RunConfig, differences, from_json, to_json
from caql.errors import CaqlError
from caql.maxq.cross_entropy import CrossEntropy


@pytest.mark.parametrize("name", AGENTS)
def test_every_configuration_survives_json(name):
    config = RunConfig("Hopper", ((-1.0,) * 3, (0.5,) * 3), agent=config_class(name)(hidden=(8, 4)))
    assert from_json(to_json(config)) == config
    assert from_json(to_json(config)).id == config.id


def test_the_solver_and_its_settings_survive_json():
    config = RunConfig("Hopper", 0.5, agent=CAQLConfig(solver=CrossEntropy(samples=50)))
    assert from_json(to_json(config)).agent.solver == CrossEntropy(samples=50)


def test_ids_tell_configurations_apart():
    base = RunConfig("Hopper")
    others = [
        dataclasses.replace(base, seed=1),
        dataclasses.replace(base, action_range=0.5),
        dataclasses.replace(base, agent=CAQLConfig(solver=CrossEntropy())),
        dataclasses.replace(base, agent=config_class("sac")()),
    ]
    assert len({base.id, *(other.id for other in others)}) == 5


def test_differences_name_the_nested_setting():
    old = RunConfig("Hopper")
    new = dataclasses.replace(old, agent=CAQLConfig(discount=0.9))
    assert differences(old, new) == ["agent.discount: 0.99 -> 0.9"]
    assert differences(old, old) == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"batch_size": 0}, "batch_size = 0"),
        ({"evaluate_every": -1}, "evaluate_every = -1"),
        ({"warm_up": 10, "replay_size": 5}, "must not exceed replay_size"),
        ({"seed": -1}, "seed = -1"),
    ],
)
def test_bad_loops_are_named(settings, words):
    with pytest.raises(CaqlError, match=words):
        RunConfig("Hopper", **settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"discount": 1.0}, "discount"),
        ({"q_learning_rate": 0.0}, "q_learning_rate"),
        ({"target_rate": 0.0}, "target_rate"),
        ({"hidden": (32, 0)}, "hidden"),
        ({"tolerance": -1.0}, "tolerance = -1"),
        ({"dynamic_tolerance": 0.0}, "dynamic_tolerance"),
        ({"tolerance_decay": 1.5}, "tolerance_decay"),
        ({"cluster_radius": -0.1}, "cluster_radius"),
        ({"cluster_radius": 0.1, "cluster_decay": 0.0}, "cluster_decay"),
        ({"cluster_radius": 0.1, "cluster_p": 0.5}, "cluster_p"),
        ({"dual_only": True, "dual_filter": True}, "dual_only"),
        ({"hinge_penalty_learning_rate": 0.1}, "loss = 'l2'"),
        ({"hinge_penalty": 0.0}, "hinge_penalty"),
    ],
)
def test_bad_hyper_parameters_are_named(settings, words):
    with pytest.raises(CaqlError, match=words):
        CAQLConfig(**settings)


def test_an_unknown_stored_setting_is_named():
    values = to_json(RunConfig("Hopper"))
    values["batchsize"] = 3
    with pytest.raises(CaqlError, match="did you mean 'batch_size'"):
        from_json(values)
