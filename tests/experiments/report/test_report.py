"""The report on synthetic runs: the right numbers in the right cells, and a word about everything else."""

import json
import re
import shutil
import time
from dataclasses import replace

import numpy as np
import pytest

from caql.cli.report import main
from caql.errors import CaqlError
from caql.experiments.report.report import build, write
from caql.experiments.report.results import read_results
from caql.experiments.report.statistics import best_return, last_return
from caql.experiments.report.tables import Catalogue
from caql.experiments.specs import SPECS, choose_columns, configuration, grid

from ..synthetic import write_run

HOPPER = ("Hopper", 0.5)


def config(spec, task, name, settings=None, **changes):
    found = configuration(SPECS[spec], task, choose_columns(SPECS[spec], [name])[0], settings)
    return replace(found, **changes)


def returns(folder):
    return [json.loads(line)["return"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_numbers_are_those_of_the_files(tmp_path):
    folders = [write_run(tmp_path / "r", config("table1", HOPPER, "sac", seed=seed)) for seed in range(3)]
    best, last = ([of(returns(folder)) for folder in folders] for of in (best_return, last_return))
    write(build(tmp_path / "r"), tmp_path / "out")
    page, text = ((tmp_path / "out" / name).read_text() for name in ("index.html", "report.md"))
    for values in (best, last):
        shown = f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}"
        assert shown in page
        assert shown in text
    assert "309.1 ± 95.8" in page
    brief = (tmp_path / "out" / "summary.md").read_text().splitlines()
    assert len(brief) == 3
    assert f"{np.mean(best):.1f} ± {np.std(best, ddof=1):.1f} (309.1)" in brief[2]


def test_page_needs_nothing_but_itself(tmp_path):
    write_run(tmp_path / "r", config("table1", HOPPER, "sac"))
    write(build(tmp_path / "r"), tmp_path / "out")
    page = (tmp_path / "out" / "index.html").read_text()
    assert not re.findall(r'(?:src|href)="(?!#)', page)
    assert "<script" not in page
    assert "@import" not in page
    assert "url(" not in page
    assert set(re.findall(r"https?://[^\"' <]*", page)) == {"http://www.w3.org/2000/svg"}
    assert "prefers-color-scheme:dark" in page


def test_markdown_finds_its_figures(tmp_path):
    for seed in range(2):
        write_run(tmp_path / "r", config("table1", HOPPER, "sac", seed=seed))
    write_run(tmp_path / "r", config("latency", ("Ant", 0.25), "caql-exact"), latency=True)
    write(build(tmp_path / "r"), tmp_path / "out")
    files = re.findall(r"\]\((figures/[^)]*)\)", (tmp_path / "out" / "report.md").read_text())
    assert {"figures/table1-curves-half.svg", "figures/table1-curves-full.svg", "figures/latency.svg"} <= set(files)
    for file in files:
        assert "prefers-color-scheme" in (tmp_path / "out" / file).read_text()


def test_a_single_lucky_search_does_not_replace_the_result(tmp_path):
    for seed in range(3):
        write_run(tmp_path, config("table1", HOPPER, "sac", seed=seed), target=200)
    write_run(tmp_path, config("table2", HOPPER, "sac", grid("sac")[7]), target=500)
    write_run(tmp_path, config("table2", HOPPER, "sac", grid("sac")[8], train_steps=50_000), target=900)
    catalogue = Catalogue(read_results(tmp_path).runs)
    cell = catalogue.cell(SPECS["table1"], HOPPER, choose_columns(SPECS["table1"], ["sac"])[0])
    assert len(cell.runs) == 3
    assert cell.best.mean < 250
    assert cell.configurations == 3
    assert not cell.settings


def test_of_equally_long_searches_the_best_is_shown(tmp_path):
    write_run(tmp_path, config("table2", HOPPER, "sac", grid("sac")[7]), target=500)
    write_run(tmp_path, config("table2", HOPPER, "sac", grid("sac")[8]), target=300)
    catalogue = Catalogue(read_results(tmp_path).runs)
    cell = catalogue.cell(SPECS["table1"], HOPPER, choose_columns(SPECS["table1"], ["sac"])[0])
    assert cell.best.mean > 400
    assert any("temperature" in line for line in cell.settings)
    every = catalogue.cell(SPECS["table2"], HOPPER, choose_columns(SPECS["table2"], ["sac"])[0])
    assert len(every.runs) == 2


def test_table_two_needs_two_configurations(tmp_path):
    write_run(tmp_path / "r", config("table1", HOPPER, "sac"))
    assert "Table 2: returns, all configurations\n" not in markdown_of(tmp_path)
    write_run(tmp_path / "r", config("table2", HOPPER, "sac", grid("sac")[3]))
    text = markdown_of(tmp_path)
    assert "## Table 2: returns, all configurations\n" in text
    assert "![Sensitivity" in text
    assert "agent.temperature_decay: 0.99995 -> 0.99999" in text


def markdown_of(tmp_path):
    write(build(tmp_path / "r"), tmp_path / "out")
    return (tmp_path / "out" / "report.md").read_text()


def test_ablations_show_their_third_number(tmp_path):
    write_run(tmp_path / "r", config("table3", ("Hopper", 1.0), "ga+df"))
    write_run(tmp_path / "r", config("table4", ("Hopper", 1.0), "dtol-1"))
    write_run(tmp_path / "r", config("table5", ("Ant", 0.1), "exact-dtol-1"))
    text = markdown_of(tmp_path)
    assert "30.0 % saved (9.11)" in text
    assert "7 iterations (59.5)" in text
    (third,) = (run for run in read_results(tmp_path / "r").runs if run.method == "caql-exact")
    assert f"{np.median([row['solve_ms'] for row in third.rows]):.3g} ms (40.3)" in text
    assert "## Max-Q over training" in text


def test_time_is_split_into_parts_that_make_the_whole(tmp_path):
    write_run(tmp_path / "r", config("table1", HOPPER, "caql-exact"))
    (run,) = read_results(tmp_path / "r").runs
    assert run.seconds == pytest.approx({"acting": 40, "physics": 200, "max_q": 100, "updating": 160, "evaluating": 30})
    row = next(line for line in markdown_of(tmp_path).splitlines() if line.startswith("| Hopper 0.5 | caql-exact"))
    shares = [float(text.strip(" %")) for text in row.split("|")[3:8]]
    assert shares == [38, 8, 19, 30, 6]
    assert "| 8.8 min | 377 | 1 |" in row


def test_what_is_missing_is_said(tmp_path):
    write_run(tmp_path / "r", config("table1", HOPPER, "sac"))
    text = markdown_of(tmp_path)
    assert "97 of 98 cells have no finished run" in text
    assert "Hopper [-0.5, 0.5]: caql-exact, caql-ga, caql-cem, naf, ddpg, td3;" in text
    assert "Not run at all: Table 2" in text
    assert "Latency of the max-Q solvers" in text.split("Not run at all")[1]


def test_failed_unfinished_foreign_and_truncated_are_named(tmp_path):
    out = tmp_path / "r"
    write_run(out, config("table1", HOPPER, "sac"))
    failed = write_run(out, config("table1", HOPPER, "sac", seed=1), evaluations=4, finished=False)
    (failed / "failed.json").write_text(json.dumps({"message": "a\nnon-finite loss", "tries": 1}))
    write_run(out, config("table1", HOPPER, "sac", seed=2), evaluations=4, finished=False)
    cut = write_run(out, config("table1", HOPPER, "sac", seed=3))
    with (cut / "metrics.jsonl").open("a") as file:
        file.write('{"train_step": 2000')
    (out / "notes.txt").write_text("hello")
    (out / "photos").mkdir()
    broken = write_run(out, config("table1", HOPPER, "sac", seed=4))
    (broken / "config.json").write_text('{"task": "Hop')
    strange = write_run(out, config("table1", HOPPER, "sac", seed=5))
    (strange / "config.json").write_text('{"task": "Hopper", "colour": 3}')
    binary = write_run(out, config("table1", HOPPER, "sac", seed=6))
    (binary / "metrics.jsonl").write_bytes(b"\xff\xfe\x00")
    shutil.copytree(cut, out / "zz-copy")

    results = read_results(out)
    assert sorted(run.state for run in results.runs) == ["failed", "finished", "finished", "unfinished"]
    reasons = {str(problem.path.relative_to(out)): problem.reason for problem in results.problems}
    assert reasons[f"{cut.name}/metrics.jsonl"] == "line 202 is damaged and left out"
    assert reasons["notes.txt"] == "not a run: a file"
    assert reasons["photos"] == "not a run: no config.json"
    assert "damaged" in reasons[broken.name]
    assert "colour" in reasons[strange.name]
    assert reasons[binary.name] == "finished, but without a single evaluation"
    assert reasons["zz-copy"] == f"the same run as {cut.name}"
    text = markdown_of(tmp_path)
    assert "### 1 failed" in text
    assert "non-finite loss" in text
    assert "### 1 unfinished" in text
    assert all(name in text for name in reasons)


def test_unfinished_runs_count_only_when_asked(tmp_path):
    write_run(tmp_path, config("table1", HOPPER, "sac"), evaluations=4, finished=False)
    column = choose_columns(SPECS["table1"], ["sac"])[0]
    runs = read_results(tmp_path).runs
    assert not Catalogue(runs).cell(SPECS["table1"], HOPPER, column).runs
    assert len(Catalogue(runs, unfinished=True).cell(SPECS["table1"], HOPPER, column).runs) == 1


def test_runs_of_no_table_are_listed(tmp_path):
    write_run(tmp_path / "r", replace(config("table1", HOPPER, "sac"), task="Swimmer-v4"))
    assert "1 finished runs that belong to no table" in markdown_of(tmp_path)


def test_words_in_results_cannot_break_the_page(tmp_path):
    failed = write_run(tmp_path / "r", config("table1", HOPPER, "sac"), evaluations=4, finished=False)
    (failed / "failed.json").write_text(json.dumps({"message": "<script>alert(1)</script> | x"}))
    write(build(tmp_path / "r"), tmp_path / "out")
    assert "<script" not in (tmp_path / "out" / "index.html").read_text()
    assert "\\| x" in (tmp_path / "out" / "report.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["nowhere"], "is not a folder"), (["empty"], "holds no run"), (["empty", "--out", "file"], "is a file")],
)
def test_bad_arguments(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(CaqlError, match=message):
        main(arguments)


def test_five_hundred_runs_in_less_than_thirty_seconds(tmp_path):
    out = tmp_path / "r"
    template = write_run(tmp_path / "template", config("table1", HOPPER, "sac"))
    spec = SPECS["table1"]
    configs = [
        config("table1", task, column.name, seed=seed)
        for task in spec.tasks
        for column in choose_columns(spec, None)
        for seed in range(6)
    ][:500]
    from caql.config import to_json

    for each in configs:
        folder = out / each.id
        shutil.copytree(template, folder)
        (folder / "config.json").write_text(json.dumps(to_json(each)))
    # Processor time: the machine may be busy with other tests.
    began = time.process_time()
    main([str(out), "--out", str(tmp_path / "out")])
    assert time.process_time() - began < 30
    assert "500 runs: 500 finished" in (tmp_path / "out" / "report.md").read_text()
