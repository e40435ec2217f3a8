"""Tangent planes: above the network in exact arithmetic, wherever they touch it, and as tight as they should be."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from caql import maximize

from . import interpreted
from .fuzz import KINDS
from .test_rounding import exact, presolved, random_points, rows_at

tangent, tangent_bound = interpreted.tangent, interpreted.tangent_bound
Known, Limits = interpreted.node.Known, interpreted.node.Limits
SHAPES = [(2, 5, 1), (2, 4, 3, 1), (3, 3, 3, 2, 1), (9, 6, 4, 1)]


def shrink(rng, node, d):
    """A smaller box of ends that float64 holds exactly, and with it nothing but what the bounds claimed before."""
    for k in range(d):
        low, high = sorted(rng.integers(0, 2**20, 2) / 2.0**20)
        if low < high <= node.high[k]:
            node.low[k], node.high[k] = low, high


def plane_at(rng, space, n, d, corner=None):
    """A plane at a corner, in an order of no meaning."""
    node = space.node
    chosen = rng.integers(0, 2, d) if corner is None else corner
    point = np.where(chosen, node.high[:d], node.low[:d])
    tangent.choose_corner(d, node, space.tangent, point, rng.normal(size=d + 1))
    return point, tangent.tangent_plane(space.net, n, d, node, space.tangent)


def value_of(plane, node, d, point):
    """A plane at a point of the box, in exact arithmetic."""
    total = Fraction(float(plane[d]))
    for k in range(d):
        low, high = exact([node.low[k], node.high[k]])
        share = (point[k] - low) / (high - low) if high > low else Fraction(0)
        total += Fraction(float(plane[k])) * share
    return total


def points_of(rng, node, d, count):
    """Points of the node's box, corners among them."""
    low, high = exact(node.low[:d]), exact(node.high[:d])
    for shares in random_points(rng, d, count):
        yield [a + share * (b - a) for a, b, share in zip(low, high, shares, strict=True)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_plane_is_nowhere_below_the_network_and_mixtures_neither(kind, shape):
    rng = np.random.default_rng(0)
    for seed in range(4):
        _, _, _, (n, d, space, _, _) = presolved(kind, shape, seed)
        if n < 0:
            continue
        if seed % 2:
            shrink(rng, space.node, d)
        margin = tangent_bound.ROUNDING * Fraction(float(space.net.margin[n]))
        planes = space.tangent
        for turn in range(3):
            plane_at(rng, space, n, d)
            if turn == 0:
                planes.plane[:] = planes.other
            else:
                tangent.mix(d, planes.plane, planes.other)
            for point in points_of(rng, space.node, d, 8):
                q = rows_at(space.net, n, d, point)[n]
                assert q <= value_of(planes.other, space.node, d, point) + margin
                assert q <= value_of(planes.plane, space.node, d, point) + margin
            highest = Fraction(float(tangent.highest(d, planes.plane)))
            assert max(value_of(planes.plane, space.node, d, p) for p in points_of(rng, space.node, d, 8)) <= (
                highest + margin
            )


@pytest.mark.parametrize("shape", SHAPES)
def test_a_plane_touches_the_network_at_its_corner(shape):
    rng = np.random.default_rng(1)
    for seed in range(6):
        _, _, _, (n, d, space, _, _) = presolved("plain", shape, seed)
        point, value = plane_at(rng, space, n, d)
        q = float(rows_at(space.net, n, d, exact(point))[n])
        assert value == pytest.approx(q, abs=1e-12)
        assert float(value_of(space.tangent.other, space.node, d, exact(point))) == pytest.approx(q, abs=1e-12)


def test_the_planes_of_one_neuron_are_its_concave_envelope():
    rng = np.random.default_rng(2)
    for _ in range(20):
        d = 3
        slopes, constant = rng.normal(size=d), rng.normal()
        corners = np.array(list(itertools.product((0.0, 1.0), repeat=d)))
        heights = np.maximum(corners @ slopes + constant, 0.0)
        inside = rng.random(d)
        lowest = np.inf
        for order in itertools.permutations(range(d)):
            for corner in corners:  # measured from each corner in turn
                signs = 1.0 - 2.0 * corner
                plane = np.array([*(slopes * signs)[list(order)], constant + slopes @ corner])
                tangent.bend(d, plane)
                moved = np.where(corner > 0.0, 1.0 - inside, inside)[list(order)]
                lowest = min(lowest, plane[:d] @ moved + plane[d])
                every = np.where(corner > 0.0, 1.0 - corners, corners)[:, list(order)]
                assert np.all(every @ plane[:d] + plane[d] >= heights - 1e-12)
        from scipy.optimize import linprog

        hull = linprog(-heights, A_eq=np.vstack([corners.T, np.ones(8)]), b_eq=[*inside, 1.0])
        assert lowest == pytest.approx(-hull.fun, abs=1e-9)


def test_a_mixture_is_the_best_one():
    rng = np.random.default_rng(3)
    for _ in range(50):
        plane, other = rng.normal(size=(2, 8))
        shares = np.linspace(0.0, 1.0, 2001)[:, None]
        all_of_them = (1 - shares) * plane + shares * other
        tops = np.maximum(all_of_them[:, :7], 0.0).sum(1) + all_of_them[:, 7]
        found = tangent.mix(7, plane, other)
        assert found <= tops.min() + 1e-12
        assert found == pytest.approx(np.maximum(plane[:7], 0.0).sum() + plane[7])


def limits(tolerance):
    return Limits(tolerance, 0.0, 1000, 60.0, 0.0, 1.0, -np.inf)


@pytest.mark.parametrize("kind", ["plain", "quantised", "tied"])
def test_what_is_cut_off_lies_below_the_cutoff_and_is_recorded(kind):
    rng, cuts = np.random.default_rng(4), 0
    for seed in range(12):
        _, _, _, (n, d, space, value, _) = presolved(kind, (3, 6, 4, 1), seed)
        if n < 0:
            continue
        node, wide = space.node, (space.node.low.copy(), space.node.high.copy())
        bound = interpreted.relaxation.dual_bound(space.net, n, d, node, space.scratch, True)
        known = tangent_bound.bound_by_tangents(space, n, d, Known(bound, value, -np.inf), limits(1e-6))
        cutoff = interpreted.node.allowed(known.best, limits(1e-6))
        assert value <= known.best <= known.bound <= bound
        cut = bool(np.any(node.low > wide[0]) or np.any(node.high < wide[1]))
        assert known.proved == (cutoff if cut else -np.inf)
        cuts += cut
        for _ in range(40):
            shares = rng.integers(0, 2**20, d) / 2.0**20
            point = wide[0] + np.where(rng.random(d) < 0.5, np.round(shares), shares) * (wide[1] - wide[0])
            q = float(rows_at(space.net, n, d, exact(point))[n])
            assert q <= known.bound
            if np.any(point < node.low) or np.any(point > node.high):
                assert q <= cutoff
    assert cuts or kind != "plain"


def test_a_cut_keeps_everything_that_is_not_proved_and_little_more():
    rng = np.random.default_rng(5)
    _, _, _, (_, d, space, _, _) = presolved("plain", (3, 6, 4, 1), 0)
    node = space.node
    for _ in range(50):
        shrink(rng, node, d)
        low, high = node.low.copy(), node.high.copy()
        plane, slack = rng.normal(size=d + 1), abs(rng.normal()) * 0.3
        assert tangent.cut_by_plane(d, node, plane, slack) == bool(np.any(slack * (1 + 1e-9) < np.abs(plane[:d])))
        for k in range(d):
            share = min(1.0, slack / abs(plane[k]))  # of the side, from the end where the plane is high
            assert node.high[k] - node.low[k] == pytest.approx(share * (high[k] - low[k]), rel=1e-6)
            kept = (node.high[k] - low[k]) / (high[k] - low[k]), (node.low[k] - low[k]) / (high[k] - low[k])
            edge = kept[1] if plane[k] > 0 else 1.0 - kept[0]
            assert abs(plane[k]) * (1.0 - edge) >= min(slack, abs(plane[k])) - 1e-15
        node.low[:], node.high[:] = low, high


def test_a_plane_that_overflows_proves_nothing():
    _, _, _, (n, d, space, value, _) = presolved("plain", (2, 5, 4, 1), 3)
    known = Known(7.0, value, -np.inf)
    space.net.constant[n] = np.nan
    space.scratch.row[:] = 1.0
    assert tangent_bound.bound_by_tangents(space, n, d, known, limits(1e-6)) == known


def test_a_best_action_at_a_corner_is_proved_at_the_first_node():
    for seed in range(20):  # sums of relus are convex, so a corner is best; programs alone need two to four nodes
        rng = np.random.default_rng(seed)
        first = (rng.normal(size=(4, 12)), rng.normal(size=12) + 1.5)
        layers = [first, (np.abs(rng.normal(size=(12, 1))), np.zeros(1))]
        assert maximize(layers, low=-0.5, high=0.5).work[0] == 1
