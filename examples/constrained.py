"""A boat that docks: CAQL where the admissible actions depend on the state, and a picture of what it learned.

    python examples/constrained.py [--steps 6000] [--out docs/figures/constrained.png]

Two thrusters push the boat, a = (east, north), each within [-1, 1].  What it may do depends on where it is:

    n a <= distance to the quay / reach       it must not be driven into the quay
    |a_1| + |a_2| <= what the battery gives   the thrusters share the power

The picture shows Q over all pushes at three states: the admissible ones, the best of them, proved, and what would be
the best without the set.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gymnasium as gym
import matplotlib as mpl
import numpy as np

from caql import CAQL, ActionSet, maximize

QUAY = np.array([0.6, 0.8])
"""The direction to the quay, whose line is QUAY p = 0."""
REACH = 0.2
"""How far a push of 1 moves the boat."""
STATES = {
    "off the quay, battery full": (-0.65, -0.35, 1.0),
    "close to the quay, battery full": (-0.60, 0.375, 1.0),
    "off the quay, battery low": (0.25, -0.75, 0.15),
}
INK, PROVED, BARE = "#1f2328", "#0a7d3c", "#d9480f"


class Docking(gym.Env[Any, Any]):
    """Observation: east, north and charge; the dock is at the origin, on the quay."""

    observation_space = gym.spaces.Box(np.array([-2.0, -2.0, 0.0]), np.array([2.0, 2.0, 1.0]), dtype=np.float64)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,))

    def action_set(self, observation: Any) -> ActionSet:
        """The pushes that are admissible at an observation."""
        place, charge = observation[:2], observation[2]
        quay = ActionSet.budget(weights=QUAY, limit=max(0.0, -QUAY @ place) / REACH)
        power = ActionSet.absolute_budget(weights=[1.0, 1.0], limit=0.3 + 1.2 * charge)
        return quay & power

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:  # noqa: ARG002
        """Somewhere off the quay, with some charge."""
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-1, 1, 2)
        self.place -= QUAY * max(0.0, QUAY @ self.place)
        self.charge = self.np_random.uniform(0.1, 1.0)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Push; the reward is minus the distance to the dock."""
        push = np.asarray(action, np.float64)
        self.place = np.clip(self.place + REACH * push, -2, 2)
        self.charge = max(0.0, self.charge - 0.02 * float(np.abs(push).sum()))
        away = float(np.linalg.norm(self.place))
        return self._observation(), -away, away < 0.05, False, {}

    def _observation(self) -> Any:
        return np.array([*self.place, self.charge])


def train(steps: int, solver: str = "exact") -> CAQL:
    """CAQL on the boat, with the exact solver: every label it learns from is a proved maximum over A(x)."""
    model = CAQL("MlpPolicy", Docking(), solver=solver, relative_tolerance=1e-3, episode_steps=25, warm_up=500,
                 discount=0.9, target_rate=0.01, q_learning_rate=0.002, hidden=(32, 16))  # fmt: skip
    return model.learn(steps)


def q_values(layers: Any, state: Any, actions: Any) -> Any:
    """Q at (..., 2) actions."""
    hidden = np.concatenate([np.broadcast_to(state, (*actions.shape[:-1], 3)), actions], axis=-1)
    for weights, bias in layers[:-1]:
        hidden = np.maximum(hidden @ np.asarray(weights) + np.asarray(bias), 0)
    weights, bias = layers[-1]
    return (hidden @ np.asarray(weights) + np.asarray(bias))[..., 0]


def violation(action_set: ActionSet, actions: Any) -> Any:
    """By how much (..., 2) actions break the worst row; admissible where it is not positive."""
    heights = actions @ action_set.rows.T
    return np.maximum(heights - action_set.row_high, action_set.row_low - heights).max(axis=-1)


def draw_state(axes: Any, model: CAQL, name: str, state: Any) -> None:
    """One panel: Q's contours, A(x), the proved maximum in it and the maximum over the box."""
    layers = model.q_layers()
    certificate = model.certify(state)
    bare = maximize(layers, -1.0, 1.0, state)
    side = np.linspace(-1, 1, 301)
    actions = np.stack(np.meshgrid(side, side), axis=-1)
    values, outside = q_values(layers, state, actions), violation(model.task.set_at(state), actions)
    levels = np.linspace(values.min(), values.max(), 15)
    shades = mpl.colormaps["YlGnBu_r"](np.linspace(0.2, 0.88, len(levels) - 1))
    axes.contourf(side, side, values, levels, colors=shades)
    axes.contour(side, side, values, levels, colors="white", linewidths=0.7, linestyles="solid")
    axes.contourf(side, side, outside, [0, np.inf], colors="white", alpha=0.66)
    axes.contour(side, side, outside, [0], colors=INK, linewidths=2.2)
    best, without = certificate.action, bare.actions[0]
    ring = {"zorder": 5, "clip_on": False}
    axes.plot(*without, "o", color="white", markeredgecolor=BARE, markersize=12, markeredgewidth=2.6, **ring)
    axes.plot(*best, "*", color=PROVED, markeredgecolor="white", markersize=24, markeredgewidth=1.3, **ring)
    axes.set_title(name, fontsize=14, color=INK, pad=12)
    axes.set_xlabel(
        "push east\n\n"
        f"best in A(x): Q = {certificate.value:.3f}, gap {max(certificate.gap, 0):.0e}\n"
        f"best without A(x): Q = {bare.values[0]:.3f}",
        fontsize=12.5, labelpad=0, color=INK,
    )  # fmt: skip
    axes.set_xticks([-1, 0, 1])
    axes.set_yticks([-1, 0, 1])
    axes.tick_params(labelsize=11, colors=INK)
    axes.set_aspect("equal")


def draw(model: CAQL, path: Path) -> None:
    """The three panels and their legend."""
    mpl.use("agg")
    from matplotlib import pyplot as plt
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure, panels = plt.subplots(1, 3, figsize=(13.6, 6.1), facecolor="white")
    for axes, (name, state) in zip(panels, STATES.items(), strict=True):
        draw_state(axes, model, name, np.array(state))
    panels[0].set_ylabel("push north", fontsize=12.5, color=INK, labelpad=0)
    marks = [
        Patch(facecolor="#5fb6c4", edgecolor=INK, linewidth=2, label="A(x): the admissible pushes"),
        Line2D([], [], marker="*", color=PROVED, linestyle="", markersize=19, label="proved maximum of Q in A(x)"),
        Line2D([], [], marker="o", markerfacecolor="white", markeredgecolor=BARE, markeredgewidth=2.4, linestyle="",
               markersize=11, label="maximum of Q without A(x): not admissible"),
    ]  # fmt: skip
    figure.legend(handles=marks, loc="lower center", ncols=3, frameon=False, fontsize=13, labelcolor=INK)
    figure.subplots_adjust(left=0.055, right=0.985, top=0.92, bottom=0.285, wspace=0.16)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Train, draw, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--solver", default="exact")
    parser.add_argument("--out", type=Path, default=Path("docs/figures/constrained.png"))
    options = parser.parse_args()
    model = train(options.steps, options.solver)
    draw(model, options.out)
    print(f"{options.out}: Q of a boat that docks, after {model.num_timesteps} steps at sea")


if __name__ == "__main__":
    main()
