"""Upper bounds on max-Q, and pre-activation bounds for every neuron: interval, dual, backward linear.

All of them relax each ReLU, given bounds l <= h <= u on its pre-activation h.

* `interval` forgets how neurons depend on each other and keeps only the box of each layer.
* `dual` is the bound of Appendix C (after Wong & Kolter): the point of the relaxation's dual in which
  an unstable neuron passes the slope u / (u - l) whatever the sign of its multiplier.  Read as a
  primal statement, with multipliers lambda = -nu in front of the network, it says

      [h]+ <= u (h - l) / (u - l)   where lambda > 0,    [h]+ >= u h / (u - l)   where lambda < 0,

  so that  max_a Q <= lambda_1' abar + |lambda_1|' Delta - sum_unstable l [lambda]+ + sum lambda' b
  with lambda_K = c, lambda_j = D_j W_j' lambda_{j+1}.  (The appendix states the same with the signs of
  a minimisation.)  Pre-activation bounds come from the same formula with c = +-e_s, layer by layer.
* `backward` replaces the lower line's slope by 1 or 0, whichever leaves the smaller triangle
  (the adaptive slope of CROWN).
* `tightest` takes, neuron by neuron, the best of the three.

Over an action set with rows all of them hold over its box, tightened by the rows; whole numbers count as numbers.

The functions use only what JAX and NumPy share, and compute in the arrays' own namespace and precision:
traced inside the training step they are float32 JAX, for the exact solvers on the host float64 NumPy.
They round to nearest, so a bound can undercut the truth by a few units in the last place.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from caql.actions import ActionSet
from caql.networks import FoldedNetwork

Method = Literal["interval", "dual", "backward", "tightest"]
METHODS: tuple[Method, ...] = ("interval", "dual", "backward", "tightest")

Bounds = list[tuple[Any, Any]]
"""Lower and upper pre-activation bounds, (B, h) each, layer by layer."""


class _Relaxation(NamedTuple):
    """One hidden layer's ReLUs between two lines: lower * h <= [h]+ <= upper * h + intercept, (B, h) each."""

    upper: Any
    lower: Any
    intercept: Any


def preactivation_bounds(network: FoldedNetwork, box: ActionSet, method: Method = "backward") -> Bounds:
    """Bounds of every hidden layer's pre-activations over the box."""
    return layer_bounds(network, box, method)[:-1]


def upper_bound(network: FoldedNetwork, box: ActionSet, method: Method = "backward") -> Any:
    """An upper bound on max over a of Q(x, a), per state -> (B,)."""
    return layer_bounds(network, box, method)[-1][1][:, 0]


def interval_bounds(network: FoldedNetwork, box: ActionSet) -> Bounds:
    """Pre-activation bounds of the hidden layers by interval arithmetic."""
    return preactivation_bounds(network, box, "interval")


def interval_bound(network: FoldedNetwork, box: ActionSet) -> Any:
    """Upper bound on max-Q by interval arithmetic -> (B,)."""
    return upper_bound(network, box, "interval")


def dual_bound(network: FoldedNetwork, box: ActionSet) -> Any:
    """The dual upper bound on max-Q of Appendix C -> (B,)."""
    return upper_bound(network, box, "dual")


def backward_bound(network: FoldedNetwork, box: ActionSet) -> Any:
    """The backward linear upper bound on max-Q, with the adaptive lower slope -> (B,)."""
    return upper_bound(network, box, "backward")


def tightest_bound(network: FoldedNetwork, box: ActionSet) -> Any:
    """The best upper bound on max-Q known here: the three others, sharing their tightest layers -> (B,)."""
    return upper_bound(network, box, "tightest")


def layer_bounds(network: FoldedNetwork, box: ActionSet, method: Method) -> Bounds:
    """Bounds of every layer's pre-activations over the set's box; the last entry is the output, (B, 1) each."""
    xp = network.first_bias.__array_namespace__()
    box = box.tightened()
    middle = box.centre @ network.action_weights + network.first_bias
    spread = box.radius @ xp.abs(network.action_weights)
    bounds: Bounds = [(middle - spread, middle + spread)]
    relaxations: dict[str, list[_Relaxation]] = {"dual": [], "backward": []}
    wanted = ("interval", "dual", "backward") if method == "tightest" else (method,)
    for weights, bias in network.later:
        bounds.append(_following(network, box, bounds, relaxations, (weights, bias), wanted))
    return bounds


def following_bounds(
    network: FoldedNetwork, box: ActionSet, bounds: Bounds, layer: tuple[Any, Any], method: Method
) -> Any:
    """Bounds of one more layer `(W, b)` after the network's, all of whose layers are hidden and have `bounds`."""
    relaxations: dict[str, list[_Relaxation]] = {"dual": [], "backward": []}
    xp = network.first_bias.__array_namespace__()
    for each in relaxations:
        relaxations[each] = [_relax(xp, *pair, adaptive=each == "backward") for pair in bounds[:-1]]
    wanted = ("interval", "dual", "backward") if method == "tightest" else (method,)
    return _following(network, box.tightened(), bounds, relaxations, layer, wanted)


def _following(
    network: FoldedNetwork,
    box: ActionSet,
    bounds: Bounds,
    relaxations: dict[str, list[_Relaxation]],
    layer: tuple[Any, Any],
    wanted: tuple[str, ...],
) -> tuple[Any, Any]:
    """The bounds of the layer after those that have `bounds`; the last of these joins the relaxations."""
    xp = network.first_bias.__array_namespace__()
    weights, bias = layer
    found = []
    for each in wanted:
        if each == "interval":
            found.append(_interval_step(xp, *bounds[-1], weights, bias))
            continue
        relaxations[each].append(_relax(xp, *bounds[-1], adaptive=each == "backward"))
        lower, upper = _linear_range(network, box, relaxations[each], weights)
        found.append((bias + lower, bias + upper))
    lower, upper = found[0]
    for other_lower, other_upper in found[1:]:
        lower, upper = xp.maximum(lower, other_lower), xp.minimum(upper, other_upper)
    # Rounding can cross the two where the box is a point.
    return xp.minimum(lower, upper), upper


def _interval_step(xp: Any, lower: Any, upper: Any, weights: Any, bias: Any) -> tuple[Any, Any]:
    low, high = xp.maximum(lower, 0), xp.maximum(upper, 0)
    middle = (low + high) / 2 @ weights + bias
    spread = (high - low) / 2 @ xp.abs(weights)
    return middle - spread, middle + spread


def _relax(xp: Any, lower: Any, upper: Any, *, adaptive: bool) -> _Relaxation:
    active = lower >= 0
    unstable = (lower < 0) & (upper > 0)
    chord = upper / xp.where(unstable, upper - lower, 1)
    slope = xp.where(unstable, chord, active * xp.ones_like(lower))
    intercept = xp.where(unstable, -lower * chord, 0)
    if not adaptive:
        return _Relaxation(slope, slope, intercept)
    return _Relaxation(slope, xp.where(unstable, (upper > -lower) * xp.ones_like(lower), slope), intercept)


def _linear_range(
    network: FoldedNetwork, box: ActionSet, relaxations: list[_Relaxation], weights: Any
) -> tuple[Any, Any]:
    """Bounds on z @ weights, z the relaxed outputs of the last relaxed layer, weights (h, m) -> (B, m) each."""
    xp = network.first_bias.__array_namespace__()
    centre, radius = box.centre[..., None, :], box.radius[..., None, :]

    def maximum(coefficients: Any, constant: Any) -> Any:
        return constant + xp.sum(centre * coefficients + radius * xp.abs(coefficients), axis=-1)

    coefficients, above, below = _substitute(network, relaxations, weights)
    upper = maximum(coefficients, above)
    if relaxations[-1].upper is relaxations[-1].lower:
        # One slope for both signs: the minimum passes through the same coefficients.
        return -maximum(-coefficients, -below), upper
    coefficients, above, _ = _substitute(network, relaxations, -weights)
    return -maximum(coefficients, above), upper


def _substitute(network: FoldedNetwork, relaxations: list[_Relaxation], weights: Any) -> tuple[Any, Any, Any]:
    """Replace z in z @ weights by the layer below, down to the action, each ReLU by the line that bounds it above.

    Returns the action's coefficients, (B, m, d), the constant (B, m), and the constant that bounds below
    if the slopes are the same for both lines.  Coefficients are (m, h) while they are the same for
    all states; multiplying from the cheaper side then keeps (B, h, h) tensors away from networks
    of two hidden layers.
    """
    xp = network.first_bias.__array_namespace__()
    layers = [(network.action_weights, network.first_bias), *network.later]
    coefficients = weights.T
    above: Any = 0
    below: Any = 0
    for depth in reversed(range(len(relaxations))):
        relaxation, (inner, bias) = relaxations[depth], layers[depth]
        one_slope = relaxation.upper is relaxation.lower
        positive = xp.maximum(coefficients, 0)
        negative = coefficients - positive
        if coefficients.ndim == 2:
            constant = (relaxation.upper * bias) @ positive.T + (relaxation.lower * bias) @ negative.T
            rise, drop = relaxation.intercept @ positive.T, relaxation.intercept @ negative.T
        if coefficients.ndim == 2 and inner.shape[0] < coefficients.shape[0]:
            if one_slope:
                mixed = (inner * relaxation.upper[:, None, :]) @ coefficients.T
            else:
                mixed = (inner * relaxation.upper[:, None, :]) @ positive.T
                mixed = mixed + (inner * relaxation.lower[:, None, :]) @ negative.T
            coefficients = xp.swapaxes(mixed, -1, -2)
        else:
            if one_slope:
                passed = relaxation.upper[:, None, :] * coefficients
            else:
                passed = relaxation.upper[:, None, :] * positive + relaxation.lower[:, None, :] * negative
            if coefficients.ndim == 3:
                constant = xp.sum(xp.expand_dims(bias, -2) * passed, axis=-1)
                rise = xp.sum(relaxation.intercept[:, None, :] * positive, axis=-1)
                drop = xp.sum(relaxation.intercept[:, None, :] * negative, axis=-1)
            coefficients = passed @ inner.T
        above, below = above + constant + rise, below + constant + drop
    return coefficients, above, below
