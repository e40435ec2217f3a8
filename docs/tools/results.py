"""The pages of results, made anew from the runs in this repository, and the README's tables with them: `make results`.

A folder of `docs/results` is the report of the folder of `results` that has its name.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from caql.experiments.report.report import build, write

ROOT = Path(__file__).resolve().parent.parent.parent


def tables(text: str) -> dict[str, str]:
    """The Markdown tables of a text, by the first cell of their heading."""
    blocks = groupby(text.splitlines(), lambda line: line.startswith("|"))
    found = ["\n".join(lines) for is_table, lines in blocks if is_table]
    return {table.split("|")[1].strip(): table for table in found}


def with_tables(page: str, new: dict[str, str]) -> str:
    """The page with each of the `new` tables in the place of the one that has its name; `ValueError` without one."""
    old = tables(page)
    for name, table in new.items():
        if name not in old:
            raise ValueError(f"the page has no table whose first cell is {name!r}; it has {', '.join(map(repr, old))}")
        page = page.replace(old[name], table)
    return page


def main() -> None:
    """Every report, then the README."""
    for out in sorted(path for path in (ROOT / "docs" / "results").iterdir() if path.is_dir()):
        written = write(build(ROOT / "results" / out.name), out)
        print(f"{written[0].relative_to(ROOT)}, {len(written)} files in all")
    readme, brief = ROOT / "README.md", ROOT / "docs" / "results" / "paper" / "summary.md"
    readme.write_text(with_tables(readme.read_text(), tables(brief.read_text())))


if __name__ == "__main__":
    main()
