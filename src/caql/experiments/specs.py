"""The paper's tables and figures as data: a spec is tasks x columns, and becomes a list of configurations.

Settings are dotted paths into a `RunConfig`'s JSON (`agent.exploration.decay`), so that a method, a column, a
point of Appendix D's grid and a chosen configuration are all the same kind of thing: a small dictionary laid
over the defaults.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from caql.config import RunConfig, from_json, to_json
from caql.errors import CaqlError, nearest
from caql.experiments import paper
from caql.experiments.paper import Benchmark

Settings = dict[str, Any]
"""Dotted path -> value."""

METHODS: dict[str, Settings] = {
    # The paper's CAQL-MIP: max-Q proved to a relative gap of 1e-4. One thread, for a worker has one core.
    "caql-exact": {"agent": {"name": "caql", "solver": {"name": "exact", "threads": 1}, "relative_tolerance": 1e-4}},
    "caql-mip": {"agent": {"name": "caql", "solver": {"name": "mip"}, "relative_tolerance": 1e-4}},
    "caql-ga": {"agent": {"name": "caql", "solver": {"name": "ga"}}},
    # The same relative tolerance: at the default of 1e-6 most of its time goes into the seventh digit.
    "caql-cem": {"agent": {"name": "caql", "solver": {"name": "cem"}, "relative_tolerance": 1e-4}},
    "naf": {"agent": {"name": "naf"}},
    "ddpg": {"agent": {"name": "ddpg"}},
    "td3": {"agent": {"name": "td3"}},
    "sac": {"agent": {"name": "sac"}},
}

RATES = (0.001, 0.0005, 0.0002, 0.0001)
NOISE_DECAYS = (0.9995, 0.9999)
TOLERANCE_DECAYS = (0.995, 0.999, 0.9995)
"""k2 of the dynamic tolerance (Appendix D); not part of the 32 combinations."""
HINGE_PENALTIES = (0.1, 1.0, 10.0)
"""lambda of the hinge loss (Appendix D); not part of the 32 combinations."""

_CAQL_GRID = {
    "agent.q_learning_rate": RATES,
    "agent.action_learning_rate": RATES,
    "agent.exploration.decay": NOISE_DECAYS,
}
# The paper's second table gives DDPG and TD3 one noise decay, its caption says that decays were swept, and
# Table 2 counts 32 combinations of every method: two decays make 32.
_ACTOR_GRID = {
    "agent.critic_learning_rate": RATES,
    "agent.actor_learning_rate": RATES,
    "agent.exploration.decay": NOISE_DECAYS,
}
GRIDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "caql-exact": _CAQL_GRID,
    "caql-mip": _CAQL_GRID,
    "caql-ga": _CAQL_GRID,
    "caql-cem": _CAQL_GRID,
    # NAF has no action function: eight combinations are all there are.
    "naf": {"agent.q_learning_rate": RATES, "agent.exploration.decay": NOISE_DECAYS},
    "ddpg": _ACTOR_GRID,
    "td3": _ACTOR_GRID,
    "sac": {
        "agent.critic_learning_rate": RATES,
        "agent.actor_learning_rate": RATES,
        "agent.temperature": ("decayed",),
        "agent.temperature_decay": (0.99995, 0.99999),
    },
}
"""Appendix D's hyper-parameters, by method."""

# From the search of docs/experiments.md: one seed, 40,000 steps, nine points of the grid on Pendulum in [-1, 1]
# and five on Hopper in [-1, 1]; CAQL's from runs of 100,000 steps, because what separates its settings comes later.
# Its solvers share one choice: they solve the same problem.
_CAQL: Settings = {"agent.exploration.decay": 0.9999}
CHOSEN: dict[tuple[str, str], Settings] = {
    **{(method, "*"): _CAQL for method in ("caql-exact", "caql-mip", "caql-ga", "caql-cem")},
    ("naf", "Pendulum"): {"agent.q_learning_rate": 0.0005, "agent.exploration.decay": 0.9999},
    ("ddpg", "Pendulum"): {"agent.actor_learning_rate": 0.0005},
    ("td3", "Pendulum"): {"agent.actor_learning_rate": 0.0005},
    ("td3", "Hopper"): {
        "agent.critic_learning_rate": 0.0005,
        "agent.actor_learning_rate": 0.0005,
        "agent.exploration.decay": 0.9999,
    },
    ("sac", "*"): {"agent.temperature": "decayed", "agent.temperature_decay": 0.99995},
}
"""(method, task name or `task-range` or "*") -> the best configuration's settings; the most special entry counts
last.  Whatever is not set here is the default of the method's configuration."""


class Column(NamedTuple):
    """One column of a table: a method, what the column adds to it, and the paper's column it answers to."""

    name: str
    method: str
    settings: Settings
    paper: str | None
    asked_for: bool = False
    """Run only when it is named: not one of the paper's columns, or too slow for a default."""


@dataclass(frozen=True)
class Spec:
    """A table or figure of the paper."""

    name: str
    title: str
    tasks: tuple[Benchmark, ...]
    columns: tuple[Column, ...]
    paper: paper.Table | None = None
    every_configuration: bool = False
    """Run the whole grid instead of the chosen configuration."""
    extra: str = ""
    """What the third number of a cell is: saved, iterations or milliseconds."""
    settings: tuple[tuple[str, Any], ...] = ()
    """Laid over every run of the spec."""
    latency: bool = False
    """Time all solvers on the run's networks while it trains."""


def _columns(*names: str, asked_for: Iterable[str] = ()) -> tuple[Column, ...]:
    late = tuple(asked_for)
    answers = {"caql-exact": "caql-mip"}
    return tuple(Column(name, name, {}, answers.get(name, name), name in late) for name in (*names, *late))


_SEVEN = _columns("caql-exact", "caql-ga", "caql-cem", "naf", "ddpg", "td3", "sac", asked_for=["caql-mip"])
_GA = {"agent.solver.iterations": 200}
_FILTER = {**_GA, "agent.dual_filter": True}
# Radii in mean state lengths, as in the authors' code: absolute ones would do nothing on 376 dimensions.
_CLUSTER = {**_FILTER, "agent.cluster_relative": True}
_RESTRICTED = tuple(paper.TABLE_1)
_FULL = tuple(paper.TABLE_3)

SPECS = {
    spec.name: spec
    for spec in (
        Spec("table1", "Table 1: returns, best configuration", _RESTRICTED, _SEVEN, paper.TABLE_1),
        Spec("table2", "Table 2: returns, all configurations", _RESTRICTED, _SEVEN, paper.TABLE_2, True),
        Spec(
            "table3",
            "Table 3: dual filter and clustering, CAQL-GA",
            _FULL,
            (
                Column("ga", "caql-ga", _GA, "ga"),
                Column("ga+df", "caql-ga", _FILTER, "ga+df"),
                Column("ga+df+c0.25", "caql-ga", {**_CLUSTER, "agent.cluster_radius": 0.25}, "ga+df+c0.25"),
                Column("ga+df+c0.5", "caql-ga", {**_CLUSTER, "agent.cluster_radius": 0.5}, "ga+df+c0.5"),
                Column("dual", "caql-ga", {**_GA, "agent.dual_only": True}, "dual"),
            ),
            paper.TABLE_3,
            extra="saved",
        ),
        Spec(
            "table4",
            "Table 4: tolerance, CAQL-GA",
            _FULL,
            (
                Column("tol-1e-6", "caql-ga", _GA, "tol-1e-6"),
                Column("tol-100", "caql-ga", {**_GA, "agent.tolerance": 100.0}, "tol-100"),
                Column("dtol-100", "caql-ga", {**_GA, "agent.dynamic_tolerance": 100.0}, "dtol-100"),
                Column("dtol-1", "caql-ga", {**_GA, "agent.dynamic_tolerance": 1.0}, "dtol-1"),
                Column("dtol-0.1", "caql-ga", {**_GA, "agent.dynamic_tolerance": 0.1}, "dtol-0.1"),
            ),
            paper.TABLE_4,
            extra="iterations",
        ),
        Spec(
            "table5",
            "Table 5: tolerance, CAQL-MIP (ours: the exact solver)",
            tuple(paper.TABLE_5),
            (
                Column("exact-tol-1e-4", "caql-exact", {}, "mip-tol-1e-4"),
                Column("exact-dtol-1", "caql-exact", {"agent.dynamic_tolerance": 1.0}, "mip-dtol-1"),
                Column("mip-tol-1e-4", "caql-mip", {}, "mip-tol-1e-4", True),
                Column("mip-dtol-1", "caql-mip", {"agent.dynamic_tolerance": 1.0}, "mip-dtol-1", True),
            ),
            paper.TABLE_5,
            extra="milliseconds",
        ),
        Spec(
            "latency",
            "Latency of the max-Q solvers, table and figure",
            tuple(paper.LATENCY),
            _columns("caql-exact"),
            latency=True,
        ),
        Spec(
            "hinge",
            "l2 against hinge loss, CAQL-GA, all configurations",
            tuple(paper.HINGE),
            (
                Column("l2", "caql-ga", {}, "l2"),
                Column("hinge", "caql-ga", {"agent.loss": "hinge"}, "hinge"),
            ),
            paper.HINGE,
            True,
        ),
        Spec(
            "steps1000",
            "1,000-step episodes with larger networks (figure)",
            tuple(task for task in _RESTRICTED if task[0] != "Pendulum"),
            (
                Column("caql-ga", "caql-ga", {"agent.dynamic_tolerance": 1.0}, None),
                *_columns("naf", "ddpg", "td3", "sac"),
            ),
            settings=(("episode_steps", 1000),),
        ),
    )
}


def task_name(task: Benchmark) -> str:
    """The name that the user types: `hopper-0.25`."""
    return f"{task[0].lower()}-{task[1]:g}"


def lay_over(values: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """A configuration's JSON with some settings replaced; dictionaries are merged."""
    found = dict(values)
    for path, value in settings.items():
        first, _, rest = path.partition(".")
        if rest:
            found[first] = lay_over(found.get(first) or {}, {rest: value})
        elif isinstance(value, dict) and isinstance(found.get(first), dict) and "name" not in value:
            found[first] = lay_over(found[first], value)
        else:
            found[first] = value
    return found


def chosen(method: str, task: Benchmark) -> Settings:
    """The settings of the method's best configuration on a task."""
    found: Settings = {}
    for key in ("*", task[0], task_name(task)):
        found |= CHOSEN.get((method, key), {})
    return found


def grid(method: str, wanted: int | None = None) -> list[Settings]:
    """Every point of the method's grid, or `wanted` of them spread over it, always the same ones."""
    names, values = zip(*GRIDS[method].items(), strict=True)
    points = [dict(zip(names, point, strict=True)) for point in itertools.product(*values)]
    if wanted is None or wanted >= len(points):
        return points
    if wanted < 1:
        raise CaqlError(f"configurations = {wanted} must be at least 1")
    order = np.random.default_rng(0).permutation(len(points))[:wanted]
    return [points[index] for index in sorted(order)]


def configuration(
    spec: Spec, task: Benchmark, column: Column, settings: Settings | None = None, seed: int = 0
) -> RunConfig:
    """One run; `settings` is a point of the grid, or None for the chosen configuration."""
    values: dict[str, Any] = {"task": task[0], "action_range": task[1], "train_steps": paper.TRAIN_STEPS[task[0]]}
    # Defaults are spelt out first, so that a dotted path always finds the dictionary it points into.
    values = to_json(from_json(lay_over(values, METHODS[column.method])))
    values = lay_over(values, dict(spec.settings))
    if spec.name == "steps1000":
        units = [200, 100] if task[0] == "Hopper" else [400, 300]
        values = lay_over(values, {f"agent.{n}": units for n in ("hidden", "action_hidden") if n in values["agent"]})
    values = lay_over(values, chosen(column.method, task) if settings is None else settings)
    return from_json(lay_over(values, {**column.settings, "seed": seed}))


def find_spec(name: str) -> Spec:
    """A spec by name."""
    if name not in SPECS:
        raise CaqlError(f"experiment = {name!r} is not one of the paper's; {nearest(name, SPECS)}")
    return SPECS[name]


def choose_tasks(spec: Spec, wanted: Sequence[str] | None) -> list[Benchmark]:
    """The spec's tasks by name: `hopper-0.5`, or `hopper` for all of its ranges."""
    if wanted is None:
        return list(spec.tasks)
    found: dict[Benchmark, None] = {}
    for name in wanted:
        matches = [task for task in spec.tasks if name.lower() in (task_name(task), task[0].lower())]
        if not matches:
            hint = nearest(name, [task_name(task) for task in spec.tasks])
            raise CaqlError(f"task = {name!r} is not part of {spec.name}; {hint}")
        found |= dict.fromkeys(matches)
    return list(found)


def choose_columns(spec: Spec, wanted: Sequence[str] | None) -> list[Column]:
    """The spec's columns by name; without names, those that are not `asked_for`."""
    if wanted is None:
        return [column for column in spec.columns if not column.asked_for]
    by_name = {column.name: column for column in spec.columns}
    for name in wanted:
        if name not in by_name:
            raise CaqlError(f"method = {name!r} is not part of {spec.name}; {nearest(name, by_name)}")
    return [by_name[name] for name in dict.fromkeys(wanted)]


def configurations(
    spec: Spec,
    tasks: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] = range(paper.SEEDS),
    search: int | None = None,
) -> list[RunConfig]:
    """The spec's runs, seed by seed, so that a sweep cut short has all cells evenly filled.

    search: how many points of the grid to run instead of the chosen configuration; a spec of every
    configuration runs the whole grid without it.
    """
    whole = spec.every_configuration or search is not None
    first: dict[str, RunConfig] = {}
    for task, column in itertools.product(choose_tasks(spec, tasks), choose_columns(spec, methods)):
        for settings in grid(column.method, search) if whole else [None]:
            config = configuration(spec, task, column, settings)
            first.setdefault(config.id, config)
    return [replace(config, seed=seed) for seed in seeds for config in first.values()]
