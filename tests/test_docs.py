"""The documentation: links lead somewhere, module paths exist, prose has a width, commands and numbers are right."""

import importlib.util
import inspect
import re
from pathlib import Path

import numpy as np
import pytest

from tests.pages import PAGES, ROOT, name_of, without_code

SOURCE = ROOT / "src" / "caql"
WIDTH = 100

every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


def anchors(page: Path) -> set[str]:
    """The names that the page's headings can be linked by, as GitHub makes them."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", without_code(page.read_text()), re.M):
        words = re.sub(r"[^\w\- ]", "", heading.strip().lower())
        found.add(words.replace(" ", "-"))
    return found


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text()))


def is_module(dotted: str) -> bool:
    """Whether a dotted name is a module, or a name that a module has."""
    parts = dotted.split(".")[1:]
    path = SOURCE
    for index, part in enumerate(parts):
        if (path / part).is_dir():
            path = path / part
        elif (path / f"{part}.py").is_file() and index == len(parts) - 1:
            return True
        else:
            file = path / f"{part}.py"
            file, rest = (file, parts[index + 1 :]) if file.is_file() else (path / "__init__.py", parts[index:])
            return len(rest) == 1 and re.search(rf"\b{rest[0]}\b", file.read_text()) is not None
    return True


@every_page
def test_links_lead_somewhere(page):
    for link in links(page):
        if link.startswith(("http:", "https:")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{page.name}: {link} does not exist"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link} has no such heading"


@every_page
def test_prose_is_at_most_100_columns_wide(page):
    for number, line in enumerate(without_code(page.read_text()).splitlines(), 1):
        if not line.startswith(("|", "    ")):
            assert len(line) <= WIDTH, f"{page.name}, about line {number}: {len(line)} columns"


@every_page
def test_no_marker_stands_where_a_paragraph_should_be(page):
    assert re.findall(r"^[A-Z_]{3,}$", without_code(page.read_text()), re.M) == []


@every_page
def test_paths_and_modules_exist(page):
    text = page.read_text()
    for path in re.findall(r"`((?:src|tests|docs|benchmarks|examples|results)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), f"{page.name}: {path} does not exist"
    for dotted in re.findall(r"(?<![\w/-])(caql(?:\.[a-z_]\w*)+)", text):
        assert is_module(dotted), f"{page.name}: {dotted} does not exist"
    packages = "|".join(path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__")
    for path in re.findall(rf"`((?:{packages})/[\w./]*)`", text):
        assert (SOURCE / path).exists(), f"{page.name}: src/caql/{path} does not exist"


@pytest.mark.parametrize("page", ["explanation/architecture.md", "reference/glossary.md"])
def test_files_at_the_top_of_the_package_exist(page):
    # These two pages name files relative to src/caql.
    text = (ROOT / "docs" / page).read_text()
    for name in re.findall(r"`(\w+\.py)`", text):
        assert list(SOURCE.rglob(name)), f"{page}: {name} does not exist"


def test_the_readmes_maxima_are_what_the_example_network_has():
    from caql import maximize
    from caql.network_files import read_network

    claimed = re.findall(r"maximize\(layers.*# ([\d.]+),", (ROOT / "README.md").read_text())
    layers = read_network(ROOT / "examples" / "networks" / "example.onnx").layers
    found = [maximize(layers, -1, 1, solver=solver).values[0] for solver in ("exact", "ga")]
    np.testing.assert_allclose([float(value) for value in claimed], found, atol=1e-4)


def load_script(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_the_figure_shows_the_proved_maximum():
    script = load_script(ROOT / "docs" / "figures" / "landscape.py")
    values, upper = script.anytime(script.make_slice())
    drawn = (ROOT / "docs" / "figures" / "landscape.svg").read_text()
    assert f"Proved maximum {values[-1]:.2f}" in drawn
    assert upper[-1] - values[-1] <= script.TOLERANCE


def test_the_figure_of_exact_shows_its_nodes_and_the_proved_maximum():
    script = load_script(ROOT / "docs" / "figures" / "exact.py")
    values, _ = script.anytime(script.make_case()[1])
    drawn = (ROOT / "docs" / "figures" / "exact.svg").read_text()
    assert f"Proved maximum {values[-1]:.3f} after {len(values)} nodes" in drawn


def test_the_example_network_is_what_its_script_makes():
    from caql.network_files import read_network

    folder = ROOT / "examples" / "networks"
    script = load_script(folder / "make_example.py")
    stored = read_network(folder / "example.onnx").layers
    for (weights, bias), (stored_weights, stored_bias) in zip(script.make_layers(), stored, strict=True):
        np.testing.assert_array_equal(weights, stored_weights)
        np.testing.assert_array_equal(bias, stored_bias)


def test_the_page_on_action_sets_says_what_is_printed(tmp_path, monkeypatch, capsys):
    from tests.test_docs_code import execute

    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "reference" / "action-sets.md"
    names = execute(page, slow=False)
    said = capsys.readouterr().out
    for claimed in re.findall(r"^# (the action set is empty.*)$", page.read_text(), re.M):
        assert claimed in said
    assert said.startswith("True\n")
    assert (names["solution"].status == 0).all()
    assert (tmp_path / "rows.npz").exists()


def test_the_tables_of_action_sets_are_complete():
    from caql.actions.constructors import Constructors
    from caql.maxq.solvers import CLASSES, proves, solver_class

    text = (ROOT / "docs" / "reference" / "action-sets.md").read_text()
    listed = re.findall(r"^\| `(\w+)\((.*?)\)` \|", text, re.M)
    public = [name for name in vars(Constructors) if not name.startswith("_")]
    assert sorted(name for name, _ in listed) == sorted(public)
    for name, arguments in listed:
        known = list(inspect.signature(getattr(Constructors, name)).parameters)
        assert [part.split("=")[0].strip() for part in arguments.split(",")] == [p for p in known if p != "self"]
    for name in CLASSES:
        flags = solver_class(name).accepts_rows, solver_class(name).accepts_integers, proves(name)
        row = " | ".join("yes" if flag else "no" for flag in flags)
        assert f"| `{name}` | {row} |" in text


def test_the_page_for_users_of_stable_baselines3_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "tutorials" / "from-stable-baselines3.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    assert len(blocks) >= 6
    names: dict[str, object] = {}
    for block in blocks:
        if "# needs stable_baselines3" in block and importlib.util.find_spec("stable_baselines3") is None:
            continue
        # Fewer steps: what is tested is that it runs, not that it learns.
        shortened = block.replace("10_000", "900")
        said = capsys.readouterr().out
        exec(compile(shortened, "from-stable-baselines3.md", "exec"), names)
        said = capsys.readouterr().out
        for claimed in re.findall(r"^print\(.*\)  # (.+)$", block, re.M):
            assert f"{claimed}\n" in said
    assert names["certificate"].gap <= 1e-4


def test_the_table_of_stable_baselines3s_names_is_complete():
    from caql.model.base import Model
    from caql.model.names import OF_AGENT, SAME

    text = (ROOT / "docs" / "tutorials" / "from-stable-baselines3.md").read_text()
    for theirs, here in (SAME | OF_AGENT["td3"]).items():
        assert re.search(rf"^\|[^|]*`{theirs}`[^|]*\|[^|]*`{here}`", text, re.M), theirs
    arguments = inspect.signature(Model.__init__).parameters
    for name in ("seed", "device", "verbose", "tensorboard_log", "action_noise", "stats_window_size"):
        assert name in arguments
        assert f"`{name}`" in text
    listed = re.search(r"^The model has (.*?)\. It can be pickled", text, re.M | re.S).group(1)
    for name in re.findall(r"`(\w+)`", listed):
        assert hasattr(Model, name), name
