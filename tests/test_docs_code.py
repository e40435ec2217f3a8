"""What the documentation shows works: Python blocks run, shell blocks run, and every command is understood.

A page's Python blocks share their names, as in a notebook, and run in an empty folder in which examples/ and results/
are there as in a clone.  `<!-- slow -->` before a block leaves it to `make slow-test`.  Blocks marked `sh` are run by a
shell, word by word, and are all slow; indented commands are records of what was run, and must be understood.
"""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib

import pytest
import tyro

from tests.pages import PAGES, ROOT, blocks, commands, name_of

MORE_CLOSELY = {
    "README.md": "test_readme.py",
    "action-sets.md": "test_docs.py",
    "from-stable-baselines3.md": "test_docs.py",
}
"""Pages whose Python blocks run in other tests, which also look at what they print, or shorten them for `make test`."""
WITH_PYTHON = [page for page in PAGES if any(block.language == "python" for block in blocks(page))]
AT_ONCE = [page for page in WITH_PYTHON if page.name not in MORE_CLOSELY]
IN_TIME = [page for page in WITH_PYTHON if any(block.slow for block in blocks(page)) or page.name.startswith("from-")]
WITH_SHELL = [page for page in PAGES if any(block.language == "sh" for block in blocks(page))]


def execute(page, slow):
    names = {"__name__": "__main__"}
    for number, block in enumerate(blocks(page)):
        needs = re.match(r"# needs (\w+)$", block.text.splitlines()[0]) if block.text else None
        if needs and not importlib.util.find_spec(needs[1]):
            continue
        if block.language == "python" and (slow or not block.slow):
            exec(compile(block.text, f"{page.name}, block {number}", "exec"), names)
    return names


@pytest.mark.parametrize("page", AT_ONCE, ids=name_of)
def test_python_blocks_run(page, as_in_a_clone):
    execute(page, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("page", IN_TIME, ids=name_of)
def test_slow_python_blocks_run(page, as_in_a_clone):
    execute(page, slow=True)


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_SHELL, ids=name_of)
def test_shell_blocks_run(page, as_in_a_clone):
    shell = "\n".join(block.text for block in blocks(page) if block.language == "sh")
    environment = os.environ | {
        "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
    }
    # What a line writes to results/ must not land in the repository.
    (as_in_a_clone / "results").unlink()
    (as_in_a_clone / "results").mkdir()
    (as_in_a_clone / "results" / "paper").symlink_to(ROOT / "results" / "paper")
    run = ["bash", "-eu", "-o", "pipefail", "-c", shell]
    done = subprocess.run(run, cwd=as_in_a_clone, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{name_of(page)}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


class Understood(Exception):
    """Raised in place of running a command whose arguments were accepted."""


@pytest.fixture
def only_parsing(monkeypatch):
    """Stop every command after its command line was read."""
    read = tyro.cli

    def stop(*arguments, **settings):
        read(*arguments, **settings)
        raise Understood

    monkeypatch.setattr(tyro, "cli", stop)


def arguments_of(line):
    """The words of a command, with a value for each placeholder that stands for a number, and without brackets."""
    plain = re.sub(r"\[(.*?)\]", r"\1", line)
    return [re.sub(r"^AGENT$", "sac", word) for word in shlex.split(plain, comments=True)]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name_of)
def test_commands_are_understood(page, only_parsing, monkeypatch):
    from caql.cli import COMMANDS

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    for line in commands(page):
        program, *words = shlex.split(line, comments=True)
        if program == "make":
            assert {word for word in words if "=" not in word} <= set(targets), line
        elif program == "pip":
            for named in re.findall(r"(?:caql|\.)\[([\w,]+)\]", line):
                assert set(named.split(",")) <= set(extras), line
        elif program == "python":
            path = next((word for word in words if word.endswith(".py")), None)
            assert words[0] == "-m" or (path and (ROOT / path).exists()), line
        else:
            command, *rest = arguments_of(line)[1:]
            assert command in COMMANDS or command == "--version", line
            if command in COMMANDS and "--resume" not in rest:
                with pytest.raises(Understood):
                    importlib.import_module(f"caql.cli.{command}").main(rest)
