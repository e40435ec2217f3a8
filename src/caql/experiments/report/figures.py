"""Figures as SVG written by hand: small, crisp, and at home on a light and on a dark page.

Colours are CSS variables that follow `prefers-color-scheme`, in the page and in a stand-alone file alike, which
is what a plotting library's output does not do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np

COLOURS = (
    ("#0b62d6", "#63a8ff"),
    ("#0a8a67", "#43cf9f"),
    ("#b86e00", "#f0b04a"),
    ("#6b7280", "#a9b1bd"),
    ("#a3359c", "#e48add"),
    ("#c8323c", "#ff8080"),
    ("#7b5230", "#d3a77c"),
    ("#0f89a8", "#5fd0ea"),
)
"""(on light, on dark)."""
STYLE = (
    ".chart{--ink:#1f2328;--faint:#656d76;--line:#d5dbe1;font:12px system-ui,sans-serif}"
    ".chart text{fill:var(--ink);font-variant-numeric:tabular-nums}.chart .tick{fill:var(--faint);font-size:11px}"
    ".chart .title{font-weight:600;font-size:13px}.chart .rule{stroke:var(--line);stroke-width:1;fill:none}"
    ".chart .curve{fill:none;stroke:var(--c);stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}"
    ".chart .band{fill:var(--c);stroke:none;opacity:.16}.chart .fill{fill:var(--c)}"
    ".chart .dot{fill:var(--c);opacity:.55}.chart .last{fill:none;stroke:var(--c);stroke-width:5;stroke-linecap:butt}"
    ".chart .end{fill:var(--c)}"
    + "".join(f".chart .c{i},.chart.c{i}{{--c:{light}}}" for i, (light, _) in enumerate(COLOURS))
    + "@media(prefers-color-scheme:dark){.chart{--ink:#e6edf3;--faint:#9aa4af;--line:#343b44}"
    + "".join(f".chart .c{i},.chart.c{i}{{--c:{dark}}}" for i, (_, dark) in enumerate(COLOURS))
    + "}"
)
WIDTH, PANEL_HEIGHT, COLUMNS = 1080, 236, 3
LEFT, RIGHT, TOP, BOTTOM = 50, 12, 26, 30
LEGEND_LINE = 16
MOST_POINTS = 160
"""Points of a drawn curve: more could not be told apart."""


@dataclass(frozen=True)
class Line:
    """A curve; `spread` is its standard deviation."""

    name: str
    colour: int
    x: np.ndarray
    y: np.ndarray
    spread: np.ndarray | None = None
    axes: Mapping[str, np.ndarray] = field(default_factory=dict)
    """What else the curve can be drawn over, by its name on the page: as long as `x`."""
    window: int = 0
    """How many of the last points are one window, whose mean the last point is; 0: none is marked."""


@dataclass(frozen=True)
class Dots:
    """Single values of one column, drawn above its name."""

    name: str
    colour: int
    y: Sequence[float]


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    lines: Sequence[Line] = ()
    dots: Sequence[Dots] = ()
    logarithmic: bool = False


def standalone(svg: str) -> str:
    """The figure as a file of its own."""
    return svg.replace("<defs/>", f"<style>{STYLE}</style>", 1) + "\n"


def _open(height: float, label: str) -> str:
    return (
        f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'role="img" aria-label="{escape(label, quote=True)}"><defs/>'
    )


def _legend(names: dict[str, int]) -> tuple[list[str], int]:
    """The names in as many lines as they need, and the height of all but the first."""
    parts, x, y = [], float(LEFT), 12
    for name, colour in names.items():
        wide = 34 + 7.2 * len(name)
        if x > LEFT and x + wide > WIDTH:
            x, y = float(LEFT), y + LEGEND_LINE
        parts.append(f'<rect class="fill c{colour}" x="{x:.0f}" y="{y - 6:.0f}" width="14" height="4" rx="2"/>')
        parts.append(f'<text x="{x + 19:.0f}" y="{y:.0f}">{escape(name)}</text>')
        x += wide
    return parts, y - 12


def panels(figure: Sequence[Panel], label: str, bands: Sequence[str] = ("full", "half")) -> str:
    """Panels in rows of three under one legend; `bands` picks full and half standard deviations."""
    names: dict[str, int] = {}
    for panel in figure:
        names |= {line.name: line.colour for line in panel.lines}
    legend, further = _legend(names)
    top = 26 + further if names else 4
    rows = -(-len(figure) // COLUMNS)
    parts = [_open(top + rows * PANEL_HEIGHT, label), *legend]
    width = WIDTH / COLUMNS
    for index, panel in enumerate(figure):
        x, y = index % COLUMNS * width, top + index // COLUMNS * PANEL_HEIGHT
        parts.append(f'<g class="panel" transform="translate({x:.0f},{y:.0f})">')
        parts += _panel(panel, width, bands)
        parts.append("</g>")
    return "".join([*parts, "</svg>"])


def _panel(panel: Panel, width: float, bands: Sequence[str]) -> list[str]:
    values = _extent(panel, bands)
    if panel.logarithmic:
        ticks = [
            10.0**power for power in range(math.floor(math.log10(values[0])), math.ceil(math.log10(values[1])) + 1)
        ]
        low, high = ticks[0], ticks[-1]
        if low == high:
            low, high = low / 10, high * 10
    else:
        ticks = nice_ticks(*values)
        low, high = min(values[0], ticks[0]), max(values[1], ticks[-1])
    left, right, bottom = LEFT, width - RIGHT, PANEL_HEIGHT - BOTTOM

    def height(value: float) -> float:
        if panel.logarithmic:
            share = (math.log10(max(value, low)) - math.log10(low)) / (math.log10(high) - math.log10(low))
        else:
            share = (value - low) / (high - low)
        return bottom - share * (bottom - TOP)

    parts = [f'<text class="title" x="{left}" y="{TOP - 10}">{escape(panel.title)}</text>']
    for tick in ticks:
        y = height(tick)
        parts.append(f'<path class="rule" d="M{left} {y:.1f}H{right:.0f}"/>')
        parts.append(f'<text class="tick" x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{short(tick)}</text>')
    if panel.lines:
        parts += _lines(panel.lines, (left, right, bottom), height, bands)
    else:
        parts += _columns(panel.dots, (left, right, bottom), height)
    return parts


def _extent(panel: Panel, bands: Sequence[str]) -> tuple[float, float]:
    part = 1.0 if "full" in bands else 0.5
    ends: list[np.ndarray] = [np.asarray(column.y, float) for column in panel.dots]
    for line in panel.lines:
        spread = 0.0 if line.spread is None else part * line.spread
        ends += [line.y - spread, line.y + spread]
    whole = np.concatenate(ends)
    low, high = float(whole.min()), float(whole.max())
    if panel.logarithmic:
        return max(low, 1e-6), max(high, 1e-6)
    return (low, high) if high > low else (low - 1, high + 1)


def _lines(
    lines: Sequence[Line], box: tuple[float, float, float], height: Callable[[float], float], bands: Sequence[str]
) -> list[str]:
    left, right, bottom = box
    start, end = min(float(line.x[0]) for line in lines), max(float(line.x[-1]) for line in lines)
    start = 0.0 if start < 0.2 * end else start

    def across(value: float) -> float:
        return left + (value - start) / max(end - start, 1e-9) * (right - left)

    parts = []
    for tick in nice_ticks(start, end):
        x = across(tick)
        anchor = "end" if x > right - 12 else "middle"
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 16}" text-anchor="{anchor}">{short(tick)}</text>')
    for line in lines:
        keep = kept(len(line.x))
        xs = [across(float(value)) for value in line.x[keep]]
        if line.spread is not None:
            for name, part in (("full", 1.0), ("half", 0.5)):
                if name in bands:
                    over = [height(v) for v in (line.y + part * line.spread)[keep].tolist()]
                    under = [height(v) for v in (line.y - part * line.spread)[keep].tolist()]
                    outline = _path(xs, over) + "L" + _path(xs[::-1], under[::-1])[1:] + "Z"
                    parts.append(f'<path class="band {name} c{line.colour}" d="{outline}"/>')
    for line in lines:
        keep = kept(len(line.x))
        xs = [across(float(value)) for value in line.x[keep]]
        path = _path(xs, [height(v) for v in line.y[keep].tolist()])
        if len(xs) == 1:
            path += "h3"
        parts.append(f'<path class="curve c{line.colour}" d="{path}"><title>{escape(line.name)}</title></path>')
        parts += _last_window(line, across, height)
    return parts


def _last_window(line: Line, across: Callable[[float], float], height: Callable[[float], float]) -> list[str]:
    """A bar over the last window, at its mean, which ends the curve."""
    if not 0 < line.window <= len(line.x):
        return []
    begin, end, level = across(float(line.x[-line.window])), across(float(line.x[-1])), height(float(line.y[-1]))
    return [
        f'<path class="last c{line.colour}" d="M{begin:.1f} {level:.1f}H{end:.1f}">'
        f"<title>{escape(line.name)}: last window {line.y[-1]:.1f}</title></path>",
        f'<circle class="end c{line.colour}" cx="{end:.1f}" cy="{level:.1f}" r="3.2"/>',
    ]


def kept(points: int) -> np.ndarray:
    """The indices of the points of a curve that are drawn."""
    return np.unique(np.linspace(0, points - 1, min(points, MOST_POINTS)).round().astype(int))


def _path(xs: Sequence[float], ys: Sequence[float]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(xs, ys, strict=True))


def _columns(dots: Sequence[Dots], box: tuple[float, float, float], height: Callable[[float], float]) -> list[str]:
    left, right, bottom = box
    parts = []
    step = (right - left) / max(len(dots), 1)
    for index, column in enumerate(dots):
        middle = left + (index + 0.5) * step
        spread = min(0.3 * step, 10)
        for number, value in enumerate(column.y):
            # A fixed pattern instead of a random jitter: the same results give the same file.
            x = middle + spread * math.sin(2.4 * number)
            parts.append(f'<circle class="dot c{column.colour}" cx="{x:.1f}" cy="{height(value):.1f}" r="2.6"/>')
        mean = height(float(np.mean(column.y)))
        parts.append(
            f'<path class="curve c{column.colour}" d="M{middle - 12:.1f} {mean:.1f}h24">'
            f"<title>{escape(column.name)}: mean {np.mean(column.y):.1f}</title></path>"
        )
        name = escape(column.name.removeprefix("caql-"))
        parts.append(f'<text class="tick" x="{middle:.1f}" y="{bottom + 16}" text-anchor="middle">{name}</text>')
    return parts


def shares(rows: Sequence[tuple[str, dict[str, float]]], colours: dict[str, int], label: str) -> str:
    """One horizontal bar per row, cut into parts of its whole, with the whole in words at its end."""
    legend, further = _legend(colours)
    tall, first = 24, 30 + further
    parts = [_open(first + tall * len(rows) + 6, label), *legend]
    begin, end = 250.0, WIDTH - 110.0
    for index, (name, amounts) in enumerate(rows):
        y, whole, x = first + tall * index, sum(amounts.values()), begin
        parts.append(f'<text x="{begin - 10:.0f}" y="{y + 14}" text-anchor="end">{escape(name)}</text>')
        for part, colour in colours.items():
            width = amounts.get(part, 0.0) / whole * (end - begin) if whole else 0.0
            if width > 0:
                percent = 100 * amounts[part] / whole
                parts.append(
                    f'<rect class="fill c{colour}" x="{x:.1f}" y="{y}" width="{max(width - 1, 0.2):.1f}" height="18" '
                    f'rx="2"><title>{escape(part)}: {percent:.0f} %, {amounts[part]:.0f} s</title></rect>'
                )
            x += width
        parts.append(f'<text class="tick" x="{end + 8:.0f}" y="{y + 14}">{duration(whole)}</text>')
    return "".join([*parts, "</svg>"])


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, whichever is short."""
    return (
        f"{seconds:.0f} s"
        if seconds < 100
        else f"{seconds / 60:.1f} min"
        if seconds < 6000
        else f"{seconds / 3600:.1f} h"
    )


def nice_ticks(low: float, high: float, wanted: int = 4) -> list[float]:
    """Round numbers inside [low, high], about `wanted` of them and never many fewer."""
    if high <= low:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / wanted))
    for factor in (10, 5, 2, 1):
        step = factor * power
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first + 1 >= wanted - 1:
            break
    return [round(step * index, 10) for index in range(first, last + 1)]


def short(value: float) -> str:
    """1500 -> 1.5k, 200000 -> 200k."""
    if value == 0:
        return "0"
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    if abs(value) >= 10_000:
        return f"{value / 1000:g}k"
    return f"{value:g}"
