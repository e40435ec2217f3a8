"""Run ids: which settings they cover, and that no later setting or default can change one."""

import dataclasses
import json
from pathlib import Path

import pytest

from caql import config as config_module
from caql import run_ids
from caql.agents import AGENTS, config_class
from caql.agents.caql import CAQLConfig
from caql.agents.policies import Exploration
from caql.agents.sac import SACConfig
from caql.config import RunConfig, from_json, to_json
from caql.experiments.sweep.rename import rename_runs
from caql.experiments.sweep.sweep import run_name
from caql.maxq.exact.solver import Exact
from caql.maxq.mip.solver import Mip
from caql.maxq.solvers import CLASSES, solver_class

RESULTS = Path(__file__).parent.parent / "results"
COMMITTED = sorted(RESULTS.glob("*/*/config.json"))


def caql(**settings):
    return RunConfig("Hopper", agent=CAQLConfig(**settings))


def test_every_committed_run_is_found_under_its_name():
    assert len(COMMITTED) >= 185
    for path in COMMITTED:
        found = run_name(from_json(json.loads(path.read_text())))
        assert path.parent.name.removeprefix("latency-") == found


def test_no_two_committed_runs_share_an_id():
    """A run that was probed, for its latencies or its worth, has the id of its plain twin and a folder of its own."""
    probes = ("latency.jsonl", "worth.jsonl")
    ids = [
        (*((path.parent / probe).exists() for probe in probes), from_json(json.loads(path.read_text())).id)
        for path in COMMITTED
    ]
    assert len(set(ids)) == len(ids)


def test_an_id_is_these_twelve_digits_for_ever():
    plain = from_json({"task": "Hopper"})
    assert plain.distinctive == {"agent.name": "caql", "agent.solver.name": "ga", "task": "Hopper"}
    assert plain.id == "b5f4c47b4c5b"
    agent = {"name": "caql", "solver": {"name": "cem"}, "action_function": "none", "clipped_double_q": True}
    assert from_json({"task": "Hopper", "action_range": 0.5, "seed": 3, "agent": agent}).id == "4e1a31635ab4"


def table_rows():
    """Every setting of every agent and solver, as the fixed table has them and as the classes have them."""
    for name in AGENTS:
        solvers = CLASSES if name == "caql" else [None]
        for solver in solvers:
            given = {"agent.name": name} | ({"agent.solver.name": solver} if solver else {})
            settings = {} if solver is None else {"solver": solver_class(solver)()}
            yield given, RunConfig("", agent=config_class(name)(**settings))


@pytest.mark.parametrize(("given", "default"), list(table_rows()), ids=lambda value: str(value)[:60])
def test_the_table_has_a_row_for_every_setting_and_no_other(given, default):
    """A setting without a row: add it to `caql.run_ids`, with the value that stands for runs made before it."""
    known = {run_ids.today(path) for path in run_ids.fixed(given)}
    assert known == set(run_ids.flatten(to_json(default))) - {"task"}


def wider(cls):
    """The class with another field."""
    fields = [("novelty", float, dataclasses.field(default=0.25))]
    return dataclasses.make_dataclass(cls.__name__, fields, bases=(cls,), frozen=True)


def test_a_new_setting_whose_default_changes_nothing_leaves_every_id_as_it_is(monkeypatch):
    before = {path: from_json(json.loads(path.read_text())).id for path in COMMITTED}
    monkeypatch.setattr(config_module, "config_class", lambda name: wider(config_class(name)))
    for path, old in before.items():
        now = from_json(json.loads(path.read_text()))
        assert now.agent.novelty == 0.25
        assert now.id == old
    changed = dataclasses.replace(now, agent=dataclasses.replace(now.agent, novelty=0.5))
    assert changed.id != now.id
    assert changed.distinctive["agent.novelty"] == 0.5


def test_a_new_setting_with_a_row_keeps_the_rows_value_when_its_default_moves(monkeypatch):
    monkeypatch.setattr(config_module, "config_class", lambda name: wider(config_class(name)))
    monkeypatch.setitem(run_ids.AGENTS, "sac", run_ids.AGENTS["sac"] | {"novelty": 0.0})
    stored = to_json(RunConfig("Hopper", agent=SACConfig()))
    found = from_json(stored)
    assert found.agent.novelty == 0.0
    assert found.id == RunConfig("Hopper", agent=SACConfig()).id


@dataclasses.dataclass(frozen=True)
class OtherSAC(SACConfig):
    actor_learning_rate: float = 0.02
    hidden: tuple[int, ...] = (64, 64)


@dataclasses.dataclass(frozen=True)
class OtherRun(RunConfig):
    warm_up: int = 5000


def test_a_changed_default_changes_neither_the_id_nor_the_meaning_of_a_stored_run(monkeypatch):
    whole = RunConfig("Hopper", 0.5, agent=SACConfig(critic_learning_rate=0.01))
    # What an older version would have written that did not know these settings yet.
    silent = to_json(whole)
    del silent["warm_up"], silent["agent"]["actor_learning_rate"], silent["agent"]["hidden"]
    monkeypatch.setattr(config_module, "config_class", lambda name: {"sac": OtherSAC}[name])
    monkeypatch.setattr(config_module, "RunConfig", OtherRun)
    for stored in (to_json(whole), silent):
        found = from_json(stored)
        assert (found.warm_up, found.agent.actor_learning_rate, found.agent.hidden) == (1280, 0.0005, (32, 16))
        assert found.id == whole.id
    new = OtherRun("Hopper", 0.5, agent=OtherSAC(critic_learning_rate=0.01))
    assert new.id != whole.id
    assert new.distinctive["agent.hidden"] == [64, 64]


def test_a_renamed_setting_keeps_its_id_and_is_read_under_both_names(monkeypatch):
    old = from_json({"task": "Hopper", "agent": {"name": "caql", "cluster_radius": 0.5}})
    monkeypatch.setattr(run_ids, "RENAMED", {"agent.cluster_radius": "agent.ball.radius"})
    nested = to_json(old)
    del nested["agent"]["cluster_radius"]
    nested["agent"]["ball"] = {"radius": 0.5}
    assert run_ids.run_id(nested) == old.id
    assert run_ids.completed(to_json(old)) == run_ids.completed(nested)
    assert run_ids.completed({"agent": {"name": "caql"}})["agent"]["ball"] == {"radius": 0.0}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (caql(), caql(hinge_penalty=7.0)),
        (caql(), caql(second_target_every=10)),
        (caql(), caql(tolerance_decay=0.9, tolerance_maximum=5.0)),
        (caql(), caql(cluster_decay=0.9, cluster_p=1.0, cluster_relative=True)),
        (caql(), caql(cluster_method="farthest_first", cluster_cap_by_bound=True)),
        (caql(), caql(audit=100)),
        (caql(solver=Exact()), caql(solver=Exact(threads=2))),
        (caql(action_function="none"), caql(action_function="none", squash="clip", action_hidden=(8,))),
        (
            caql(action_function="none"),
            caql(action_function="none", action_labels="dual", action_learning_rate=0.5),
        ),
        (RunConfig("Hopper", evaluate_every=0), RunConfig("Hopper", evaluate_every=0, evaluation_episodes=3)),
        (RunConfig("H", agent=SACConfig()), RunConfig("H", agent=SACConfig(temperature_decay=0.5))),
        (
            RunConfig("H", agent=SACConfig(temperature="decayed")),
            RunConfig("H", agent=SACConfig(temperature="decayed", target_entropy=1.0, temperature_learning_rate=0.1)),
        ),
        (RunConfig("Hopper", 1), RunConfig("Hopper", 1.0)),
    ],
)
def test_what_has_no_effect_is_left_out(one, other):
    assert one.id == other.id


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (caql(), caql(hinge_penalty=2.0, loss="hinge")),
        (caql(loss="hinge", hinge_penalty=3.0), caql(loss="hinge", hinge_penalty=2.0)),
        (
            caql(loss="hinge", hinge_penalty=3.0),
            caql(loss="hinge", hinge_penalty=3.0, hinge_penalty_learning_rate=0.1),
        ),
        (caql(clipped_double_q=True), caql(clipped_double_q=True, second_target_every=10)),
        (caql(dynamic_tolerance=1.0), caql(dynamic_tolerance=1.0, tolerance_decay=0.9)),
        (caql(dynamic_tolerance=1.0), caql(dynamic_tolerance=1.0, tolerance_maximum=9.0)),
        (caql(cluster_radius=0.5), caql(cluster_radius=0.5, cluster_decay=0.9)),
        (caql(cluster_radius=0.5), caql(cluster_radius=0.5, cluster_p=1.0)),
        (caql(cluster_radius=0.5), caql(cluster_radius=0.5, cluster_relative=True)),
        (caql(cluster_radius=0.5), caql(cluster_radius=0.5, cluster_method="farthest_first")),
        (caql(cluster_radius=0.5), caql(cluster_radius=0.5, cluster_cap_by_bound=True)),
        (caql(), caql(squash="clip")),
        (caql(), caql(action_labels="dual")),
        (caql(), caql(action_hidden=(8,))),
        (caql(action_function="stochastic"), caql(action_function="stochastic", action_learning_rate=0.5)),
        (caql(), caql(exploration=Exploration(minimum=0.5))),
        (caql(solver=Mip()), caql(solver=Mip(threads=2))),
        (caql(solver=Mip()), caql(solver=Exact())),
        (RunConfig("Hopper"), RunConfig("Hopper", evaluate_every=500)),
        (RunConfig("Hopper"), RunConfig("Hopper", evaluation_episodes=3)),
        (RunConfig("Hopper"), RunConfig("Hopper", zero_terminal_reward=True)),
        (RunConfig("H", agent=SACConfig()), RunConfig("H", agent=SACConfig(target_entropy=1.0))),
        (RunConfig("H", agent=SACConfig()), RunConfig("H", agent=SACConfig(temperature_learning_rate=0.1))),
        (
            RunConfig("H", agent=SACConfig(temperature="decayed")),
            RunConfig("H", agent=SACConfig(temperature="decayed", temperature_decay=0.5)),
        ),
    ],
)
def test_what_has_an_effect_is_covered(one, other):
    assert one.id != other.id


def test_runs_are_renamed_once_and_only_their_folders(tmp_path):
    config = RunConfig("Hopper", 0.5)
    for folder in ("sub/old", "sub/new", "sub/timed"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "sub" / "old" / "config.json").write_text(json.dumps(to_json(config)))
    (tmp_path / "sub" / "new" / "config.json").write_text(json.dumps(to_json(dataclasses.replace(config, seed=1))))
    (tmp_path / "sub" / "timed" / "config.json").write_text(json.dumps(to_json(config)))
    (tmp_path / "sub" / "timed" / "latency.jsonl").touch()
    assert len(rename_runs(tmp_path)) == 3
    name = run_name(config)
    expected = {name, f"latency-{name}", run_name(dataclasses.replace(config, seed=1))}
    assert {path.name for path in (tmp_path / "sub").iterdir()} == expected
    assert rename_runs(tmp_path) == []


def test_runs_that_cannot_both_have_their_name_stay_where_they_are(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text(json.dumps(to_json(RunConfig("Hopper"))))
    with pytest.raises(ValueError, match="are the same run"):
        rename_runs(tmp_path)
    (tmp_path / "two" / "config.json").unlink()
    (tmp_path / "two").rename(tmp_path / run_name(RunConfig("Hopper")))
    with pytest.raises(ValueError, match="that is taken"):
        rename_runs(tmp_path)
    assert (tmp_path / "one" / "config.json").exists()
    with pytest.raises(ValueError, match="is not a folder"):
        rename_runs(tmp_path / "nowhere")


def test_a_number_is_not_a_truth_value():
    values = to_json(RunConfig("Hopper"))
    assert run_ids.run_id(values | {"zero_terminal_reward": 0}) != run_ids.run_id(values)
