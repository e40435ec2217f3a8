"""Random action sets of every awkward kind, and an independent answer to max-Q over them.

The generator knows by construction whether a set is empty; the oracle is a big-M model of its own, every neuron with a
binary and plain interval bounds, solved by HiGHS.  Nothing here uses the package's bounds, formulation or projection.
"""

from typing import Any, NamedTuple

import highspy
import numpy as np

from caql.actions import ActionSet
from caql.networks import FoldedNetwork

KINDS = (
    "feasible",
    "degenerate",
    "redundant",
    "parallel",
    "equality",
    "flat",
    "point",
    "zero row",
    "beyond the box",
    "contradiction",
    "fractional",
)
EMPTY = ("beyond the box", "contradiction", "fractional")


class Sets(NamedTuple):
    """One set per state, what kind each is, and whether it is empty."""

    action_set: ActionSet
    kinds: list[str]
    empty: Any


def random_sets(
    rng: np.random.Generator, states: int, d: int, m: int, k: int = 0, integer: tuple[int, ...] = ()
) -> Sets:
    """m rows over d actions and k auxiliary variables, of which those in `integer` are whole numbers."""
    n = d + k
    low, high = -rng.integers(1, 4, (states, n)).astype(float), rng.integers(1, 4, (states, n)).astype(float)
    free = [i for i in range(n) if i not in integer]
    low[:, free] *= rng.uniform(0.3, 1.0, (states, len(free)))
    pinned = rng.random((states, n)) < 0.05
    high = np.where(pinned, low, high)
    rows = rng.normal(size=(states, m, n)) * (rng.random((states, m, n)) < 0.8)
    rows[..., list(integer)] = np.round(2 * rows[..., list(integer)])
    inside = low + rng.random((states, n)) * (high - low)
    inside[:, list(integer)] = np.clip(np.round(inside), np.ceil(low), np.floor(high))[:, list(integer)]
    row_low, row_high = np.full((states, m), -np.inf), np.full((states, m), np.inf)
    kinds = []
    for state in range(states):
        kind = KINDS[rng.integers(len(KINDS))]
        if kind == "fractional" and len(integer) < 2:
            kind = "contradiction"
        if kind in ("parallel", "contradiction", "flat") and m < 2:
            kind = "feasible"
        kinds.append(kind)
        _fill(rng, kind, rows[state], row_low[state], row_high[state], inside[state], low[state], high[state], integer)
    bounds = (low[:, :d], high[:, :d]), (low[:, d:], high[:, d:])
    found = ActionSet(*bounds[0], rows, row_low, row_high, *bounds[1], integer)
    return Sets(found, kinds, np.isin(kinds, EMPTY))


def _fill(rng, kind, rows, row_low, row_high, inside, low, high, integer) -> None:
    """The sides of one state's rows, changed in place so that the set is what `kind` says."""
    m = len(rows)
    if kind == "parallel":
        rows[1] = rng.choice([-2.0, 1.0, 0.5]) * rows[0]
    if kind == "zero row":
        rows[rng.integers(m)] = 0.0
    heights = rows @ inside
    below, above = rng.exponential(0.5, m), rng.exponential(0.5, m)
    if kind == "degenerate":
        below, above = np.zeros(m), below
    if kind == "redundant":
        below, above = below + 100.0, above + 100.0
    sided = rng.integers(3, size=m)
    row_low[:] = np.where(sided != 1, heights - below, -np.inf)
    row_high[:] = np.where(sided != 0, heights + above, np.inf)
    if kind in ("equality", "point"):
        count = m if kind == "point" else 1 + int(rng.integers(max(1, m // 2)))
        row_low[:count] = row_high[:count] = heights[:count]
    if kind == "flat":
        # Two inequalities that leave only a plane, without saying so.
        rows[1] = -rows[0]
        row_low[:2], row_high[:2] = -np.inf, (heights[0], -heights[0])
    if kind == "beyond the box":
        rows[0] = np.where(rows[0] == 0, 1.0, rows[0])
        most = np.maximum(rows[0] * low, rows[0] * high).sum()
        row_low[0], row_high[0] = most + rng.uniform(0.05, 1.0), np.inf
    if kind == "contradiction":
        scale = rng.uniform(0.5, 2.0)
        rows[1] = scale * rows[0]
        row_low[0], row_high[0] = -np.inf, heights[0]
        row_low[1], row_high[1] = scale * heights[0] + rng.uniform(0.05, 0.5), np.inf
    if kind == "fractional":
        rows[0] = 0.0
        rows[0, list(integer)] = 1.0
        row_low[0] = row_high[0] = np.round(inside[list(integer)].sum()) + 0.5


def random_network(rng: np.random.Generator, states: int, d: int, hidden: tuple[int, ...]) -> FoldedNetwork:
    sizes = (d, *hidden, 1)
    pairs = [(rng.normal(size=(a, b)) * np.sqrt(2 / a), 0.3 * rng.normal(size=b)) for a, b in zip(sizes, sizes[1:])]  # noqa: B905, RUF007
    first = pairs[0][1] + rng.normal(size=(states, sizes[1]))
    return FoldedNetwork(first, pairs[0][0], tuple(pairs[1:]))


def best_action(network: FoldedNetwork, action_set: ActionSet, state: int) -> tuple[float, Any] | None:
    """max-Q and an action for one state by a big-M model with a binary for every neuron; None if the set is empty."""
    one = action_set.on_host()[state]
    d, k = one.size, one.auxiliary_low.shape[-1]
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance", "mip_feasibility_tolerance"):
        solver.setOptionValue(name, 1e-9)
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.setOptionValue("mip_abs_gap", 1e-8)

    def column(low: float, high: float, whole: bool = False) -> int:
        solver.addVar(low, high)
        index = solver.getNumCol() - 1
        if whole:
            solver.changeColIntegrality(index, highspy.HighsVarType.kInteger)
        return index

    def row(low: float, high: float, terms: dict[int, float]) -> None:
        solver.addRow(low, high, len(terms), np.array(list(terms), np.int32), np.array(list(terms.values())))

    lows, highs = np.concatenate([one.low, one.auxiliary_low]), np.concatenate([one.high, one.auxiliary_high])
    variables = [column(lows[i], highs[i], i in one.integer) for i in range(d + k)]
    for weights, low, high in zip(one.rows, one.row_low, one.row_high, strict=True):
        row(low, high, {v: float(w) for v, w in zip(variables, weights, strict=True)})
    inputs, least, most = variables[:d], one.low, one.high
    layers = [(network.action_weights, network.first_bias[state]), *network.later]
    for weights, bias in layers[:-1]:
        l = np.minimum(weights.T * least, weights.T * most).sum(axis=1) + bias  # noqa: E741
        u = np.maximum(weights.T * least, weights.T * most).sum(axis=1) + bias
        outputs = []
        for j in range(len(bias)):
            reach = max(abs(l[j]), abs(u[j]), 1e-3)
            z, active = column(0.0, max(u[j], 0.0)), column(0.0, 1.0, True)
            height = {v: -float(w) for v, w in zip(inputs, weights[:, j], strict=True)}
            row(bias[j], np.inf, {**height, z: 1.0})
            row(-np.inf, bias[j] + reach, {**height, z: 1.0, active: reach})
            row(-np.inf, 0.0, {z: 1.0, active: -reach})
            outputs.append(z)
        inputs, least, most = outputs, np.maximum(l, 0.0), np.maximum(u, 0.0)
    weights, bias = layers[-1]
    for v, w in zip(inputs, weights[:, 0], strict=True):
        solver.changeColCost(v, float(w))
    solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return None
    assert status == highspy.HighsModelStatus.kOptimal, status
    found = np.array(solver.getSolution().col_value)[:d]
    return float(solver.getInfo().objective_function_value + bias[0]), found
