"""The runs as a terminal shows them: one run with its curve, several as a table with a small curve each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from caql.experiments.report.figures import duration, short
from caql.experiments.sweep.sweep import method_name
from caql.runs.curves import WINDOW, smooth
from caql.watching.status import Status

LEVELS = "▁▂▃▄▅▆▇█"
COLOURS = {"running": "cyan", "finished": "green", "failed": "red", "quiet": "yellow"}
ORDER = ("running", "quiet", "failed", "finished")
DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bits of a Braille character: columns, from the top."""


def sparkline(values: Sequence[float], width: int) -> str:
    """The values in `width` characters, the lowest ▁ and the highest █."""
    if not values:
        return ""
    found = _resampled(values, min(width, len(values)))
    low, high = float(found.min()), float(found.max())
    levels = ((found - low) / (high - low if high > low else 1.0) * (len(LEVELS) - 1)).round().astype(int)
    return "".join(LEVELS[level] for level in levels.tolist())


def _resampled(values: Sequence[float], count: int) -> np.ndarray:
    """`count` values at even distances."""
    given = np.asarray(values, float)
    return np.interp(np.linspace(0, len(given) - 1, count), np.arange(len(given)), given)


def plot(values: Sequence[float], width: int, height: int) -> list[str]:
    """A curve of Braille dots, `height` lines of `width` characters, the first the highest."""
    cells = np.zeros((height, width), int)
    found = _resampled(values, 2 * width)
    low, high = float(found.min()), float(found.max())
    rows = ((high - found) / (high - low if high > low else 1.0) * (4 * height - 1)).round().astype(int)
    for column, row in enumerate(rows.tolist()):
        # Down or up to where the curve was before, so that steep parts are lines too.
        before = int(rows[column - 1]) if column else row
        for each in range(min(row, before), max(row, before) + 1):
            cells[each // 4, column // 2] |= DOTS[column % 2][each % 4]
    return ["".join(chr(0x2800 + cell) for cell in line) for line in cells.tolist()]


def left(status: Status) -> str:
    """The time to go, in words."""
    if status.state != "running":
        return status.state
    return "?" if status.left is None else f"{duration(status.left)} left"


def _last(status: Status) -> str:
    return f"{status.returns[-1]:.1f}" if status.returns else "-"


def _bar(share: float) -> RenderableType:
    """A bar on a line of its own."""
    line = Table.grid(expand=True)
    line.add_row(ProgressBar(1.0, share))
    return line


def one(status: Status, width: int) -> RenderableType:
    """One run: progress, numbers, curve."""
    numbers = Table.grid(padding=(0, 3))
    rate = "-" if status.rate is None else f"{status.rate:.0f} steps/s"
    window = f"{smooth(status.returns)[-1]:.1f}" if status.returns else "-"
    numbers.add_row(
        f"step {status.train_step:,} of {status.total:,}", rate, Text(left(status), style=COLOURS[status.state])
    )
    numbers.add_row(
        f"last return {_last(status)}" + (f" ± {status.spread:.1f}" if status.returns else ""),
        f"last window {window}",
        f"{duration(status.seconds)} so far",
    )
    parts: list[RenderableType] = [_bar(status.train_step / max(status.total, 1)), numbers]
    if len(status.returns) > 1:
        parts += [Text(), *_curve(status, width)]
    elif not status.returns:
        parts.append(Text("no evaluation yet", style="dim"))
    if status.reason:
        parts.append(Text(status.reason, style="red"))
    title = f"{status.config.task}, {method_name(status.config)}, seed {status.config.seed}"
    return Panel(Group(*parts), title=title, border_style=COLOURS[status.state], width=width)


def _curve(status: Status, width: int) -> list[RenderableType]:
    smoothed = smooth(status.returns)
    labels = [f"{value:.1f}" for value in (float(smoothed.max()), float(smoothed.min()))]
    margin = max(map(len, labels))
    lines = plot(smoothed.tolist(), max(10, width - margin - 6), 8)
    shown = [labels[0], *[""] * (len(lines) - 2), labels[1]]
    drawn: list[RenderableType] = [
        Text(f"{label:>{margin}} ", style="dim") + Text(line, style="cyan")
        for label, line in zip(shown, lines, strict=True)
    ]
    foot = f"{'':>{margin}} return, window of {WINDOW} evaluations, over {short(status.train_step)} steps"
    return [*drawn, Text(foot, style="dim")]


def many(runs: Sequence[Status], width: int, height: int) -> RenderableType:
    """Several runs, those that go on first; what does not fit is counted."""
    ordered = sorted(runs, key=lambda each: (ORDER.index(each.state), each.folder.name))
    room = max(3, height - 7)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", width=width)
    for name, options in (("run", {"ratio": 3}), ("state", {}), ("step", {}), ("return", {}), ("", {"ratio": 2})):
        table.add_column(name, no_wrap=True, overflow="ellipsis", **options)  # type: ignore[arg-type]
    table.add_column("steps/s", justify="right", no_wrap=True)
    for status in ordered[:room]:
        percent = 100 * status.train_step / max(status.total, 1)
        table.add_row(
            status.folder.name,
            Text(left(status), style=COLOURS[status.state]),
            f"{percent:.0f} %",
            _last(status),
            Text(sparkline(status.returns, max(8, width // 6)), style=COLOURS[status.state]),
            "-" if status.rate is None else f"{status.rate:.0f}",
        )
    counted = Counter(each.state for each in runs)
    words = ", ".join(f"{counted[state]} {state}" for state in ORDER if counted[state])
    done = sum(each.train_step for each in runs) / max(sum(each.total for each in runs), 1)
    hidden = f"; {len(runs) - room} more do not fit" if len(runs) > room else ""
    return Group(
        Text(f"{len(runs)} runs: {words}; {100 * done:.0f} % of the steps{hidden}"),
        _bar(done),
        Text(),
        table,
    )


def view(runs: Sequence[Status], width: int, height: int) -> RenderableType:
    """What there is to see of the runs in a terminal of that size."""
    return one(runs[0], width) if len(runs) == 1 else many(runs, width, height)
