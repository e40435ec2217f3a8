"""`caql watch`: what the folders say, in one view."""

import json
import os
import time

import pytest
from rich.console import Console

from caql.cli.watch import main
from caql.errors import CaqlError
from caql.experiments.specs import SPECS, choose_columns, configuration
from caql.watching.status import Watch
from caql.watching.view import plot, sparkline, view

from ..experiments.synthetic import write_run


def config(seed=0):
    from dataclasses import replace

    return replace(
        configuration(SPECS["table1"], ("Hopper", 0.5), choose_columns(SPECS["table1"], ["sac"])[0]), seed=seed
    )


def half(folder, keep=101):
    """Cut a run off in the middle."""
    rows = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(rows[:keep]))
    (folder / "finished.json").unlink(missing_ok=True)
    return folder


def shown(runs, width=100, height=40):
    console = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    with console.file:
        console.print(view(runs, width, height))
    return console.export_text()


def test_speed_and_time_left_come_from_the_runs_own_records(tmp_path):
    folder = half(write_run(tmp_path, config()))
    (status,) = Watch(folder).look()
    assert (status.state, status.train_step, status.total) == ("running", 100_000, 200_000)
    # The synthetic run takes 2.15 s for each 1000 steps.
    assert status.rate == pytest.approx(1000 / 2.15)
    assert status.left == pytest.approx(215)
    text = shown([status])
    assert "step 100,000 of 200,000" in text
    assert "465 steps/s" in text
    assert "3.6 min left" in text
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert f"last return {rows[-1]['return']:.1f} ± {rows[-1]['return_std']:.1f}" in text


def test_states_are_told_apart(tmp_path):
    write_run(tmp_path / "deep" / "er", config(0))
    half(write_run(tmp_path, config(1)))
    failed = half(write_run(tmp_path, config(2)))
    (failed / "failed.json").write_text(json.dumps({"message": "a\nnon-finite loss"}))
    old = half(write_run(tmp_path, config(3)))
    for file in old.iterdir():
        os.utime(file, (time.time() - 5000,) * 2)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{")
    watch = Watch(tmp_path)
    runs = watch.look()
    assert {run.config.seed: run.state for run in runs} == {0: "finished", 1: "running", 2: "failed", 3: "quiet"}
    assert next(run for run in runs if run.state == "failed").reason == "non-finite loss"
    text = shown(runs)
    assert "4 runs: 1 running, 1 quiet, 1 failed, 1 finished; 62 % of the steps" in text
    assert "2 more do not fit" not in text
    assert "1 more do not fit" in shown(runs, height=10)
    assert [run.state for run in watch.look()] == [run.state for run in runs]


def test_a_run_without_an_evaluation_is_shown(tmp_path):
    folder = half(write_run(tmp_path, config()), keep=0)
    (status,) = Watch(folder).look()
    assert "no evaluation yet" in shown([status])
    assert (status.rate, status.left) == (None, None)


def test_damaged_rows_are_passed_over(tmp_path):
    folder = half(write_run(tmp_path, config()), keep=3)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"train_step": "x", "return": 1}\n[]\n{"train_st')
    (status,) = Watch(folder).look()
    assert len(status.returns) == 3


def test_small_curves():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 20) == "▁▂▃▄▅▆▇█"
    assert sparkline([3, 3], 5) == "▁▁"
    assert sparkline([], 5) == ""
    assert len(sparkline(list(range(100)), 12)) == 12
    assert plot([0.0, 1.0], 2, 1) == ["⣠⠞"]
    assert plot([0.0, 0.0], 3, 2)[0] == "⠉⠉⠉"


def test_once_prints_one_view(tmp_path, capsys):
    half(write_run(tmp_path, config()))
    write_run(tmp_path, config(1))
    main([str(tmp_path), "--once"])
    assert "2 runs: 1 running, 1 finished" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [(["nowhere"], "is not a folder"), (["."], "holds no run"), ([".", "--every", "0"], "--every = 0.0 must be")],
)
def test_bad_input_is_one_sentence(tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CaqlError, match=sentence):
        main(arguments)
