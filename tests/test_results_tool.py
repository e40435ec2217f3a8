"""`make results`: the README gets the tables of the report, each in the place of the one with its name."""

import runpy

import pytest

from tests.pages import ROOT

tool = runpy.run_path(str(ROOT / "docs" / "tools" / "results.py"))
tables, with_tables = tool["tables"], tool["with_tables"]

PAGE = """Before.

| returns | sac |
|---|---|
| Hopper | 1 |

Between.

| regret | sac |
|---|---|
| Hopper | 2 |
"""
NEW = "| returns | sac | td3 |\n|---|---|---|\n| Hopper | 3 | 4 |\n| Ant | 5 | 6 |\n"


def test_a_table_replaces_the_one_with_its_name():
    page = with_tables(PAGE, tables(NEW))
    before, between = PAGE.split("| returns", 1)[0], PAGE.split("| Hopper | 1 |\n", 1)[1]
    assert page == before + NEW + between


def test_a_table_without_a_place_is_told():
    with pytest.raises(ValueError, match=r"no table whose first cell is 'returns'; it has 'regret'"):
        with_tables(PAGE[PAGE.index("Between") :], tables(NEW))


def test_every_report_has_the_runs_that_it_is_made_of():
    folders = [path for path in (ROOT / "docs" / "results").iterdir() if path.is_dir()]
    assert folders
    for folder in folders:
        assert any((ROOT / "results" / folder.name).glob("*/finished.json")), folder.name
