"""Boxes halved instead of phases, and wide boxes searched in parts that are presolved anew."""

import itertools

import numpy as np
import pytest

from caql.actions import ActionSet
from caql.maxq.exact.solver import Exact
from caql.maxq.problem import Problem, Status
from caql.networks import FoldedNetwork

from . import interpreted
from .fuzz import network
from .test_certificate import limits
from .test_exact import q, unit_box


def he(seed, sizes, batch=2):
    """He-initialised, with first biases that differ from state to state."""
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=pair) * np.sqrt(2 / pair[0]) for pair in itertools.pairwise(sizes)]
    bias = rng.normal(size=(batch, sizes[1])) * np.sqrt(2 / sizes[0])
    return FoldedNetwork(bias, weights[0], tuple((w, 0.1 * rng.normal(size=w.shape[1])) for w in weights[1:]))


def quarters(low, high):
    """The four quarters of a box by its first two sides."""
    middle = 0.5 * (low + high)
    for first, second in itertools.product((False, True), repeat=2):
        sides = low.copy(), high.copy()
        sides[0 if first else 1][0] = middle[0]
        sides[0 if second else 1][1] = middle[1]
        yield sides


def test_many_free_neurons_are_split_by_sides():
    """They take 45 to 102 nodes; by phases alone it was 1,368 to 4,450."""
    solution = Exact(threads=1).solve(Problem(he(0, (3, 64, 24, 1), 6), unit_box(3), relative_tolerance=1e-4))
    assert (solution.status == Status.OPTIMAL).all()
    assert solution.work.max() < 150


@pytest.mark.parametrize("sizes", [(2, 64, 64, 1), (3, 30, 30, 30, 30, 30, 1)])
def test_parts_agree_with_quarters_searched_alone(sizes):
    folded, d = he(1, sizes), sizes[0]
    low, high = -2.0 * np.ones(d), 2.0 * np.ones(d)
    whole = Exact(threads=1).solve(Problem(folded, ActionSet.box(low, high), tolerance=1e-3))
    assert (whole.status == Status.OPTIMAL).all()
    found = [
        Exact(threads=1).solve(Problem(folded, ActionSet.box(*box), tolerance=1e-3)) for box in quarters(low, high)
    ]
    best = np.max([each.values for each in found], axis=0)
    assert (whole.upper >= best).all()
    assert (np.max([each.upper for each in found], axis=0) >= whole.values).all()
    samples = np.random.default_rng(0).uniform(low, high, (20_000, 1, d))
    assert (q(folded, samples) <= whole.upper).all()
    np.testing.assert_allclose(q(folded, whole.actions), whole.values, rtol=1e-12)


def test_parts_stopped_early_still_bracket_the_maximum():
    folded = he(1, (3, 30, 30, 30, 30, 30, 1))
    problem = Problem(folded, ActionSet.box(-2.0 * np.ones(3), 2.0 * np.ones(3)), tolerance=1e-3)
    best = Exact(threads=1).solve(problem)
    assert best.work.min() > 64
    previous = np.inf
    for limit in (1, 2, 3, 5, 8, 64):
        early = Exact(threads=1, node_limit=limit).solve(problem)
        assert (early.work <= limit).all()
        assert (early.status == Status.LIMIT).all()
        assert (early.upper >= best.values).all()
        assert (early.upper <= previous).all()
        previous = early.upper


def test_a_start_outside_the_box_is_brought_inside():
    folded = he(1, (2, 64, 64, 1))
    box = ActionSet.box(-np.ones(2), np.ones(2))
    far = Exact(threads=1).solve(Problem(folded, box, tolerance=1e-3, warm_start=np.full((2, 2), 50.0)))
    near = Exact(threads=1).solve(Problem(folded, box, tolerance=1e-3))
    assert (np.abs(far.actions) <= 1.0).all()
    np.testing.assert_allclose(far.values, near.values, atol=1e-3)


def parts_of(monkeypatch, crowded, tolerance=1e-6, seed=3):
    """A small network searched in parts, as plain Python: (found, best action, the halves that were made, case)."""
    folded = network(np.random.default_rng(seed), "plain", (2, 5, 4, 1))
    _, _, space, _, rounding = interpreted.begin(folded, 0, -np.ones(2), np.ones(2))
    flat = [folded.action_weights.ravel()] + [part.ravel() for layer in folded.later for part in layer]
    stack = interpreted.presolve.Stack(np.array([2, 5, 4]), np.concatenate(flat), folded.first_bias)
    nothing, low = np.empty(0), np.array([-1.0, -0.7])
    region = interpreted.rows.Region(2, low, np.ones(2), np.empty((0, 2)), nothing, nothing, np.zeros(2))
    case = interpreted.presolve.Case(stack, 0, region)
    halves = []

    def halve(space, side, key, boxes):
        before = space.search.corners.copy()
        made = boxes.count[0]
        boxes = interpreted_halve(space, side, key, boxes)
        rows = [boxes.pool[slot, :4].copy() for slot in boxes.heap[: boxes.count[0]] if boxes.keys[slot] == key]
        halves.append((before, side, rows, boxes.count[0] - made))
        return boxes

    interpreted_halve = interpreted.parts.halve
    monkeypatch.setattr(interpreted.parts, "halve", halve)
    monkeypatch.setattr(interpreted.parts, "CROWDED", crowded)
    queue = interpreted.open_nodes.make_queue(4, len(space.node.lower), 2)
    boxes = interpreted.open_nodes.make_queue(1, 0, 2)
    action = np.array([-9.0, -9.0])  # outside the box, where Q is larger
    found = interpreted.parts.explore_parts(case, action, space, limits(rounding, tolerance), queue, boxes)[2]
    return found, action, halves, folded


def test_halves_cover_the_box_to_the_bit(monkeypatch):
    found, action, halves, folded = parts_of(monkeypatch, crowded=3)
    assert found.status == interpreted.search.PROVED
    assert len(halves) >= 3
    for corners, side, rows, more in halves:
        assert more == 2
        lower, upper = (row.reshape(2, 2) for row in sorted(rows, key=lambda row: row[side])[:2])
        assert (
            lower[0, side] == corners[0, side] < lower[1, side] == upper[0, side] < corners[1, side] == upper[1, side]
        )
        other = 1 - side
        for half in (lower, upper):
            np.testing.assert_array_equal(half[:, other], corners[:, other])
    whole = parts_of(monkeypatch, crowded=100)
    assert not whole[2]
    assert abs(found.upper - whole[0].upper) <= 2e-6
    assert -1.0 <= action[0] <= 1.0
    assert -0.7 <= action[1] <= 1.0
    assert q(folded, action[None])[0] <= found.upper


def test_a_loose_gap_is_proved_by_a_bound_and_not_by_the_value(monkeypatch):
    """With a wide tolerance the search stops below the maximum, and only the certificate of the parts is above it."""
    below = 0
    for seed in range(20):
        best = parts_of(monkeypatch, 3, 1e-9, seed)[0].upper - 1e-8
        for tolerance, crowded in itertools.product((0.1, 0.3, 1.0), (1, 3, 100)):
            found, action, _, folded = parts_of(monkeypatch, crowded, tolerance, seed)
            assert found.status == interpreted.search.PROVED
            assert found.upper >= best
            below += bool(q(folded, action[None])[0] < best)
    assert below >= 3


def test_a_part_that_cannot_be_bounded_proves_nothing(monkeypatch):
    monkeypatch.setattr(interpreted.parts, "dual_bound", lambda *_: np.nan)
    found, *_ = parts_of(monkeypatch, crowded=3)
    assert (found.upper, found.status) == (np.inf, interpreted.search.BROKEN)


def test_sets_with_rows_or_whole_numbers_are_not_parted():
    one = np.ones(1)
    for rows, whole in ((np.ones((1, 2)), np.zeros(2)), (np.empty((0, 2)), np.array([0.0, 1.0]))):
        sides = one[: len(rows)]
        region = interpreted.rows.Region(2, -np.ones(2), np.ones(2), rows, -sides, sides, whole)
        assert not interpreted.parts.worth_parting(interpreted.presolve.Case(None, 0, region), 500, limits())
    region = region._replace(whole=np.zeros(2))
    assert interpreted.parts.worth_parting(interpreted.presolve.Case(None, 0, region), 500, limits())
    assert not interpreted.parts.worth_parting(interpreted.presolve.Case(None, 0, region), 50, limits())
