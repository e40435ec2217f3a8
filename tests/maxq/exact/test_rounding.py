"""What the certificate rests on, held against exact arithmetic: no bound, cut or margin may be wrong by a bit."""

from fractions import Fraction

import numpy as np
import pytest

from caql.networks import FoldedNetwork

from . import interpreted
from .fuzz import KINDS, exact_value, network

SHAPES = [(1, 4, 1), (2, 5, 1), (2, 4, 3, 1), (3, 3, 3, 2, 1)]
SEEDS = range(6)


def exact(values):
    return [Fraction(float(value)) for value in np.ravel(values)]


def presolved(kind, shape, seed):
    """A network of a kind, presolved; the action box is [-1, 1] with one side that is nearly nothing."""
    folded = network(np.random.default_rng(seed), kind, shape)
    low, high = -np.ones(shape[0]), np.ones(shape[0])
    low[-1] = high[-1] - 2.0 ** -float(seed)
    return folded, low, high, interpreted.begin(folded, 0, low, high)


def rows_at(net, n, d, point):
    """Pre-activations of the compact network, and last its Q, at a point of the scaled box, as fractions."""
    pre = []
    for i in range(n + 1):
        y = Fraction(float(net.constant[i]))
        y += sum(Fraction(float(net.rows[i, k])) * point[k] for k in range(d))
        y += sum(Fraction(float(net.rows[i, d + j])) * max(pre[j], Fraction(0)) for j in range(net.first[i]))
        pre.append(y)
    return pre


def random_points(rng, d, count):
    """Points of [0, 1]^d that float64 holds exactly, corners among them."""
    for _ in range(count):
        yield exact(np.where(rng.random(d) < 0.5, rng.integers(0, 2, d), rng.integers(0, 2**20, d) / 2.0**20))


def exact_dual_bound(net, n, d, node, margin=None):
    """The bound that the node's multipliers prove, in real arithmetic: (bound, g, the terms of the neurons).

    With margins, the neurons are not relaxed, but may exceed their bounds by so much.
    """
    row = exact(net.rows[n, : d + n])
    bound, terms = Fraction(float(net.constant[n])), []
    for i in reversed(range(n)):
        low, up, t = exact([node.lower[i], node.upper[i], node.multiplier[i]])
        c, w = row[d + i], Fraction(0)
        if i < net.count[1] and low < 0 < up:
            w = Fraction(float(node.share[i]))
            cap = exact(node.cap[: d + 1, i])
            bound += w * (cap[0] + (2 * margin[i] if margin is not None else 0))
            for k in range(d):
                row[k] += w * cap[1 + k]
        c -= w
        if margin is not None:
            ends = [low - margin[i], up + margin[i]]
            ends += [Fraction(0)] if ends[0] < 0 < ends[1] else []
            term = max(c * max(y, Fraction(0)) - t * y for y in ends)
        elif low >= 0:
            term = max((c - t) * low, (c - t) * up)
        elif up <= 0:
            term = max(-t * low, -t * up)
        else:
            term = max(Fraction(0), -t * low, (c - t) * up)
        terms.append(term)
        bound += term + t * Fraction(float(net.constant[i]))
        for k in range(d + net.first[i]):
            row[k] += t * Fraction(float(net.rows[i, k]))
    for k in range(d):
        low, high = exact([node.low[k], node.high[k]])
        bound += max(row[k] * low, row[k] * high)
    return bound, row[:d], terms[::-1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_presolved_network_is_the_network_up_to_its_error(kind, shape):
    rng = np.random.default_rng(0)
    for seed in SEEDS:
        folded, low, high, (n, d, space, _, rounding) = presolved(kind, shape, seed)
        error = Fraction(float(rounding - 3.0 * space.net.margin[n]))
        for point in random_points(rng, d, 8):
            action = [a + s * (b - a) for a, b, s in zip(exact(low), exact(high), point, strict=True)]
            difference = exact_value(folded, 0, action) - rows_at(space.net, n, d, point)[n]
            assert abs(difference) <= error


def test_the_error_is_no_excuse():
    """Of ordinary networks it is some ten thousand units of the last place of Q at most."""
    for shape in SHAPES:
        _, _, _, (_, _, _, _, rounding) = presolved("plain", shape, 1)
        assert rounding < 1e-10


@pytest.mark.parametrize("hidden", [(), (1,), (3,), (3, 2)])
def test_a_box_far_from_zero(hidden):
    """Scaling actions near 1e9 to [0, 1] loses digits, whether the first layer is the output or is read by others."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        folded = network(rng, "plain", (2, *hidden, 1))
        low = rng.uniform(1e9, 2e9, 2)
        high = low + rng.random(2)
        folded = folded._replace(first_bias=folded.first_bias - low @ folded.action_weights)
        n, d, space, _, rounding = interpreted.begin(folded, 0, low, high)
        for point in random_points(rng, d, 4):
            action = [a + s * (b - a) for a, b, s in zip(exact(low), exact(high), point, strict=True)]
            difference = exact_value(folded, 0, action) - rows_at(space.net, n, d, point)[n]
            assert abs(difference) <= Fraction(float(rounding - 3.0 * space.net.margin[n]))


def test_a_neuron_that_is_inactive_by_a_hair_counts_in_the_error():
    """-1e16 + 1 + 1e16 is 0 in float64, so the second neuron looks inactive; its activation is 1, and Q is 1000."""
    ones, later = np.ones((1, 2)), np.array([[1.0], [1e16]])
    folded = FoldedNetwork(ones, np.zeros((1, 2)), ((later, np.array([-1e16])), (np.array([[1e3]]), np.zeros(1))))
    n, _, _, value, rounding = interpreted.begin(folded, 0, [-1.0], [1.0])
    assert (n, value, exact_value(folded, 0, [0.0])) == (0, 0.0, 1000)
    assert rounding >= 1e3


def test_a_neuron_that_is_active_by_a_hair_counts_in_the_error():
    """1e16 + 1 is 1e16 in float64, so Q seems to be 0; it is 1."""
    folded = FoldedNetwork(
        np.array([[1.0]]),
        np.array([[0.0]]),
        ((np.array([[1e16]]), np.array([1.0])), (np.array([[1.0]]), np.array([-1e16]))),
    )
    _, _, _, _, rounding = interpreted.begin(folded, 0, [-1.0], [1.0])
    assert rounding >= 1.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_bounds_hold_up_to_the_margin(kind, shape):
    """At the root and, after phases were fixed at random, for every point whose phases are those."""
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        _, _, _, (n, d, space, _, _) = presolved(kind, shape, seed)
        net, node, margin = space.net, space.node, exact(space.net.margin[:n])
        points = [(point, rows_at(net, n, d, point)) for point in random_points(rng, d, 10)]
        root = [side.copy() for side in node]
        for _, pre in points:
            for side, kept in zip(node, root, strict=True):
                side[:] = kept
            for i in np.flatnonzero(rng.random(n) < 0.5):
                if pre[i] >= 0:
                    node.lower[i] = max(node.lower[i], 0.0)
                if pre[i] <= 0:
                    node.upper[i] = min(node.upper[i], 0.0)
            before = node.lower.copy(), node.upper.copy()
            assert interpreted.tightening.tighten(net, n, d, node, space.scratch, space.presolve.planes)
            for other, theirs in points:
                if not all(
                    before[0][i] <= theirs[i] + margin[i] and theirs[i] - margin[i] <= before[1][i] for i in range(n)
                ):
                    continue
                assert all(a <= s <= b for a, s, b in zip(exact(node.low), other, exact(node.high), strict=True))
                for i in range(n):
                    assert Fraction(float(node.lower[i])) - margin[i] <= theirs[i]
                    assert theirs[i] <= Fraction(float(node.upper[i])) + margin[i]


def test_the_margin_covers_what_float64_loses():
    """Bounds of a layer whose rows cancel: without its margin a bound would be wrong."""
    lost = 0
    for seed in range(40):
        _, _, _, (n, d, space, _, _) = presolved("cancelling", (2, 4, 4, 1), seed)
        for point in random_points(np.random.default_rng(seed), d, 4):
            pre = rows_at(space.net, n, d, point)
            lost += sum(
                not Fraction(float(space.node.lower[i])) <= pre[i] <= Fraction(float(space.node.upper[i]))
                for i in range(n)
            )
    assert lost > 0


@pytest.mark.parametrize(("kink", "bound"), [(0.4, 0.4), (0.6, 1.0)])
def test_the_lower_slope_is_that_of_the_longer_side(kink, bound):
    """a - relu(a - kink) over [0, 1]: z >= a - kink gives the kink as a bound, z >= 0 gives 1."""
    folded = FoldedNetwork(
        np.array([[-kink, 0.0]]), np.array([[1.0, 1.0]]), ((np.array([[-1.0], [1.0]]), np.zeros(1)),)
    )
    n, d, space, _, _ = interpreted.begin(folded, 0, [0.0], [1.0])
    planes = space.presolve.planes
    planes.constant[0] = space.net.constant[n]
    column = space.net.rows[n, : d + n][:, None]
    interpreted.relaxation.bound_layer(space.net, d, interpreted.relaxation.Layer(n, 0, 1), column, space.node, planes)
    assert (n, planes.up[0]) == (1, pytest.approx(bound))


@pytest.mark.parametrize("seed", range(40))
def test_a_half_space_cuts_the_box_where_it_should(seed):
    """One action: what remains of [0, 1] begins or ends at the kink, not a bit inside it, and hardly outside."""
    rng = np.random.default_rng(seed)
    slope, kink = rng.normal() * 10.0 ** rng.integers(-3, 4), rng.uniform(0.05, 0.95)
    folded = FoldedNetwork(np.array([[-slope * kink]]), np.array([[slope]]), ((np.ones((1, 1)), np.zeros(1)),))
    n, d, space, _, _ = interpreted.begin(folded, 0, [0.0], [1.0])
    assert n == 1
    net, node = space.net, space.node
    where = -Fraction(float(net.constant[0])) / Fraction(float(net.rows[0, 0]))
    for active in (True, False):
        node.low[0], node.high[0], node.lower[0], node.upper[0] = 0.0, 1.0, -kink, 1.0 - kink
        if active:
            node.lower[0] = 0.0
        else:
            node.upper[0] = 0.0
        assert interpreted.tightening.tighten(net, n, d, node, space.scratch, space.presolve.planes)
        if active == (slope > 0):
            assert 0 <= where - Fraction(float(node.low[0])) <= 1e-13
            assert node.high[0] == 1.0
        else:
            assert 0 <= Fraction(float(node.high[0])) - where <= 1e-13
            assert node.low[0] == 0.0


def share_out(space, rng, spread):
    """Caps at some point of the box, with multipliers of their own."""
    node, d = space.node, space.node.low.size
    node.point[:] = node.low + rng.random(d) * (node.high - node.low)
    interpreted.facets.cap_neurons(space.net, d, node, space.facets)
    count = space.net.count[1]
    node.share[:count] = np.abs(rng.normal(size=count)) * spread


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_bound_is_never_below_what_its_multipliers_prove(kind, shape):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        _, _, _, (n, d, space, _, rounding) = presolved(kind, shape, seed)
        net, node = space.net, space.node
        for spread in (0.0, 1.0, 1e6):
            node.multiplier[:n] = node.multiplier[:n] + rng.normal(size=n) * spread
            share_out(space, rng, spread)
            bound = interpreted.relaxation.dual_bound(net, n, d, node, space.scratch, False)
            true = exact_dual_bound(net, n, d, node)[0]
            assert true <= Fraction(float(bound))
            if spread == 0.0:
                assert bound - float(true) <= rounding


@pytest.mark.parametrize("kind", ["plain", "tied", "cancelling"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_bound_allows_for_what_neurons_exceed_theirs_by(kind, shape):
    """Phases fixed at random, with multipliers that are zero, or those of the backward bound, or anything."""
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        _, _, _, (n, d, space, _, _) = presolved(kind, shape, seed)
        net, node = space.net, space.node
        phase = rng.integers(0, 3, n)
        node.lower[:n][phase == 0] = 0.0
        node.upper[:n][phase == 1] = 0.0
        for multiplier in (0.0 * node.multiplier, node.multiplier.copy(), rng.normal(size=len(node.multiplier))):
            node.multiplier[:] = multiplier
            share_out(space, rng, 1.0)
            bound = interpreted.relaxation.dual_bound(net, n, d, node, space.scratch, False)
            assert exact_dual_bound(net, n, d, node, exact(net.margin[:n]))[0] <= Fraction(float(bound))


@pytest.mark.parametrize("kind", ["plain", "quantised", "cancelling"])
@pytest.mark.parametrize("shape", SHAPES)
def test_only_what_is_below_the_cutoff_is_cut_away(kind, shape):
    """The bound of what was cut away, in exact arithmetic, is at most the cutoff; and hardly less."""
    cuts = bounds = 0
    for seed in range(12):
        _, _, _, (n, d, space, _, rounding) = presolved(kind, shape, seed)
        net, node = space.net, space.node
        rng = np.random.default_rng(seed)
        node.multiplier[:n] += rng.normal(size=n) * 0.1 * np.abs(node.multiplier[:n])
        share_out(space, rng, 0.1)
        bound = interpreted.relaxation.dual_bound(net, n, d, node, space.scratch, False)
        total, g, terms = exact_dual_bound(net, n, d, node)
        sizes = [abs(float(each)) for each in g] + [abs(float(term)) for term in terms]
        slack = rng.uniform(0.05, 0.9) * max(sizes)
        cutoff = Fraction(float(bound)) - Fraction(float(slack))
        before = [side.copy() for side in node]
        interpreted.tightening.cut_by_value(n, d, node, space.scratch, slack)
        near = 1e-6 * slack + 4 * rounding
        for k in range(d):
            gone_low, gone_high = (
                Fraction(float(node.low[k] - before[0][k])),
                Fraction(float(before[1][k] - node.high[k])),
            )
            for gone, beyond in ((gone_low, g[k] > 0), (gone_high, g[k] < 0)):
                if gone > 0:
                    cuts += 1
                    kept = Fraction(float(before[1][k])) - Fraction(float(before[0][k])) - gone
                    assert beyond
                    assert total - abs(g[k]) * kept <= cutoff
                    assert cutoff - (total - abs(g[k]) * kept) <= near
        for i in range(n):
            removed = []
            if node.lower[i] > before[2][i]:
                removed.append((before[2][i], node.lower[i]))
            if node.upper[i] < before[3][i]:
                removed.append((node.upper[i], before[3][i]))
            t, c = node.multiplier[i], space.scratch.coefficient[i] - node.share[i]
            for piece in removed:
                bounds += 1
                values = [
                    Fraction(c) * max(y, Fraction(0)) - Fraction(t) * y
                    for y in (exact([piece[0]])[0], Fraction(0), exact([piece[1]])[0])
                    if exact([piece[0]])[0] <= y <= exact([piece[1]])[0]
                ]
                assert total - terms[i] + max(values) <= cutoff + Fraction(float(near))
                inner = piece[1] if piece[0] == before[2][i] else piece[0]
                at_edge = Fraction(c) * max(exact([inner])[0], Fraction(0)) - Fraction(t) * exact([inner])[0]
                assert inner == 0.0 or abs(total - terms[i] + at_edge - cutoff) <= near
    assert cuts > 0
    assert bounds > 0 or shape[0] == 1
