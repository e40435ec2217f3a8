"""Specs become configurations: how many, which, and what happens to names that do not exist."""

import json
from dataclasses import replace

import pytest

from caql.config import from_json, to_json
from caql.errors import CaqlError
from caql.experiments import specs
from caql.experiments.report.tables import identity
from caql.experiments.specs import SPECS, choose_columns, chosen, configuration, configurations, find_spec, grid


def column(spec, name):
    return choose_columns(SPECS[spec], [name])[0]


@pytest.mark.parametrize(
    ("name", "runs"),
    [("table1", 98), ("table3", 30), ("table4", 30), ("table5", 10), ("latency", 5), ("hinge", 384), ("steps1000", 55)],
)
def test_number_of_runs_for_one_seed(name, runs):
    assert len(configurations(SPECS[name], seeds=[0])) == runs


def test_table_two_is_the_whole_grid():
    found = configurations(SPECS["table2"], ["pendulum-2"], ["caql-ga", "naf"], seeds=[0, 1])
    assert len(found) == 2 * (32 + 8)
    assert len({config.id for config in found}) == len(found)


@pytest.mark.parametrize("method", ["caql-exact", "caql-ga", "caql-cem", "ddpg", "td3", "sac"])
def test_grids_have_the_papers_thirty_two_points(method):
    points = grid(method)
    assert len(points) == 32
    assert len({json.dumps(point) for point in points}) == 32


def test_part_of_a_grid_is_always_the_same_part():
    assert len(grid("sac", 5)) == 5
    assert grid("sac", 5) == grid("sac", 5)
    assert all(point in grid("sac") for point in grid("sac", 5))
    assert len(grid("naf", 99)) == 8
    with pytest.raises(CaqlError, match="at least 1"):
        grid("sac", 0)


def test_methods_get_their_solver_and_gap():
    exact = configuration(SPECS["table1"], ("Hopper", 0.5), column("table1", "caql-exact"))
    assert (exact.task, exact.action_range, exact.train_steps) == ("Hopper", 0.5, 200_000)
    assert (exact.agent.solver.name, exact.agent.solver.threads, exact.agent.relative_tolerance) == ("exact", 1, 1e-4)
    ant = configuration(SPECS["table1"], ("Ant", 0.1), column("table1", "td3"))
    assert (ant.agent.name, ant.train_steps) == ("td3", 500_000)


def test_ablations_set_what_their_column_says():
    cluster = configuration(SPECS["table3"], ("Hopper", 1.0), column("table3", "ga+df+c0.25"))
    assert (cluster.agent.dual_filter, cluster.agent.cluster_radius, cluster.agent.solver.iterations) == (
        True,
        0.25,
        200,
    )
    dynamic = configuration(SPECS["table4"], ("Hopper", 1.0), column("table4", "dtol-0.1"))
    assert (dynamic.agent.dynamic_tolerance, dynamic.agent.tolerance) == (0.1, 1e-6)
    large = configuration(SPECS["steps1000"], ("Ant", 0.25), column("steps1000", "sac"))
    assert (large.episode_steps, large.agent.hidden) == (1000, (400, 300))
    hopper = configuration(SPECS["steps1000"], ("Hopper", 0.25), column("steps1000", "caql-ga"))
    assert (hopper.agent.hidden, hopper.agent.action_hidden) == ((200, 100), (200, 100))


def test_grid_points_reach_the_configuration():
    point = {"agent.q_learning_rate": 0.0002, "agent.action_learning_rate": 0.0001, "agent.exploration.decay": 0.9999}
    found = configuration(SPECS["table2"], ("Hopper", 1.0), column("table2", "caql-ga"), point, seed=3).agent
    assert (found.q_learning_rate, found.action_learning_rate) == (0.0002, 0.0001)
    assert (found.exploration.decay, found.exploration.sigma) == (0.9999, 1.0)


def test_the_most_special_choice_counts(monkeypatch):
    choices = {
        ("sac", "*"): {"agent.critic_learning_rate": 0.0005, "agent.actor_learning_rate": 0.0005},
        ("sac", "Hopper"): {"agent.actor_learning_rate": 0.0002},
        ("sac", "hopper-0.25"): {"agent.actor_learning_rate": 0.0001},
    }
    monkeypatch.setattr(specs, "CHOSEN", choices)
    assert chosen("sac", ("Ant", 0.1)) == choices["sac", "*"]
    found = configuration(SPECS["table1"], ("Hopper", 0.25), column("table1", "sac"))
    assert (found.agent.critic_learning_rate, found.agent.actor_learning_rate) == (0.0005, 0.0001)


@pytest.mark.parametrize("key", list(specs.CHOSEN) or [("sac", "*")])
def test_choices_name_real_methods_tasks_and_settings(key):
    method, task = key
    assert method in specs.METHODS
    names = {specs.task_name(each) for spec in SPECS.values() for each in spec.tasks}
    assert task == "*" or task in names or task in specs.paper.TRAIN_STEPS


def test_columns_of_a_table_can_be_told_apart():
    for spec in SPECS.values():
        found = [identity(configuration(spec, spec.tasks[0], each)) for each in spec.columns]
        assert len(set(found)) == len(found), spec.name


def test_hyper_parameters_do_not_change_a_cell():
    base = configuration(SPECS["table1"], ("Hopper", 1.0), column("table1", "sac"))
    other = configuration(SPECS["table2"], ("Hopper", 1.0), column("table2", "sac"), grid("sac")[5], seed=4)
    assert identity(base) == identity(replace(other, train_steps=50))
    assert identity(base) != identity(replace(base, action_range=0.5))


def test_shared_runs_are_the_same_run():
    plain = configuration(SPECS["table3"], ("Hopper", 1.0), column("table3", "ga"))
    assert plain.id == configuration(SPECS["table4"], ("Hopper", 1.0), column("table4", "tol-1e-6")).id


def test_configurations_survive_json():
    for spec in SPECS.values():
        for each in spec.columns:
            config = configuration(spec, spec.tasks[0], each)
            assert from_json(to_json(config)) == config


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: find_spec("tabel1"), "did you mean 'table1'"),
        (lambda: configurations(SPECS["table1"], tasks=["hoper-0.5"]), "did you mean 'hopper-0.5'"),
        (lambda: configurations(SPECS["table1"], tasks=["hopper-0.3"]), "is not part of table1"),
        (lambda: configurations(SPECS["table1"], methods=["caql-exat"]), "did you mean 'caql-exact'"),
        (lambda: configurations(SPECS["table3"], methods=["sac"]), "is not part of table3"),
    ],
)
def test_unknown_names_are_met_with_the_nearest(call, hint):
    with pytest.raises(CaqlError, match=hint):
        call()


def test_a_task_without_range_is_all_of_its_ranges():
    found = configurations(SPECS["table1"], ["hopper"], ["naf"], seeds=[0])
    assert [config.action_range for config in found] == [0.25, 0.5, 1.0]


def test_slow_columns_run_only_when_named():
    assert "caql-mip" not in [each.name for each in choose_columns(SPECS["table1"], None)]
    assert len(configurations(SPECS["table1"], ["hopper-1"], ["caql-mip"], seeds=[0])) == 1
