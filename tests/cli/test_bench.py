"""`caql bench maxq`: its arithmetic on a small task, and its bad input."""

import re
from pathlib import Path

import numpy as np
import pytest

from caql.bench import maxq as bench_maxq
from caql.bench.maxq import (
    MIP_SETTINGS,
    best_time,
    bound_quality,
    build_times,
    measure,
    mip_time,
    two_processes,
    untrained_case,
)
from caql.bounds import METHODS
from caql.cli import bench
from caql.errors import CaqlError

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
