"""Specs become configurations: how many, which, and what happens to names that do not exist."""

import json
from dataclasses import replace
from fnmatch import fnmatchcase

import pytest

from caql import run_ids
from caql.agents import agent_config
from caql.config import from_json, to_json
from caql.errors import CaqlError
from caql.experiments import methods
from caql.experiments.methods import chosen, grid, lay_over
from caql.experiments.report import tables
from caql.experiments.report.tables import identity, variant
from caql.experiments.specs import SPECS, choose_columns, configuration, configurations, find_spec


def column(spec, name):
    return choose_columns(SPECS[spec], [name])[0]


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        *[("table1", 98), ("table3", 30), ("table3-all", 960), ("table4", 30), ("table4-all", 960), ("table5", 10)],
        *[("latency", 5), ("hinge", 384), ("hinge-best", 12), ("steps1000", 55), ("constrained", 32)],
    ],
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


def test_the_constrained_benchmark_stands_beside_the_papers_tables():
    spec = SPECS["constrained"]
    assert [name for name, each in SPECS.items() if not each.of_paper] == ["constrained"]
    assert [column.name for column in spec.columns] == ["caql-exact", "caql-ga", "td3", "sac"]
    found = configurations(spec, ["h+m", "HC+O", "r+m"], ["caql-exact"], seeds=[0])
    assert [(each.task, each.train_steps) for each in found] == [("H+M", 60_000), ("HC+O", 60_000), ("R+M", 10_000)]
    assert {each.action_range for each in found} == {None}
    assert found[0].agent.solver.name == "exact"
    free = configuration(SPECS["table1"], ("Hopper", 1.0), column("table1", "td3"))
    under = configuration(spec, ("H+M", None), column("constrained", "td3"))
    assert under.agent == free.agent
    with pytest.raises(CaqlError, match=r"not part of constrained.*h\+m"):
        configurations(spec, ["h+mm"])


def test_methods_get_their_solver_and_gap():
    exact = configuration(SPECS["table1"], ("Hopper", 0.5), column("table1", "caql-exact"))
    assert (exact.task, exact.action_range, exact.train_steps) == ("Hopper", 0.5, 200_000)
    assert (exact.agent.solver.name, exact.agent.solver.threads, exact.agent.relative_tolerance) == ("exact", 1, 1e-4)
    assert exact.agent.dynamic_tolerance is None
    large = configuration(SPECS["table1"], ("Ant", 0.1), column("table1", "caql-exact"))
    assert large.agent.dynamic_tolerance == 1.0
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
    for name, tolerance in (("exact-tol-1e-4", None), ("exact-dtol-1", 1.0)):
        exact = configuration(SPECS["table5"], ("Ant", 0.1), column("table5", name))
        assert exact.agent.dynamic_tolerance == tolerance
    timed = configuration(SPECS["latency"], ("Ant", 0.25), column("latency", "caql-exact"))
    assert timed.agent.dynamic_tolerance is None
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
    monkeypatch.setattr(methods, "CHOSEN", choices)
    assert chosen("sac", ("Ant", 0.1)) == choices["sac", "*"]
    found = configuration(SPECS["table1"], ("Hopper", 0.25), column("table1", "sac"))
    assert (found.agent.critic_learning_rate, found.agent.actor_learning_rate) == (0.0005, 0.0001)


@pytest.mark.parametrize("key", list(methods.CHOSEN))
def test_choices_name_real_methods_tasks_and_settings(key):
    method, task = key
    assert method in methods.METHODS
    tasks = [each for spec in SPECS.values() for each in spec.tasks]
    assert task == "*" or task in {methods.task_name(each) for each in tasks} or task in {each[0] for each in tasks}


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


def test_views_show_the_runs_of_another_spec():
    for spec in SPECS.values():
        if spec.view_of:
            base = SPECS[spec.view_of]
            assert spec.every_configuration != base.every_configuration
            assert (spec.tasks, spec.columns) == (base.tasks, base.columns)
    assert [spec.name for spec in SPECS.values() if spec.view_of] == [
        "table2",
        "table3-all",
        "table4-all",
        "hinge-best",
    ]


def test_the_hinge_runs_with_the_penalties_that_can_work_and_names_the_others():
    for name in ("hinge", "hinge-best"):
        found = configuration(SPECS[name], ("Pendulum", 2.0), column(name, "hinge")).agent
        assert (found.loss, found.hinge_penalty) == ("hinge", 10.0)
        assert ["lambda = 0.1" in each or "lambda = 1:" in each for each in SPECS[name].cannot_work] == [True, True]
    assert [methods.hinge_can_work(penalty) for penalty in methods.HINGE_PENALTIES] == [False, False, True]
    assert "gradient 1 - lambda = 0.9" in SPECS["hinge"].cannot_work[0]


def test_runs_come_seed_by_seed_in_the_order_asked_for():
    found = configurations(SPECS["table1"], ["hopper-1", "pendulum-2"], ["sac", "naf"], seeds=[7, 3])
    assert [(config.seed, config.task, config.agent.name) for config in found] == [
        (seed, task, agent) for seed in (7, 3) for task in ("Hopper", "Pendulum") for agent in ("sac", "naf")
    ]


def test_a_spec_means_the_same_whatever_the_defaults_are_today():
    found = configuration(SPECS["table1"], ("Hopper", 1.0), column("table1", "caql-ga"))
    assert found.distinctive == {
        "action_range": 1,
        "agent.exploration.decay": 0.9999,
        "agent.name": "caql",
        "agent.solver.name": "ga",
        "task": "Hopper",
    }


def test_settings_are_laid_over_by_path():
    base = {"a": 1, "b": {"name": "x", "c": 2, "d": {"e": 3}}}
    assert lay_over(base, {"a": 2, "b.c": 3, "b.d.f": 4}) == {
        "a": 2,
        "b": {"name": "x", "c": 3, "d": {"e": 3, "f": 4}},
    }
    assert lay_over(base, {"b": {"c": 5}})["b"] == {"name": "x", "c": 5, "d": {"e": 3}}
    assert lay_over(base, {"b": {"name": "y"}})["b"] == {"name": "y"}
    assert lay_over(base, {"g.h": 1})["g"] == {"h": 1}
    assert base == {"a": 1, "b": {"name": "x", "c": 2, "d": {"e": 3}}}
    with pytest.raises(CaqlError, match="leads nowhere: a = 1"):
        lay_over(base, {"a.b": 3})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"action_function": "none"}, "action_function none"),
        ({"clipped_double_q": True}, "clipped_double_q true"),
        ({"action_function": "stochastic"}, "action_function stochastic"),
        ({"zero": 0}, ""),
    ],
)
def test_relatives_of_caql_are_no_columns_of_the_papers_tables(settings, words):
    base = configuration(SPECS["table1"], ("Hopper", 1.0), column("table1", "caql-ga"))
    settings.pop("zero", None)
    other = replace(base, agent=replace(base.agent, **settings), seed=4, train_steps=7)
    assert (identity(other) == identity(base)) == (not words)
    assert variant(other) == "caql-ga" + (f" ({words})" if words else "")


def test_presets_are_told_from_caql():
    for preset, name in (("qt-opt", "caql-cem"), ("actor-expert", "caql-ga")):
        plain = configuration(SPECS["table1"], ("Hopper", 1.0), column("table1", name))
        assert identity(replace(plain, agent=agent_config(preset))) != identity(plain)


def test_a_setting_that_nobody_called_a_hyper_parameter_makes_another_cell():
    every = {f"agent.{name}" for rows in run_ids.AGENTS.values() for name in rows}
    every |= {f"agent.solver.{name}" for rows in run_ids.SOLVERS.values() for name in rows} | set(run_ids.RUN)
    free = {path for path in every if any(fnmatchcase(path, pattern) for pattern in tables.HYPER_PARAMETERS)}
    assert every - free == {
        *(
            "action_range",
            "action_set",
            "agent.relaxed",
            "agent.critics",
            "agent.combine",
            "agent.encoder",
            "episode_steps",
            "zero_terminal_reward",
            "agent.name",
            "agent.audit",
            "train_freq",
        ),
        *("agent.solver.name", "agent.solver.iterations", "agent.hidden", "agent.action_hidden", "agent.loss"),
        *("agent.clip_labels", "agent.maximised", "agent.trust_region", "agent.action_loss", "label_steps"),
        *("agent.clipped_double_q", "agent.action_function", "agent.squash", "agent.action_labels"),
        *("agent.tolerance", "agent.dynamic_tolerance", "agent.dual_filter", "agent.dual_only"),
        *("agent.cluster_radius", "agent.cluster_relative", "agent.cluster_method", "agent.cluster_cap_by_bound"),
    }
    assert all(any(fnmatchcase(path, pattern) for path in every) for pattern in tables.HYPER_PARAMETERS)


def test_shared_columns_are_run_once():
    twice = replace(SPECS["table3"], columns=(*SPECS["table3"].columns, *SPECS["table4"].columns))
    assert len(configurations(twice, ["hopper"], ["ga", "ga+df", "tol-1e-6"], seeds=[0, 1])) == 4


def test_a_grid_point_is_the_whole_choice():
    point = {"agent.critic_learning_rate": 0.0002}
    found = configuration(SPECS["table2"], ("Hopper", 1.0), column("table2", "sac"), point)
    assert (found.agent.temperature, found.agent.critic_learning_rate) == ("learned", 0.0002)
