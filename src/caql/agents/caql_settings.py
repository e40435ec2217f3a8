"""CAQL's hyper-parameters: what a run's configuration stores and the command line shows.

The settings of a speed-up are declared where the speed-up is and inherited here, so that they stay plain fields
(`cluster_radius=0.25`, `--cluster-radius 0.25`) and are said once: `targets/clustering.py`, `targets/tolerance.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import jax.numpy as jnp

from caql.agents.agent import Spec, check_common
from caql.agents.policies import Exploration
from caql.errors import CaqlError, require
from caql.maxq.gradient_ascent import GradientAscent
from caql.maxq.solvers import solvers_for
from caql.targets.clustering import Clustering, ClusterSettings
from caql.targets.context import Stage
from caql.targets.dual import Dual, DualFilter
from caql.targets.tolerance import ToleranceSettings


@dataclass(frozen=True)
class CAQLConfig(ClusterSettings, ToleranceSettings):
    """Hyper-parameters of CAQL; the defaults are the paper's where it gives one (see docs/explanation/fidelity.md)."""

    name: ClassVar[str] = "caql"

    solver: Any = field(default_factory=GradientAscent)
    """The max-Q solver with its settings."""
    hidden: tuple[int, ...] = (32, 16)
    """Units of the Q-network's hidden layers."""
    critics: int = 1
    """Q-networks, all learning the same label; what is maximised, exactly, is their combination."""
    combine: Literal["min", "mean"] = "min"
    """The combination of several critics."""
    encoder: str | None = None
    """What turns observations into features, with which the Q-network and the action function begin: 'cnn' or
    'keypoints' for images, or MODULE:NAME of your own (see `caql.encoders`)."""
    action_hidden: tuple[int, ...] = (32, 16)
    """Units of the action function's hidden layers."""
    discount: float = 0.99
    """gamma."""
    q_learning_rate: float = 0.001
    """Adam's step for the Q-network."""
    action_learning_rate: float = 0.001
    """Adam's step for the action function."""
    rate_decay: float = 1.0
    """Factor on both steps after each epoch; 1 keeps them as they are."""
    rate_minimum: float = 0.1
    """Share of the steps below which the decay never takes them."""
    average_rate: float = 0.0
    """Share by which the weights that act without noise follow the action function's at each training step, more at
    the beginning of a run; 0 lets the action function itself act, as it does behind an encoder, whose features move."""
    target_rate: float = 0.001
    """tau of the soft target update."""
    loss: Literal["l2", "hinge", "huber"] = "l2"
    """Bellman loss: Eq. 1, Eq. 2, or Eq. 1 with large errors counted in proportion instead of squared."""
    huber_width: float = 1.0
    """The largest error that the Huber loss squares."""
    hinge_penalty: float = 10.0
    """lambda of the hinge loss, more than 1; where it starts when learned."""
    hinge_penalty_learning_rate: float = 0.0
    """Learn lambda by ascent on the mean violation; 0 keeps it constant."""
    clip_labels: bool = False
    """Keep labels within what the rewards seen so far allow: the smallest or the largest of them, or 0, for ever."""
    maximised: Literal["q", "target"] = "q"
    """Whose maximiser the labels and the action function learn from: Q's, as in double Q-learning, or the target
    network's, which moves less."""
    trust_region: float | None = None
    """Seek the maximum only so far from the action function's action, as a share of the half range of each action;
    None is everywhere."""
    clipped_double_q: bool = False
    """Label with the smaller of the soft target and a second one, copied every `second_target_every` steps."""
    second_target_every: int = 5000
    """Training steps between hard copies into the second target network."""
    action_function: Literal["deterministic", "stochastic", "none"] = "deterministic"
    """The network that imitates the maximiser; `none`: the solver itself acts, as it does wherever actions are whole
    numbers or choices."""
    relaxed: bool = False
    """Seek the maximum without the demand for whole numbers, which `ga` and `cem` cannot meet, and let the action
    function act: what it says is brought to the closest admissible action."""
    squash: Literal["tanh", "straight_through", "clip", "radial"] = "tanh"
    """How the action function's output enters the range; `clip` is the paper's, whose gradient can die.  With rows the
    closest admissible action follows; `radial` squashes onto the set itself."""
    saturation_penalty: float = 0.0
    """Weight of the squared excess beyond +-3 of the action function's outputs before tanh, where they hardly have a
    gradient any more; the paper has none."""
    action_labels: Literal["primal", "dual"] = "primal"
    """What the action function regresses on: max-Q, or its dual upper bound (the paper's footnote)."""
    action_loss: Literal["l2", "l1"] = "l2"
    """How far Q(x, pi(x)) is from that label: its square, the paper's, or its absolute value, which does not let go of
    states where the best action is only a little better than others."""
    exploration: Exploration = Exploration()
    """Gaussian noise on the action."""
    dual_filter: bool = False
    """Skip the rows that the dual bound shows to be inactive."""
    dual_only: bool = False
    """No max-Q solve: every next value is its dual bound (the paper's 'Dual')."""
    audit: int = 0
    """Every so many training steps solve a batch exactly too, and record how far the labels and the action
    function fall short of the true max-Q; 0 is never.  Changes no weights."""

    def __post_init__(self) -> None:
        check_common(self, fewest_layers=0)
        ClusterSettings.__post_init__(self)
        ToleranceSettings.__post_init__(self)
        require(self, "critics", "a whole number, at least 1", self.critics >= 1)
        require(self, "audit", "0 or a positive number of training steps", self.audit >= 0)
        require(self, "rate_decay", "more than 0 and at most 1", 0 < self.rate_decay <= 1)
        require(self, "rate_minimum", "more than 0 and at most 1", 0 < self.rate_minimum <= 1)
        require(self, "hinge_penalty", "positive", self.hinge_penalty > 0)
        require(self, "average_rate", "at least 0 and less than 1", 0 <= self.average_rate < 1)
        require(self, "huber_width", "positive", self.huber_width > 0)
        if self.saturation_penalty and self.squash not in ("tanh", "radial"):
            raise CaqlError(
                f"saturation_penalty = {self.saturation_penalty} holds tanh's outputs back, and squash = "
                f"{self.squash!r} has none; leave one of them out"
            )
        near = self.trust_region is None or (self.trust_region > 0 and self.action_function != "none")
        require(self, "trust_region", "positive and with an action function to be near to, or None", near)
        require(self, "second_target_every", "at least 1", self.second_target_every >= 1)
        if self.hinge_penalty_learning_rate and self.loss != "hinge":
            raise CaqlError("hinge_penalty_learning_rate means nothing with loss = 'l2'; set loss = 'hinge'")
        if self.dual_only and (self.dual_filter or self.cluster_radius):
            raise CaqlError("dual_only leaves nothing to solve: turn dual_filter and cluster_radius off with it")
        if self.dual_only and self.action_function == "stochastic":
            raise CaqlError("action_function = 'stochastic' imitates maximisers, and dual_only computes none")

    def check_it_can_learn(self) -> None:
        """Refuse what is a configuration but cannot learn; asked where a run starts, so that old ones still read."""
        constant = self.loss == "hinge" and not self.hinge_penalty_learning_rate
        if constant and self.hinge_penalty <= 1:
            raise CaqlError(
                f"hinge_penalty = {self.hinge_penalty} must be more than 1: a value below its label has the slope "
                "1 - hinge_penalty, so nothing would ever push Q up; only a learned penalty "
                "(hinge_penalty_learning_rate > 0) may start lower"
            )

    def share_at(self, epoch: Any) -> Any:
        """What is left of the learning rates in an epoch, (); None if they do not decay."""
        return None if self.rate_decay == 1 else jnp.maximum(self.rate_decay**epoch, self.rate_minimum)

    def averaging_at(self, step: Any) -> Any:
        """The share of a training step, (): never an average over more than a tenth of the steps so far."""
        return jnp.maximum(self.average_rate, 1 / (1 + 0.1 * step))

    def stages(self) -> tuple[Stage, ...]:
        """The speed-ups, in the order of Appendix B: filter first, then cluster what is left."""
        wanted: dict[Stage, bool] = {
            Dual(): self.dual_only,
            DualFilter(): self.dual_filter,
            Clustering(self): self.cluster_radius > 0,
        }
        return tuple(stage for stage, chosen in wanted.items() if chosen)


def check_solver(config: CAQLConfig, spec: Spec) -> None:
    """Raise `CaqlError` if the solver cannot search over the task's actions."""
    if spec.integer and not config.solver.accepts_integers and not config.relaxed:
        able = " or ".join(map(repr, solvers_for(rows=True, integers=True)))
        raise CaqlError(
            f"solver = {config.solver.name!r} cannot search over whole numbers or choices; take {able}, "
            "or relaxed = True, which searches without them and rounds the action"
        )
    if config.trust_region is not None and spec.integer and not config.relaxed:
        raise CaqlError(
            f"trust_region = {config.trust_region} lies around the action function's action, which is no whole number "
            "or choice; leave it out, or take relaxed = True"
        )
    if spec.constrained and not config.solver.accepts_rows:
        able = " or ".join(map(repr, solvers_for(rows=True)))
        raise CaqlError(f"solver = {config.solver.name!r} cannot search over rows and equalities; take {able}")
