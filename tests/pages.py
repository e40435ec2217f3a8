"""The documentation as data: its pages, and the code and commands on them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*/*.md")])
"""All but the reports in docs/results/*/, which are generated."""
FENCED = re.compile(r"^(<!-- slow -->\n)?```(\w*)\n(.*?)^```$", re.M | re.S)


class Block(NamedTuple):
    """A fenced block: its language, its text, and whether `<!-- slow -->` stands before it."""

    language: str
    text: str
    slow: bool


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [Block(language, text, bool(slow)) for slow, language, text in FENCED.findall(page.read_text())]


def without_code(text: str) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


def commands(page: Path) -> list[str]:
    """Every line of a page that is a command for a shell: in a block `sh`, or indented by four spaces."""
    shell = "\n".join(block.text for block in blocks(page) if block.language == "sh")
    indented = "\n".join(re.findall(r"^    (\S.*)$", without_code(page.read_text()).replace("\\\n        ", ""), re.M))
    starts = ("caql ", "make ", "pip install ", "python ")
    return [line for line in (shell + "\n" + indented).splitlines() if line.startswith(starts)]
