"""Action sets of every awkward kind: what the exact solver claims over them, held against samples and a big-M model.

The generator knows which sets are empty by construction.  Checks, for every state: an empty set is INFEASIBLE and no
other is; the action is admissible, the value is Q there, upper is no less than Q at any sampled action of the set;
OPTIMAL means upper - value <= tolerance.  One state of each batch is solved by the independent model too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.maxq.sets import best_action, random_network, random_sets

from campaign.networks import Array, Random
from caql.actions import ActionSet
from caql.maxq.exact.solver import Exact
from caql.maxq.problem import Problem, Status
from caql.networks import FoldedNetwork, folded_value

KIND = "action sets"
NODES = 20_000
TOLERANCE = 1e-6
NEAR = 1e-7
"""What projection and the independent model are trusted to."""
HIDDEN = ((6,), (8, 6), (12, 8), (5, 5, 4), ())
THIN = ("flat", "point", "degenerate", "parallel", "equality")
"""Kinds of sets without an interior: their rows hold to rounding."""


@dataclass(frozen=True)
class Constrained:
    """A batch of states with a set each."""

    network: FoldedNetwork
    action_set: ActionSet
    kinds: list[str]
    empty: Any
    kind: str = KIND
    tolerance: float = TOLERANCE

    def row(self, k: int) -> Constrained:
        """One state alone."""
        network = self.network._replace(first_bias=self.network.first_bias[k : k + 1])
        rows = slice(k, k + 1)
        return Constrained(network, self.action_set[rows], self.kinds[rows], self.empty[rows])

    def arrays(self) -> dict[str, Array]:
        """Everything, by name."""
        network, found = self.network, self.action_set
        arrays = {"first_bias": network.first_bias, "action_weights": network.action_weights}
        for i, (weights, bias) in enumerate(network.later):
            arrays[f"weights_{i}"], arrays[f"bias_{i}"] = weights, bias
        for name in ("low", "high", "rows", "row_low", "row_high", "auxiliary_low", "auxiliary_high"):
            arrays[f"set_{name}"] = getattr(found, name)
        return arrays | {
            "integer": np.array(found.integer, np.int64),
            "empty": self.empty,
            "kinds": np.array(self.kinds),
        }


def constrained_of_arrays(arrays: dict[str, Array]) -> Constrained:
    """What `arrays` wrote."""
    layers = sum(name.startswith("weights_") for name in arrays)
    later = tuple((arrays[f"weights_{i}"], arrays[f"bias_{i}"]) for i in range(layers))
    names = ("low", "high", "rows", "row_low", "row_high", "auxiliary_low", "auxiliary_high")
    found = ActionSet(*(arrays[f"set_{name}"] for name in names), integer=tuple(arrays["integer"].tolist()))
    network = FoldedNetwork(arrays["first_bias"], arrays["action_weights"], later)
    return Constrained(network, found, [str(kind) for kind in arrays["kinds"]], arrays["empty"])


def make(rng: Random, states: int = 48) -> Constrained:
    """Random sets of one random shape."""
    d, m, k = int(rng.integers(1, 6)), int(rng.integers(1, 9)), int(rng.integers(0, 3))
    count = int(rng.integers(0, 4)) if rng.random() < 0.5 else 0
    integer = tuple(sorted(rng.permutation(d + k)[:count].tolist()))
    found = random_sets(rng, states, d, m, k, integer)
    network = random_network(rng, states, d, HIDDEN[int(rng.integers(len(HIDDEN)))])
    return Constrained(network, found.action_set, found.kinds, found.empty)


def witness_values(case: Constrained, rng: Random) -> Array:
    """The largest Q at sampled actions of each set that is not empty; -inf where no sample is inside."""
    found, best = case.action_set, np.full(len(case.kinds), -np.inf)
    if found.rows.shape[-1] > found.size:  # whether an action is admissible is then a program of its own
        for state in np.flatnonzero(~case.empty):
            points = found[state].sample(rng, 2)
            best[state] = _q(case, state, points).max()
        return best
    points = rng.uniform(found.low, found.high, (200, *found.low.shape))
    whole = list(found.integer)
    points[..., whole] = np.round(points[..., whole])
    heights = np.einsum("smd,psd->psm", found.rows, points)
    inside = ((heights >= found.row_low) & (heights <= found.row_high)).all(axis=-1)
    inside &= ((points >= found.low) & (points <= found.high)).all(axis=-1)
    for state in np.flatnonzero(inside.any(axis=0)):
        best[state] = _q(case, state, points[inside[:, state], state]).max()
    return best


def _q(case: Constrained, state: int, points: Array) -> Array:
    one = case.network._replace(first_bias=case.network.first_bias[state])
    return np.asarray(folded_value(one, np.asarray(points, np.float64)))


def claims(case: Constrained, rng: Random, counts: Counter[str]) -> list[tuple[str, int, str]]:
    """Every claim of the solver's answer that does not hold: check, state, detail."""
    solver = Exact(node_limit=NODES, time_limit=60.0, threads=1)
    actions, values, upper, status, work = solver.solve(Problem(case.network, case.action_set, tolerance=TOLERANCE))
    best = witness_values(case, rng)
    wrong: list[tuple[str, int, str]] = []
    deep = int(rng.integers(len(case.kinds)))
    for state, kind in enumerate(case.kinds):
        detail = f"{kind}: value {values[state]!r}, upper {upper[state]!r}, status {int(status[state])}"

        def check(holds: Any, name: str, state: int = state, detail: str = detail) -> None:
            if not holds:
                wrong.append((name, state, detail))

        if state == deep:
            truth = best_action(case.network, case.action_set, state)
            check((truth is None) == bool(case.empty[state]), "the model disagrees on whether the set is empty")
            best[state] = max(best[state], -np.inf if truth is None else truth[0])
            counts["slow oracles"] += 1
        if case.empty[state]:
            check(status[state] == Status.INFEASIBLE, "an empty set is not called empty")
            check(values[state] == upper[state] == -np.inf, "an empty set has a value")
            counts["empty"] += 1
            continue
        one, action = case.action_set[state], actions[state]
        limited = status[state] == Status.LIMIT
        check(status[state] in (Status.OPTIMAL, Status.LIMIT), "neither OPTIMAL nor LIMIT")
        check(not limited or work[state] >= NODES or upper[state] - values[state] <= 10 * TOLERANCE, "early LIMIT")
        check(limited or upper[state] - values[state] <= TOLERANCE, "OPTIMAL with an open gap")
        check(abs(float(_q(case, state, action)) - values[state]) <= 1e-12 * (1 + abs(values[state])), "value is not Q")
        check(upper[state] >= best[state] - NEAR * (1 + abs(best[state])), "upper is below the maximum")
        inside = one.contains(action) or (kind in THIN and np.abs(one.project(action) - action).max() <= NEAR)
        check(inside, "the action is not admissible")
        counts["limit" if limited else "optimal"] += 1
    counts["problems"] += len(case.kinds)
    return wrong
