"""The report on synthetic runs: the right numbers in the right cells, and a word about everything else."""

import json
import re
import shutil
import time
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest

from caql.agents import agent_config
from caql.cli.report import main
from caql.errors import CaqlError
from caql.experiments.methods import grid
from caql.experiments.report.regret import last_window_regret
from caql.experiments.report.report import build, write
from caql.experiments.report.results import read_results
from caql.experiments.report.statistics import best_return, fall_back, last_return, second_half_return
from caql.experiments.report.tables import Catalogue
from caql.experiments.specs import SPECS, choose_columns, configuration
from caql.experiments.sweep.sweep import run_name

from ..synthetic import write_run

HOPPER = ("Hopper", 0.5)


def config(spec, task, name, settings=None, **changes):
    found = configuration(SPECS[spec], task, choose_columns(SPECS[spec], [name])[0], settings)
    return replace(found, **changes)


def returns(folder):
    return [json.loads(line)["return"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def kept(folder):
    """The number of the evaluation whose exploring episodes scored best."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return max(range(1, len(rows)), key=lambda number: rows[number]["training_return"])


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
    assert len(brief) == 7
    halves = [second_half_return(returns(folder)) for folder in folders]
    held = [returns(folder)[kept(folder)] for folder in folders]
    assert any(kept(folder) < 200 for folder in folders), "the test would not see the last weights shown instead"
    outcome = f"{np.mean(last):.0f} ± {np.std(last, ddof=1):.0f} / {np.mean(halves):.0f} / {np.mean(held):.0f}"
    assert f"| {outcome} | 3 |" in brief[2]
    assert f"<sub>kept {np.mean(held):.1f} ± {np.std(held, ddof=1):.1f}</sub>" in text
    assert f"{np.mean(best):.0f} ± {np.std(best, ddof=1):.0f} (309)" in brief[6]
    assert f"second half {np.mean(halves):.1f}" in text
    falls = [fall_back(returns(folder)) for folder in folders]
    assert f"</sub> | {np.mean(falls):.1f} ± {np.std(falls, ddof=1):.1f} |" in text
    assert f"p95 {np.mean(best):.1f} ± {np.std(best, ddof=1):.1f}, paper 309.1 ± 95.8" in text


def test_lag_is_the_action_functions_error_over_qs_in_the_second_half(tmp_path):
    """Rows 100 to 200 have mean squared errors of 1 to 2 and temporal differences of 0.5."""
    plain = config("table1", HOPPER, "caql-ga")
    write_run(tmp_path / "r", plain)
    others = {"action_loss": "l1"}, {"action_function": "stochastic"}, {"action_function": "none"}
    for changes in others:
        write_run(tmp_path / "others", replace(plain, agent=replace(plain.agent, **changes)))
    write_run(tmp_path / "others", config("table1", HOPPER, "sac"))
    (run,) = read_results(tmp_path / "r").runs
    assert run.lag == pytest.approx(1.5**0.5 / 0.5)
    runs = read_results(tmp_path / "others").runs
    assert [other.lag for other in runs] == [None] * 4
    assert replace(run, rows=tuple({"train_step": 0, "return": 1.0} for _ in range(3))).lag is None
    (line,) = [line for line in markdown_of(tmp_path).splitlines() if "| Hopper [-0.5, 0.5] | caql-ga |" in line]
    assert " | 2.45 | " in line


def test_page_needs_nothing_but_itself(tmp_path):
    write_run(tmp_path / "r", config("table1", HOPPER, "sac"))
    write(build(tmp_path / "r"), tmp_path / "out")
    page = (tmp_path / "out" / "index.html").read_text()
    assert not re.findall(r'(?:src|href)="(?!#)', page)
    assert not re.findall(r"<script[^>]* src", page)
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
    for column in ("exact-tol-1e-4", "exact-dtol-1"):
        write_run(tmp_path / "r", config("table5", ("Ant", 0.1), column))
    text = markdown_of(tmp_path)
    assert "30.0 % saved (9.11)" in text
    assert "7 iterations (59.5)" in text
    exact = [run for run in read_results(tmp_path / "r").runs if run.method == "caql-exact"]
    (third,) = (run for run in exact if run.config.agent.dynamic_tolerance)
    times = [row["solve_ms"] for row in third.rows]
    assert f"{np.median(times):.3g} ± {np.std(times):.3g} ms (40.3 ± 24.09)" in text
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


def test_regret_stands_where_the_optimum_is_known(tmp_path):
    folder = write_run(tmp_path / "r", config("table1", ("Pendulum", 1.0), "sac"), target=-300)
    write_run(tmp_path / "r", config("table1", HOPPER, "sac"))
    regret = last_window_regret(config("table1", ("Pendulum", 1.0), "sac"), np.asarray(returns(folder)))
    number = kept(folder)
    best = np.asarray(json.loads(files("caql.experiments").joinpath("optimum.json").read_text())["Pendulum 1"])
    of_kept = best[0, number] - returns(folder)[number]
    text = markdown_of(tmp_path)
    assert f"<sub>regret {regret:.1f}</sub>" in text
    assert text.count("<sub>regret ") == 1
    assert text.count(f", regret {of_kept:.1f}</sub>") == text.count(", regret ") == 1
    brief = (tmp_path / "out" / "summary.md").read_text().splitlines()
    assert brief[5].startswith("| regret: last window / kept |")
    assert f"| {regret:.1f} / {of_kept:.1f} | 1 |" in brief[7]
    assert [line for line in brief if line.startswith("| Hopper")] == [brief[3], brief[-1]]


def test_runs_that_did_not_record_exploring_have_nothing_kept(tmp_path):
    folder = write_run(tmp_path / "r", config("table1", HOPPER, "sac"))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    older = [{name: value for name, value in row.items() if name != "training_return"} for row in rows]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in older))
    assert "<sub>kept" not in markdown_of(tmp_path)
    assert " / — | 1 |" in (tmp_path / "out" / "summary.md").read_text()
    damaged = [row | {"training_return": "high"} for row in rows[:1]] + rows[1:]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in damaged))
    assert len(read_results(tmp_path / "r").problems) == 1


def test_the_best_of_a_row_is_the_best_at_the_end_not_the_luckiest(tmp_path):
    falls = write_run(tmp_path / "r", config("table1", HOPPER, "td3"), target=500)
    rows = [json.loads(line) for line in (falls / "metrics.jsonl").read_text().splitlines()]
    for row in rows[-10:]:
        row["return"] = 10.0
    (falls / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_run(tmp_path / "r", config("table1", HOPPER, "sac"), target=300)
    line = next(line for line in markdown_of(tmp_path).splitlines() if line.startswith("| Hopper [-0.5, 0.5] |"))
    assert line.split("|")[8].strip().startswith("**")
    assert line.split("|")[7].strip().startswith("10.0<br>")
    brief = (tmp_path / "out" / "summary.md").read_text().splitlines()[2].split("|")
    assert [brief[column].strip()[:3] for column in (7, 8)] == ["10 ", "**2"]


def test_constant_and_dynamic_tolerance_are_told_apart(tmp_path):
    task = ("Ant", 0.1)
    for name in ("exact-tol-1e-4", "exact-dtol-1"):
        for seed in range(2):
            write_run(tmp_path / "r", config("table5", task, name, seed=seed))
    write_run(tmp_path / "r", config("latency", ("Ant", 0.25), "caql-exact"), latency=True)
    dynamic = config("table5", ("Ant", 0.25), "exact-dtol-1")
    write_run(tmp_path / "r", dynamic, latency=True)
    text = markdown_of(tmp_path)
    for section, each in (("## Max-Q over training", 2), ("## Where the time goes", 1), ("## Latency", 1)):
        part = text.split(section)[1].split("\n## ")[0]
        rows = [line for line in part.splitlines() if line.startswith("| Ant")]
        assert sum("exact |" in line for line in rows) == each, section
        assert sum("exact (dynamic_tolerance 1) |" in line for line in rows) == each, section
    table = text.split("## Max-Q over training")[1]
    assert next(line for line in table.splitlines() if line.startswith("| Ant")).endswith("| 30.0 % | — | 2 |")


def test_dropped_solves_are_reported_where_they_are_recorded(tmp_path):
    folder = write_run(tmp_path / "r", config("table5", ("Ant", 0.1), "exact-dtol-1"))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    text = "".join(json.dumps(row | {"dropped": 0.02}) + "\n" for row in rows)
    assert "% dropped" not in markdown_of(tmp_path)
    (folder / "metrics.jsonl").write_text(text)
    found = markdown_of(tmp_path)
    assert "<sub>2 % dropped</sub>" in found
    assert "| 30.0 % | 2 % | 1 |" in found


def test_relatives_of_caql_fill_no_cell_of_the_papers_tables(tmp_path):
    plain = config("table1", HOPPER, "caql-cem")
    write_run(tmp_path / "r", plain, target=100)
    write_run(tmp_path / "r", replace(plain, agent=agent_config("qt-opt")), target=900)
    text = markdown_of(tmp_path)
    assert "1 finished runs that belong to no table" in text
    assert "caql-cem (action_function none, clipped_double_q true)" in text
    catalogue = Catalogue(read_results(tmp_path / "r").runs)
    cell = catalogue.cell(SPECS["table1"], HOPPER, choose_columns(SPECS["table1"], ["caql-cem"])[0])
    assert (len(cell.runs), cell.configurations) == (1, 1)


def test_longer_training_counts_before_more_seeds(tmp_path):
    write_run(tmp_path, config("table2", HOPPER, "sac", grid("sac")[7]), target=100)
    for seed in range(3):
        write_run(tmp_path, config("table2", HOPPER, "sac", grid("sac")[8], train_steps=50_000, seed=seed), target=300)
    catalogue = Catalogue(read_results(tmp_path).runs)
    cell = catalogue.cell(SPECS["table1"], HOPPER, choose_columns(SPECS["table1"], ["sac"])[0])
    assert (len(cell.runs), cell.train_steps) == (1, 200_000)


def test_more_seeds_count_before_the_choice(tmp_path):
    write_run(tmp_path, config("table1", HOPPER, "sac"), target=900)
    for seed in range(2):
        write_run(tmp_path, config("table2", HOPPER, "sac", grid("sac")[8], seed=seed), target=100)
    catalogue = Catalogue(read_results(tmp_path).runs)
    column = choose_columns(SPECS["table1"], ["sac"])[0]
    assert len(catalogue.cell(SPECS["table1"], HOPPER, column).runs) == 2
    # Of as many seeds, the chosen configuration before a better one.
    write_run(tmp_path, config("table1", HOPPER, "sac", seed=1), target=-2000)
    write_run(tmp_path, config("table2", HOPPER, "sac", grid("sac")[3]), target=900)
    chosen = Catalogue(read_results(tmp_path).runs).cell(SPECS["table1"], HOPPER, column)
    assert not chosen.settings


def test_an_unfinished_run_counts_from_its_second_evaluation_on(tmp_path):
    column = choose_columns(SPECS["table1"], ["sac"])[0]
    folder = write_run(tmp_path, config("table1", HOPPER, "sac"), evaluations=1, finished=False)
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    for count, shown in ((1, 0), (2, 1)):
        (folder / "metrics.jsonl").write_text("".join(lines[:count]))
        catalogue = Catalogue(read_results(tmp_path).runs, unfinished=True)
        assert len(catalogue.cell(SPECS["table1"], HOPPER, column).runs) == shown


def test_all_configurations_of_one_length_stand_in_table_two(tmp_path):
    for index in (1, 2):
        write_run(tmp_path, config("table2", HOPPER, "sac", grid("sac")[index]))
    for index in (3, 4, 5):
        write_run(tmp_path, config("table2", HOPPER, "sac", grid("sac")[index], train_steps=50_000))
    column = choose_columns(SPECS["table2"], ["sac"])[0]
    cell = Catalogue(read_results(tmp_path).runs).cell(SPECS["table2"], HOPPER, column)
    assert (len(cell.runs), cell.train_steps, cell.configurations) == (3, 50_000, 5)
    write_run(tmp_path, config("table2", HOPPER, "sac", grid("sac")[6]))
    cell = Catalogue(read_results(tmp_path).runs).cell(SPECS["table2"], HOPPER, column)
    assert (len(cell.runs), cell.train_steps) == (3, 200_000)


def test_figures_over_all_configurations_need_two_of_them(tmp_path):
    task = ("Hopper", 1.0)
    write_run(tmp_path / "r", config("table3", task, "ga+df"))
    title = "## Dual filter and clustering, CAQL-GA, all configurations (figure)"
    assert title not in markdown_of(tmp_path)
    write_run(tmp_path / "r", config("table3-all", task, "ga+df", grid("caql-ga")[9]))
    text = markdown_of(tmp_path)
    assert title in text
    assert "figures/table3-all-curves-half.svg" in text
    assert "## Tolerance, CAQL-GA, all configurations" not in text


def test_the_hinge_is_shown_with_its_own_runs_and_says_what_cannot_work(tmp_path):
    task = ("Hopper", 1.0)
    write_run(tmp_path / "r", config("hinge", task, "l2"))
    text = markdown_of(tmp_path)
    assert "## l2 against hinge" not in text
    assert "Cannot work, and is not run: hinge with lambda = 1:" in text
    write_run(tmp_path / "r", config("hinge-best", task, "hinge"))
    text = markdown_of(tmp_path)
    assert "## l2 against hinge loss, CAQL-GA, best configuration (figure)" in text
    assert "## l2 against hinge loss, CAQL-GA, all configurations" not in text
    assert "\nCannot work: hinge with lambda = 0.1:" in text


def test_runs_in_subfolders_are_found(tmp_path):
    write_run(tmp_path / "r" / "one", config("table1", HOPPER, "sac"))
    write_run(tmp_path / "r" / "two" / "deeper", config("table1", HOPPER, "sac", seed=1))
    shutil.copytree(tmp_path / "r" / "one", tmp_path / "r" / "zz")
    (tmp_path / "r" / "empty" / "emptier").mkdir(parents=True)
    (tmp_path / "r" / "one" / "notes.txt").touch()
    results = read_results(tmp_path / "r")
    assert sorted(run.config.seed for run in results.runs) == [0, 1]
    reasons = {str(problem.path.relative_to(tmp_path / "r")): problem.reason for problem in results.problems}
    name = run_name(config("table1", HOPPER, "sac"))
    assert reasons == {
        "empty": "not a run: no config.json",
        "one/notes.txt": "not a run: a file",
        f"zz/{name}": f"the same run as one/{name}",
    }
    assert "2 runs: 2 finished" in markdown_of(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("config.json", "[" * 100_000, "config.json is damaged"),
        ("config.json", "[]", "config.json is damaged: not an object"),
        ("config.json", '{"task": 3}', "task = 3 must be text"),
        ("config.json", '{"task": "Hopper", "agent": {}}', "agent.name is missing"),
        ("config.json", '{"task": "Hopper", "agent": {"name": "sac", "discount": "x"}}', 'agent.discount = "x"'),
        ("metrics.jsonl", "[" * 100_000, "line 1 is damaged"),
        ("metrics.jsonl", '{"train_step": 0, "return": "x"}', "line 1 is damaged"),
        ("metrics.jsonl", '{"train_step": 0, "return": NaN}', "line 1 is damaged"),
        ("metrics.jsonl", '{"train_step": 0, "return": 1' + "0" * 400 + "}", "line 1 is damaged"),
        ("metrics.jsonl", '{"train_step": 0, "return": 1, "seconds": 3}', "line 1 is damaged"),
        ("metrics.jsonl", '{"train_step": 0, "return": 1, "seconds": {"acting": "x"}}', "line 1 is damaged"),
        ("metrics.jsonl", '{"train_step": 0, "return": 1, "work": "much"}', "line 1 is damaged"),
        ("metrics.jsonl", "[0, 1]", "line 1 is damaged"),
        ("finished.json", "[" * 100_000, "finished.json is damaged"),
    ],
)
def test_damaged_files_are_named_and_nothing_breaks(tmp_path, file, content, reason):
    write_run(tmp_path / "r", config("table1", HOPPER, "sac"))
    folder = write_run(tmp_path / "r", config("table1", HOPPER, "sac", seed=1), evaluations=3, finished=False)
    (folder / file).write_text(content)
    assert any(reason in problem.reason for problem in read_results(tmp_path / "r").problems)
    assert reason.split(":")[0] in markdown_of(tmp_path)


def test_a_finished_run_is_preferred_to_its_unfinished_copy(tmp_path):
    whole = write_run(tmp_path, config("table1", HOPPER, "sac"))
    shutil.copytree(whole, tmp_path / "a-copy")
    (tmp_path / "a-copy" / "finished.json").unlink()
    shutil.copytree(whole, tmp_path / "zz-copy")
    results = read_results(tmp_path)
    assert [run.folder for run in results.runs] == [whole]
    assert {problem.path.name for problem in results.problems} == {"a-copy", "zz-copy"}


def test_probed_runs_are_kept_apart_from_plain_ones(tmp_path):
    same = config("latency", ("Hopper", 1.0), "caql-exact")
    write_run(tmp_path, same, target=100)
    write_run(tmp_path, same, target=900, latency=True)
    results = read_results(tmp_path)
    assert (len(results.runs), results.problems) == (2, [])
    column = choose_columns(SPECS["table1"], ["caql-exact"])[0]
    cell = Catalogue(results.runs).cell(SPECS["table1"], ("Hopper", 1.0), column)
    assert [bool(run.latency) for run in cell.runs] == [False]


def test_a_probed_run_without_a_plain_twin_stands_in_its_cell(tmp_path):
    write_run(tmp_path, config("latency", ("HalfCheetah", 0.5), "caql-exact"), target=900, latency=True)
    column = choose_columns(SPECS["table5"], ["exact-tol-1e-4"])[0]
    cell = Catalogue(read_results(tmp_path).runs).cell(SPECS["table5"], ("HalfCheetah", 0.5), column)
    assert [bool(run.latency) for run in cell.runs] == [True]


def test_of_equally_trusted_configurations_the_one_held_longest_is_shown(tmp_path):
    peak = write_run(tmp_path, config("table2", HOPPER, "sac", grid("sac")[7]), target=100)
    rows = [json.loads(line) for line in (peak / "metrics.jsonl").read_text().splitlines()]
    for row in rows[20:60]:
        row["return"] = 900.0
    (peak / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_run(tmp_path, config("table2", HOPPER, "sac", grid("sac")[8]), target=300)
    column = choose_columns(SPECS["table1"], ["sac"])[0]
    cell = Catalogue(read_results(tmp_path).runs).cell(SPECS["table1"], HOPPER, column)
    assert 250 < cell.second_half.mean < 350
    assert cell.best.mean < 500


def test_a_table_needs_own_runs_whatever_comes_after_it(tmp_path):
    task = ("Hopper", 1.0)
    write_run(tmp_path, config("table3", task, "ga"))
    write_run(tmp_path, config("table4", task, "dtol-1"))
    catalogue = Catalogue(read_results(tmp_path).runs)
    for name in ("table3", "table4"):
        catalogue.table(SPECS[name])
    # The plain column is in both tables, and counts for the first.
    assert [len(catalogue.own(SPECS[name])) for name in ("table3", "table4")] == [1, 1]


def test_times_are_never_negative(tmp_path):
    folder = write_run(tmp_path, config("table1", HOPPER, "sac"))
    text = (folder / "metrics.jsonl").read_text().splitlines()
    last = json.loads(text[-1]) | {"seconds": {"updating": -0.5, "max_q": 2.0}}
    (folder / "metrics.jsonl").write_text("\n".join([*text[:-1], json.dumps(last)]) + "\n")
    (run,) = read_results(tmp_path).runs
    assert run.seconds == {"updating": 0.0, "max_q": 2.0}


def test_hidden_folders_are_not_looked_at(tmp_path):
    write_run(tmp_path, config("table1", HOPPER, "sac"))
    (tmp_path / ".sweep").mkdir()
    assert not read_results(tmp_path).problems


def test_the_triangle_points_up_where_ours_is_at_least_the_papers(tmp_path):
    cell = config("table1", HOPPER, "sac")
    for level, mark in ((309.1, "▲"), (309.0, "▼")):
        shutil.rmtree(tmp_path / "r", ignore_errors=True)
        folder = write_run(tmp_path / "r", cell)
        (folder / "metrics.jsonl").write_text(json.dumps({"train_step": 1000, "return": level}) + "\n")
        assert f"{mark} p95 {level:.1f}, paper 309.1 ± 95.8" in markdown_of(tmp_path)


def test_a_single_run_is_shown_without_a_spread(tmp_path):
    folder = write_run(tmp_path / "r", config("table1", HOPPER, "sac"))
    text = markdown_of(tmp_path)
    assert f"| {last_return(returns(folder)):.1f}<br>" in text
    assert "± 0.0" not in text


def test_constrained_runs_have_a_report_of_their_own(tmp_path):
    runs = tmp_path / "r"
    for seed in range(2):
        write_run(runs, config("constrained", ("H+M", None), "caql-exact", seed=seed), evaluations=60)
    write_run(runs, config("constrained", ("HC+O", None), "sac"), target=90.0, evaluations=60, broken=3)
    main([str(runs), "--out", str(tmp_path / "out")])
    text = (tmp_path / "out" / "report.md").read_text()
    assert text.startswith("# CAQL: constrained actions")
    assert "paper" not in text.split("## ")[0]
    lines = [line.replace("**", "") for line in text.splitlines()]
    exact = next(line for line in lines if line.startswith("| H+M | caql-exact |") and " of " in line)
    folders = sorted(runs.glob("h+m*"))
    last, half = ([of(returns(folder)) for folder in folders] for of in (last_return, second_half_return))
    for values in (last, half):
        assert f"| {np.mean(values):.1f} ± {np.std(values, ddof=1):.1f} |" in exact
    assert f"| 0 of {2 * 61 * 200:,} |" in exact
    assert "| 2 | 60,000 |" in exact
    assert f"| 3 of {61 * 200:,} |" in text
    assert "no finished run" in text
    assert "Table 1" not in text
    assert not (tmp_path / "out" / "summary.md").exists()


def test_constrained_runs_beside_the_papers_are_one_more_section(tmp_path):
    runs = tmp_path / "r"
    write_run(runs, config("table1", HOPPER, "sac"))
    write_run(runs, config("constrained", ("H+M", None), "td3"))
    write(build(runs), tmp_path / "out")
    text = (tmp_path / "out" / "report.md").read_text()
    assert text.startswith("# CAQL: the paper's experiments, run again")
    assert SPECS["constrained"].title in text
    assert "Not run at all" in text
