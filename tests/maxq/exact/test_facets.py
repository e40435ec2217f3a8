"""Facets of the first layer's hulls: above relu to the bit of their margin, touching, and worth something."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

from . import interpreted
from .fuzz import KINDS, network
from .test_rounding import exact, random_points, rows_at

facets = interpreted.facets


def presolved(kind, seed, shape=(3, 6, 3, 1)):
    """A network of a kind over a box with a side that is nearly nothing and, for some seeds, one that is nothing."""
    low, high = -np.ones(shape[0]), np.ones(shape[0])
    low[-1] = high[-1] - 2.0 ** (-9.0 * seed)
    if seed % 3 == 1:
        low[0] = high[0]
    return interpreted.begin(network(np.random.default_rng(seed), kind, shape), 0, low, high)


def shrink(rng, node, tries):
    """A box inside the root's, with sides of any length, some of them nothing."""
    d = node.low.size
    node.low[:] = rng.random(d) * (rng.random(d) < 0.7)
    width = (1.0 - node.low) * 2.0 ** -(rng.random(d) * 60.0 * (tries % 2))
    node.high[:] = np.where(rng.random(d) < 0.2, node.low, np.minimum(node.low + width, 1.0))
    node.point[:] = node.low + rng.random(d) * (node.high - node.low)


def at(plane, point):
    """A plane at a point, as fractions."""
    constant, *slopes = exact(plane)
    return constant + sum(slope * a for slope, a in zip(slopes, point, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_a_facet_is_above_relu_over_the_whole_box(kind):
    """At all corners and at points between them, in exact arithmetic, but for twice the margin; small boxes too."""
    seen = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        n, d, space, _, _ = presolved(kind, seed)
        net, node = space.net, space.node
        for tries in range(4):
            shrink(rng, node, tries)
            facets.sort_ends(d, node, node.point, space.facets)
            facets.write_facets(net, d, node, space.facets, space.facets.planes)
            sides = [exact([a, b]) for a, b in zip(node.low, node.high, strict=True)]
            inside = [[a + s * (b - a) for (a, b), s in zip(sides, p, strict=True)] for p in random_points(rng, d, 6)]
            for point in [*map(list, product(*sides)), *inside]:
                pre = rows_at(net, n, d, point)
                for i in range(net.count[1]):
                    over = at(space.facets.planes[:, i], point) - max(pre[i], Fraction(0))
                    assert over >= -2 * Fraction(float(net.margin[i]))
                    seen += 1
    assert seen > 100 or kind == "dead"


@pytest.mark.parametrize("seed", range(8))
def test_no_plane_above_the_corners_is_lower_at_the_point(seed):
    """The least concave function above relu at the point, by a linear program over the corners; and its triangle."""
    rng = np.random.default_rng(seed)
    n, d, space, _, _ = interpreted.begin(network(rng, "plain", (3, 6, 1)), 0, -np.ones(3), np.ones(3))
    net, node = space.net, space.node
    node.point[:] = rng.random(d)
    facets.cap_neurons(net, d, node, space.facets)
    corners = np.array(list(product([0.0, 1.0], repeat=d)))
    lower = 0
    for i in range(n):
        height = node.cap[0, i] + node.cap[1:, i] @ node.point
        values = np.maximum(net.constant[i] + corners @ net.rows[i, :d], 0.0)
        weights = np.vstack([corners.T, np.ones(len(corners))])
        envelope = -linprog(-values, A_eq=weights, b_eq=[*node.point, 1.0], method="highs").fun
        assert height == pytest.approx(envelope, abs=1e-9)
        slope = node.upper[i] / (node.upper[i] - node.lower[i])
        pre = net.constant[i] + net.rows[i, :d] @ node.point
        assert height <= slope * (pre - node.lower[i]) + 1e-12
        lower += height < slope * (pre - node.lower[i]) - 1e-3
        assert space.facets.top[i] == pytest.approx(values.max())
    assert lower > 0


def test_a_box_that_makes_a_neuron_active_has_its_plane():
    """Where bounds are older than the box, relu at the lowest corner is not 0, and the plane begins there."""
    n, d, space, _, _ = interpreted.begin(
        network(np.random.default_rng(1), "plain", (2, 4, 1)), 0, -np.ones(2), np.ones(2)
    )
    net, node = space.net, space.node
    for i in range(n):
        best = (net.rows[i, :d] > 0.0).astype(float)
        node.low[:], node.high[:] = np.clip(best - 1e-3, 0.0, 1.0), np.clip(best + 1e-3, 0.0, 1.0)
        node.point[:] = node.low
        facets.cap_neurons(net, d, node, space.facets)
        for corner in product(*zip(node.low, node.high, strict=True)):
            assert node.cap[0, i] + node.cap[1:, i] @ corner == pytest.approx(
                net.constant[i] + net.rows[i, :d] @ corner
            )


def test_bounds_tighter_than_the_box_keep_the_triangle():
    n, d, space, _, _ = interpreted.begin(
        network(np.random.default_rng(2), "plain", (3, 5, 1)), 0, -np.ones(3), np.ones(3)
    )
    net, node = space.net, space.node
    node.lower[:n] *= 1e-3
    node.point[:] = 0.5
    facets.cap_neurons(net, d, node, space.facets)
    triangles = 0
    for i in range(n):
        slope = node.upper[i] / (node.upper[i] - node.lower[i])
        if np.allclose(node.cap[1:, i], slope * net.rows[i, :d], atol=1e-12):
            triangles += 1
            assert node.cap[0, i] == pytest.approx(slope * (net.constant[i] - node.lower[i]))
            assert space.facets.top[i] == pytest.approx(-slope * node.lower[i])
    assert triangles > 0


def test_cuts_lower_the_bound_and_it_stays_one(monkeypatch):
    """Programs with the same caps, without and with more facets: the bounds of their multipliers, which are optimal."""
    monkeypatch.setattr(interpreted.written_rows, "WORTH_A_ROW", 0.0)
    lowered = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        folded, bounds = network(rng, "plain", (4, 8, 4, 1)), []
        for cuts in (False, True):
            n, d, space, _, _ = interpreted.begin(folded, 0, -np.ones(4), np.ones(4))
            net, node = space.net, space.node
            node.point[:] = 0.25
            facets.cap_neurons(net, d, node, space.facets)
            shape = interpreted.tableau.write_down(space, n, d, False)
            outcome = interpreted.simplex.dual_simplex(space, n, d, shape, -1e3, 1000, cuts)
            shape = interpreted.pivoting.Shape(outcome.rows, shape.columns)
            interpreted.tableau.read_basis(space, n, d, shape, outcome)
            interpreted.tableau.read_multipliers(space, n, d)
            assert np.all(node.basis[:n] < interpreted.tableau.F)  # a child starts without a second facet
            bounds.append(interpreted.relaxation.dual_bound(net, n, d, node, space.scratch, False))
            optimum = interpreted.pivoting.objective(space.tab, shape.rows, shape.columns)
            assert bounds[-1] == pytest.approx(optimum, abs=1e-7)
            for point in random_points(rng, d, 50):
                assert rows_at(net, n, d, point)[n] <= Fraction(float(bounds[-1]))
        assert bounds[1] <= bounds[0] + 1e-9
        lowered += bounds[1] < bounds[0] - 1e-3
    assert lowered >= 6


def test_caps_are_used_only_by_those_who_have_a_share():
    """Caps of another box are in the workspace before the root's program; no multiplier may turn to them."""
    n, d, space, _, _ = presolved("plain", 0, (3, 6, 1))
    node = space.node
    assert space.net.rows[n, d : d + n].max() > 0.0
    node.cap[:], node.share[:], node.multiplier[:n] = -1e6, 0.0, 0.0
    interpreted.relaxation.dual_bound(space.net, n, d, node, space.scratch, True)
    assert not node.share.any()
    node.share[:] = -1.0  # a cap is above its neuron, and nothing is known of what is below it
    interpreted.relaxation.dual_bound(space.net, n, d, node, space.scratch, False)
    assert not node.share[: space.net.count[1]].any()
