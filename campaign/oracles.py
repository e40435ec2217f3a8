"""Maxima found without the solver: breakpoints along a line, a big-M model, and exact evaluation of what they find.

Any admissible action is a witness: the maximum is at least Q there.  So an oracle may be as rough as it likes in
finding witnesses, as long as Q at a witness is computed exactly (`exact_value`, in fractions) before anything is
called a wrong proof.  In one dimension the witnesses are the network's own breakpoints, and the best of them is the
maximum: `exact_maximum` does all of that in fractions.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from campaign.networks import Array, Case, Layers, Random

WIDE = np.longdouble


def values(case: Case, actions: Array, dtype: Any = np.float64) -> tuple[Array, Array]:
    """Q of (B, d) actions and a bound on the rounding error of computing it, both (B,)."""
    rounding = np.finfo(dtype).eps
    first, weights, points = (np.asarray(x, dtype) for x in (case.first, case.action, actions))
    hidden, inputs = points @ weights + first, len(weights)
    error = (inputs + 2) * rounding * (np.abs(points) @ np.abs(weights) + np.abs(first))
    for later_weights, later_bias in case.later:
        matrix, bias = np.asarray(later_weights, dtype), np.asarray(later_bias, dtype)
        active = np.maximum(hidden, 0)
        error = error @ np.abs(matrix) + (len(matrix) + 2) * rounding * (
            (active + error) @ np.abs(matrix) + np.abs(bias)
        )
        hidden = active @ matrix + bias
    return hidden[:, 0], error[:, 0]


def magnitude(case: Case) -> Array:
    """The largest number that a sum on the way to Q could reach on the box, (B,): rounding scales with it."""
    reach = np.maximum(np.abs(case.low), np.abs(case.high)) @ np.abs(case.action) + np.abs(case.first)
    for weights, bias in case.later:
        reach = reach @ np.abs(weights) + np.abs(bias)
    return reach[:, 0]


def on_lines(first: Array, slope: Array, later: Layers, low: Array, high: Array) -> tuple[Array, Array]:
    """The best t of [low, high] and its value for each row of first + t slope (B, h), by every layer's breakpoints."""
    points = np.stack([low, high], axis=1)

    def before(depth: int) -> Array:
        hidden = points[:, :, None] * slope[:, None, :] + first[:, None, :]
        for weights, bias in later[:depth]:
            hidden = np.maximum(hidden, 0) @ weights + bias
        return hidden

    for depth in range(len(later)):
        points = _refined(points, before(depth))
    outcome = before(len(later))[:, :, 0]
    best = np.argmax(outcome, axis=1)
    rows = np.arange(len(points))
    return points[rows, best], outcome[rows, best]


def _refined(points: Array, hidden: Array) -> Array:
    """The points and every zero of a neuron between two of them; each row ends in copies of its last point."""
    left, right = hidden[:, :-1], hidden[:, 1:]
    crosses = (left < 0) & (right > 0) | (left > 0) & (right < 0)
    share = np.divide(left, left - right, out=np.ones_like(left), where=crosses)
    start, stop = points[:, :-1, None], points[:, 1:, None]
    zeros = np.where(crosses, np.clip(start + (stop - start) * share, start, stop), points[:, -1:, None])
    together = np.sort(np.concatenate([points, zeros.reshape(len(points), -1)], axis=1), axis=1)
    return together[:, : points.shape[1] + int(crosses.sum(axis=(1, 2)).max(initial=0))]


def witnesses(case: Case, rng: Random, starts: int = 6, rounds: int = 8) -> Array:
    """Good actions, (B, d): exact in one dimension, otherwise the best of several climbs along exact line maxima."""
    rows, d = case.low.shape
    if d == 1:
        slope = np.broadcast_to(case.action, (rows, case.action.shape[1]))
        return on_lines(case.first, slope, case.later, case.low[:, 0], case.high[:, 0])[0][:, None]
    low, high, first = (np.repeat(x, starts, axis=0) for x in (case.low, case.high, case.first))
    here = low + rng.random(low.shape) * (high - low)
    here[::starts] = np.where(rng.random(case.low.shape) < 0.5, case.low, case.high)
    best = None
    for turn in range(rounds + d):
        direction = rng.normal(size=here.shape) * (high - low)
        if turn < d or rng.random() < 0.5:
            direction = np.zeros_like(here)
            direction[:, turn % d] = 1.0
        far, near = _range(here, direction, low, high)
        step, best = on_lines(here @ case.action + first, direction @ case.action, case.later, near, far)
        here = np.clip(here + step[:, None] * direction, low, high)
    assert best is not None
    chosen = np.argmax(best.reshape(rows, starts), axis=1)
    return here.reshape(rows, starts, d)[np.arange(rows), chosen]


def _range(here: Array, direction: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """The largest and smallest step along a direction that stays in the box."""
    with np.errstate(divide="ignore", invalid="ignore"):
        sides = np.stack([(low - here) / direction, (high - here) / direction])
    up = np.where(direction == 0, np.inf, sides.max(axis=0)).min(axis=1)
    down = np.where(direction == 0, -np.inf, sides.min(axis=0)).max(axis=1)
    up, down = np.where(np.isfinite(up), up, 0.0), np.where(np.isfinite(down), down, 0.0)
    return np.maximum(up, 0.0), np.minimum(down, 0.0)


def big_m(case: Case, seconds: float = 20.0) -> Array | None:
    """The action that HiGHS finds best for the case's only state, by a big-M model of our own; None if it fails.

    Each neuron that can be on and off has y >= z, y >= 0, y <= z - L (1 - s), y <= U s with s in {0, 1}, where
    z is its input and [L, U] its range over the box.
    """
    import highspy

    model = highspy.Highs()
    try:
        return _big_m(model, case, seconds)
    except Exception:  # highspy's own word for a model whose numbers HiGHS refuses
        return None


def _big_m(model: Any, case: Case, seconds: float) -> Array | None:
    for name, setting in (
        ("output_flag", False),
        ("threads", 1),
        ("time_limit", seconds),
        ("mip_rel_gap", 0.0),
        ("mip_abs_gap", 1e-9),
        ("mip_feasibility_tolerance", 1e-9),
        ("primal_feasibility_tolerance", 1e-9),
    ):
        model.setOptionValue(name, setting)
    d = case.low.shape[1]
    inputs: list[Any] = [model.addVariable(lb=float(case.low[0, k]), ub=float(case.high[0, k])) for k in range(d)]
    actions, low, high = list(inputs), case.low[0], case.high[0]
    weights, bias = case.action, case.first[0]
    for following in (*case.later, None):
        positive, negative = np.maximum(weights, 0), np.minimum(weights, 0)
        low, high = low @ positive + high @ negative + bias, high @ positive + low @ negative + bias
        sums = [
            sum((float(w) * x for w, x in zip(weights[:, j], inputs, strict=True) if w), start=0.0) + float(bias[j])
            for j in range(weights.shape[1])
        ]
        if following is None:
            break
        inputs = [_relu(model, z, float(a), float(b)) for z, a, b in zip(sums, low, high, strict=True)]
        low, high = np.maximum(low, 0), np.maximum(high, 0)
        weights, bias = following
    objective = sums[0]
    if isinstance(objective, float):
        return np.asarray((case.low[0] + case.high[0]) / 2)
    model.maximize(objective)
    found = np.asarray(model.getSolution().col_value, float)
    if not len(found):
        return None
    return np.clip([found[x.index] for x in actions], case.low[0], case.high[0])


def _relu(model: Any, z: Any, low: float, high: float) -> Any:
    y = model.addVariable(lb=0.0, ub=max(high, 0.0))
    if high <= 0:
        return y
    if low >= 0:
        model.addConstr(y == z)
        return y
    on = model.addBinary()
    model.addConstr(y >= z)
    model.addConstr(y <= z - low * (1 - on))
    model.addConstr(y <= high * on)
    return y


def _fractions(array: Array) -> list[Any]:
    return [_fractions(x) if np.ndim(x) else Fraction(float(x)) for x in array]


def _through(hidden: list[Fraction], weights: list[list[Fraction]], bias: list[Fraction]) -> list[Fraction]:
    active = [(k, x) for k, x in enumerate(hidden) if x > 0]
    return [sum((x * weights[k][j] for k, x in active), start=b) for j, b in enumerate(bias)]


def exact_value(case: Case, action: Array) -> Fraction:
    """Q at an action, without any rounding; the case has one state."""
    point, weights = _fractions(action), _fractions(case.action)
    hidden = [
        sum((a * w[j] for a, w in zip(point, weights, strict=True)), start=b)
        for j, b in enumerate(_fractions(case.first[0]))
    ]
    for later_weights, later_bias in case.later:
        hidden = _through(hidden, _fractions(later_weights), _fractions(later_bias))
    return hidden[0]


def exact_maximum(case: Case) -> Fraction:
    """The maximum over one action, without any rounding; the case has one state."""
    slope, first = _fractions(case.action[0]), _fractions(case.first[0])
    later = [(_fractions(w), _fractions(b)) for w, b in case.later]
    points = sorted({Fraction(float(case.low[0, 0])), Fraction(float(case.high[0, 0]))})

    def before(t: Fraction, depth: int) -> list[Fraction]:
        hidden = [b + t * w for w, b in zip(slope, first, strict=True)]
        for weights, bias in later[:depth]:
            hidden = _through(hidden, weights, bias)
        return hidden

    for depth in range(len(later)):
        at = [before(t, depth) for t in points]
        zeros = {
            points[i] + (points[i + 1] - points[i]) * x / (x - y)
            for i in range(len(points) - 1)
            for x, y in zip(at[i], at[i + 1], strict=True)
            if x * y < 0
        }
        points = sorted({*points, *zeros})
    return max(before(t, len(later))[0] for t in points)
