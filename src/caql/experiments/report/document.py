"""A report as a list of blocks, written twice: one HTML page that needs nothing else, and Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from caql.experiments.report.figures import STYLE, Line, Panel, kept, standalone


class Part(NamedTuple):
    """A piece of a table's cell: plain, strong, faint, better or worse."""

    text: str
    kind: str = "plain"


Cell = str | tuple[Part, ...]
"""Text, or parts one below the other."""


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the title."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Text:
    """A paragraph; words in backquotes are code."""

    text: str


@dataclass(frozen=True)
class Table:
    """The first column names the rows."""

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    wordy: bool = False
    """Columns hold words, to be read from the left, not numbers."""


@dataclass(frozen=True)
class Drawing:
    """An SVG figure; Markdown shows `variants` (file name -> figure) instead, if there are any."""

    name: str
    svg: str
    caption: str = ""
    variants: dict[str, str] = field(default_factory=dict)
    panels: Sequence[Panel] = ()
    """What the figure shows, if the page's script is to redraw it over other axes and read values from it."""


@dataclass(frozen=True)
class Strip:
    """A row of pictures, each an address that the page holds itself (`data:`); Markdown leaves it out."""

    pictures: Sequence[str]
    caption: str


@dataclass(frozen=True)
class Bands:
    """The switch between full and half standard deviations of all curves on the page."""


@dataclass(frozen=True)
class Folded:
    """Details that open on a click."""

    summary: str
    blocks: Sequence[Block]


Block = Heading | Text | Table | Drawing | Strip | Bands | Folded

SWITCH = (
    '<fieldset aria-label="shaded area"><span>shaded:</span>'
    '<label><input type="radio" name="band" id="band-half" checked> half a standard deviation</label>'
    '<label><input type="radio" name="band" id="band-full"> a full one</label>'
    '<label><input type="radio" name="band" id="band-none"> none</label></fieldset>'
)


def stored(panels: Sequence[Panel]) -> str:
    """The panels' numbers for the page's script, with no more points and digits than can be seen."""
    shown = [
        {
            "title": panel.title,
            "logarithmic": panel.logarithmic,
            "lines": [
                {
                    "name": line.name,
                    "colour": line.colour,
                    "window": _kept_window(line),
                    "y": _digits(line.y, line),
                    "spread": None if line.spread is None else _digits(line.spread, line),
                    "x": {"gradient steps": _digits(line.x, line)}
                    | {name: _digits(values, line) for name, values in line.axes.items()},
                }
                for line in panel.lines
            ],
        }
        for panel in panels
    ]
    text = json.dumps(shown, separators=(",", ":")).replace("</", "<\\/")
    return f'<script type="application/json">{text}</script>'


def _digits(values: np.ndarray, line: Line) -> list[float]:
    return [float(f"{value:.6g}") for value in np.asarray(values, float)[kept(len(line.x))].tolist()]


def _kept_window(line: Line) -> int:
    """The place, among the points that are kept, where the last window begins; -1 if none is marked."""
    if not 0 < line.window <= len(line.x):
        return -1
    return int(np.searchsorted(kept(len(line.x)), len(line.x) - line.window))


def _anchor(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _inline(text: str) -> str:
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text, quote=False))


def _html_cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return _inline(cell)
    return "".join(f'<span class="{part.kind}">{_inline(part.text)}</span>' for part in cell)


def _html_block(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f'<h{level} id="{_anchor(text)}">{_inline(text)}</h{level}>'
        case Text(text):
            return f"<p>{_inline(text)}</p>"
        case Table(header, rows, caption, wordy):
            head = "".join(f"<th>{_inline(name)}</th>" for name in header)
            body = "".join("<tr>" + "".join(f"<td>{_html_cell(c)}</td>" for c in row) + "</tr>" for row in rows)
            note = f'<p class="note">{_inline(caption)}</p>' if caption else ""
            kind = ' class="wordy"' if wordy else ""
            table = f"<table{kind}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            return f'<div class="wide">{table}</div>{note}'
        case Drawing(_, svg, caption, _, panels):
            note = f"<figcaption>{_inline(caption)}</figcaption>" if caption else ""
            return (
                f'<figure class="live">{svg}{stored(panels)}{note}</figure>'
                if panels
                else f"<figure>{svg}{note}</figure>"
            )
        case Strip(pictures, caption):
            images = "".join(f'<img src="{escape(each)}" alt="">' for each in pictures)
            note = f"<figcaption>{_inline(caption)}</figcaption>"
            return f'<figure class="strip" role="img" aria-label="{escape(caption)}">{images}{note}</figure>'
        case Bands():
            return SWITCH
        case Folded(summary, blocks):
            inner = "".join(_html_block(each) for each in blocks)
            return f"<details><summary>{_inline(summary)}</summary>{inner}</details>"


def html(blocks: Sequence[Block]) -> str:
    """The page, whole."""
    title = next((block.text for block in blocks if isinstance(block, Heading)), "caql")
    sections = [block for block in blocks if isinstance(block, Heading) and block.level == 2]
    links = "".join(
        f'<a href="#{_anchor(each.text)}">{_inline(re.split("[:,(]", each.text)[0])}</a>' for each in sections
    )
    folder = files("caql.experiments.report")
    page, script = (folder.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "charts.js"))
    live = any(isinstance(block, Drawing) and block.panels for block in blocks)
    parts = [_html_block(block) for block in blocks]
    first = next((i for i, block in enumerate(blocks) if isinstance(block, Heading) and block.level == 2), len(parts))
    parts.insert(first, f"<nav>{links}</nav>")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{page}{STYLE}</style></head><body><main>"
        + "\n".join(parts)
        + "</main>"
        + (f"<script>{script}</script>" if live else "")
        + "</body></html>\n"
    )


def _markdown_cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell.replace("|", "\\|").replace("\n", "<br>")
    marks = {"strong": "**{}**", "faint": "<sub>{}</sub>", "better": "<sub>{}</sub>", "worse": "<sub>{}</sub>"}
    return "<br>".join(marks.get(part.kind, "{}").format(part.text.replace("|", "\\|")) for part in cell)


def _markdown_block(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text}\n"
        case Text(text):
            return f"{text}\n"
        case Table(header, rows, caption, wordy):
            rule = ["---" if wordy or not index else "---:" for index in range(len(header))]
            lines = [header, rule, *([_markdown_cell(cell) for cell in row] for row in rows)]
            text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
            return f"{text}\n" + (f"\n{caption}\n" if caption else "")
        case Drawing(name, svg, caption, variants, _):
            shown = variants or {name: svg}
            images = "\n\n".join(f"![{caption or file}](figures/{file}.svg)" for file in shown)
            return f"{images}\n" + (f"\n{caption}\n" if caption else "")
        case Bands() | Strip():
            return ""
        case Folded(summary, blocks):
            inner = "\n".join(_markdown_block(each) for each in blocks)
            return f"<details><summary>{summary}</summary>\n\n{inner}\n</details>\n"


def markdown(blocks: Sequence[Block]) -> str:
    """The same in Markdown, with its figures in `figures/`."""
    return "\n".join(text for block in blocks if (text := _markdown_block(block)))


def figure_files(blocks: Sequence[Block]) -> dict[str, str]:
    """The figures that the Markdown points to, by file name."""
    found: dict[str, str] = {}
    for block in blocks:
        if isinstance(block, Drawing):
            found |= {name: standalone(svg) for name, svg in (block.variants or {block.name: block.svg}).items()}
        elif isinstance(block, Folded):
            found |= figure_files(block.blocks)
    return found
