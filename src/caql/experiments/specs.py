"""The paper's tables and figures as data: a spec is tasks x columns, and becomes a list of configurations.

One spec is not the paper's: the public benchmark for action constraints.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from caql.config import RunConfig, from_json, to_json
from caql.errors import CaqlError, nearest
from caql.experiments import paper
from caql.experiments.methods import (
    HINGE_PENALTIES,
    METHODS,
    Settings,
    chosen,
    grid,
    hinge_can_work,
    lay_over,
    task_name,
)
from caql.experiments.paper import Benchmark
from caql.tasks.constrained import PROBLEMS


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
    view_of: str = ""
    """The spec whose runs this one shows in another way."""
    cannot_work: tuple[str, ...] = ()
    """What the paper's grid has and nobody should run, each with the reason."""
    of_paper: bool = True
    """Whether it is one of the paper's."""


def _columns(*names: str, asked_for: Iterable[str] = ()) -> tuple[Column, ...]:
    late = tuple(asked_for)
    answers = {"caql-exact": "caql-mip"}
    return tuple(Column(name, name, {}, answers.get(name, name), name in late) for name in (*names, *late))


_RECOMMENDED = Column("caql-recommended", "caql-recommended", {}, None, True)
_SEVEN = (
    *_columns("caql-exact", "caql-ga", "caql-cem", "naf", "ddpg", "td3", "sac", asked_for=["caql-mip"]),
    _RECOMMENDED,
)
_GA = {"agent.solver.iterations": 200}
_FILTER = {**_GA, "agent.dual_filter": True}
# Radii in mean state lengths, as in the authors' code: absolute ones would do nothing on 376 dimensions.
_CLUSTER = {**_FILTER, "agent.cluster_relative": True}
_CONSTANT = {"agent.dynamic_tolerance": None}
_RESTRICTED = tuple(paper.TABLE_1)
_FULL = tuple(paper.TABLE_3)
_FILTERS = (
    Column("ga", "caql-ga", _GA, "ga"),
    Column("ga+df", "caql-ga", _FILTER, "ga+df"),
    Column("ga+df+c0.25", "caql-ga", {**_CLUSTER, "agent.cluster_radius": 0.25}, "ga+df+c0.25"),
    Column("ga+df+c0.5", "caql-ga", {**_CLUSTER, "agent.cluster_radius": 0.5}, "ga+df+c0.5"),
    Column("dual", "caql-ga", {**_GA, "agent.dual_only": True}, "dual"),
)
_TOLERANCES = (
    Column("tol-1e-6", "caql-ga", _GA, "tol-1e-6"),
    Column("tol-100", "caql-ga", {**_GA, "agent.tolerance": 100.0}, "tol-100"),
    Column("dtol-100", "caql-ga", {**_GA, "agent.dynamic_tolerance": 100.0}, "dtol-100"),
    Column("dtol-1", "caql-ga", {**_GA, "agent.dynamic_tolerance": 1.0}, "dtol-1"),
    Column("dtol-0.1", "caql-ga", {**_GA, "agent.dynamic_tolerance": 0.1}, "dtol-0.1"),
)
_WORKING = min(penalty for penalty in HINGE_PENALTIES if hinge_can_work(penalty))
_LOSSES = (
    Column("l2", "caql-ga", {}, "l2"),
    Column("hinge", "caql-ga", {"agent.loss": "hinge", "agent.hinge_penalty": _WORKING}, "hinge"),
)
_HOPELESS = tuple(
    f"hinge with lambda = {penalty:g}: a row below its label has the gradient 1 - lambda = {1 - penalty:g}, "
    "which is not negative, so nothing raises Q"
    for penalty in HINGE_PENALTIES
    if not hinge_can_work(penalty)
)

CONSTRAINED_STEPS = dict.fromkeys(PROBLEMS, 10_000) | {"H+M": 60_000, "HC+O": 60_000}
"""Training steps of the constrained benchmark's problems: two in earnest, the others in miniature."""

SPECS = {
    spec.name: spec
    for spec in (
        Spec("table1", "Table 1: returns, best configuration", _RESTRICTED, _SEVEN, paper.TABLE_1),
        Spec(
            "table2", "Table 2: returns, all configurations", _RESTRICTED, _SEVEN, paper.TABLE_2, True, view_of="table1"
        ),
        Spec(
            "table3",
            "Table 3: dual filter and clustering, CAQL-GA",
            _FULL,
            _FILTERS,
            paper.TABLE_3,
            extra="saved",
        ),
        Spec(
            "table3-all",
            "Dual filter and clustering, CAQL-GA, all configurations (figure)",
            _FULL,
            _FILTERS,
            every_configuration=True,
            extra="saved",
            view_of="table3",
        ),
        Spec("table4", "Table 4: tolerance, CAQL-GA", _FULL, _TOLERANCES, paper.TABLE_4, extra="iterations"),
        Spec(
            "table4-all",
            "Tolerance, CAQL-GA, all configurations (figure)",
            _FULL,
            _TOLERANCES,
            every_configuration=True,
            extra="iterations",
            view_of="table4",
        ),
        Spec(
            "table5",
            "Table 5: tolerance, CAQL-MIP (ours: the exact solver)",
            tuple(paper.TABLE_5),
            (
                Column("exact-tol-1e-4", "caql-exact", _CONSTANT, "mip-tol-1e-4"),
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
            (Column("caql-exact", "caql-exact", _CONSTANT, "caql-mip"),),
            latency=True,
        ),
        Spec(
            "hinge",
            "l2 against hinge loss, CAQL-GA, all configurations",
            tuple(paper.HINGE),
            _LOSSES,
            paper.HINGE,
            True,
            cannot_work=_HOPELESS,
        ),
        Spec(
            "hinge-best",
            "l2 against hinge loss, CAQL-GA, best configuration (figure)",
            tuple(paper.HINGE),
            _LOSSES,
            view_of="hinge",
            cannot_work=_HOPELESS,
        ),
        Spec(
            "steps1000",
            "1,000-step episodes with larger networks (figure)",
            tuple(task for task in _RESTRICTED if task[0] != "Pendulum"),
            (
                Column("caql-ga", "caql-ga", {"agent.dynamic_tolerance": 1.0}, None),
                *_columns("naf", "ddpg", "td3", "sac"),
                _RECOMMENDED,
            ),
            settings=(("episode_steps", 1000),),
        ),
        Spec(
            "constrained",
            "Constrained actions: the linear problems of the public benchmark",
            tuple((name, None) for name in PROBLEMS),
            _columns("caql-exact", "caql-ga", "td3", "sac"),
            of_paper=False,
        ),
    )
}


def configuration(
    spec: Spec, task: Benchmark, column: Column, settings: Settings | None = None, seed: int = 0
) -> RunConfig:
    """One run; `settings` is a point of the grid, or None for the chosen configuration."""
    steps = (paper.TRAIN_STEPS | CONSTRAINED_STEPS)[task[0]]
    values: dict[str, Any] = {"task": task[0], "action_range": task[1], "train_steps": steps}
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
        raise CaqlError(f"experiment = {name!r} is not known; {nearest(name, SPECS)}")
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
