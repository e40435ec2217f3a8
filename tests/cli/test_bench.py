"""`caql bench maxq`: its arithmetic on a small task, and its bad input."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from caql.actions import ActionSet
from caql.bench import maxq as bench_maxq
from caql.bench.maxq import (
    MIP_SETTINGS,
    Case,
    best_time,
    bound_quality,
    build_times,
    measure,
    mip_time,
    two_processes,
    untrained_case,
)
from caql.bench.sets import KINDS, SetMeasurement, _apart, compare, projection_times, ratio, set_cases
from caql.bounds import METHODS
from caql.cli import bench
from caql.errors import CaqlError
from caql.maxq.solvers import make_solver, proving_solver

SMALL = untrained_case((8, 6), 2, 4)


@pytest.mark.parametrize("solver", ["exact", "highs"])
def test_proving_solvers_are_timed_state_by_state(solver: str) -> None:
    found = measure(SMALL, solver)
    assert found.proved == 4
    assert found.seconds.shape == (4,)
    assert (found.seconds > 0).all()
    assert found.total > 0
    np.testing.assert_allclose(found.values, measure(SMALL, "scip").values, atol=1e-3)


def test_a_search_has_one_time_for_its_batch() -> None:
    found = measure(SMALL, "ga")
    assert np.unique(found.seconds).size == 1
    assert found.seconds.sum() == pytest.approx(found.total)
    assert (found.values <= measure(SMALL, "highs").values + 1e-4).all()
    assert found.proved == 0


def test_the_best_of_several_runs_counts_and_long_ones_are_not_repeated() -> None:
    clock = iter([0.0, 0.5, 10.0, 10.2, 20.0, 20.3])
    assert best_time(lambda: None, 3, lambda: next(clock)) == pytest.approx(0.2)
    slow = iter([0.0, 2.5])
    assert best_time(lambda: None, 3, lambda: next(slow)) == pytest.approx(2.5)


def test_models_are_built_for_every_state() -> None:
    assert build_times(SMALL).shape == (4,)


def test_two_processes_solve_more_than_half_of_what_one_does() -> None:
    assert 0.5 < two_processes("pendulum", 4, 0.5) < 4


def test_the_table_compares_the_solvers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bench_maxq, "trained_case", lambda name, states: untrained_case((8, 6), 2, states))
    bench.main(
        [
            "maxq",
            "--tasks",
            "hopper",
            "--states",
            "3",
            "--solvers",
            "exact,highs",
            "--no-hard",
            "--no-processes",
            "--no-compilation",
        ]
    )
    lines = [line for line in capsys.readouterr().out.splitlines() if re.search(r"│ (exact|highs) ", line)]
    assert len(lines) == 3
    exact, highs = ([cell.strip() for cell in line.split("│")[1:-1]] for line in lines[:2])
    assert (exact[1], exact[6], exact[9]) == ("exact", "1", "3")
    assert highs[1] == "highs"
    assert float(highs[6]) > 1
    assert float(highs[8]) <= 1e-3


def test_the_larger_networks_have_their_sizes_and_are_proved(capsys: pytest.CaptureFixture[str]) -> None:
    for name in bench_maxq.SIZES:
        network = bench_maxq.trained_case(name, 1).network
        units = (network.first_bias.shape[1], *(weights.shape[1] for weights, _ in network.later[:-1]))
        assert "x".join(map(str, units)) == name.partition("-")[2]
    bench.main(["maxq", "--sizes", "--states", "1", "--solvers", "exact,highs"])
    lines = [line for line in capsys.readouterr().out.splitlines() if re.search(r"│ (exact|highs) ", line)]
    assert [line.split("│")[-2].strip() for line in lines] == ["1"] * len(bench_maxq.SIZES)


def test_sizes_are_nothing_for_mip_solvers_alone() -> None:
    with pytest.raises(CaqlError, match=r"solvers = highs .* exact"):
        bench.main(["maxq", "--sizes", "--solvers", "highs"])


def prover() -> str:
    """The solver that answers first where none is named, over the hardest kind of set."""
    return proving_solver(set_cases(SMALL, np.zeros((4, 2)))["mixed"].action_set)


def test_sets_are_what_they_are_called_and_matter() -> None:
    best = maximisers(SMALL)
    cases = set_cases(SMALL, best)
    assert tuple(cases) == KINDS
    assert [case.action_set.rows.shape[-2] for case in cases.values()] == [0, 1, 8, 3, 1, 4]
    assert cases["whole"].action_set.integer == (0,)
    assert cases["mixed"].action_set.integer
    for kind in ("1 row", "8 rows", "equality", "mixed"):
        assert not cases[kind].action_set.contains(best).any()
        assert cases[kind].action_set.conflict() is None
    # The units of whole numbers: the box reaches from -4 to 4, and Q is the same.
    box = make_solver("highs").solve(replace(cases["whole"], action_set=ActionSet.bounds(-4, 4, 2)).problem(), None)
    np.testing.assert_allclose(box.values, measure(SMALL, "highs").values, rtol=2e-4)
    assert cases["1 row"].problem([2, 2]).action_set.rows.shape == (2, 1, 2)


def maximisers(case: Case) -> np.ndarray:
    return np.asarray(make_solver("highs").solve(case.problem(), None).actions)


def test_solvers_agree_on_every_set_and_stay_inside() -> None:
    first = prover()
    found = compare(SMALL, (first, "highs"), repeats=1)
    assert [(each.kind, each.solver) for each in found] == [(kind, name) for kind in KINDS for name in (first, "highs")]
    assert all(each.proved == 4 and each.outside == 0 and each.total > 0 and each.apart <= 1 for each in found)
    box = found[0].values
    for each in found:
        assert (each.values <= box + 1e-3 * np.abs(box)).all()
    assert all((each.values < box).any() for each in found if each.kind != "box")
    tight = found[2]._replace(values=found[2].values * 1.01)
    assert _apart(set_cases(SMALL, maximisers(SMALL))["1 row"].problem(), found[2].values, tight.values) > 1


def test_ratios_are_of_totals_over_all_tasks() -> None:
    def made(task: str, kind: str, solver: str, total: float) -> SetMeasurement:
        return SetMeasurement(task, kind, solver, total, np.zeros(1), 1, 0)

    found = [
        *(made("a", "box", "exact", 1.0), made("a", "1 row", "exact", 2.0), made("a", "1 row", "highs", 100.0)),
        *(made("b", "box", "exact", 3.0), made("b", "1 row", "exact", 4.0), made("b", "box", "highs", 10.0)),
    ]
    assert ratio(found, ("exact", "1 row"), ("exact", "box")) == pytest.approx(6 / 4)
    assert ratio(found, ("highs", ""), ("exact", "")) == pytest.approx(11)


def test_projection_is_timed_for_each_number_of_rows() -> None:
    found = projection_times((1, 3), points=5)
    assert list(found) == [1, 3]
    assert all(0 < seconds < 0.1 for seconds in found.values())


def test_the_table_of_sets(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bench_maxq, "trained_case", lambda name, states: untrained_case((4,), 2, states))
    monkeypatch.setattr(bench, "SET_SOLVERS", (prover(), "highs", "scip"))
    bench.main(["maxq", "--sets", "--tasks", "hopper", "--states", "2"])
    text = capsys.readouterr().out
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    assert [line[1] for line in lines] == list(KINDS)
    assert lines[0][3] == "1.00"
    assert all(line[6] == "2 2 2" and float(line[7]) <= 1 and line[8] == "0 0 0" for line in lines)
    for words in (
        r"exact over 1 row / exact over the box, all tasks: [\d.]+ \(at most 3\)",
        r"highs / exact, all sets and tasks: \d+ \(at least 300\)",
        r"scip / exact, all sets and tasks: \d+ \(at least 300\)",
        r"values apart by at most [\d.]+ of the allowed gap",
        r"scip: actions outside their set: 0 \(none\)",
        r"rows not proved: 0 \(none\)",
        r"projection of 6 actions onto 64 row\(s\): [\d.]+ us \(at most 25\)",
    ):
        assert re.search(words, text), words


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["maxw"], "did you mean 'maxq'"),
        (["maxq", "--tasks", "hoper"], "did you mean 'hopper'"),
        (["maxq", "--tasks", "pendulum", "--solvers", "exakt"], "did you mean 'exact'"),
        (["maxq", "--states", "0"], "states = 0 must be at least 1"),
        (["maxq", "--tasks", "pendulum", "--states", "1000"], "states = 1000 exceeds the 128 states"),
        (["maxq", "--threads", "0"], "threads = 0 must be at least 1"),
    ],
)
def test_bad_input_is_named(arguments: list[str], message: str) -> None:
    with pytest.raises(CaqlError) as raised:
        bench.main(arguments)
    assert message in str(raised.value)


def test_bounds_are_measured_against_the_exact_maximum() -> None:
    gaps = {method: bound_quality(SMALL, method) for method in METHODS}
    assert 0 <= gaps["tightest"][0] <= gaps["interval"][0]
    assert 0 < gaps["tightest"][1] <= gaps["interval"][1] <= 14


def test_mip_settings_are_real_settings() -> None:
    assert all(mip_time(SMALL, "highs", settings) > 0 for settings in MIP_SETTINGS)


def test_without_a_name_it_lists_what_there_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stopped:
        bench.main(["--help"])
    assert stopped.value.code == 0
    assert "maxq" in capsys.readouterr().out
