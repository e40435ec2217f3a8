"""max-Q as a mixed-integer program in plain arrays (Section 3.1, Eq. 4), for whatever solver takes arrays.

Every unstable neuron, l < 0 < u over the action set, gets its output z and a binary zeta that says
whether it is active:

    z >= h,    z <= h - l (1 - zeta),    z <= u zeta,    0 <= z <= u,        h = w'x + b its pre-activation.

A stable neuron needs neither: it is zero, or the affine function h of the columns before it, and is
substituted away, at any depth.  Columns are the actions, the action set's auxiliary variables, then the z, then the
zeta.  The set's own rows, equalities and whole numbers stand beside the network's rows, in the same columns.

All columns are scaled to a width of about one (z / u, actions measured from the centre in radii), and the objective
and the set's rows to a largest coefficient of one, so that a solver's absolute feasibility tolerances mean the
same for networks and sets of any scale; whole numbers are left as they are.  `Model.unit` and `Model.offset` lead
back to Q.

The ideal formulation of Anderson et al. (2019) adds, per neuron and subset I of its inputs,

    z <= sum_{i in I} w_i (x_i - L_i (1 - zeta)) + (b + sum_{i not in I} w_i U_i) zeta

with L_i, U_i the ends of x_i's range at which w_i x_i is smallest and largest.  The most violated subset is
found in linear time: I holds the inputs with  w_i x_i < w_i (L_i (1 - zeta) + U_i zeta).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from caql.actions import ActionSet
from caql.bounds import Bounds
from caql.networks import FoldedNetwork

Array = NDArray[np.float64]

ROUNDING = 1e-9
"""A neuron whose range reaches less than this fraction of its width beyond zero counts as stable: the
solvers' own feasibility tolerance cannot tell the difference."""
NARROW = 1e-13
"""A variable whose bounds are this fraction of its size apart is fixed: rows may leave that of it."""


class Neurons(NamedTuple):
    """The unstable neurons: pre-activation h = weights @ x + bias over all columns x, range of h, and columns."""

    weights: Array
    bias: Array
    lower: Array
    upper: Array
    outputs: NDArray[np.intp]
    phases: NDArray[np.intp]


@dataclasses.dataclass(frozen=True)
class Model:
    """max unit * (objective @ x + offset), row_lower <= rows @ x <= row_upper, lower <= x <= upper.

    Columns where `integrality` holds are integer.  `rows` is dense here and sparse in `sparse_rows`; the actions and
    the auxiliary variables are `centre + scale * x[:n]`, `size` of them actions.
    """

    objective: Array
    offset: float
    unit: float
    rows: Array
    row_lower: Array
    row_upper: Array
    lower: Array
    upper: Array
    integrality: NDArray[np.bool_]
    centre: Array
    scale: Array
    size: int
    neurons: Neurons

    def sparse_rows(self) -> tuple[NDArray[np.int32], NDArray[np.int32], Array]:
        """The rows in compressed form: starts, column indices, values."""
        row, column = np.nonzero(self.rows)
        starts = np.zeros(len(self.rows) + 1, np.int32)
        np.cumsum(np.bincount(row, minlength=len(self.rows)), out=starts[1:])
        return starts, column.astype(np.int32), self.rows[row, column]

    def with_rows(self, rows: Array, lower: Array, upper: Array) -> Model:
        """The same model with more rows over its columns."""
        return dataclasses.replace(
            self,
            rows=np.concatenate([self.rows, rows]),
            row_lower=np.concatenate([self.row_lower, lower]),
            row_upper=np.concatenate([self.row_upper, upper]),
        )

    def action(self, columns: Array) -> Array:
        """The action that a point of the model stands for."""
        return self.centre[: self.size] + self.scale[: self.size] * columns[: self.size]

    def point(self, action: Array) -> Array:
        """All columns for an action with its auxiliary variables, (d + k,): the network's own outputs and phases."""
        point = np.zeros_like(self.objective)
        free = self.scale > 0
        point[: len(action)][free] = ((action - self.centre)[free]) / self.scale[free]
        neurons = self.neurons
        # Columns are in layer order, so that each neuron sees only columns already filled in.
        for k in range(len(neurons.bias)):
            height = neurons.weights[k] @ point + neurons.bias[k]
            point[neurons.outputs[k]] = max(height, 0.0) / neurons.upper[k]
            point[neurons.phases[k]] = height > 0
        return point


def formulate(network: FoldedNetwork, action_set: ActionSet, bounds: Bounds, row: int) -> Model:
    """The model of one state: row `row` of a folded network and of its pre-activation bounds, NumPy float64.

    action_set: shared, or row `row` of it counts.
    bounds: of every layer, the output included, as `caql.bounds.layer_bounds` gives them: each unstable
        neuron's M- and M+.
    """
    one = action_set[row]
    low, high = np.concatenate([one.low, one.auxiliary_low]), np.concatenate([one.high, one.auxiliary_high])
    d, n = one.size, len(low)
    integer = np.isin(np.arange(n), one.integer)
    scaled = ~integer & np.isfinite(low) & np.isfinite(high)
    with np.errstate(invalid="ignore"):
        centre = np.where(scaled, (low + high) / 2, 0.0)
        scale = np.where(scaled, (high - low) / 2, 1.0)
        # A width that is rounding alone would blow up the rows that are measured in it.
        scale = np.where(scale <= NARROW * np.maximum(np.abs(low), np.abs(high)), 0.0, scale)
    ranges = [(lower[row], upper[row]) for lower, upper in bounds]
    edges = [ROUNDING * (upper - lower) for lower, upper in ranges[:-1]]
    unstable = [
        np.flatnonzero((lower < -edge) & (upper > edge)) for (lower, upper), edge in zip(ranges, edges, strict=False)
    ]
    count = sum(map(len, unstable))
    columns = n + 2 * count

    # The inputs of the current layer as affine functions of the columns: inputs = constant + x @ matrix.
    matrix, constant = np.zeros((columns, d)), centre[:d]
    matrix[:d] = np.diag(scale[:d])
    weights, bias, lowers, uppers = np.zeros((count, columns)), np.zeros(count), np.zeros(count), np.zeros(count)
    layers = [(network.action_weights, network.first_bias[row]), *network.later]
    done = 0
    for (layer_weights, layer_bias), (lower, upper), free in zip(layers, ranges, [*unstable, None], strict=True):
        matrix, constant = matrix @ layer_weights, constant @ layer_weights + layer_bias
        if free is None:
            break
        new = slice(done, done + len(free))
        weights[new], bias[new], lowers[new], uppers[new] = matrix[:, free].T, constant[free], lower[free], upper[free]
        active = lower >= -ROUNDING * (upper - lower)
        matrix, constant = matrix * active, constant * active
        matrix[n + done + np.arange(len(free)), free] = upper[free]
        done += len(free)

    outputs, phases = n + np.arange(count), n + count + np.arange(count)
    objective = matrix[:, 0]
    unit = float(np.abs(objective).max(initial=0.0)) or 1.0
    neurons = Neurons(weights, bias, lowers, uppers, outputs, phases)
    rows, row_lower, row_upper = _big_m_rows(neurons)
    lower = np.where(scaled, -1.0, np.where(integer, np.ceil(low), low))
    upper = np.where(scaled, 1.0, np.where(integer, np.floor(high), high))
    model = Model(
        objective=objective / unit,
        offset=float(constant[0]) / unit,
        unit=unit,
        rows=rows,
        row_lower=row_lower,
        row_upper=row_upper,
        lower=np.concatenate([lower, np.zeros(2 * count)]),
        upper=np.concatenate([upper, np.ones(2 * count)]),
        integrality=np.concatenate([integer, np.zeros(count, np.bool_), np.ones(count, np.bool_)]),
        centre=centre,
        scale=scale,
        size=d,
        neurons=neurons,
    )
    return model.with_rows(*_set_rows(one, model)) if len(one.rows) else model


def _set_rows(one: ActionSet, model: Model) -> tuple[Array, Array, Array]:
    """The set's rows over the model's columns, each divided by its largest coefficient."""
    over = one.rows * model.scale
    size = np.abs(over).max(axis=1)
    # A row over fixed variables only says nothing that they do not.
    kept = size > 0
    rows = np.zeros((int(kept.sum()), len(model.objective)))
    rows[:, : over.shape[1]] = over[kept] / size[kept, None]
    moved = one.rows @ model.centre
    return rows, ((one.row_low - moved)[kept]) / size[kept], ((one.row_high - moved)[kept]) / size[kept]


def _big_m_rows(neurons: Neurons) -> tuple[Array, Array, Array]:
    """Three rows a neuron, divided by the size of its pre-activation."""
    count, columns = neurons.weights.shape
    each = np.arange(count)
    size = np.maximum(neurons.upper, -neurons.lower)
    bias, depth = neurons.bias / size, neurons.lower / size
    above = -neurons.weights / size[:, None]
    above[each, neurons.outputs] += neurons.upper / size
    within = above.copy()
    within[each, neurons.phases] -= depth
    capped = np.zeros((count, columns))
    capped[each, neurons.outputs] = 1.0
    capped[each, neurons.phases] = -1.0
    infinite = np.full(count, np.inf)
    return (
        np.concatenate([above, within, capped]),
        np.concatenate([bias, -infinite, -infinite]),
        np.concatenate([infinite, bias - depth, np.zeros(count)]),
    )


def ideal_cuts(model: Model, point: Array, violation: float = 1e-6) -> tuple[Array, Array, Array]:
    """The most violated inequality of each neuron's ideal formulation at a point: rows, lower, upper sides."""
    neurons = model.neurons
    weights = neurons.weights
    # A neuron does not see auxiliary variables, whose bounds may be infinite.
    lower, upper = (np.where(weights == 0, 0.0, side) for side in (model.lower, model.upper))
    at_least = np.where(weights >= 0, lower, upper) * weights
    at_most = np.where(weights >= 0, upper, lower) * weights
    phase = point[neurons.phases][:, None]
    chosen = weights * point < at_least * (1 - phase) + at_most * phase
    smallest = np.sum(at_least, axis=1, where=chosen)
    largest = np.sum(at_most, axis=1, where=~chosen)
    each = np.arange(len(weights))
    rows = np.where(chosen, -weights, 0.0)
    rows[each, neurons.outputs] += neurons.upper
    rows[each, neurons.phases] -= smallest + neurons.bias + largest
    size = np.maximum(neurons.upper, -neurons.lower)
    rows /= size[:, None]
    limit = -smallest / size
    cut = rows @ point > limit + violation
    return rows[cut], np.full(int(cut.sum()), -np.inf), limit[cut]


def tighten(model: Model, relax: Callable[[Model], Array | None], rounds: int) -> Model:
    """Add the cuts that the relaxation's optimum violates, `rounds` times or until it violates none.

    relax: returns the optimum of the model's linear relaxation, or None if it could not be found.
    """
    for _ in range(rounds):
        point = relax(model) if len(model.neurons.bias) else None
        if point is None:
            break
        rows, lower, upper = ideal_cuts(model, point)
        if not len(rows):
            break
        model = model.with_rows(rows, lower, upper)
    return model
