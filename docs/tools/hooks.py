"""What the site adds to the pages of this folder, each of which also reads well as a plain file.

- Pages of the repository's root (changelog, contributing) become pages of the site, and any other file that a page
  links to comes along under `repository/`, so that no link leaves the site.
- `<!-- help: train Pendulum -->` becomes what `caql train Pendulum --help` prints.
"""

from __future__ import annotations

import contextlib
import io
import os
import posixpath
import re
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = ("CHANGELOG.md", "CONTRIBUTING.md")
"""Files of the root that are pages of the site."""
LINK = re.compile(r"\]\(((?!https?:|#)[^)\s]+)\)")
HELP = re.compile(r"^<!-- help:(.*)-->$", re.M)
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
WIDTH = "100"


def where(uri: str, link: str) -> str | None:
    """The place on the site of a link that leaves this folder, from the page at `uri`; None if it stays inside."""
    name, mark, anchor = link.partition("#")
    root = "" if uri in PAGES else "docs"
    target = posixpath.normpath(posixpath.join(root, posixpath.dirname(uri), name)) if name else ""
    if not target or (root and target.startswith("docs/")):
        return None
    inside = target.removeprefix("docs/") if target.startswith("docs/") else target
    found = inside if target.startswith("docs/") or target in PAGES else f"repository/{target}"
    return posixpath.relpath(found, posixpath.dirname(uri) or ".") + mark + anchor


def on_files(files: Files, config: Any) -> Files:
    """Add the root's pages and every file of the repository that a page links to."""
    for name in PAGES:
        files.append(File.generated(config, name, content=(ROOT / name).read_text()))
    for file in list(files.documentation_pages()):
        for link in LINK.findall(FENCE.sub("", file.content_string)):
            target = where(file.src_uri, link)
            name = posixpath.normpath(posixpath.join(posixpath.dirname(file.src_uri), target or "")).partition("#")[0]
            path = ROOT / name.removeprefix("repository/")
            if name.startswith("repository/") and path.is_file() and files.get_file_from_path(name) is None:
                files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links that lead out of this folder, and the help texts."""
    pieces = re.split(r"(^```.*?^```$)", markdown, flags=re.M | re.S)
    for index in range(0, len(pieces), 2):
        change = lambda found: f"]({where(page.file.src_uri, found[1]) or found[1]})"  # noqa: E731
        pieces[index] = LINK.sub(change, pieces[index])
    return HELP.sub(lambda found: f"```text\n{command_help(found[1].split())}\n```", "".join(pieces))


def command_help(arguments: list[str]) -> str:
    """What `caql ARGUMENTS --help` prints."""
    from caql.cli import main

    printed = io.StringIO()
    plain = {"COLUMNS": WIDTH, "NO_COLOR": "1", "TERM": "dumb"}
    with (
        mock.patch.dict(os.environ, plain),
        mock.patch.object(sys, "argv", ["caql", *arguments, "--help"]),
        contextlib.redirect_stdout(printed),
        contextlib.suppress(SystemExit),
    ):
        main()
    text = re.sub(r"\x1b\[[0-9;]*m", "", printed.getvalue())
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
