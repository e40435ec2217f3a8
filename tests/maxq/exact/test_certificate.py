"""The certificate grows from recorded pieces: what is recorded when a node closes, is cut, is born closed, is left."""

import numpy as np
import pytest

from caql.networks import FoldedNetwork

from . import interpreted
from .fuzz import network

Known, Limits = interpreted.node.Known, interpreted.node.Limits
CLOSED = interpreted.node.CLOSED


def plain(seed=3, shape=(2, 5, 4, 1)):
    return interpreted.begin(
        network(np.random.default_rng(seed), "plain", shape), 0, -np.ones(shape[0]), np.ones(shape[0])
    )


def limits(rounding=0.0, tolerance=1e-6, nodes=1000):
    return Limits(tolerance, 0.0, nodes, 60.0, rounding, 0.9999, -np.inf)


def found(seed=3, shape=(2, 5, 4, 1), **changes):
    n, _, space, value, rounding = plain(seed, shape)
    queue = interpreted.open_nodes.make_queue(4, len(space.node.lower), shape[0])
    return interpreted.explore(space, n, value, limits(rounding, **changes), queue)


def test_a_queue_that_grows_changes_nothing():
    """Whatever room it begins with, and whenever that comes to an end."""
    most = 0
    for seed in range(12):
        answers = []
        for capacity in (2, 3, 64):
            n, d, space, value, rounding = plain(seed, (3, 8, 6, 1))
            queue = interpreted.open_nodes.make_queue(capacity, len(space.node.lower), d)
            queue, answer = interpreted.explore(space, n, value, limits(rounding), queue)
            answers.append(answer)
            most = max(most, len(queue.keys) // capacity if capacity < 4 else 0)
        assert answers[0] == answers[1] == answers[2]
    assert most >= 4


def test_a_closed_node_leaves_its_bound():
    close = interpreted.node.close
    assert close(Known(2.0, 1.0, 0.5), 7) == (CLOSED, Known(2.0, 1.0, 2.0), 7, True)
    assert close(Known(2.0, 1.0, 3.0), 0).known.proved == 3.0


def test_a_cut_leaves_the_cutoff():
    n, d, space, value, _ = plain()
    here = interpreted.relaxation.dual_bound(space.net, n, d, space.node, space.scratch, False)
    known = Known(here, value, -np.inf)
    assert interpreted.node.cut_away(space, n, d, known, here, here - 1e9).proved == -np.inf
    before = [side.copy() for side in space.node]
    assert interpreted.tightening.cut_by_value(n, d, space.node, space.scratch, here - (here - 1e-3))
    after = [side.copy() for side in space.node]
    for side, kept in zip(space.node, before, strict=True):
        side[:] = kept
    assert interpreted.node.cut_away(space, n, d, known, here, here - 1e-3) == Known(here, value, here - 1e-3)
    for side, kept in zip(space.node, after, strict=True):
        np.testing.assert_array_equal(side, kept)
    assert interpreted.node.cut_away(space, n, d, Known(here, value, here), here, here - 1e-4).proved == here


def ready_to_split(branch_on_action=False):
    """An evaluated root with something to branch on: (neurons, actions, workspace, verdict)."""
    n, d, space, value, rounding = plain(seed=2)
    verdict = interpreted.node.evaluate(space, n, d, limits(rounding), 1, Known(np.inf, value, -np.inf))
    assert 0 <= verdict.branch < n
    if branch_on_action:
        verdict = interpreted.node.split(
            space, n, n + 1, 0.5 * (space.node.low[1] + space.node.high[1]), verdict.known, 0
        )
    return n, d, space, verdict


@pytest.mark.parametrize("on_action", [False, True])
def test_children_born_closed_leave_their_bounds(on_action):
    n, d, space, verdict = ready_to_split(on_action)
    bounds = [interpreted.node.become_child(space, n, d, verdict.branch, upper) for upper in (False, True)]
    keys = [min(verdict.known.bound, bound) for bound in bounds]
    assert keys[0] != keys[1]

    def branch(cutoff):
        queue = interpreted.open_nodes.make_queue(4, len(space.node.lower), d)
        interpreted.open_nodes.clear(queue)
        before = verdict._replace(known=verdict.known._replace(proved=-np.inf))
        proved = interpreted.tree.branch(space, n, d, before, cutoff, queue)
        open_nodes = queue.count[0]
        return sorted(queue.keys[queue.heap[:open_nodes]]), proved

    assert branch(max(keys)) == ([], max(keys))
    assert branch(min(keys)) == ([max(keys)], min(keys))
    assert branch(np.nextafter(min(keys), -np.inf)) == (sorted(keys), -np.inf)


def test_children_cover_their_parent():
    n, d, space, verdict = ready_to_split()
    lower, upper = space.search.split[:2]
    interpreted.node.become_child(space, n, d, verdict.branch, True)
    assert (space.node.lower[verdict.branch], space.node.upper[verdict.branch]) == (0.0, upper)
    interpreted.node.become_child(space, n, d, verdict.branch, False)
    assert (space.node.lower[verdict.branch], space.node.upper[verdict.branch]) == (lower, 0.0)
    n, d, space, verdict = ready_to_split(branch_on_action=True)
    low, high = space.node.low[1], space.node.high[1]
    interpreted.node.become_child(space, n, d, verdict.branch, True)
    middle = space.node.low[1]
    assert (low < middle < high, space.node.high[1]) == (True, high)
    interpreted.node.become_child(space, n, d, verdict.branch, False)
    assert (space.node.low[1], space.node.high[1]) == (low, middle)


def leaf():
    """Q = 1 - 2 relu(a - 1/2) over [0, 1], its neuron active although a < 1/2 is left: a program that failed."""
    folded = FoldedNetwork(np.array([[-0.5]]), np.array([[1.0]]), ((np.array([[-2.0]]), np.array([1.0])),))
    n, d, space, _, rounding = interpreted.begin(folded, 0, [0.0], [1.0])
    assert n == 1
    space.node.lower[0] = 0.0
    return n, d, space, rounding


def test_a_leaf_above_the_cutoff_is_halved():
    n, d, space, rounding = leaf()
    verdict = interpreted.node.settle_leaf(space, n, d, Known(5.0, 0.0, -np.inf), limits(rounding), 0)
    assert verdict.branch == n  # its only action
    assert verdict.known.proved == -np.inf
    assert 2.0 <= verdict.known.bound <= 2.0 + 1e-12  # by backward multipliers: 1 - 2 (a - 1/2) at 0
    assert verdict.known.best == 1.0  # that corner was tried
    assert list(space.search.split) == [0.0, 1.0, 0.5, 0.5]


def test_a_leaf_too_small_to_halve_leaves_its_bound():
    n, d, space, rounding = leaf()
    space.node.high[0] = 2.0**-45
    verdict = interpreted.node.settle_leaf(space, n, d, Known(5.0, 0.5, -np.inf), limits(rounding, tolerance=0.0), 0)
    assert verdict.branch == CLOSED
    assert verdict.known.proved == verdict.known.bound >= 2.0
    space.node.high[0] = 1.0
    verdict = interpreted.node.settle_leaf(space, n, d, Known(1.0, 1.0, -np.inf), limits(rounding), 0)
    assert (verdict.branch, verdict.known.proved) == (CLOSED, 1.0)  # below the cutoff, whatever its size


def test_the_longest_costly_side_is_halved():
    n, d, space, _, _ = plain(shape=(3, 4, 1))
    space.scratch.row[:d] = 1.0, -3.0, 2.0
    assert interpreted.branching.costliest_side(d, space) == 1
    space.node.high[1] = space.node.low[1] + 2.0**-45
    assert interpreted.branching.costliest_side(d, space) == 2
    space.scratch.row[:d] = 0.0
    space.node.high[0] = 0.5
    assert interpreted.branching.costliest_side(d, space) == 2
    space.node.high[:d] = space.node.low[:d]
    assert interpreted.branching.costliest_side(d, space) == -1
    assert n > 0


def test_an_empty_node_leaves_nothing():
    n, d, space, value, rounding = plain()
    space.node.lower[0], space.node.upper[0] = 5.0, 6.0
    verdict = interpreted.node.evaluate(space, n, d, limits(rounding), 2, Known(9.0, value, 0.25))
    assert verdict == (CLOSED, Known(-np.inf, value, 0.25), 0, True)


def test_what_is_left_open_counts():
    """Stopped after any number of nodes, the bound is at least the optimum and falls as the search goes on."""
    _, best = found(tolerance=1e-9)
    assert best.status == interpreted.search.PROVED
    previous = np.inf
    for nodes in range(1, best.nodes):
        queue, early = found(tolerance=1e-9, nodes=nodes)
        top = queue.keys[queue.heap[: queue.count[0]]].max()
        assert (early.status, early.nodes) == (interpreted.search.LIMITED, nodes)
        assert max(top, best.upper - 1e-9) <= early.upper <= previous
        previous = early.upper


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("tolerance", [10.0, 0.3, 0.03, 1e-3])
def test_loosely_proved_is_proved(seed, tolerance):
    """However the search ends, its bound is at least that of every node left open, and at least the optimum."""
    _, tight = found(seed, tolerance=1e-9)
    queue, loose = found(seed, tolerance=tolerance)
    assert loose.status == interpreted.search.PROVED
    assert loose.upper >= tight.upper - 1e-9
    assert (queue.keys[queue.heap[: queue.count[0]]] <= loose.upper).all()


def test_open_nodes_below_a_new_cutoff_leave_the_largest_of_their_bounds(monkeypatch):
    """Two nodes are queued; the first turns out empty but shows a value that makes the second unnecessary."""
    n, d, space, value, rounding = plain()
    evaluated = iter([(0, Known(5.0, 0.0, -np.inf)), (CLOSED, Known(-np.inf, 3.5, -np.inf))])
    children = iter([4.0, 3.0])
    monkeypatch.setattr(interpreted.tree, "evaluate", lambda *_: interpreted.node.Verdict(*next(evaluated), 1, True))
    monkeypatch.setattr(interpreted.tree, "become_child", lambda *_: next(children))
    queue = interpreted.open_nodes.make_queue(4, len(space.node.lower), d)
    _, answer = interpreted.explore(space, n, value, limits(rounding), queue)
    assert answer == (True, 3.0, interpreted.search.PROVED, 2, 2)


def test_a_bound_that_is_not_finite_is_a_breakdown():
    n, d, space, value, rounding = plain()
    space.net.margin[0] = np.nan
    verdict = interpreted.node.evaluate(space, n, d, limits(rounding), 1, Known(np.inf, value, -np.inf))
    assert (verdict.branch, verdict.sound) == (CLOSED, False)
    queue = interpreted.open_nodes.make_queue(4, len(space.node.lower), d)
    _, answer = interpreted.explore(space, n, value, limits(rounding), queue)
    assert (answer.upper, answer.status) == (np.inf, interpreted.search.BROKEN)


def test_what_is_returned():
    """The rounding error joins the bound, and the status says what the returned numbers say."""
    folded = network(np.random.default_rng(3), "plain", (2, 5, 4, 1))
    _, _, space, value, _ = plain()
    sizes, flat = np.array([2, 5, 4]), [folded.action_weights.ravel()]
    flat += [part.ravel() for layer in folded.later for part in layer]
    stack = interpreted.presolve.Stack(sizes, np.concatenate(flat), folded.first_bias)
    nothing = np.empty(0)
    region = interpreted.rows.Region(2, -np.ones(2), np.ones(2), np.empty((0, 2)), nothing, nothing, np.zeros(2))
    case = interpreted.presolve.Case(stack, 0, region)
    Found, PROVED = interpreted.search.Found, interpreted.search.PROVED

    def returned(upper, status, rounding=0.25, tolerance=1.0):
        action, answer = np.zeros(2), np.zeros(6)
        found_ = Found(True, upper, status, 3, 4)
        interpreted.search.finish(case, action, limits(rounding, tolerance), space, found_, answer)
        assert answer[0] == pytest.approx(value, abs=1e-12)
        assert (answer[3], answer[4]) == (3, 4)
        return answer[1] - answer[0], answer[2]

    assert returned(value + 0.5, PROVED) == (pytest.approx(0.75), PROVED)
    assert returned(value + 0.8, PROVED) == (pytest.approx(1.05), interpreted.search.LIMITED)
    assert returned(value + 0.5, interpreted.search.LIMITED) == (pytest.approx(0.75), interpreted.search.LIMITED)
    assert returned(value - 1.0, PROVED) == (0.0, PROVED)
    assert returned(value, interpreted.search.BROKEN) == (np.inf, interpreted.search.BROKEN)


def test_an_infinite_error_proves_nothing():
    n, _, space, value, _ = plain()
    queue = interpreted.open_nodes.make_queue(4, len(space.node.lower), 2)
    for error in (np.inf, np.nan):
        _, answer = interpreted.explore(space, n, value, limits(error), queue)
        assert (answer.upper, answer.status) == (np.inf, interpreted.search.BROKEN)


def test_the_tolerance_leaves_something_for_rounding():
    allowed = interpreted.node.allowed
    assert allowed(1.0, limits(0.0, tolerance=1.0)) == 1.9999
    assert allowed(1.0, limits(0.125, tolerance=1.0)) == 1.5
    assert allowed(1.0, limits(0.5, tolerance=1.0)) == 1.5  # less than the error cannot be proved: do not try
    assert allowed(-4.0, Limits(0.0, 0.25, 1, 1.0, 0.125, 0.9999, -np.inf)) == -3.5
