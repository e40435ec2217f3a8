"""Draw docs/figures/landscape.svg: what max-Q looks like, and what a proof of it is.

    python docs/figures/landscape.py

The network is the trained Hopper network that comes with the package, the state one of those stored with it.  Two of
the three torques are free and the third is held at its best value, so that the slice holds the proved maximum.
Everything drawn is computed: the kinks are zeros of pre-activations, the paths are iterates of `ga`, the bounds are
what `exact` returns when it is stopped after 1, 2, ... nodes.  Nothing is random.
"""

from __future__ import annotations

import itertools
import re
import warnings
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib import patheffects
from matplotlib import pyplot as plt

from caql.errors import CaqlWarning
from caql.maxq.gradient_ascent import GradientAscent
from caql.maxq.maximize import maximize
from caql.maxq.solvers import make_solver
from caql.network_files import read_network

STATE = 127
ACROSS, UP = 0, 2
"""The two free torques: thigh and foot."""
STARTS = list(itertools.product((-0.75, 0.0, 0.75), (-0.72, -0.3, 0.3, 0.72)))
ITERATIONS = 20
TOLERANCE = 1e-6

# Stand-ins that become CSS variables in the file, so that it follows the reader's light or dark theme.
INK, SOFT, PAPER = "#1f2328", "#656d76", "#fffffe"
DARK = {INK: "#e6edf3", SOFT: "#9198a1", PAPER: "#0d1117"}
BOUND, VALUE, STUCK = "#2f81f7", "#1a9e55", "#e8590c"


class Slice(NamedTuple):
    """The network with its state and box: all actions fixed at `best` except the two that are drawn."""

    layers: list[Any]
    state: Any
    low: Any
    high: Any
    best: Any

    def actions(self, across: Any, up: Any) -> Any:
        """Points of the slice as actions -> (points, 3)."""
        found = np.tile(self.best, (np.size(across), 1))
        found[:, ACROSS], found[:, UP] = np.ravel(across), np.ravel(up)
        return found

    def solve(self, **settings: Any) -> Any:
        """`caql.maximize` on the slice."""
        return maximize(self.layers, self.low, self.high, self.state, tolerance=TOLERANCE, **settings)

    def evaluate(self, actions: Any) -> tuple[Any, list[Any]]:
        """Q and every hidden pre-activation at (points, 3) actions."""
        hidden = np.hstack([np.tile(self.state, (len(actions), 1)), actions])
        seen = []
        for weights, bias in self.layers[:-1]:
            hidden = hidden @ weights + bias
            seen.append(hidden)
            hidden = np.maximum(hidden, 0)
        weights, bias = self.layers[-1]
        return (hidden @ weights + bias)[:, 0], seen


def make_slice() -> Slice:
    """The slice through the proved maximum of the whole problem."""
    stored = read_network(resources.files("caql") / "bench" / "networks" / "hopper.safetensors")
    state = np.asarray(stored.states[STATE], np.float64)
    layers = [(np.asarray(w, np.float64), np.asarray(b, np.float64)) for w, b in stored.layers]
    best = maximize(layers, stored.low, stored.high, state, tolerance=TOLERANCE).actions[0]
    low, high = best.copy(), best.copy()
    for k in (ACROSS, UP):
        low[k], high[k] = stored.low[k], stored.high[k]
    return Slice(layers, state, low, high, best)


def ascent_paths(slice_: Slice) -> list[Any]:
    """The iterates of gradient ascent from each start -> (ITERATIONS + 1, 2) each."""
    starts = slice_.actions(*np.array(STARTS).T)
    rows = slice_._replace(state=np.tile(slice_.state, (len(starts), 1)))
    steps = [starts]
    for iterations in range(1, ITERATIONS + 1):
        solver = GradientAscent(iterations=iterations)
        steps.append(rows.solve(solver=solver, warm_start=starts).actions)
    return list(np.stack(steps)[:, :, [ACROSS, UP]].transpose(1, 0, 2))


def anytime(slice_: Slice) -> tuple[Any, Any]:
    """Value and upper bound that `exact` knows after 1, 2, ... nodes, until it is done."""
    nodes = int(slice_.solve(solver="exact").work[0])
    with warnings.catch_warnings():  # that a limit was hit is the point of these calls
        warnings.simplefilter("ignore", CaqlWarning)
        found = [slice_.solve(solver=make_solver("exact", node_limit=limit)) for limit in range(1, nodes + 1)]
    return np.array([each.values[0] for each in found]), np.array([each.upper[0] for each in found])


def draw_landscape(axes: Any, slice_: Slice, paths: list[Any], ends: Any, top: float) -> None:
    """The left panel: Q over the slice, its kinks, the paths of gradient ascent, the proved maximum."""
    side = np.linspace(-1, 1, 321)
    across, up = np.meshgrid(side, side)
    values, seen = slice_.evaluate(slice_.actions(across, up))
    bands = np.floor(24 * (values - values.min()) / np.ptp(values)).reshape(across.shape)
    axes.imshow(bands, cmap="cividis", origin="lower", extent=(-1, 1, -1, 1), interpolation="none", zorder=0)
    for layer in seen:
        for neuron in layer.T:
            if neuron.min() < 0 < neuron.max():
                lines = [each[::8, ::8] for each in (across, up, neuron.reshape(across.shape))]
                axes.contour(*lines, [0], colors="white", linewidths=0.9, alpha=0.75)
    outline = [patheffects.withStroke(linewidth=2.6, foreground="black")]
    for path, end in zip(paths, ends, strict=True):
        color = "white" if top - end < 0.01 else STUCK
        axes.plot(*path.T, color=color, linewidth=1.3, path_effects=outline, clip_on=False, zorder=3)
        axes.plot(*path[0], "o", color=color, markersize=4.2, markeredgecolor="black", markeredgewidth=0.8, zorder=4)
        axes.plot(
            *path[-1],
            "o",
            color=color,
            markersize=8,
            markeredgecolor="black",
            markeredgewidth=1,
            clip_on=False,
            zorder=5,
        )
    star = slice_.best[[ACROSS, UP]]
    axes.plot(*star, "*", color="#ffd60a", markersize=21, markeredgecolor="black", clip_on=False, zorder=6)
    label = [patheffects.withStroke(linewidth=2.8, foreground="black")]
    text: dict[str, Any] = {"color": "white", "fontsize": 9.5, "path_effects": label, "zorder": 7}
    places = {tuple(np.round(path[-1], 1)): (path[-1], end) for path, end in zip(paths, ends, strict=True)}
    for place, end in places.values():
        if top - end < 0.01:
            continue
        right, high = place[0] > 0, place[1] > 0
        axes.annotate(
            f"{end:.2f}",
            place,
            (-11 if right else 11, -4 if high else 5),
            textcoords="offset points",
            ha="right" if right else "left",
            va="top" if high else "bottom",
            **text,
        )
    axes.annotate(
        f"proved maximum\n{top:.2f}", star, (-14, 12), textcoords="offset points", ha="right", va="bottom", **text
    )
    axes.set(xlim=(-1, 1), ylim=(-1, 1), xticks=[-1, 0, 1], yticks=[-1, 0, 1], aspect="equal")
    axes.set_xlabel("torque of the thigh", labelpad=1)
    axes.set_ylabel("torque of the foot", labelpad=-6)
    axes.set_title("Q(x, ·) is piecewise linear", loc="left", fontsize=12.5, fontweight="bold", pad=24)
    axes.text(-1, 1.055, "along a white line a neuron switches on or off", fontsize=9.5, color=SOFT, va="bottom")


def draw_bounds(axes: Any, values: Any, upper: Any, ends: Any) -> None:
    """The right panel: the bound falls, the value rises, and where gradient ascent ended."""
    top = values[-1]
    nodes = np.arange(1, len(values) + 1)
    axes.fill_between(nodes, values, upper, color=BOUND, alpha=0.16, linewidth=0)
    axes.plot(nodes, upper, "o-", color=BOUND, linewidth=2.2, markersize=6)
    axes.plot(nodes, values, "o-", color=VALUE, linewidth=2.2, markersize=6)
    last = nodes[-1]
    axes.text(2.16, upper[0] + 0.02, "upper bound: no action is worth more", color=BOUND, fontsize=10.5, va="center")
    axes.text(1.14, (upper[0] + top) / 2, "gap: not decided yet", color=SOFT, fontsize=10, va="center")
    axes.annotate(
        "gap closed: proved",
        (last, top),
        (last, top + 0.5),
        arrowprops={"arrowstyle": "-", "color": INK, "shrinkB": 7},
        ha="right",
        color=INK,
        fontsize=10.5,
        fontweight="bold",
    )
    axes.text(last, top - 0.05, "best action found so far", color=VALUE, fontsize=10.5, ha="right", va="top")
    stuck = np.round(ends[top - ends >= 0.01], 2)
    levels = np.unique(stuck)
    for level in levels:
        above = level in (levels[0], levels[-1])
        count = int((stuck == level).sum())
        axes.axhline(level, color=STUCK, linewidth=1.3, linestyle=(0, (4, 3)))
        axes.text(
            1.0,
            level + (0.02 if above else -0.03),
            f"{count} of {len(ends)} ascents end at {level:.2f}",
            color=STUCK,
            fontsize=9.5,
            va="bottom" if above else "top",
        )
    axes.set_xticks(nodes)
    axes.set_yticks(np.arange(np.ceil(2 * stuck.min()) / 2, upper[0], 0.5))
    axes.set_xlabel("nodes of the branch and bound", labelpad=3)
    axes.set_ylabel("Q", rotation=0, labelpad=8)
    axes.set(xlim=(0.85, nodes[-1] + 0.15), ylim=(min(stuck.min(), top) - 0.22, upper[0] + 0.2))
    axes.set_title("A proof closes the gap from above", loc="left", fontsize=12.5, fontweight="bold", pad=24)
    axes.text(
        0.0, 1.028, "the same problem, solved by exact", transform=axes.transAxes, fontsize=9.5, color=SOFT, va="bottom"
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def draw() -> tuple[Any, str]:
    """The figure, and what it shows in words."""
    slice_ = make_slice()
    values, upper = anytime(slice_)
    paths = ascent_paths(slice_)
    ends = slice_.evaluate(np.concatenate([slice_.actions(*path[-1:].T) for path in paths]))[0]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.4, 5.0), gridspec_kw={"width_ratios": [1, 1.12]})
    draw_landscape(left, slice_, paths, ends, values[-1])
    draw_bounds(right, values, upper, ends)
    figure.subplots_adjust(left=0.055, right=0.985, top=0.86, bottom=0.105, wspace=0.17)
    return figure, f"Proved maximum {values[-1]:.2f} after {len(values)} nodes; ascents end at {np.sort(ends).round(2)}"


def save(figure: Any, description: str, path: Path) -> None:
    """Write the SVG with the stand-in colours as variables of the reader's theme."""
    figure.savefig(path, metadata={"Date": None, "Creator": None, "Description": description})
    names = {INK: "--ink", SOFT: "--soft", PAPER: "--paper"}
    light = "".join(f"{name}:{color};" for color, name in names.items())
    dark = "".join(f"{name}:{DARK[color]};" for color, name in names.items())
    style = f"<style>:root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}</style>"
    text = path.read_text()
    for color, name in names.items():
        text = text.replace(color, f"var({name})")
    path.write_text(re.sub(r"(<svg [^>]*>)", r"\1" + style, text, count=1))


def use_theme() -> None:
    """Lettering and colours of the documentation's figures."""
    mpl.use("svg")
    mpl.rcParams.update(
        {
            "svg.hashsalt": "caql",
            "svg.fonttype": "none",
            "font.family": "sans-serif",
            "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
            "font.size": 10,
            "text.color": INK,
            "axes.labelcolor": SOFT,
            "axes.edgecolor": SOFT,
            "xtick.color": SOFT,
            "ytick.color": SOFT,
            "figure.facecolor": PAPER,
            "axes.facecolor": PAPER,
            "savefig.facecolor": PAPER,
        }
    )


def main() -> None:
    """Draw the figure beside this file."""
    use_theme()
    save(*draw(), Path(__file__).with_name("landscape.svg"))


if __name__ == "__main__":
    main()
