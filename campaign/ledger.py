"""What the campaign has done and found: counts in JSON files, and every failure as files that reproduce it."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

FOUND = Path(__file__).parent / "found"
MOST = 20
"""Failures of one check and kind that are kept as files by one worker; the rest are only counted."""


class Ledger:
    """One worker's counts and findings; nobody else writes its files."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.counts: dict[str, dict[str, Counter[str]]] = {}
        self.kept: Counter[str] = Counter()
        self.findings = 0
        (folder / "counts").mkdir(parents=True, exist_ok=True)

    def count(self, part: str, kind: str, more: Mapping[str, int]) -> None:
        """Add to the counts of a kind."""
        self.counts.setdefault(part, {}).setdefault(kind, Counter()).update(more)

    def total(self, part: str, what: str) -> int:
        """The sum over the kinds of a part."""
        return sum(counts[what] for counts in self.counts.get(part, {}).values())

    def found(self, story: dict[str, Any], files: Mapping[str, Callable[[Path], object]]) -> None:
        """Keep a failure: its story, and the files that show it again."""
        self.findings += 1
        label = "-".join(str(story[name]) for name in ("part", "kind", "check") if name in story)
        label = "".join(c if c.isalnum() else "-" for c in label)[:80]
        self.kept[label] += 1
        if self.kept[label] > MOST:
            return
        path = self.folder / f"{label}-{self.name}-{self.findings}"
        for suffix, write in files.items():
            write(path.with_name(path.name + suffix))
        story["files"] = [path.name + suffix for suffix in files]
        path.with_name(path.name + ".json").write_text(json.dumps(story, indent=2, default=str) + "\n")

    def save(self) -> None:
        """Write the counts in one go, so that a kill leaves the former or the new ones."""
        path = self.folder / "counts" / f"{self.name}.json"
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps(self.counts))
        temporary.replace(path)


def totals(folder: Path) -> dict[str, dict[str, Counter[str]]]:
    """The counts of all workers of all starts."""
    together: dict[str, dict[str, Counter[str]]] = {}
    for path in sorted((folder / "counts").glob("*.json")):
        for part, kinds in json.loads(path.read_text()).items():
            for kind, counts in kinds.items():
                together.setdefault(part, {}).setdefault(kind, Counter()).update(counts)
    return together


def table(folder: Path) -> str:
    """The counts in words, a line for each kind; what went wrong in capitals."""
    lines = []
    for part, kinds in sorted(totals(folder).items()):
        lines.append(f"{part}")
        whole: Counter[str] = Counter()
        for kind, counts in kinds.items():
            whole.update(counts)
            lines.append(f"  {kind:18} {_words(counts)}")
        lines.append(f"  {'ALL':18} {_words(whole)}")
    found = sorted(path.name for path in folder.glob("*.json"))
    lines.append(f"{len(found)} failures kept in {folder}" + (":" if found else ""))
    return "\n".join([*lines, *(f"  {name}" for name in found[:40])])


def _words(counts: Counter[str]) -> str:
    return ", ".join(f"{number:,} {what}" for what, number in counts.items())
