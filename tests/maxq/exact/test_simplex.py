"""The dual simplex and the multipliers it leaves behind, against HiGHS on the same triangle relaxation."""

import numba
import numpy as np
import pytest
from scipy.optimize import linprog

from caql.maxq.exact import node, relaxation, simplex, tableau
from caql.maxq.exact.simplex import BELOW_CUTOFF, INFEASIBLE, OPTIMAL


def callable_from_python(function):
    """The solver's inner functions have no bridge from Python of their own."""

    @numba.njit
    def call(*arguments):
        return function(*arguments)

    return call


make_room = callable_from_python(node.make_room)
backward_multipliers = callable_from_python(relaxation.backward_multipliers)
dual_bound = callable_from_python(relaxation.dual_bound)
dual_simplex = callable_from_python(simplex.dual_simplex)
objective = callable_from_python(simplex.objective)
read_multipliers = callable_from_python(tableau.read_multipliers)
write_down = callable_from_python(tableau.write_down)


def random_relaxation(seed, d, layers):
    """A presolved network with made-up bounds: every neuron free, a layer after another, row n is Q."""
    rng = np.random.default_rng(seed)
    n = sum(layers)
    room = make_room(np.int64(d), np.int64(n), np.int64(max(layers)))
    net, node = room.net, room.node
    net.rows[:] = 0.0
    node.low[:], node.high[:] = 0.0, 1.0
    first = 0
    for width in [*layers, 1]:
        for i in range(first, first + width):
            net.rows[i, : d + first] = rng.normal(size=d + first) * 0.5
            net.constant[i] = -net.rows[i, :d].sum() / 2
            net.first[i] = first
            if i < n:
                node.lower[i], node.upper[i] = -0.2 - rng.random(), 0.2 + rng.random()
        first += width
    node.basis[:] = 0
    room.scratch.binding[:] = 0
    return n, room


def highs(n, d, room):
    """The same program, written out for HiGHS."""
    net, node = room.net, room.node
    rows, limits = [], []
    for i in range(n):
        y, z = net.rows[i, : d + n].copy(), np.eye(d + n)[d + i]
        slope = node.upper[i] / (node.upper[i] - node.lower[i])
        rows += [y - z, z - slope * y]
        limits += [-net.constant[i], slope * (net.constant[i] - node.lower[i])]
    bounds = [*zip(node.low, node.high, strict=True), *((0.0, up) for up in node.upper[:n])]
    extra, extra_limits = [], []
    for i in range(n):  # p <= -lower, as in the tableau
        y, z = net.rows[i, : d + n].copy(), np.eye(d + n)[d + i]
        extra.append(z - y)
        extra_limits.append(net.constant[i] - node.lower[i])
    answer = linprog(
        -net.rows[n, : d + n], np.array(rows + extra), limits + extra_limits, bounds=bounds, method="highs"
    )
    return None if answer.status == 2 else net.constant[n] - answer.fun


def run(n, d, room, cutoff=-np.inf):
    rows, columns = write_down(room.net, n, d, room.node, room.scratch, room.tab)
    return columns, dual_simplex(room.tab, d, n, rows, columns, cutoff, 1000)


@pytest.mark.parametrize(("d", "layers"), [(1, [2]), (3, [5]), (2, [4, 3]), (4, [6, 5]), (2, [3, 3, 3])])
@pytest.mark.parametrize("seed", range(6))
def test_the_optimum_and_its_proof(seed, d, layers):
    n, room = random_relaxation(seed, d, layers)
    best = highs(n, d, room)
    columns, (status, rows, ray, step, _) = run(n, d, room, -1e3 if best is None else -np.inf)
    read_multipliers(room.net, n, d, room.node, room.scratch, room.tab, rows, columns, ray, step)
    proved = dual_bound(room.net, n, d, room.node, room.scratch, False)
    if best is None:
        assert status == INFEASIBLE
        assert proved <= -1e3 + 1e-6
    else:
        assert status == OPTIMAL
        assert objective(room.tab, rows, columns) == pytest.approx(best, abs=1e-7)
        assert proved == pytest.approx(best, abs=1e-7)


def test_the_stored_basis_is_a_warm_start():
    n, room = random_relaxation(3, 4, [6, 5])
    columns, (status, rows, ray, step, cold) = run(n, 4, room)
    assert (status, cold > 2) == (OPTIMAL, True)
    best = objective(room.tab, rows, columns)
    read_multipliers(room.net, n, 4, room.node, room.scratch, room.tab, rows, columns, ray, step)
    columns, (status, rows, _, _, warm) = run(n, 4, room)
    assert (status, warm <= 1) == (OPTIMAL, True)
    assert objective(room.tab, rows, columns) == pytest.approx(best, abs=1e-9)


def test_it_stops_at_the_cutoff():
    n, room = random_relaxation(3, 4, [6, 5])
    _, (status, _, _, _, full) = run(n, 4, room)
    best = highs(n, 4, room)
    _, (status, _, _, _, early) = run(n, 4, room, cutoff=best + 0.1)
    assert status == BELOW_CUTOFF
    assert early <= full


def test_any_multipliers_give_an_upper_bound():
    n, room = random_relaxation(1, 3, [5, 4])
    best = highs(n, 3, room)
    rng = np.random.default_rng(0)
    backward_multipliers(room.net, n, 3, room.node, room.scratch)
    assert dual_bound(room.net, n, 3, room.node, room.scratch, False) >= best - 1e-9
    for _ in range(50):
        room.node.multiplier[:n] = rng.normal(size=n)
        assert dual_bound(room.net, n, 3, room.node, room.scratch, False) >= best - 1e-9
