"""The README's example runs as it stands."""

import re
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(.*?)```", README, re.S).group(1)
    assert len(code.strip().splitlines()) <= 12
    # The same program with fewer steps: what is tested is that it runs, not that it learns.
    shortened = re.sub(r"learn\([\d_]+", "learn(1_600", code)
    assert shortened != code
    names: dict[str, object] = {}
    exec(compile(shortened, "README.md", "exec"), names)
    assert names["certificate"].gap <= 1e-4


def test_every_command_of_the_readme_exists():
    from caql.cli import COMMANDS

    for command in re.findall(r"^\s*caql (\w+)", README, re.M):
        assert command in COMMANDS


def test_the_table_of_returns_is_what_the_committed_runs_give(tmp_path):
    from caql.experiments.report.report import build, write

    write(build(Path(__file__).parent.parent / "results" / "paper"), tmp_path)
    rows = (tmp_path / "summary.md").read_text().strip().splitlines()
    assert len(rows) > 2
    for row in rows:
        assert row in README.splitlines()
