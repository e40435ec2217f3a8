"""Any runs side by side: grouped by configuration, named by what differs, and the page's charts in a browser."""

import json
from dataclasses import replace

import numpy as np
import pytest

from caql.cli.report import main
from caql.errors import CaqlError
from caql.experiments.report.comparison import groups
from caql.experiments.report.report import build, write
from caql.experiments.report.results import other_axes, read_paths
from caql.experiments.specs import SPECS, choose_columns, configuration

from ..synthetic import write_run

HOPPER = ("Hopper", 0.5)


def config(name="sac", **changes):
    return replace(configuration(SPECS["table1"], HOPPER, choose_columns(SPECS["table1"], [name])[0]), **changes)


def slower(seed=0):
    plain = config()
    return replace(plain, seed=seed, agent=replace(plain.agent, discount=0.9))


def test_runs_are_grouped_by_all_but_the_seed_and_named_by_what_differs(tmp_path):
    folders = [write_run(tmp_path, each) for each in (config(seed=0), config(seed=1), slower(), config("td3"))]
    found = groups(read_paths(folders).runs)
    assert [len(group.runs) for group in found] == [2, 1, 1]
    assert found[2].name == "td3"
    assert len({group.name for group in found}) == 3
    assert any("discount 0.9" in group.name for group in found)


def test_the_command_compares_runs_and_folders_of_runs(tmp_path):
    first = write_run(tmp_path / "a", config(), target=200)
    write_run(tmp_path / "b" / "deep", slower(), target=400)
    main([str(first), str(tmp_path / "b"), "--out", str(tmp_path / "out")])
    text = (tmp_path / "out" / "report.md").read_text()
    assert text.startswith("# 2 runs side by side")
    rows = [line for line in text.splitlines() if line.startswith("| Hopper [-0.5, 0.5] |")]
    assert "0.9" in rows[0]
    assert "| 200,000 | 2,000,000 | 7.2 min | 1 |" in rows[0]
    assert "| agent.discount |" in text
    assert (tmp_path / "out" / "figures" / "comparison.svg").exists()
    main([str(first), "--out", str(tmp_path / "one")])
    assert (tmp_path / "one" / "report.md").read_text().startswith("# Hopper [-0.5, 0.5]: sac")


def test_the_same_run_twice_is_one(tmp_path):
    folder = write_run(tmp_path / "r", config())
    assert len(read_paths([folder, tmp_path / "r"]).runs) == 1


def test_runs_of_no_table_have_curves_in_the_report_of_a_folder(tmp_path):
    write_run(tmp_path / "r", replace(config(), task="Swimmer-v4"))
    write(build(tmp_path / "r"), tmp_path / "out")
    text = (tmp_path / "out" / "report.md").read_text()
    assert "## Other runs" in text
    assert "figures/comparison.svg" in text


def test_a_run_without_a_curve_is_left_out_and_named(tmp_path):
    short = write_run(tmp_path, config(seed=5), evaluations=1, finished=False)
    (short / "metrics.jsonl").write_text((short / "metrics.jsonl").read_text().splitlines()[0] + "\n")
    with pytest.raises(CaqlError, match="nothing to compare"):
        build([short])
    whole = write_run(tmp_path, config())
    write(build([short, whole]), tmp_path / "out")
    assert "fewer than two evaluations" in (tmp_path / "out" / "report.md").read_text()


def test_a_damaged_run_is_named(tmp_path):
    broken = write_run(tmp_path, config(seed=5))
    (broken / "config.json").write_text("{")
    with pytest.raises(CaqlError, match=f"holds no run; left out: {broken.name}"):
        build(broken)
    write(build([broken, write_run(tmp_path, config())]), tmp_path / "out")
    assert "config.json is damaged" in (tmp_path / "out" / "report.md").read_text()


def test_axes_are_the_runs_means(tmp_path):
    folders = [write_run(tmp_path, config(seed=seed)) for seed in range(2)]
    rows = [json.loads(line) for line in (folders[1] / "metrics.jsonl").read_text().splitlines()]
    changed = [row | {"environment_steps": 3 * row["environment_steps"]} for row in rows]
    (folders[1] / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed))
    runs = read_paths(folders).runs
    axes = other_axes(runs, np.array([1000, 200_000]))
    np.testing.assert_allclose(axes["environment steps"], [20_000, 4_000_000])
    np.testing.assert_allclose(axes["seconds"], [2.15, 430])
    del changed[4]["environment_steps"]
    (folders[1] / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed))
    assert set(other_axes(read_paths(folders).runs, np.array([4000]))) == {"seconds"}


def test_frames_are_shown_where_a_run_has_weights(tmp_path):
    folders = [write_run(tmp_path / "r", config()), write_run(tmp_path / "r", slower())]

    def frames(folder):
        if folder == folders[0]:
            return ["data:image/jpeg;base64,AAAA"] * 3
        raise CaqlError("it has no weights")

    write(build(folders, frames=frames), tmp_path / "out")
    page = (tmp_path / "out" / "index.html").read_text()
    assert page.count("data:image/jpeg") == 3
    assert f"No frames of {folders[1].name}: it has no weights." in page


def test_the_policys_frames_come_with_the_command(tmp_path, small_run, monkeypatch):
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    main([str(small_run), "--frames", "--out", str(tmp_path / "out")])
    assert (tmp_path / "out" / "index.html").read_text().count("data:image/jpeg") == 8


@pytest.fixture
def opened(browser, tmp_path):
    for seed in range(2):
        write_run(tmp_path / "r", config(seed=seed))
    write_run(tmp_path / "r", config("td3"), target=100)
    write(build(tmp_path / "r"), tmp_path / "out")
    browser.get_log("browser")
    browser.set_window_size(1240, 1000)
    browser.get((tmp_path / "out" / "index.html").as_uri())
    yield browser
    assert [line for line in browser.get_log("browser") if line["level"] == "SEVERE"] == []


PANEL = "document.querySelector('g.panel')"


def ticks(window):
    return window.execute_script(f"return [...{PANEL}.querySelectorAll('.tick')].map((each) => each.textContent)")


def test_the_axis_can_be_switched_and_the_end_looked_at(opened):
    from selenium.webdriver.common.by import By

    assert "200k" in ticks(opened)
    opened.find_element(By.CSS_SELECTOR, "input[value='environment steps']").click()
    assert "2M" in ticks(opened)
    opened.find_element(By.CSS_SELECTOR, "input[value='seconds']").click()
    assert "6.7 min" in ticks(opened)
    before = len(ticks(opened)), ticks(opened)
    opened.find_element(By.ID, "zoom").click()
    assert ticks(opened) != before[1]
    assert "0 s" not in ticks(opened)
    assert opened.execute_script(f"return {PANEL}.querySelectorAll('.last').length") == 2


def test_values_are_read_by_pointing_and_by_keys(opened):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    panel = opened.find_element(By.CSS_SELECTOR, "g.panel")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", panel)
    ActionChains(opened).move_to_element(panel).perform()
    tip = opened.find_element(By.CLASS_NAME, "tip")
    assert tip.is_displayed()
    assert "sac" in tip.text
    assert "±" in tip.text
    ActionChains(opened).move_to_element_with_offset(panel, 0, -150).perform()
    assert not tip.is_displayed()
    opened.execute_script("arguments[0].focus({preventScroll: true})", panel)
    ActionChains(opened).send_keys(Keys.ARROW_LEFT).perform()
    lines = tip.text.splitlines()
    assert lines[0] == "Hopper [-0.5, 0.5], 195,000 gradient steps"
    assert lines.index("sac") < lines.index("td3")
