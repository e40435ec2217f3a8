"""Acting: policies in NumPy, on the host, because a jit call per environment step would cost more than the
physics of the small tasks.

One network, `HostNetwork`, and a small policy for each way to make an action of its outputs:

    DeterministicPolicy      centre + radius * tanh(output), plus noise of a given size
    GaussianPolicy           the same, plus noise of a learned size
    SquashedGaussianPolicy   centre + radius * tanh(mean + learned size * noise)
    SolverPolicy             no network: the max-Q solver's maximisers, plus noise of a given size
    RadialPolicy             the output squashed onto the state's set, plus noise of a given size
    AveragedPolicy           two of one kind: averaged weights without noise, the latest ones with it
    EncodedPolicy            around any network's: the network sees an encoder's features
    EpsilonGreedy            around any of them, where actions are whole numbers or choices

Every action is clipped into the box: noise leaves it, and so can the rounding in centre + radius, by one unit in
the last place.  Where the admissible actions are more than a box, the task replaces an action by the closest
admissible one before the environment sees it (`task_actions.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from caql.actions import ActionSet
from caql.agents.agent import Array, Policy, Spec
from caql.agents.radial import radial
from caql.errors import require
from caql.networks import Layers


@dataclass(frozen=True)
class Exploration:
    """Gaussian noise whose size decays once an epoch (Appendix D).

    Of whole numbers and choices the same number, at most 1, is the probability of a random one (`EpsilonGreedy`).
    """

    sigma: float = 1.0
    """Standard deviation of the noise in the first epoch."""
    decay: float = 0.9995
    """Factor on the standard deviation after each epoch."""
    minimum: float = 0.01
    """Standard deviation below which the noise never falls."""
    relative: bool = True
    """Scale the noise to half the action range; False is the paper's absolute size."""

    def __post_init__(self) -> None:
        require(self, "sigma", "a finite number, at least 0", 0 <= self.sigma < float("inf"))
        require(self, "decay", "more than 0 and at most 1", 0 < self.decay <= 1)
        require(self, "minimum", "a finite number, at least 0", 0 <= self.minimum < float("inf"))

    def size(self, epoch: int, action_set: ActionSet) -> Array:
        """The standard deviation in each action dimension, (d,)."""
        sigma = max(self.minimum, self.sigma * self.decay**epoch)
        radius = np.asarray(action_set.radius, np.float32)
        return np.float32(sigma) * (radius if self.relative else np.ones_like(radius))

    def epsilon(self, epoch: int) -> float:
        """The probability of a random choice."""
        return min(1.0, max(self.minimum, self.sigma * self.decay**epoch))


class HostNetwork:
    """A ReLU network of `layers` in NumPy: (..., inputs) -> (..., outputs) in float32."""

    def __init__(self, layers: Layers) -> None:
        self.hidden = [(np.asarray(weights), np.asarray(bias)) for weights, bias in layers[:-1]]
        self.last_weights, self.last_bias = (np.asarray(part) for part in layers[-1])

    def __call__(self, state: Array) -> Array:
        state = np.asarray(state, np.float32)
        for weights, bias in self.hidden:
            state = np.maximum(state.dot(weights) + bias, 0)
        outputs: Array = state.dot(self.last_weights) + self.last_bias
        return outputs


def head(layers: Layers, columns: slice) -> Layers:
    """The network that gives only some of the outputs."""
    *hidden, (weights, bias) = layers
    return (*hidden, (weights[:, columns], bias[columns]))


class _InBox:
    """The box's sides on the host."""

    def __init__(self, action_set: ActionSet) -> None:
        self.low, self.high = np.asarray(action_set.low), np.asarray(action_set.high)
        self.centre, self.radius = np.asarray(action_set.centre), np.asarray(action_set.radius)

    def clip(self, action: Array) -> Array:
        inside: Array = np.minimum(np.maximum(action, self.low), self.high)
        return inside

    def squash(self, raw: Array) -> Array:
        return self.clip(self.centre + self.radius * np.tanh(raw))


class DeterministicPolicy(_InBox):
    """An action network, `layers` with d outputs: through tanh into the box, or clipped; noise of size `sigma` (d,)."""

    def __init__(self, layers: Layers, action_set: ActionSet, sigma: Array, squash: str = "tanh") -> None:
        super().__init__(action_set)
        self.network, self.sigma = HostNetwork(layers), sigma
        self.into_box = self.squash if squash == "tanh" else self.clip

    def act(self, state: Array) -> Array:
        return self.into_box(self.network(state))

    def explore(self, state: Array, noise: Array) -> Array:
        return self.clip(self.act(state) + self.sigma * noise)


class RadialPolicy(DeterministicPolicy):
    """An action network, `layers` with d outputs, squashed onto each state's set; noise of size `sigma` (d,)."""

    def __init__(self, layers: Layers, spec: Spec, sigma: Array) -> None:
        super().__init__(layers, spec.action_set, sigma)
        self.box = spec.action_set.on_host()
        self.sets_at = spec.sets_at or (lambda _: self.box)

    def act(self, state: Array) -> Array:
        states = np.atleast_2d(state)
        actions = radial(self.sets_at(states), self.box, self.network(states).astype(np.float64))
        inside = self.clip(actions.astype(np.float32))
        return inside if np.ndim(state) > 1 else inside[0]


class GaussianPolicy(_InBox):
    """A Gaussian around a squashed mean, `layers` with 2 d outputs: means, then log standard deviations.

    The deviations are in half-widths of the box and held within `log_range`.
    """

    def __init__(self, layers: Layers, action_set: ActionSet, log_range: tuple[float, float]) -> None:
        super().__init__(action_set)
        size = len(self.low)
        self.mean, self.log_spread = (
            HostNetwork(head(layers, slice(size))),
            HostNetwork(head(layers, slice(size, None))),
        )
        self.log_range = log_range

    def act(self, state: Array) -> Array:
        return self.squash(self.mean(state))

    def explore(self, state: Array, noise: Array) -> Array:
        spread: Array = np.exp(np.clip(self.log_spread(state), *self.log_range))
        return self.clip(self.act(state) + self.radius * spread * noise).astype(np.float32)


class SquashedGaussianPolicy(_InBox):
    """A Gaussian sent through tanh, `layers` with 2 d outputs: means, then log standard deviations.

    Greedy at the mean, exploring with a sample; the log deviations are held within `log_range`.
    """

    def __init__(self, layers: Layers, action_set: ActionSet, log_range: tuple[float, float]) -> None:
        super().__init__(action_set)
        self.network, self.log_range = HostNetwork(layers), log_range

    def act(self, state: Array) -> Array:
        return self.squash(self.network(state)[..., : len(self.low)])

    def explore(self, state: Array, noise: Array) -> Array:
        outputs, size = self.network(state), len(self.low)
        sigma = np.exp(np.clip(outputs[..., size:], *self.log_range))
        return self.squash(outputs[..., :size] + sigma * np.asarray(noise, np.float32))


class SolverPolicy(_InBox):
    """Acts with the max-Q solver: slower than an action function, and as good as the Q-network allows.

    maximisers: (B, n) states -> (B, d) actions.  sigma: (d,) size of the exploration noise.
    """

    def __init__(self, maximisers: Callable[[Array], Array], action_set: ActionSet, sigma: Array) -> None:
        super().__init__(action_set)
        self.maximisers, self.sigma = maximisers, sigma

    def act(self, state: Array) -> Array:
        inside = self.clip(self.maximisers(np.atleast_2d(np.asarray(state, np.float32))))
        return inside if np.ndim(state) > 1 else inside[0]

    def explore(self, state: Array, noise: Array) -> Array:
        return self.clip(self.act(state) + self.sigma * noise)


class EncodedPolicy:
    """A policy of features: `encode` makes them of (B, n) states, in JAX, whatever it costs, as encoders are JAX's."""

    def __init__(self, encode: Callable[[Array], Array], policy: Policy) -> None:
        self.encode, self.policy = encode, policy

    def _seen(self, state: Array) -> Array:
        features = self.encode(np.atleast_2d(np.asarray(state, np.float32)))
        return features if np.ndim(state) > 1 else features[0]

    def act(self, state: Array) -> Array:
        return self.policy.act(self._seen(state))

    def explore(self, state: Array, noise: Array) -> Array:
        return self.policy.explore(self._seen(state), noise)


class AveragedPolicy:
    """Two policies of one kind: `greedy`, of averaged weights, acts without noise; `latest` explores."""

    def __init__(self, greedy: Policy, latest: Policy) -> None:
        self.greedy, self.latest = greedy, latest

    def act(self, state: Array) -> Array:
        return self.greedy.act(state)

    def explore(self, state: Array, noise: Array) -> Array:
        return self.latest.explore(state, noise)


class EpsilonGreedy:
    """Exploration of whole numbers and choices, around a policy whose Gaussian noise is kept for the other actions.

    With probability `epsilon` the whole numbers are drawn uniformly from the box, and the task then takes the closest
    admissible action: of a choice among n, each that the state admits is equally likely.  Where the whole numbers
    are auxiliary variables (off, or between 2 and 5) all actions are drawn so.  Otherwise they stay greedy.
    """

    def __init__(self, policy: Policy, spec: Spec, epsilon: float) -> None:
        self.policy, self.epsilon = policy, epsilon
        self.whole = np.zeros(spec.action_size, np.bool_)
        self.whole[[i for i in spec.integer if i < spec.action_size]] = True
        self.chosen = self.whole if max(spec.integer) < spec.action_size else np.ones_like(self.whole)
        # Half a step beyond the ends, so that rounding makes the ends as likely as the numbers between them.
        self.low = np.asarray(spec.action_set.low) - 0.5 * self.whole
        self.high = np.asarray(spec.action_set.high) + 0.5 * self.whole

    def act(self, state: Array) -> Array:
        return self.policy.act(state)

    def explore(self, state: Array, noise: Array) -> Array:
        uniform = np.array([0.5 + 0.5 * math.erf(float(number) / math.sqrt(2.0)) for number in noise])
        action = self.policy.explore(state, np.where(self.whole, np.float32(0), noise))
        # The later digits of a uniform number are independent of its earlier ones, which the draw below uses.
        coin = (4096.0 * uniform[int(np.argmax(self.chosen))]) % 1.0
        if coin >= self.epsilon:
            return action
        drawn = self.low + uniform * (self.high - self.low)
        return np.where(self.chosen, drawn, action).astype(np.float32)


def exploring(policy: Policy, spec: Spec, epsilon: float) -> Policy:
    """The policy, with epsilon-greedy exploration of its whole numbers if it has any."""
    return EpsilonGreedy(policy, spec, epsilon) if spec.integer else policy
