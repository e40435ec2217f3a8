"""The dual simplex and the multipliers it leaves behind, against HiGHS on the same triangle relaxation."""

import numpy as np
import pytest
from scipy.optimize import linprog

from .interpreted import pivoting, relaxation, simplex, tableau, workspace, written_rows

BELOW_CUTOFF, INFEASIBLE, OPTIMAL = simplex.BELOW_CUTOFF, simplex.INFEASIBLE, simplex.OPTIMAL


def random_relaxation(seed, d, layers):
    """A presolved network with made-up bounds: every neuron free, a layer after another, row n is Q."""
    rng = np.random.default_rng(seed)
    n = sum(layers)
    space = workspace.make_workspace(d, 0, n, max(layers), np.zeros(1, np.int64))
    net, node = space.net, space.node
    net.rows[:] = net.margin[:] = 0.0
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
    space.scratch.binding[:] = 0
    net.count[1] = layers[0]
    slope = node.upper / (node.upper - node.lower)  # the caps are the triangles' upper sides
    node.cap[0], node.cap[1:] = slope * (net.constant[:n] - node.lower), slope * net.rows[:n, :d].T
    net.columns[:d, :n] = net.rows[:n, :d].T
    space.facets.top[:] = -slope * node.lower
    return n, space


def highs(n, d, space):
    """The same program, written out for HiGHS."""
    net, node = space.net, space.node
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


def run(n, d, space, cutoff=-np.inf):
    """The program solved: (its shape at the end, the outcome)."""
    shape = tableau.write_down(space, n, d, False)
    outcome = simplex.dual_simplex(space, n, d, shape, cutoff, 1000, False)
    return pivoting.Shape(outcome.rows, shape.columns), outcome


def read(n, d, space, shape, outcome):
    """The multipliers read off, and the bound that they prove."""
    tableau.read_basis(space, n, d, shape, outcome)
    tableau.read_multipliers(space, n, d)
    return relaxation.dual_bound(space.net, n, d, space.node, space.scratch, False)


@pytest.mark.parametrize(("d", "layers"), [(1, [2]), (3, [5]), (2, [4, 3]), (4, [6, 5]), (2, [3, 3, 3])])
@pytest.mark.parametrize("seed", range(6))
def test_the_optimum_and_its_proof(seed, d, layers):
    n, space = random_relaxation(seed, d, layers)
    best = highs(n, d, space)
    shape, outcome = run(n, d, space, -1e3 if best is None else -np.inf)
    proved = read(n, d, space, shape, outcome)
    if best is None:
        assert outcome.status == INFEASIBLE
        assert proved <= -1e3 + 1e-6
    else:
        assert outcome.status == OPTIMAL
        assert pivoting.objective(space.tab, *shape) == pytest.approx(best, abs=1e-7)
        assert proved == pytest.approx(best, abs=1e-7)


@pytest.mark.parametrize("active", [True, False])
@pytest.mark.parametrize(("d", "layers"), [(1, [2]), (3, [5]), (2, [4, 3]), (4, [6, 5])])
def test_infeasible_programs_and_their_proofs(d, layers, active):
    """The first neuron's phase asks for more than the box can give."""
    for seed in range(4):
        n, space = random_relaxation(seed, d, layers)
        reach = np.abs(space.net.rows[0, :d]).sum() / 2
        space.node.lower[0], space.node.upper[0] = (
            (reach + 0.1, reach + 1.0) if active else (-reach - 1.0, -reach - 0.1)
        )
        space.scratch.binding[0] = 1
        shape, outcome = run(n, d, space, -1e3)
        assert outcome.status == INFEASIBLE
        assert read(n, d, space, shape, outcome) <= -1e3 + 1e-6


def test_the_stored_basis_is_a_warm_start():
    n, space = random_relaxation(3, 4, [6, 5])
    shape, cold = run(n, 4, space)
    assert (cold.status, cold.pivots > 2) == (OPTIMAL, True)
    best = pivoting.objective(space.tab, *shape)
    read(n, 4, space, shape, cold)
    shape, warm = run(n, 4, space)
    assert (warm.status, warm.pivots <= 1) == (OPTIMAL, True)
    assert pivoting.objective(space.tab, *shape) == pytest.approx(best, abs=1e-9)


def test_it_stops_at_the_cutoff():
    n, space = random_relaxation(3, 4, [6, 5])
    _, full = run(n, 4, space)
    _, early = run(n, 4, space, cutoff=highs(n, 4, space) + 0.1)
    assert early.status == BELOW_CUTOFF
    assert early.pivots <= full.pivots


def test_it_stops_when_told_to():
    n, space = random_relaxation(3, 4, [6, 5])
    space.tab.stop[0] = 1
    _, outcome = run(n, 4, space)
    assert (outcome.status, outcome.pivots) == (simplex.STALLED, 0)


def test_any_multipliers_give_an_upper_bound():
    n, space = random_relaxation(1, 3, [5, 4])
    best = highs(n, 3, space)
    rng = np.random.default_rng(0)
    relaxation.backward_multipliers(space.net, n, 3, space.node, space.scratch)
    assert relaxation.dual_bound(space.net, n, 3, space.node, space.scratch, False) >= best - 1e-9
    for _ in range(50):
        space.node.multiplier[:n] = rng.normal(size=n)
        assert relaxation.dual_bound(space.net, n, 3, space.node, space.scratch, False) >= best - 1e-9


def two_columns(low, high, widths):
    """A tableau of one row, x = a + b, with low <= x <= high and a, b in [0, width]; Q = -a - 2 b."""
    space = workspace.make_workspace(2, 0, 0, 1, np.zeros(1, np.int64))
    tab = space.tab
    tab.matrix[:] = 0.0
    tab.matrix[0, 1:3] = 1.0
    tab.matrix[1, 1:3] = -1.0, -2.0
    tab.basic[0], tab.nonbasic[1:3] = 2, (0, 1)
    tab.where[:3] = -1, -2, 1
    tab.variable_low[:3], tab.variable_high[:3] = (0.0, 0.0, low), (*widths, high)
    return space


def solved(space):
    return simplex.dual_simplex(space, 0, 2, pivoting.Shape(1, 2 + 1), -np.inf, 50, False)


def variables(tab):
    """The values of x, a and b."""
    values = {int(tab.basic[0]): tab.basic_value[0]} | dict(
        zip(tab.nonbasic[1:3].tolist(), tab.nonbasic_value[1:3], strict=True)
    )
    return [values[variable] for variable in (2, 0, 1)]


def test_a_long_step_ends_in_a_pivot():
    """a is flipped on the way and b mends the rest."""
    space = two_columns(1.5, 9.0, (1.0, 1.0))
    tab = space.tab
    assert solved(space).status == OPTIMAL
    np.testing.assert_allclose(variables(tab), [1.5, 1.0, 0.5])
    assert pivoting.objective(tab, 1, 3) == pytest.approx(-2.0)


@pytest.mark.parametrize("short", [1e-10, 0.0])
def test_a_row_that_can_be_mended_but_for_a_trifle_is_mended(short):
    """All columns at their far bounds leave next to nothing: that is a solution, not a violation to overlook.

    What was flipped must stay flipped: a row that is let go at the value it began with proves nothing.
    """
    space = two_columns(2.0 + short, 9.0, (1.0, 1.0))
    tab = space.tab
    assert solved(space).status == OPTIMAL
    np.testing.assert_allclose(variables(tab), [2.0, 1.0, 1.0], atol=2e-10)
    assert pivoting.objective(tab, 1, 3) == pytest.approx(-3.0, abs=1e-9)
    pivoting.settle(tab, 1, 3)  # and the reduced costs say so too
    assert pivoting.objective(tab, 1, 3) == pytest.approx(-3.0, abs=1e-9)


def test_a_row_that_cannot_be_mended_is_infeasible():
    outcome = simplex.dual_simplex(
        two_columns(2.0 + 1e-7, 9.0, (1.0, 1.0)), 0, 2, pivoting.Shape(1, 3), -5.0, 50, False
    )
    assert (outcome.status, outcome.ray) == (INFEASIBLE, 0)
    assert outcome.step * 1e-7 >= 2.0  # from -3 at the far bounds to below -5


def test_columns_too_small_to_pivot_on_prove_nothing():
    """Row x = 1e-9 a + b: with b at its bound, 1e-9 is missing, and a might give it."""
    space = two_columns(1.0 + 1.5e-9, 9.0, (1.0, 1.0))
    space.tab.matrix[0, 1] = 1e-9
    assert solved(space).status == OPTIMAL


@pytest.mark.parametrize("layers", [[4, 3], [3, 3, 3]])
def test_a_row_written_late_is_the_row_of_its_variable(layers):
    """After pivots, and for every variable of every neuron: its row at any point is its value there."""
    d = 3
    rng = np.random.default_rng(5)
    n, space = random_relaxation(2, d, layers)
    space.node.basis[:n] = rng.choice([tableau.Z, tableau.P, tableau.E], n)
    shape, _ = run(n, d, space)
    tab, node = space.tab, space.node
    tab.nonbasic_value[1 : shape.columns] = rng.normal(size=shape.columns - 1)
    for r in range(shape.rows):
        tab.basic_value[r] = tab.matrix[r, : shape.columns] @ tab.nonbasic_value[: shape.columns]
    written_rows.pass_forward(space, n, d)
    late = 0
    for i in range(n):
        y, z = tab.pre[i], tab.actual[d + i]
        slope = node.upper[i] / (node.upper[i] - node.lower[i])
        for kind, value in enumerate((z, z - y, slope * (y - node.lower[i]) - z)):
            variable = d + pivoting.KINDS * i + kind
            if tab.where[variable] == 0:
                shape = written_rows.write_row(space, d, shape, variable)
                late += 1
            assert written_rows.current(tab, tab.where[variable]) == pytest.approx(value, abs=1e-9)
    assert late >= 5
