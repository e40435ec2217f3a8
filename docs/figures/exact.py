"""Draw docs/figures/exact.svg: one max-Q problem of a single action, as `exact` takes it apart.

    python docs/figures/exact.py

The network is the trained Pendulum network that comes with the package, at one of the states stored with it.  What is
drawn is computed: pre-activations of the first layer, Q over the torque, the linear relaxation's value for each
torque (a small linear program each), before and after a split, and what `exact` knows after each of its nodes.
"""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import pyplot as plt
from scipy.optimize import linprog

from caql.actions import ActionSet
from caql.bounds import preactivation_bounds
from caql.network_files import read_network
from caql.networks import FoldedNetwork, fold_state

sys.path.insert(0, str(Path(__file__).parent))
from landscape import BOUND, INK, SOFT, STUCK, VALUE, Slice, anytime, save, use_theme

STATE = 45
SIDE = 61


class Case(NamedTuple):
    """Q of one state as a function of the torque: its layers with the state folded away, and the torque's range."""

    layers: list[Any]
    low: float
    high: float

    def q(self, torques: Any) -> Any:
        """Q at (n,) torques."""
        hidden = np.asarray(torques)[:, None]
        for weights, bias in self.layers[:-1]:
            hidden = np.maximum(hidden @ weights + bias, 0)
        weights, bias = self.layers[-1]
        return (hidden @ weights + bias)[:, 0]

    def bounds(self, low: float, high: float) -> Any:
        """(lower, upper) of each hidden layer's pre-activations between two torques."""
        (weights, bias), *later = self.layers
        network = FoldedNetwork(bias[None], weights, tuple(later))
        box = ActionSet.box(np.array([low]), np.array([high]))
        # A hair wider, so that rounding leaves something of the linear programs at the ends.
        return [(a[0] - 1e-9, b[0] + 1e-9) for a, b in preactivation_bounds(network, box)]


def make_case(state: int = STATE) -> tuple[Case, Slice]:
    """The case, and the same problem as `landscape` poses it to `exact`."""
    stored = read_network(resources.files("caql") / "bench" / "networks" / "pendulum.safetensors")
    point = np.asarray(stored.states[state], np.float64)
    layers = [(np.asarray(w, np.float64), np.asarray(b, np.float64)) for w, b in stored.layers]
    folded = fold_state(tuple(layers), point[None])
    inside = [(folded.action_weights, folded.first_bias[0]), *folded.later]
    problem = Slice(layers, point, stored.low, stored.high, None)
    return Case(inside, float(stored.low[0]), float(stored.high[0])), problem


def relaxed(case: Case, torque: float, bounds: Any) -> float:
    """The relaxation's value at a torque: each ReLU anywhere in the triangle between its graph and its chord.

    Variables are the outputs z of all hidden neurons; h = z_below W + b:  z >= h, z >= 0, z <= u (h - l) / (u - l).
    """
    sizes = [len(bias) for _, bias in case.layers[:-1]]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    rows, sides, limits = [], [], []
    for k, ((weights, bias), (lower, upper)) in enumerate(zip(case.layers[:-1], bounds, strict=True)):
        for i in range(sizes[k]):
            height = np.zeros(starts[-1])
            constant = bias[i] + (torque * weights[0, i] if k == 0 else 0.0)
            if k:
                height[starts[k - 1] : starts[k]] = weights[:, i]
            own = np.zeros(starts[-1])
            own[starts[k] + i] = 1.0
            low, high = lower[i], upper[i]
            slope = 1.0 if low >= 0 else 0.0 if high <= 0 else high / (high - low)
            rows.append(own - slope * height)
            sides.append(slope * (constant - min(low, 0.0) * (0 < slope < 1)))
            if high > 0:
                rows.append(height - own)
                sides.append(-constant)
            limits.append((0.0, None))
    weights, bias = case.layers[-1]
    objective = np.zeros(starts[-1])
    objective[starts[-2] :] = weights[:, 0]
    found = linprog(-objective, A_ub=np.array(rows), b_ub=np.array(sides), bounds=limits)
    return float(bias[0] - found.fun) if found.status == 0 else -np.inf


def envelope(case: Case, low: float, high: float) -> tuple[Any, Any]:
    """Torques between two ends, and the relaxation's value at each."""
    bounds = case.bounds(low, high)
    torques = np.linspace(low, high, SIDE)
    return torques, np.array([relaxed(case, torque, bounds) for torque in torques])


def unstable(case: Case) -> Any:
    """Which neurons of the first layer change their sign in the range, and where."""
    (weights, bias), *_ = case.layers
    zeros = -bias / np.where(weights[0] == 0, 1, weights[0])
    return (weights[0] != 0) & (zeros > case.low) & (zeros < case.high), zeros


def best_split(case: Case) -> float:
    """The kink of the first layer after which the larger of the two bounds is smallest."""
    crossing, zeros = unstable(case)

    def bound(zero: float) -> float:
        return max(envelope(case, case.low, zero)[1].max(), envelope(case, zero, case.high)[1].max())

    return min(zeros[crossing], key=bound)


def title(axes: Any, heading: str, below: str) -> None:
    """A panel's heading and the sentence under it."""
    axes.set_title(heading, loc="left", fontsize=12.5, fontweight="bold", pad=24)
    axes.text(0.0, 1.035, below, transform=axes.transAxes, fontsize=9.5, color=SOFT, va="bottom")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def draw_presolve(axes: Any, case: Case) -> None:
    """The first layer's pre-activations: lines, of which only those that cross zero matter."""
    (weights, bias), *_ = case.layers
    torques = np.array([case.low, case.high])
    crossing, zeros = unstable(case)
    axes.axhline(0, color=INK, linewidth=1)
    for i in range(len(bias)):
        heights = torques * weights[0, i] + bias[i]
        color, width = (STUCK, 2.0) if crossing[i] else (SOFT, 0.8)
        axes.plot(torques, heights, color=color, linewidth=width, alpha=1 if crossing[i] else 0.55)
    axes.plot(zeros[crossing], 0 * zeros[crossing], "o", color=STUCK, markersize=6)
    second = case.bounds(case.low, case.high)[1]
    left = int(((second[0] < 0) & (second[1] > 0)).sum())
    axes.set(xlim=(case.low, case.high), xlabel="torque", ylabel="pre-activation")
    title(
        axes,
        "1  Presolve",
        f"{crossing.sum()} of {len(bias)} neurons cross zero, and {left} of {len(second[0])} in the second layer",
    )


def draw_node(axes: Any, case: Case, torques: Any, q: Any, parts: list[tuple[Any, Any]]) -> None:
    """Q, and the relaxation of each part of the range."""
    best = q.max()
    axes.plot(torques, q, color=INK, linewidth=2.2)
    for side, above in parts:
        closed = above.max() <= best + 1e-6
        axes.plot(side, above, color=SOFT if closed else BOUND, linewidth=2)
        top = int(above.argmax())
        axes.plot(side[top], above[top], "o", color=SOFT if closed else BOUND, markersize=7)
        axes.fill_between(side, np.interp(side, torques, q), above, color=BOUND, alpha=0.10, linewidth=0)
    axes.plot(torques[q.argmax()], best, "*", color=VALUE, markersize=17, zorder=5)
    axes.set(xlim=(case.low, case.high), xlabel="torque")


def draw() -> tuple[Any, str]:
    """The figure, and what it shows in words."""
    case, problem = make_case()
    torques = np.linspace(case.low, case.high, 801)
    q = case.q(torques)
    values, upper = anytime(problem)
    kink = best_split(case)
    root = [envelope(case, case.low, case.high)]
    children = [envelope(case, case.low, kink), envelope(case, kink, case.high)]
    figure, ((first, second), (third, fourth)) = plt.subplots(2, 2, figsize=(10.4, 8.6))
    draw_presolve(first, case)
    draw_node(second, case, torques, q, root)
    title(second, "2  Bound", f"the relaxation's best, {root[0][1].max():.2f}, is no less than Q anywhere")
    draw_node(third, case, torques, q, children)
    third.axvline(kink, color=STUCK, linewidth=1.4, linestyle=(0, (4, 3)))
    title(third, "3  Branch", "at a kink: on each side one neuron is linear, and the bounds come down")
    low = min(q.min(), root[0][1].min())
    for axes in (second, third):
        axes.set_ylim(low - 0.05 * (root[0][1].max() - low), root[0][1].max() + 0.1 * (root[0][1].max() - low))
        axes.set_ylabel("Q")
    nodes = np.arange(1, len(values) + 1)
    fourth.fill_between(nodes, values, upper, color=BOUND, alpha=0.16, linewidth=0)
    fourth.plot(nodes, upper, "o-", color=BOUND, linewidth=2.2)
    fourth.plot(nodes, values, "o-", color=VALUE, linewidth=2.2)
    fourth.set(xlabel="nodes of exact", xticks=nodes)
    title(fourth, "4  Certificate", f"bound and best value meet at {values[-1]:.3f}: proved")
    figure.subplots_adjust(left=0.07, right=0.985, top=0.93, bottom=0.06, wspace=0.17, hspace=0.42)
    return figure, f"Proved maximum {values[-1]:.3f} after {len(values)} nodes; root bound {root[0][1].max():.3f}"


def main() -> None:
    """Draw the figure beside this file."""
    use_theme()
    save(*draw(), Path(__file__).with_name("exact.svg"))


if __name__ == "__main__":
    main()
