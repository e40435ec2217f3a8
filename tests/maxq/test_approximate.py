"""Gradient ascent and cross-entropy beyond the contract table: stopping, masks, restarts, line search."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caql.actions import ActionSet, make_box
from caql.errors import CaqlError
from caql.maxq.cross_entropy import CrossEntropy, elite_threshold
from caql.maxq.gradient_ascent import GradientAscent, _columns, _value_and_gradient
from caql.maxq.problem import Problem, Status
from caql.maxq.solvers import make_solver
from caql.networks import FoldedNetwork, fold_state, folded_value, init_layers

KEY = jax.random.key(5)
SOLVERS = [
    GradientAscent(),
    GradientAscent(line_search=False, step_size=0.1),
    GradientAscent(restarts=3),
    CrossEntropy(),
]


def random_problem(states=32, **settings):
    layers = tuple((2 * w, b) for w, b in init_layers(KEY, (4 + 3, 32, 16, 1)))
    network = fold_state(layers, jax.random.normal(KEY, (states, 4)))
    return Problem(network, make_box([-1.0, -0.5, 0.0], [1.0, 0.25, 2.0]), **settings)


def tent(peaks):
    """Q(a) = -|a - peak|, one state per peak."""
    peaks = jnp.asarray(peaks, jnp.float32)
    return FoldedNetwork(
        jnp.stack([-peaks, peaks], axis=1),
        jnp.array([[1.0, -1.0]]),
        ((jnp.array([[-1.0], [-1.0]]), jnp.zeros(1)),),
    )


def test_the_written_out_gradient_is_the_gradient():
    problem = random_problem()
    actions = problem.action_set.sample(KEY, 32)
    values, gradients = _value_and_gradient(_columns(problem.network), actions.T)
    expected = jax.grad(lambda a: folded_value(problem.network, a).sum())(actions)
    np.testing.assert_allclose(values, folded_value(problem.network, actions), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(gradients.T, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("solver", SOLVERS, ids=str)
def test_the_answer_is_honest_and_no_worse_than_the_warm_start(solver):
    problem = random_problem()
    start = problem.action_set.sample(jax.random.key(8), 32)
    solution = jax.jit(lambda p: solver.solve(p, KEY))(problem._replace(warm_start=start))
    np.testing.assert_allclose(folded_value(problem.network, solution.actions), solution.values, rtol=1e-4, atol=1e-4)
    assert bool(problem.action_set.contains(solution.actions).all())
    assert bool((solution.values >= folded_value(problem.network, start) - 1e-5).all())
    assert float(solution.values.mean()) > float(folded_value(problem.network, start).mean()) + 0.1
    assert bool(jnp.isinf(solution.upper).all())


@pytest.mark.parametrize("solver", SOLVERS, ids=str)
def test_a_warm_start_at_the_top_is_kept(solver):
    peaks = jnp.array([[-0.9], [0.05], [0.3], [0.77]])
    solution = solver.solve(Problem(tent(peaks[:, 0]), make_box([-1.0], [1.0]), peaks, tolerance=1e-4), KEY)
    np.testing.assert_array_equal(solution.actions, peaks)


def test_fixed_steps_give_back_the_best_action_on_their_way():
    peaks, starts = jnp.array([-0.9, 0.05, 0.3]), jnp.array([[-0.88], [0.04], [-0.7]])
    solver = GradientAscent(line_search=False, step_size=0.1, iterations=1)
    solution = solver.solve(Problem(tent(peaks), make_box([-1.0], [1.0]), starts), KEY)
    # The first two steps go past the peak and end farther from it than they began.
    np.testing.assert_allclose(solution.actions, [[-0.88], [0.04], [-0.6]], atol=1e-6)
    np.testing.assert_allclose(solution.values, -jnp.abs(solution.actions[:, 0] - peaks), atol=1e-6)


def test_cross_entropy_refits_to_the_mean_and_spread_of_its_elite():
    """By hand: three samples, the better two of them, and three from the Gaussian of those."""
    peaks = np.linspace(-0.9, 0.9, 16)
    solver = CrossEntropy(iterations=2, samples=3, elites=2)
    solution = solver.solve(Problem(tent(peaks), make_box([-1.0], [1.0])), KEY)
    first, second = np.asarray(jax.random.normal(KEY, (2, 3, 1, 1)))[..., 0, 0]
    late = 0
    for peak, action in zip(peaks, np.asarray(solution.actions)[:, 0], strict=True):
        samples = np.clip(0.5 * first, -1, 1)
        elite = samples[np.argsort(np.abs(samples - peak))[:2]]
        refitted = np.clip(elite.mean() + elite.std() * second, -1, 1)
        every = np.array([0.0, *samples, *refitted])
        best = np.argmin(np.abs(every - peak))
        assert action == pytest.approx(every[best], abs=1e-5)
        late += best > 3
    assert late > 3


@pytest.mark.parametrize("solver", SOLVERS, ids=str)
def test_a_tent_is_climbed_to_its_peak(solver):
    peaks = [-0.9, 0.0, 0.3, 0.77]
    solution = solver.solve(Problem(tent(peaks), make_box([-1.0], [1.0]), tolerance=1e-4), KEY)
    # A fixed step of a tenth of the range's half cannot come closer to a kink than half of it.
    close = 0.06 if solver == GradientAscent(line_search=False, step_size=0.1) else 0.01
    np.testing.assert_allclose(solution.actions[:, 0], peaks, atol=close)


def test_states_stop_one_by_one():
    network = tent([0.0, 0.95])
    problem = Problem(network, make_box([-1.0], [1.0]), jnp.array([[0.0], [-1.0]]), tolerance=1e-3)
    solution = GradientAscent(iterations=60).solve(problem, KEY)
    assert solution.status.tolist() == [Status.CONVERGED] * 2
    assert int(solution.work[0]) < int(solution.work[1])


def test_a_larger_tolerance_stops_earlier():
    problem = random_problem()
    work = [
        float(GradientAscent(iterations=200).solve(problem._replace(tolerance=tolerance), KEY).work.mean())
        for tolerance in (1e-6, 1e-2, 100.0)
    ]
    assert work[0] > work[1] > work[2]
    assert work[2] < 3


def test_the_relative_tolerance_scales_with_the_value():
    network = tent([0.5])
    raised = network._replace(later=((network.later[0][0], jnp.array([1e4])),))
    box = make_box([-1.0], [1.0])
    loose = GradientAscent(iterations=50).solve(Problem(raised, box, tolerance=0.0, relative_tolerance=1e-3), KEY)
    tight = GradientAscent(iterations=50).solve(Problem(network, box, tolerance=0.0, relative_tolerance=1e-3), KEY)
    assert int(loose.work[0]) == 1
    assert int(tight.work[0]) > 1


@pytest.mark.parametrize("solver", SOLVERS, ids=str)
def test_masked_rows_cost_nothing_and_keep_their_warm_start(solver):
    problem = random_problem(8, mask=jnp.arange(8) % 2 == 0, warm_start=jnp.tile(jnp.array([0.1, 0.1, 0.1]), (8, 1)))
    solution = solver.solve(problem, KEY)
    odd = solution.status[1::2]
    assert bool((odd == Status.SKIPPED).all())
    assert bool((solution.work[1::2] == 0).all())
    assert bool((solution.work[::2] > 0).all())
    if solver != GradientAscent(restarts=3):
        np.testing.assert_allclose(solution.actions[1::2], 0.1, atol=1e-6)
    nothing = solver.solve(problem._replace(mask=jnp.zeros(8, bool)), KEY)
    assert int(nothing.work.sum()) == 0


def test_restarts_find_the_higher_of_two_peaks():
    # Q(a) = max(0, -a - 0.5) + 3 max(0, a - 0.5): from the left the ascent ends at -1, worth 0.5; the top is 1.5 at 1.
    network = FoldedNetwork(
        jnp.array([[-0.5, -0.5]]), jnp.array([[-1.0, 1.0]]), ((jnp.array([[1.0], [3.0]]), jnp.zeros(1)),)
    )
    problem = Problem(network, make_box([-1.0], [1.0]), jnp.array([[-0.8]]))
    assert float(GradientAscent().solve(problem, KEY).values[0]) == pytest.approx(0.5)
    assert float(GradientAscent(restarts=8).solve(problem, KEY).values[0]) == pytest.approx(1.5)


def test_boxes_may_differ_by_state():
    low = jnp.array([[-1.0], [0.2], [0.4]])
    high = jnp.array([[1.0], [0.3], [0.4]])
    for solver in SOLVERS:
        solution = solver.solve(Problem(tent([0.0, 0.0, 0.0]), ActionSet.box(low, high), tolerance=1e-5), KEY)
        np.testing.assert_allclose(solution.actions[:, 0], [0.0, 0.2, 0.4], atol=0.06)


def test_the_elite_threshold_keeps_about_as_many_as_asked():
    values = jax.random.normal(KEY, (200, 16))
    kept = (values >= elite_threshold(values, 20)).sum(axis=0)
    assert int(kept.min()) >= 20
    assert int(kept.max()) <= 22
    same = jnp.ones((50, 3))
    assert (same >= elite_threshold(same, 5)).all()


def test_an_elite_that_stands_still_is_at_rest_only_when_it_agrees():
    """With all but one sample in the elite its mean hardly moves, far below the best of them: not at rest."""
    problem = Problem(tent([0.0, 0.3]), make_box([-1.0], [1.0]), tolerance=0.1)
    scattered = CrossEntropy(iterations=3, elites=63).solve(problem, KEY)
    assert scattered.status.tolist() == [Status.LIMIT] * 2
    assert scattered.work.tolist() == [3, 3]
    agreed = CrossEntropy(iterations=20, elites=8).solve(problem, KEY)
    assert agreed.status.tolist() == [Status.CONVERGED] * 2


def constrained_problem(states=16):
    """A budget on the efforts with weights that differ from state to state."""
    weights = 0.3 + jax.random.uniform(jax.random.key(3), (states, 3))
    action_set = ActionSet.absolute_budget(np.asarray(weights), 0.6) & ActionSet.bounds([-1, -0.5, 0], [1, 0.25, 2.0])
    return random_problem(states)._replace(action_set=action_set), np.asarray(weights)


@pytest.mark.parametrize("solver", [SOLVERS[0], SOLVERS[2], SOLVERS[3]], ids=str)
def test_over_a_set_with_rows_every_action_is_admissible_and_none_beats_the_proved_maximum(solver):
    problem, weights = constrained_problem()
    start = jax.random.normal(jax.random.key(8), (16, 3))
    proved = make_solver("mip", backend="highs").solve(problem._replace(tolerance=1e-5), None)
    solution = jax.jit(lambda p: solver.solve(p, KEY))(problem._replace(warm_start=start))
    efforts = np.abs(weights * np.asarray(solution.actions)).sum(axis=1)
    assert (efforts <= 0.6 + 1e-5).all()
    np.testing.assert_allclose(folded_value(problem.network, solution.actions), solution.values, rtol=1e-4, atol=1e-4)
    assert (np.asarray(solution.values) <= proved.upper + 1e-4).all()
    gap = proved.values - np.asarray(solution.values)
    unconstrained = folded_value(problem.network, jnp.zeros((16, 3)))
    assert np.median(gap) < 0.25 * np.median(proved.values - np.asarray(unconstrained))
    inside = problem.action_set.project(np.asarray(start))
    assert (np.asarray(solution.values) >= np.asarray(folded_value(problem.network, inside)) - 1e-2).all()


@pytest.mark.parametrize("solver", [SOLVERS[0], SOLVERS[3]], ids=str)
def test_an_empty_set_has_its_own_status(solver):
    rows = ActionSet.linear(jnp.ones((1, 1)), low=np.array([[0.5], [2.0], [-0.5], [2.0]]))
    problem = Problem(
        tent([0.0, 0.0, 0.2, 0.0]), rows & ActionSet.bounds(-1, 1, 1), mask=jnp.array([True] * 3 + [False])
    )
    solution = solver.solve(problem, KEY)
    status = np.asarray(solution.status).tolist()
    assert status[1] == Status.INFEASIBLE
    assert status[3] == Status.SKIPPED
    assert not {status[0], status[2]} & {Status.INFEASIBLE, Status.SKIPPED}
    assert float(solution.values[1]) == float(solution.upper[1]) == -np.inf
    assert float(solution.actions[0, 0]) == pytest.approx(0.5, abs=1e-4)
    assert float(solution.actions[2, 0]) == pytest.approx(0.2, abs=0.02)
    assert solution.status.dtype == jnp.int8


@pytest.mark.parametrize("solver", [SOLVERS[0], SOLVERS[3]], ids=str)
def test_whole_numbers_are_left_to_the_solvers_that_can(solver):
    problem = random_problem(4)
    whole = problem._replace(action_set=problem.action_set & ActionSet.whole(3))
    with pytest.raises(CaqlError, match="mip does"):
        solver.solve(whole, KEY)
    assert solver.accepts_rows
    assert not solver.accepts_integers


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("gaa", {}, "did you mean 'ga'"),
        ("ga", {"iteration": 3}, "did you mean 'iterations'"),
        ("ga", {"iterations": 0}, "iterations = 0"),
        ("ga", {"step_size": 0.0}, "step_size"),
        ("ga", {"restarts": -1}, "restarts"),
        ("cem", {"elites": 64}, "elites = 64"),
        ("cem", {"spread": 0.0}, "spread"),
    ],
)
def test_bad_solvers_are_named(name, settings, words):
    with pytest.raises(CaqlError, match=words):
        make_solver(name, **settings)


def test_a_refused_step_is_no_rest():
    """The first step lands as far beyond the peak as it began before it: no change in value, but no rest either."""
    problem = Problem(tent([0.2]), make_box([-1.0], [1.0]), jnp.array([[0.2 - 0.149]]), tolerance=0.01)
    solution = GradientAscent(step_size=0.3).solve(problem, KEY)
    assert float(solution.values[0]) > -0.01
