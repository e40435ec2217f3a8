"""Element-wise activations: piecewise linear ones, which are sums of ReLUs, and smooth ones with a known curvature.

A continuous piecewise-linear function of one variable is

    f(x) = offset + slope x + sum over k of jump_k [x - at_k]+,

one ReLU for each kink:

    leaky(x) = alpha x + (1 - alpha) [x]+,    |x| = 2 [x]+ - x,    clip(x) = low + [x - low]+ - [x - high]+.

A smooth function is described by the largest |f''|; `tangents` makes a proved straight approximation of that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from caql.graphs.operations import Array, Operation, Shape

Number = Any
"""A number, or an array with the value's shape (or one that broadcasts to it)."""


class Kinks(NamedTuple):
    """f(x) = offset + slope x + sum over (at, jump) of jump [x - at]+."""

    offset: Number
    slope: Number
    kinks: tuple[tuple[Number, Number], ...]

    @property
    def carries(self) -> bool:
        """Whether x itself is needed beside its ReLUs."""
        return bool(np.any(self.slope))


@dataclass(frozen=True)
class Activation(Operation):
    """An element-wise function; a subclass gives `evaluate`, and `kinks` or `curvature`."""

    def shape(self, *shapes: Shape) -> Shape:
        return shapes[0]


@dataclass(frozen=True)
class PiecewiseLinear(Activation):
    """A piecewise-linear activation."""

    def kinks(self) -> Kinks:
        raise NotImplementedError


@dataclass(frozen=True)
class Relu(PiecewiseLinear):
    """max(x, 0)."""

    def evaluate(self, *values: Array) -> Array:
        return np.maximum(values[0], 0.0)

    def kinks(self) -> Kinks:
        return Kinks(0.0, 0.0, ((0.0, 1.0),))


@dataclass(frozen=True, eq=False)
class LeakyRelu(PiecewiseLinear):
    """x for x > 0, alpha x below; with an array for alpha the parametric ReLU."""

    alpha: Number = 0.01

    def evaluate(self, *values: Array) -> Array:
        return np.where(values[0] > 0.0, values[0], self.alpha * values[0])

    def kinks(self) -> Kinks:
        alpha = np.asarray(self.alpha, np.float64)
        return Kinks(0.0, alpha, ((0.0, 1.0 - alpha),))


@dataclass(frozen=True)
class Abs(PiecewiseLinear):
    """|x|."""

    def evaluate(self, *values: Array) -> Array:
        return np.abs(values[0])

    def kinks(self) -> Kinks:
        return Kinks(0.0, -1.0, ((0.0, 2.0),))


@dataclass(frozen=True)
class Clip(PiecewiseLinear):
    """min(max(x, low), high): hard tanh is Clip(-1, 1), ReLU6 is Clip(0, 6); a side may be infinite."""

    low: float = -math.inf
    high: float = math.inf

    def evaluate(self, *values: Array) -> Array:
        return np.minimum(np.maximum(values[0], self.low), self.high)

    def kinks(self) -> Kinks:
        if self.low >= self.high:
            return Kinks(self.high, 0.0, ())
        above = () if math.isinf(self.high) else ((self.high, -1.0),)
        if math.isinf(self.low):
            return Kinks(0.0, 1.0, above)
        return Kinks(self.low, 0.0, ((self.low, 1.0), *above))


@dataclass(frozen=True)
class Smooth(Activation):
    """A differentiable activation whose derivative has the Lipschitz constant `curvature`."""

    curvature: ClassVar[float]


@dataclass(frozen=True)
class Tanh(Smooth):
    """tanh x; |f''| is largest, 4 / (3 sqrt 3), where tanh x = 1 / sqrt 3."""

    curvature: ClassVar[float] = 0.769800358919501193455

    def evaluate(self, *values: Array) -> Array:
        return np.tanh(values[0])


@dataclass(frozen=True)
class Sigmoid(Smooth):
    """1 / (1 + exp(-x)) = (1 + tanh(x / 2)) / 2; |f''| is at most 1 / (6 sqrt 3)."""

    curvature: ClassVar[float] = 0.0962250448649376491819

    def evaluate(self, *values: Array) -> Array:
        return 0.5 + 0.5 * np.tanh(0.5 * values[0])


@dataclass(frozen=True)
class Softplus(Smooth):
    """log(1 + exp(x)); f'' = sigmoid (1 - sigmoid) is at most 1/4."""

    curvature: ClassVar[float] = 0.25

    def evaluate(self, *values: Array) -> Array:
        return np.logaddexp(values[0], 0.0)


@dataclass(frozen=True)
class Elu(Smooth):
    """x for x > 0, exp(x) - 1 below: the derivative is continuous, and f'' is between 0 and 1.

    With another alpha it has a kink at 0: alpha elu(x) + (1 - alpha) [x]+.
    """

    curvature: ClassVar[float] = 1.0

    def evaluate(self, *values: Array) -> Array:
        return np.where(values[0] > 0.0, values[0], np.expm1(np.minimum(values[0], 0.0)))


def erf(values: Array) -> Array:
    """The error function, entry by entry."""
    return np.vectorize(math.erf, otypes=[np.float64])(values) if values.size else values


@dataclass(frozen=True)
class Gelu(Smooth):
    """x Phi(x), Phi the normal distribution function; f'' = phi(x) (2 - x^2) is at most 2 phi(0)."""

    curvature: ClassVar[float] = 0.797884560802865355880

    def evaluate(self, *values: Array) -> Array:
        return 0.5 * values[0] * (1.0 + erf(values[0] / math.sqrt(2.0)))


@dataclass(frozen=True)
class GeluTanh(Smooth):
    """x (1 + tanh(k x + 0.044715 k x^3)) / 2 with k = sqrt(2 / pi), the usual approximation of GELU.

    f'' is k at 0, its largest value to four digits; it is bounded with room to spare.
    """

    curvature: ClassVar[float] = 0.85

    def evaluate(self, *values: Array) -> Array:
        x = values[0]
        return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


@dataclass(frozen=True)
class Silu(Smooth):
    """x sigmoid(x); |f''| is largest at 0, where it is 1/2."""

    curvature: ClassVar[float] = 0.5

    def evaluate(self, *values: Array) -> Array:
        return values[0] * (0.5 + 0.5 * np.tanh(0.5 * values[0]))


@dataclass(frozen=True)
class Mish(Smooth):
    """x tanh(log(1 + exp(x))); f'' is largest, 0.6442, near -0.09; it is bounded with room to spare."""

    curvature: ClassVar[float] = 0.65

    def evaluate(self, *values: Array) -> Array:
        return values[0] * np.tanh(np.logaddexp(values[0], 0.0))


@dataclass(frozen=True)
class Softsign(Smooth):
    """x / (1 + |x|); f' = (1 + |x|)^-2 is continuous, and changes fastest, by 2, at 0."""

    curvature: ClassVar[float] = 2.0

    def evaluate(self, *values: Array) -> Array:
        return values[0] / (1.0 + np.abs(values[0]))


@dataclass(frozen=True)
class Sin(Smooth):
    """sin x."""

    curvature: ClassVar[float] = 1.0

    def evaluate(self, *values: Array) -> Array:
        return np.sin(values[0])


@dataclass(frozen=True)
class Cos(Smooth):
    """cos x."""

    curvature: ClassVar[float] = 1.0

    def evaluate(self, *values: Array) -> Array:
        return np.cos(values[0])


@dataclass(frozen=True)
class Erf(Smooth):
    """The error function; |f''| = 4 |x| exp(-x^2) / sqrt(pi) is largest, sqrt(8 / (pi e)), at 1 / sqrt 2."""

    curvature: ClassVar[float] = 0.967882898076573430

    def evaluate(self, *values: Array) -> Array:
        return erf(values[0])


@dataclass(frozen=True)
class QuadraticRamp(Smooth):
    """0 below 0, x^2 / 2 up to 1, x - 1/2 beyond: what hard swish is without its two kinks (`Builder.hard_swish`)."""

    curvature: ClassVar[float] = 1.0

    def evaluate(self, *values: Array) -> Array:
        held = np.clip(values[0], 0.0, 1.0)
        return held * (values[0] - 0.5 * held)
