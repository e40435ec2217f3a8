import dataclasses
from typing import Literal

import pytest

from caql import config as config_module
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
        ({"replay_keeps": "oldest"}, "replay_keeps = 'oldest' must be 'newest' or 'sample'"),
        ({"seed": -1}, "seed = -1"),
        ({"seed": 2**31}, "less than 2\\^31"),
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


def changed(path, value):
    """A sound stored configuration with one setting replaced."""
    values = to_json(RunConfig("Hopper", 0.5))
    *folders, name = path.split(".")
    inner = values
    for folder in folders:
        inner = inner[folder]
    inner[name] = value
    return values


DEEP = [1]
for _ in range(100_000):
    DEEP = [DEEP]
DEEP_SETTINGS = {"x": 1}
for _ in range(500):
    DEEP_SETTINGS = {"x": DEEP_SETTINGS}


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("task", 3, "task = 3 must be text"),
        ("action_range", "wide", 'action_range = "wide" must be a number or a list of 2: '),
        ("action_range", [[0.0], [1.0], [2.0]], "must be a number or a list of 2: "),
        ("action_range", [["a"], [1.0]], "must be a number or a list of 2: "),
        ("train_steps", 1.5, "train_steps = 1.5 must be a whole number"),
        ("train_steps", True, "train_steps = true must be a whole number"),
        ("train_steps", 10**30, "must be a whole number below"),
        ("train_steps", 0, "train_steps = 0 must be at least 1"),
        ("episode_steps", "200", 'episode_steps = "200" must be a whole number below 2^63 or null'),
        ("zero_terminal_reward", 1, "zero_terminal_reward = 1 must be true or false"),
        ("agent", "caql", 'agent = "caql" must be an object with a name and settings'),
        ("agent", None, "agent = null must be an object with a name and settings"),
        ("agent", {}, "agent.name is missing; known: caql, naf"),
        ("agent", {"name": "cqal"}, "did you mean 'caql'"),
        ("agent", {"name": 7}, "agent.name = 7 must be text"),
        ("agent.discount", "abc", 'agent.discount = "abc" must be a number'),
        ("agent.discount", None, "agent.discount = null must be a number"),
        ("agent.target_rate", True, "agent.target_rate = true must be a number"),
        ("agent.discount", float("nan"), "agent.discount = NaN must be a number"),
        ("agent.discount", 10**400, "must be a number"),
        ("agent.discount", 2, "agent.discount = 2.0 must be at least 0 and less than 1"),
        ("agent.hidden", 32, "agent.hidden = 32 must be a list with a whole number below 2^63 in each place"),
        ("agent.hidden", [32, 16.5], "agent.hidden = [32, 16.5] must be a list with a whole number"),
        ("agent.hidden", [32, [16]], "agent.hidden = [32, [16]] must be"),
        ("agent.hidden", DEEP, "agent.hidden = a list of lists of lists must be"),
        ("agent.loss", "l3", "agent.loss = \"l3\" must be 'l2' or 'hinge'"),
        ("agent.loss", ["l2"], "agent.loss = [\"l2\"] must be 'l2' or 'hinge'"),
        ("agent.dynamic_tolerance", "1", 'agent.dynamic_tolerance = "1" must be a number or null'),
        ("agent.exploration", 3, "agent.exploration = 3 must be an object of settings"),
        ("agent.exploration.decay", "slow", 'agent.exploration.decay = "slow" must be a number'),
        ("agent.exploration.decay", 2.0, "agent.exploration.decay = 2.0 must be more than 0 and at most 1"),
        ("agent.exploration.colour", 2.0, "agent.exploration has no setting 'colour'"),
        ("agent.solver", "ga", 'agent.solver = "ga" must be an object with a name and settings'),
        ("agent.solver", {}, "agent.solver.name is missing; known: exact, scip"),
        ("agent.solver", {"name": "exat"}, "did you mean 'exact'"),
        ("agent.solver", {"name": None}, "agent.solver.name = null must be text"),
        ("agent.solver.iterations", 2.5, "agent.solver.iterations = 2.5 must be a whole number"),
        ("agent.solver.iterations", 0, "agent.solver.iterations = 0 must be at least 1"),
        ("agent.solver.threads", 2, "agent.solver has no setting 'threads'"),
        ("agent.solver.x", DEEP_SETTINGS, "the configuration is nested too deeply"),
        ("x.y", 1, "has no setting 'x.y'"),
        ("task", "x" * 500, None),
    ],
)
def test_every_wrong_setting_is_met_with_its_path_its_value_and_what_would_be_right(path, value, words):
    values = changed(path, value) if path != "x.y" else to_json(RunConfig("Hopper")) | {"x.y": 1}
    if words is None:
        assert from_json(values).task == value
        return
    with pytest.raises(CaqlError) as caught:
        from_json(values)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("values", [None, 3, "Hopper", [], [["task", "Hopper"]]])
def test_what_is_no_object_is_no_configuration(values):
    with pytest.raises(CaqlError, match="must be an object of settings"):
        from_json(values)


def test_a_configuration_needs_a_task():
    with pytest.raises(CaqlError, match="task is missing"):
        from_json({"seed": 1})


def test_whole_numbers_are_taken_where_numbers_are_asked_for():
    found = from_json(changed("agent.tolerance", 100))
    assert isinstance(found.agent.tolerance, float)
    assert found.agent.tolerance == 100.0
    assert from_json(changed("action_range", [[-1, -1, -1], [1, 1, 0.5]])).action_range == (
        (-1.0, -1.0, -1.0),
        (1.0, 1.0, 0.5),
    )


def test_a_literal_is_matched_with_its_type():
    assert config_module._fitted(1, Literal[True, "x"]) is config_module._UNFIT
    assert config_module._fitted(True, Literal[True, "x"]) is True


def test_differences_name_settings_that_only_one_has():
    old, new = RunConfig("Hopper", agent=config_class("sac")()), RunConfig("Hopper", agent=config_class("naf")())
    found = differences(old, new)
    assert "agent.name: sac -> naf" in found
    assert "agent.saturation_penalty: None -> 1.0" in found
    assert "agent.temperature: learned -> None" in found
