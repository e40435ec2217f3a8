"""The documentation site: every page is in the navigation, it builds without a warning, and it needs no network."""

import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from tests.pages import ROOT

pytest.importorskip("mkdocs")
NAVIGATION = (ROOT / "mkdocs.yml").read_text()
LOADED = {("script", "src"), ("link", "href"), ("img", "src"), ("source", "src"), ("video", "src"), ("iframe", "src")}
"""What a browser fetches by itself when it shows a page."""


class Resources(HTMLParser):
    """Collects the addresses that a page loads."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        canonical = tag == "link" and given.get("rel") == "canonical"
        self.found += [given[name] for each, name in LOADED if each == tag and given.get(name) and not canonical]


def test_every_page_is_in_the_navigation():
    for page in (ROOT / "docs").rglob("*.md"):
        name = str(page.relative_to(ROOT / "docs"))
        if page.name == "summary.md":  # a part of the report beside it
            continue
        assert f" {name}\n" in NAVIGATION, f"add {name} to the navigation in mkdocs.yml"


def test_the_font_is_not_fetched():
    assert "font: false" in NAVIGATION


def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path):
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        resources = Resources()
        resources.feed(page.read_text())
        away = [address for address in resources.found if re.match(r"(https?:)?//", address)]
        assert not away, f"{page.relative_to(tmp_path)} loads {away}"
    for style in tmp_path.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", style.read_text()), style
    reference = (tmp_path / "reference" / "command-line.html").read_text()
    assert "--train-steps" in reference, "the help texts are missing"
    assert "total_timesteps" in (tmp_path / "reference" / "api.html").read_text(), "the docstrings are missing"
