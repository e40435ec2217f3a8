"""The README: its examples run as they stand, and its table is what the committed runs give.

Its commands are run by `tests/test_docs_code.py`.
"""

import re

import pytest

from tests.pages import ROOT, blocks

README = (ROOT / "README.md").read_text()
PYTHON = [block.text for block in blocks(ROOT / "README.md") if block.language == "python"]


def run(code: list[str]) -> dict[str, object]:
    names: dict[str, object] = {}
    for block in code:
        exec(compile(block, "README.md", "exec"), names)
    return names


def test_the_examples_run_with_fewer_steps(as_in_a_clone):
    assert len(PYTHON[0].strip().splitlines()) <= 12
    shortened = [re.sub(r"learn\([\d_]+", "learn(1_600", block) for block in PYTHON]
    assert shortened != PYTHON
    assert run(shortened)["certificate"].gap <= 1e-4


@pytest.mark.slow
def test_the_examples_run_as_they_stand(as_in_a_clone):
    assert run(PYTHON)["certificate"].gap <= 1e-4


def test_every_command_is_shown():
    from caql.cli import COMMANDS

    assert set(re.findall(r"(?:^|`)caql (\w+)", README, re.M)) == set(COMMANDS)


def test_the_table_of_returns_is_what_the_committed_runs_give(tmp_path):
    from caql.experiments.report.report import build, write

    write(build(ROOT / "results" / "paper"), tmp_path)
    rows = (tmp_path / "summary.md").read_text().strip().splitlines()
    assert len(rows) > 2
    for row in rows:
        assert row in README.splitlines()
