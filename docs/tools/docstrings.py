"""Griffe's view of this project's docstrings: lines `name: what it is` become a table of arguments.

The source writes them without headings, which is how they read best there.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

LINE = re.compile(r"^(\w+): (.*)$")


def with_sections(text: str, known: set[str], title: str) -> str:
    """The docstring with its lines about `known` names under a heading; what follows begins a new paragraph."""
    before: list[str] = []
    listed: list[str] = []
    after: list[str] = []
    inside = False
    for line in text.splitlines():
        found = LINE.match(line)
        if found and found[1] in known:
            listed.append(f"    {line}")
            inside = True
        elif inside and line.startswith("    "):
            listed.append(f"    {line}")
        elif inside or listed:
            inside = False
            after += [line]
        else:
            before.append(line)
    if not listed:
        return text
    parts = ["\n".join(before).strip(), f"{title}:\n" + "\n".join(listed), "\n".join(after).strip()]
    return "\n\n".join(part for part in parts if part)


class Arguments(griffe.Extension):
    """Gives functions an `Args` section and classes an `Attributes` section."""

    def on_function(self, *, func: Any, **_: Any) -> None:
        """Arguments of a function or method."""
        if func.docstring:
            names = {parameter.name for parameter in func.parameters}
            func.docstring.value = with_sections(func.docstring.value, names, "Args")

    def on_class(self, *, cls: Any, **_: Any) -> None:
        """Fields of a class."""
        if cls.docstring:
            cls.docstring.value = with_sections(cls.docstring.value, set(cls.members), "Attributes")
