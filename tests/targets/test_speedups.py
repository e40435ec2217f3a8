import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caql.actions import ActionSet, make_box
from caql.agents.agent import Spec
from caql.agents.caql import CAQL, CAQLConfig
from caql.bounds import dual_bound
from caql.errors import CaqlError
from caql.maxq.cross_entropy import CrossEntropy
from caql.maxq.gradient_ascent import GradientAscent
from caql.maxq.problem import Problem, Status
from caql.maxq.solvers import make_solver
from caql.networks import fold_state, folded_value, init_layers, q_value
from caql.replay import Batch
from caql.targets.clustering import (
    Clustering,
    ClusterSettings,
    distances,
    farthest_first_centroids,
    online_centroids,
)
from caql.targets.context import BOUNDED, EXTRAPOLATED, SOLVED, Answer, Context, target_bound, target_value
from caql.targets.dual import Dual, DualFilter
from caql.targets.label import Targets
from caql.targets.tolerance import ToleranceSettings, tolerance_at

N, D, B = 4, 2, 64
BOX = make_box([-1.0, -0.5], [0.5, 1.0])
KEY = jax.random.key(3)


def random_batch(seed=0, spread=1.0, rows=B):
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(rows, N)).astype(np.float32)
    return Batch(
        states=states,
        actions=rng.uniform(-0.5, 0.5, (rows, D)).astype(np.float32),
        rewards=rng.normal(size=rows).astype(np.float32),
        next_states=(spread * rng.normal(size=(rows, N))).astype(np.float32),
        continues=(rng.uniform(size=rows) > 0.1).astype(np.float32),
    )


def make_context(batch, targets=2, hidden=(32, 16), seed=0, scale=1.5):
    keys = jax.random.split(jax.random.key(seed), 1 + targets)
    layers = [tuple((scale * w, b) for w, b in init_layers(key, (N + D, *hidden, 1))) for key in keys]
    q = layers[0]
    return Context(
        batch=batch,
        q=q,
        network=fold_state(q, batch.next_states),
        targets=tuple(layers[1:]),
        action_set=BOX,
        guess=jnp.zeros((len(batch.rewards), D)),
        discount=0.9,
        q_values=q_value(q, batch.states, batch.actions),
        epoch=jnp.int32(0),
    )


def label(context, stages, tolerance=1e-6):
    """The labels and the answer, the question and its solution."""
    targets = Targets(stages, ToleranceSettings(tolerance))
    question = targets.ask(context)
    solution = GradientAscent(iterations=60, restarts=4).solve(question.problem, KEY)
    found = targets.answer(context, question, solution)
    return found[:2], question, solution


def clustering(radius, **settings):
    named = {f"cluster_{name}": value for name, value in settings.items()}
    return Clustering(ClusterSettings(cluster_radius=radius, **named))


def brute_force_value(context):
    """The largest target value over a fine grid of actions, per row."""
    sides = [np.linspace(float(lo), float(hi), 41, dtype=np.float32) for lo, hi in zip(BOX.low, BOX.high, strict=True)]
    grid = jnp.array(list(itertools.product(*sides)))
    values = jax.vmap(lambda a: target_value(context.targets, context.batch.next_states, jnp.tile(a, (B, 1))))(grid)
    return values.max(axis=0)


def test_a_filtered_row_has_no_hinge_and_keeps_the_sign_of_its_error():
    filtered = 0
    for seed in range(5):
        context = make_context(random_batch(seed), seed=seed)
        (labels, answer), _, _ = label(context, (DualFilter(),))
        inactive = np.asarray(answer.provenance == BOUNDED)
        filtered += inactive.sum()
        batch = context.batch
        exact = batch.rewards + 0.9 * batch.continues * brute_force_value(context)
        assert (np.asarray(exact - context.q_values)[inactive] <= 1e-5).all()
        assert (np.asarray(labels - context.q_values)[inactive] <= 1e-5).all()
        assert (np.asarray(labels >= exact - 1e-4)[inactive]).all()
    assert filtered > 30


def test_rows_that_the_filter_leaves_alone_are_labelled_as_without_it():
    context = make_context(random_batch())
    (plain, _), _, _ = label(context, ())
    (filtered, answer), _, _ = label(context, (DualFilter(),))
    left = np.asarray(answer.provenance == SOLVED)
    assert 0 < left.sum() < B
    np.testing.assert_array_equal(np.asarray(plain)[left], np.asarray(filtered)[left])


def test_dual_labels_are_the_bound_and_need_no_solve():
    context = make_context(random_batch(), targets=1)
    (labels, answer), question, solution = label(context, (Dual(),))
    assert not bool(question.problem.mask.any())
    assert int(solution.work.sum()) == 0
    assert bool((answer.provenance == BOUNDED).all())
    bound = dual_bound(fold_state(context.targets[0], context.batch.next_states), BOX)
    expected = context.batch.rewards + 0.9 * context.batch.continues * bound
    np.testing.assert_allclose(labels, expected, rtol=1e-6)
    assert bool((answer.values >= brute_force_value(context) - 1e-4).all())


def test_the_bound_of_two_targets_is_the_smaller_one():
    context = make_context(random_batch(), targets=2)

    def bounds_of(context):
        return [dual_bound(fold_state(layers, context.batch.next_states), BOX) for layers in context.targets]

    # The second target raised until each of the two has the smaller bound on half of the rows.
    first, (*layers, (weights, bias)) = context.targets
    raised = bias + jnp.median(jnp.subtract(*bounds_of(context)))
    context = context._replace(targets=(first, (*layers, (weights, raised))))
    (_, answer), _, _ = label(context, (Dual(),))
    bounds = bounds_of(context)
    assert bool((bounds[0] < bounds[1]).any())
    assert bool((bounds[1] < bounds[0]).any())
    np.testing.assert_array_equal(answer.values, np.minimum(*bounds))
    np.testing.assert_array_equal(answer.best, dual_bound(context.network, BOX))


def test_the_filter_by_hand():
    """Inactive where r + 0.9 * continues * bound <= Q(x, a), of the rows that are needed."""
    context = make_context(random_batch(), targets=1)
    bound = target_bound(context)
    rewards = context.q_values - 0.9 * bound + jnp.where(jnp.arange(B) % 2 == 0, 0.01, -0.01)
    going = context._replace(batch=context.batch._replace(rewards=rewards, continues=jnp.ones(B)))
    need = jnp.arange(B) % 3 != 0
    left, (_, inactive) = DualFilter().plan(going, need)
    np.testing.assert_array_equal(inactive, need & (jnp.arange(B) % 2 == 1))
    np.testing.assert_array_equal(left, need & (jnp.arange(B) % 2 == 0))
    # Of an ended row only the reward counts.
    ended = going._replace(batch=going.batch._replace(rewards=context.q_values - 0.01, continues=jnp.zeros(B)))
    assert bool(DualFilter().plan(ended, jnp.ones(B, bool))[1][1].all())
    above = going._replace(batch=going.batch._replace(rewards=context.q_values + 0.01, continues=jnp.zeros(B)))
    assert not bool(DualFilter().plan(above, jnp.ones(B, bool))[1][1].any())


@pytest.mark.parametrize("method", ["online", "farthest_first"])
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("radius", [0.3, 1.5, 4.0])
def test_every_row_is_near_its_centroid(method, p, radius):
    context = make_context(random_batch())
    need = jnp.arange(B) % 5 != 0
    centroid, (nearest, member) = clustering(radius, p=p, method=method).plan(context, need)
    states = context.batch.next_states
    assert not bool((centroid & ~need).any())
    assert bool(((centroid | member) == need).all())
    assert bool(centroid[nearest[member]].all())
    gaps = np.linalg.norm(states - states[np.asarray(nearest)], ord=p, axis=1)
    assert (gaps[np.asarray(member)] <= radius * (1 + 1e-5)).all()


def test_online_centroids_are_those_of_the_sequential_pass():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        distance = np.asarray(distances(jnp.asarray(rng.normal(size=(40, 2)), jnp.float32), 2.0))
        need = rng.uniform(size=40) < 0.8
        chosen: list[int] = []
        for row in range(40):
            if need[row] and all(distance[row, c] > 0.7 for c in chosen):
                chosen.append(row)
        found = online_centroids(jnp.asarray(distance <= 0.7), jnp.asarray(need))
        assert np.flatnonzero(found).tolist() == chosen


def test_nothing_to_cluster_is_no_special_case():
    distance = distances(jnp.zeros((5, 2)), 2.0)
    none = jnp.zeros(5, bool)
    assert not bool(online_centroids(distance <= 1, none).any())
    assert not bool(farthest_first_centroids(distance, jnp.float32(1.0), none).any())
    context = make_context(random_batch())
    (labels, answer), _, _ = label(context, (Dual(), clustering(1.0)))
    assert bool((answer.provenance == BOUNDED).all())
    assert bool(jnp.isfinite(labels).all())


def test_extrapolation_is_exact_for_networks_linear_in_the_state():
    context = make_context(random_batch(), hidden=(), targets=2)
    (plain, _), _, _ = label(context, ())
    (clustered, answer), _, _ = label(context, (clustering(2.0),))
    assert int((answer.provenance == EXTRAPOLATED).sum()) > 20
    np.testing.assert_allclose(clustered, plain, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(answer.best, label(context, ())[0][1].best, rtol=1e-4, atol=1e-4)


def test_extrapolation_error_is_of_second_order():
    errors = []
    for spread in (1e-1, 1e-2):
        context = make_context(random_batch(spread=spread), targets=1)
        (plain, _), _, _ = label(context, ())
        (clustered, answer), _, _ = label(context, (clustering(100.0),))
        assert int((answer.provenance == SOLVED).sum()) == 1
        errors.append(float(jnp.abs(clustered - plain).max()))
    assert errors[1] < 0.2 * errors[0]


def test_the_cap_never_extrapolates_above_the_dual_bound():
    context = make_context(random_batch(spread=3.0), targets=1)
    bound = dual_bound(fold_state(context.targets[0], context.batch.next_states), BOX)
    own_bound = dual_bound(context.network, BOX)
    (_, free), _, _ = label(context, (clustering(6.0),))
    (_, capped), _, _ = label(context, (clustering(6.0, cap_by_bound=True),))
    extrapolated = free.provenance == EXTRAPOLATED
    assert bool((free.values > bound + 1e-4)[extrapolated].any())
    assert not bool((capped.values > bound + 1e-4)[extrapolated].any())
    assert bool((free.best > own_bound + 1e-4)[extrapolated].any())
    assert not bool((capped.best > own_bound + 1e-4)[extrapolated].any())


def test_the_radius_can_decay_and_can_follow_the_states_scale():
    assert float(ClusterSettings(cluster_radius=0.5, cluster_decay=0.9).radius_at(jnp.int32(10))) == pytest.approx(
        0.5 * 0.9**10
    )
    context = make_context(random_batch(spread=50.0))
    absolute, _ = clustering(0.5).plan(context, jnp.ones(B, bool))
    relative, _ = clustering(0.5, relative=True).plan(context, jnp.ones(B, bool))
    assert int(absolute.sum()) == B
    assert int(relative.sum()) < B
    length = float(np.mean(np.linalg.norm(context.batch.next_states, axis=1)))
    by_hand, _ = clustering(0.5 * length).plan(context, jnp.ones(B, bool))
    np.testing.assert_array_equal(relative, by_hand)


def test_dynamic_tolerance_by_hand():
    guess = jnp.full((B, D), 0.1)
    context = make_context(random_batch(), targets=2)._replace(epoch=jnp.int32(100), guess=guess)
    batch = context.batch
    value = q_value(context.targets[0], batch.next_states, guess)
    error = np.abs(batch.rewards + 0.9 * batch.continues * np.asarray(value) - np.asarray(context.q_values)).mean()
    found = float(tolerance_at(ToleranceSettings(1e-6, dynamic_tolerance=2.0, tolerance_decay=0.99), context))
    assert found == pytest.approx(error * 2.0 * 0.99**100, rel=1e-4)
    assert float(tolerance_at(ToleranceSettings(1.5, dynamic_tolerance=1e-9), context)) == pytest.approx(1.5)
    assert float(tolerance_at(ToleranceSettings(1e-6, dynamic_tolerance=1e9), context)) == pytest.approx(100.0)
    assert float(tolerance_at(ToleranceSettings(0.25), context)) == 0.25


def test_no_stages_asks_about_the_whole_batch():
    context = make_context(random_batch())
    question = Targets().ask(context)
    assert question.problem.mask is None
    assert question.notes == ()
    zero, _ = clustering(0.0).plan(context, jnp.ones(B, bool))
    assert bool(zero.all())


def test_stages_are_filled_in_the_opposite_order_of_planning():
    calls = []

    class Recorder(NamedTuple):
        name: str

        def plan(self, context, need):
            calls.append(("plan", self.name))
            return need, self.name

        def fill(self, context, note, answer):
            calls.append(("fill", note))
            return answer

    label(make_context(random_batch()), (Recorder("outer"), Recorder("inner")))
    assert calls == [("plan", "outer"), ("plan", "inner"), ("fill", "inner"), ("fill", "outer")]


def test_the_solver_starts_from_the_guess():
    guess = BOX.sample(KEY, B)
    question = Targets().ask(make_context(random_batch())._replace(guess=guess))
    np.testing.assert_array_equal(question.problem.warm_start, guess)


def test_work_is_the_mean_over_the_rows_solved():
    """A solver may report work for rows that nobody asked for; they do not count."""
    context = make_context(random_batch())
    targets = Targets((DualFilter(),))
    question = targets.ask(context)
    solution = GradientAscent().solve(question.problem, KEY)
    needed = question.problem.mask
    assert 0 < int(needed.sum()) < B
    found = targets.answer(context, question, solution._replace(work=jnp.where(needed, 7, 1000)))
    assert float(found.work) == pytest.approx(7.0)


def test_a_member_has_its_centroids_maximiser():
    context = make_context(random_batch())
    (_, answer), question, solution = label(context, (clustering(1.5),))
    (nearest, member), *_ = question.notes
    assert bool(member.any())
    np.testing.assert_array_equal(answer.actions[member], solution.actions[nearest[member]])
    np.testing.assert_array_equal(answer.actions[~member], solution.actions[~member])


SUBSETS = [
    {},
    {"dual_filter": True},
    {"cluster_radius": 1.5},
    {"dual_filter": True, "cluster_radius": 1.5, "dynamic_tolerance": 1.0, "action_labels": "dual"},
    {"dual_only": True, "clipped_double_q": True},
    {"dual_filter": True, "cluster_radius": 1.5, "critics": 2},
]


@pytest.mark.parametrize("loss", ["l2", "hinge"])
@pytest.mark.parametrize(
    "solver",
    [
        GradientAscent(iterations=3),
        CrossEntropy(iterations=2, samples=8, elites=2),
        make_solver("exact"),
        make_solver("mip", backend="highs"),
    ],
    ids=lambda solver: solver.name,
)
def test_every_subset_of_stages_takes_a_step_and_accounts_for_every_row(solver, loss):
    batch = random_batch(rows=16)
    batches = batch.pick(np.array([range(len(batch.rewards))] * 2))
    for chosen in SUBSETS:
        agent = CAQL(CAQLConfig(solver=solver, hidden=(6,), action_hidden=(6,), loss=loss, **chosen), Spec(N, BOX))
        state = agent.init(KEY)
        before = np.array(state.q.vector)
        state, statistics = agent.update(state, batches, KEY)
        assert not np.array_equal(before, np.asarray(state.q.vector)), chosen
        assert int(state.step) == 2
        assert all(np.isfinite(float(value)) for value in statistics.values()), (chosen, statistics)
        filtered, clustered = float(statistics["filtered"]), float(statistics["clustered"])
        # Shares of a batch of 16, averaged over two of them: whole numbers of rows.
        assert (filtered * 32) == pytest.approx(round(filtered * 32), abs=1e-4)
        assert 0 <= filtered + clustered <= 1
        assert (filtered > 0) == bool(chosen.get("dual_filter") or chosen.get("dual_only"))
        assert (clustered > 0) == ("cluster_radius" in chosen)
        if "dual_only" in chosen:
            assert float(statistics["work"]) == 0


def test_a_learned_hinge_penalty_rises_while_rows_are_violated():
    batches = random_batch(rows=16).pick(None)
    config = CAQLConfig(loss="hinge", hinge_penalty=0.5, hinge_penalty_learning_rate=0.1, hidden=(6,))
    agent = CAQL(config, Spec(N, BOX))
    state, statistics = agent.update(agent.init(KEY), batches, KEY)
    assert float(statistics["hinge_penalty"]) == 0.5
    assert float(state.hinge_penalty) > 0.5


def test_schedules_count_epochs_not_training_steps():
    batches = random_batch(rows=16).pick(np.array([range(16)] * 4))
    config = CAQLConfig(hidden=(6,), cluster_radius=0.5, cluster_decay=0.9)
    agent = CAQL(config, Spec(N, BOX, epoch_steps=4))
    state, first = agent.update(agent.init(KEY), batches, KEY)
    _, second = agent.update(state, batches, KEY)
    assert float(first["cluster_radius"]) == pytest.approx(0.5)
    assert float(second["cluster_radius"]) == pytest.approx(0.45)


def test_an_audit_measures_and_changes_no_weights():
    batches = random_batch(rows=16).pick(np.array([range(16)] * 4))
    solver = GradientAscent(iterations=1, step_size=0.01)
    states = []
    for audit in (0, 8):
        agent = CAQL(CAQLConfig(solver=solver, hidden=(6,), action_hidden=(6,), audit=audit), Spec(N, BOX))
        state, statistics = agent.update(agent.init(KEY), batches, KEY)
        assert "audit_solver_shortfall" not in statistics
        state, statistics = agent.update(state, batches, KEY)
        states.append(np.asarray(state.q.vector))
        assert ("audit_solver_shortfall" in statistics) == bool(audit)
    np.testing.assert_array_equal(*states)
    # One timid step climbs a little from the action function's guess, and never past the proven maximum.
    assert statistics["audit_action_shortfall"] > statistics["audit_solver_shortfall"] > 0
    assert statistics["audit_solver_worst"] >= statistics["audit_solver_shortfall"]


def test_a_question_is_a_solver_s_problem():
    question = Targets((DualFilter(),)).ask(make_context(random_batch()))
    assert isinstance(question.problem, Problem)
    assert question.problem.mask.dtype == bool


def test_the_two_halves_around_a_host_solver_are_the_whole():
    """`labels` inside one jit and `ask`, `answer` apart give the same labels, for every speed-up."""
    context = make_context(random_batch())
    solver = GradientAscent(iterations=60, restarts=4)
    for stages in ((), (DualFilter(),), (DualFilter(), clustering(1.5)), (Dual(),)):
        targets = Targets(stages, ToleranceSettings(1e-6))
        whole = targets.labels(context, lambda problem: solver.solve(problem, KEY))
        halves = label(context, stages)[0]
        np.testing.assert_array_equal(whole.labels, halves[0])
        np.testing.assert_array_equal(whole.answer.provenance, halves[1].provenance)


@pytest.mark.parametrize("method", ["online", "farthest_first"])
def test_rows_that_are_solved_keep_their_values_beside_clusters(method):
    context = make_context(random_batch())
    (plain, exact), _, _ = label(context, ())
    (clustered, answer), question, _ = label(context, (clustering(1.5, method=method),))
    solved = np.asarray(answer.provenance == SOLVED)
    np.testing.assert_array_equal(question.problem.mask, solved)
    assert 0 < solved.sum() < B
    np.testing.assert_array_equal(np.asarray(clustered)[solved], np.asarray(plain)[solved])
    np.testing.assert_array_equal(np.asarray(answer.best)[solved], np.asarray(exact.best)[solved])


def test_only_members_of_a_cluster_get_another_answer():
    context = make_context(random_batch())
    stage = clustering(1.5)
    centroid, note = stage.plan(context, jnp.arange(B) % 2 == 0)
    member = np.asarray(note[1])
    assert 0 < member.sum() < B / 2
    before = Answer(
        values=100 + jnp.arange(B, dtype=jnp.float32),
        best=200 + jnp.arange(B, dtype=jnp.float32),
        actions=jnp.tile(jnp.arange(B, dtype=jnp.float32)[:, None] / B, (1, D)),
        provenance=jnp.where(centroid, SOLVED, BOUNDED).astype(jnp.int8),
    )
    for old, new in zip(before, stage.fill(context, note, before), strict=True):
        np.testing.assert_array_equal(np.asarray(new)[~member], np.asarray(old)[~member])
        assert (np.asarray(new)[member] != np.asarray(old)[member]).all()


def test_the_guess_stands_in_where_a_set_looks_empty():
    rows = ActionSet.linear([[1.0, 1.0]], high=0.5) & ActionSet.bounds(-1, 1, 2)
    guess = jnp.full((B, D), 0.1)
    context = make_context(random_batch(), targets=1)._replace(action_set=rows.map(jnp.float32), guess=guess)
    targets = Targets()
    question = targets.ask(context)
    solution = GradientAscent().solve(question.problem, KEY)
    empty = jnp.arange(B) % 2 == 0
    status = jnp.where(empty, Status.INFEASIBLE, Status.FAILED).astype(jnp.int8)
    _, found, *_ = targets.answer(context, question, solution._replace(status=status))
    np.testing.assert_allclose(found.actions, jnp.where(empty[:, None], guess, solution.actions))
    own = jnp.where(empty, folded_value(context.network, guess), solution.values)
    np.testing.assert_allclose(found.best, own, rtol=1e-6)
    np.testing.assert_allclose(
        found.values, target_value(context.targets, context.batch.next_states, found.actions), rtol=1e-6
    )


def test_the_share_of_dropped_problems_is_of_those_that_were_asked():
    context = make_context(random_batch())
    targets = Targets((DualFilter(),))
    question = targets.ask(context)
    solution = GradientAscent().solve(question.problem, KEY)
    assert float(targets.answer(context, question, solution).dropped) == 0.0
    asked = np.flatnonzero(np.asarray(solution.status) != Status.SKIPPED)
    assert 4 < len(asked) < B
    lost = jnp.asarray(solution.status).at[asked[:2]].set(Status.FAILED).at[asked[2]].set(Status.INFEASIBLE)
    found = targets.answer(context, question, solution._replace(status=lost.at[asked[3]].set(Status.LIMIT)))
    assert float(found.dropped) == pytest.approx(3 / len(asked))


def test_nothing_solved_is_no_work():
    context = make_context(random_batch())
    targets = Targets((Dual(),))
    question = targets.ask(context)
    solution = GradientAscent().solve(question.problem, KEY)
    assert float(targets.answer(context, question, solution).work) == 0.0


def test_the_question_has_the_tolerances_of_the_settings():
    context = make_context(random_batch())
    settings = ToleranceSettings(1e-6, relative_tolerance=0.25, dynamic_tolerance=2.0)
    problem = Targets((), settings).ask(context).problem
    assert float(problem.relative_tolerance) == 0.25
    assert float(problem.tolerance) == float(tolerance_at(settings, context)) > 1e-3


@pytest.mark.parametrize(
    ("settings", "value", "words"),
    [
        (ClusterSettings, {"cluster_radius": -0.1}, "cluster_radius = -0.1 must be at least 0"),
        (ClusterSettings, {"cluster_decay": 1.1}, "cluster_decay = 1.1 must be more than 0 and at most 1"),
        (ClusterSettings, {"cluster_p": 0.5}, "cluster_p = 0.5 must be at least 1"),
        (ToleranceSettings, {"tolerance": -1e-9}, "tolerance = -1e-09 must be at least 0"),
        (ToleranceSettings, {"tolerance": 200.0}, "tolerance_maximum = 100.0 must be at least tolerance = 200.0"),
        (ToleranceSettings, {"dynamic_tolerance": 0.0}, "dynamic_tolerance = 0.0 must be positive"),
    ],
)
def test_bad_settings_are_named(settings, value, words):
    with pytest.raises(CaqlError, match=words):
        settings(**value)


@pytest.mark.parametrize(("p", "distance"), [(1.0, 7.0), (2.0, 5.0), (float("inf"), 4.0)])
def test_distances_are_those_of_the_metric(p, distance):
    states = jnp.array([[0.0, 0.0], [3.0, -4.0]])
    np.testing.assert_allclose(distances(states, p), [[0.0, distance], [distance, 0.0]], rtol=1e-6)
