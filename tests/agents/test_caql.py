"""CAQL's own arithmetic: labels by hand, targets, action functions, presets."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caql.actions import make_box
from caql.agents import PRESETS, agent_config, make_agent, preset_loop
from caql.agents.action_functions import Stochastic
from caql.agents.agent import Spec
from caql.agents.caql import CAQL, CAQLConfig
from caql.agents.policies import Exploration
from caql.bounds import dual_bound
from caql.config import RunConfig, from_json, to_json
from caql.errors import CaqlError
from caql.experiments.specs import SPECS, choose_columns, configuration
from caql.exports import policy_graph
from caql.maxq.exact.solver import Exact
from caql.maxq.gradient_ascent import GradientAscent
from caql.maxq.problem import Status
from caql.maxq.solvers import make_solver, without_clock
from caql.networks import folded_value, q_value
from caql.replay import Batch
from caql.targets.clustering import Clustering
from caql.targets.context import BOUNDED, EXTRAPOLATED, SOLVED, Answer
from caql.targets.dual import Dual, DualFilter

SPEC = Spec(2, make_box([-1.0], [1.0]))
KEY = jax.random.key(0)
STEPS, ROWS = 3, 16


def at_rest(rows):
    """Transitions whose next states are all zero."""
    return batches().pick(0)._replace(next_states=jnp.zeros((rows, 2)))


def batches(seed=0, continues=1.0):
    rng = np.random.default_rng(seed)

    def draw(*shape):
        return rng.normal(size=shape).astype(np.float32)

    return Batch(
        draw(STEPS, ROWS, 2),
        np.clip(draw(STEPS, ROWS, 1), -1, 1),
        draw(STEPS, ROWS),
        draw(STEPS, ROWS, 2),
        np.full((STEPS, ROWS), continues, np.float32),
    )


def linear_q(agent, state, weight):
    """Q(x, a) = weight * a, so that the maximiser is the edge and max-Q is |weight|."""
    vector = np.zeros_like(np.asarray(state.q.vector))
    layers = agent.q_network.layers(vector)
    layers[0][0][2, 0] = weight
    return jnp.asarray(vector)


def test_labels_by_hand_for_a_linear_q():
    agent = CAQL(CAQLConfig(hidden=(), solver=GradientAscent(iterations=50)), SPEC)
    state = agent.init(KEY)
    state = state._replace(q=state.q._replace(vector=linear_q(agent, state, 0.5)), target=linear_q(agent, state, 2.0))
    batch = batches().pick(0)._replace(continues=np.arange(ROWS, dtype=np.float32) % 2)
    question = agent.ask(state, batch)
    solution = agent.solve(question.problem, KEY)
    np.testing.assert_allclose(solution.actions[:, 0], 1.0)
    labels = agent.targets.answer(agent._context(state, batch), question, solution).labels
    # The maximiser of 0.5 a is 1; the target gives it the value 2.
    np.testing.assert_allclose(labels, batch.rewards + 0.99 * batch.continues * 2.0, rtol=1e-6)


@pytest.mark.parametrize(("maximised", "action", "value"), [("q", -1.0, -2.0), ("target", 1.0, 2.0)])
def test_the_maximiser_is_of_q_or_of_the_target(maximised, action, value):
    agent = CAQL(CAQLConfig(hidden=(), maximised=maximised, solver=GradientAscent(iterations=50)), SPEC)
    state = agent.init(KEY)
    state = state._replace(q=state.q._replace(vector=linear_q(agent, state, -0.5)), target=linear_q(agent, state, 2.0))
    batch = batches().pick(0)
    question = agent.ask(state, batch)
    labels = agent.targets.answer(agent._context(state, batch), question, agent.solve(question.problem, KEY))
    np.testing.assert_allclose(labels.answer.actions[:, 0], action)
    np.testing.assert_allclose(labels.labels, batch.rewards + 0.99 * value, rtol=1e-6)


@pytest.mark.parametrize("solver", ["ga", "cem", "exact"])
def test_a_trust_region_keeps_the_maximum_near_the_action_function(solver):
    spec = Spec(2, make_box([-3.0], [1.0]))  # half a range of 2
    agent = CAQL(CAQLConfig(hidden=(), trust_region=0.25, solver=make_solver(solver), tolerance=1e-4), spec)
    state = agent.init(KEY)
    state = state._replace(q=state.q._replace(vector=linear_q(agent, state, 0.5)))
    batch = batches().pick(0)
    near = agent.action_function.guess(state.action_function.vector, batch.next_states)
    question = agent.ask(state, batch)
    solution = agent.solve(question.problem, KEY)
    np.testing.assert_allclose(solution.actions, np.minimum(near + 0.5, 1.0), atol=1e-3)
    assert np.ptp(near) > 0.1


def test_a_trust_region_needs_something_to_lie_around():
    with pytest.raises(CaqlError, match=r"trust_region = 0\.1 must be positive and with an action function"):
        CAQLConfig(trust_region=0.1, action_function="none")
    with pytest.raises(CaqlError, match=r"trust_region = 0\.1 lies around"):
        CAQL(
            CAQLConfig(trust_region=0.1, solver=Exact()),
            Spec(2, dataclasses.replace(make_box([0.0], [3.0]), integer=(0,))),
        )


@pytest.mark.parametrize(("loss", "away"), [("l2", 0.75**2), ("l1", 0.75)])
def test_the_action_functions_loss_by_hand(loss, away):
    agent = CAQL(CAQLConfig(hidden=(), action_loss=loss), SPEC)
    state = agent.init(KEY)
    state = state._replace(q=state.q._replace(vector=linear_q(agent, state, 1.0)))
    batch = batches().pick(0)
    context = agent._context(state, batch)
    best = context.guess[:, 0] + 0.75  # Q(x, a) = a
    answer = Answer(best, best, context.guess, jnp.full(ROWS, SOLVED))
    losses = agent.action_function.loss(state.action_function.vector, batch, context.network, answer)
    np.testing.assert_allclose(losses, away, rtol=1e-5)


@pytest.mark.parametrize("kind", ["deterministic", "stochastic"])
@pytest.mark.parametrize(("penalty", "ends"), [(0.0, -10.0), (1.0, -3.0)])
def test_the_penalty_brings_an_action_function_back_from_tanhs_flat_end(kind, penalty, ends):
    """From tanh(-10), whose slope is 0 in float32, although the best action is at the other edge."""
    config = CAQLConfig(
        hidden=(),
        action_hidden=(),
        action_function=kind,
        action_learning_rate=0.05,
        q_learning_rate=1e-6,
        saturation_penalty=penalty,
    )
    agent = CAQL(config, SPEC)
    state = agent.init(KEY)
    dead = np.zeros_like(np.asarray(state.action_function.vector))
    agent.action_function.network.layers(dead)[-1][1][0] = -10.0
    state = state._replace(
        q=state.q._replace(vector=linear_q(agent, state, 1.0)),
        action_function=state.action_function._replace(vector=jnp.asarray(dead)),
    )
    seen = batches()._replace(next_states=np.zeros((STEPS, ROWS, 2), np.float32))
    for _ in range(200):
        state, statistics = agent.update(state, seen, KEY)
    layers = agent.action_function.network.layers(np.asarray(state.action_function.vector))
    if penalty:
        assert layers[-1][1][0] > ends
    else:
        assert layers[-1][1][0] == pytest.approx(ends)
    if kind == "deterministic" and not penalty:
        # Q(x, a) = a: the action is -1 and the best one 1; the penalty is no part of what is reported.
        assert float(statistics["action_loss"]) == pytest.approx(4.0, rel=0.01)


def test_the_penalty_on_saturation_by_hand():
    """Only what lies beyond +-3 counts, squared, and the reported loss is without it."""
    agent = CAQL(
        CAQLConfig(hidden=(), action_hidden=(), saturation_penalty=0.5), Spec(2, make_box([-1.0] * 2, [1.0] * 2))
    )
    vector = np.zeros_like(np.asarray(agent.action_function.init(KEY)))
    agent.action_function.network.layers(vector)[-1][1][:] = [-5.0, 2.0]
    np.testing.assert_allclose(agent.action_function.saturation(jnp.asarray(vector), np.zeros((3, 2))), [4.0] * 3)
    losses = []
    for penalty in (0.0, 0.5):
        agent = CAQL(CAQLConfig(hidden=(), action_hidden=(), saturation_penalty=penalty), SPEC)
        state = agent.init(KEY)
        outputs = np.asarray(state.action_function.vector).copy()
        agent.action_function.network.layers(outputs)[-1][1][:] = 5.0
        state = state._replace(action_function=state.action_function._replace(vector=jnp.asarray(outputs)))
        losses.append(float(agent.update(state, batches().pick(slice(1)), KEY)[1]["action_loss"]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_penalty_on_saturation_needs_a_tanh():
    assert CAQLConfig(saturation_penalty=1.0, squash="radial").saturation_penalty == 1.0
    with pytest.raises(
        CaqlError, match=r"saturation_penalty = 1\.0 holds tanh's outputs back, and squash = 'clip' has"
    ):
        CAQLConfig(saturation_penalty=1.0, squash="clip")
    with pytest.raises(CaqlError, match=r"saturation_penalty = -1\.0 must be a finite number, at least 0"):
        CAQLConfig(saturation_penalty=-1.0)


def test_the_huber_loss_is_the_one_that_is_descended():
    agent = CAQL(CAQLConfig(hidden=(), loss="huber", huber_width=0.5), SPEC)
    state = agent.init(KEY)
    state = state._replace(q=state.q._replace(vector=linear_q(agent, state, 0.0)))
    batch = batches(continues=0.0).pick(slice(1))._replace(rewards=np.full((1, ROWS), 3.0, np.float32))
    _, statistics = agent.update(state, batch, KEY)
    assert float(statistics["loss"]) == pytest.approx(0.5 * (2 * 3.0 - 0.5))


def test_averaged_weights_act_and_the_latest_explore():
    agent = CAQL(CAQLConfig(average_rate=0.25, action_learning_rate=0.1), SPEC)
    state = agent.init(KEY)
    expected = np.asarray(state.averaged)
    state = state._replace(step=jnp.int32(20))  # where an average over a tenth of the steps has the share 1 / 3
    for number in range(STEPS):
        share = max(0.25, 1 / (1 + 0.1 * (20 + number)))
        state, _ = agent.update(state, batches().pick(slice(number, number + 1)), KEY)
        expected = expected + share * (np.asarray(state.action_function.vector) - expected)
    np.testing.assert_allclose(state.averaged, expected, rtol=1e-5)
    policy = agent.policy(state, 0)
    states = batches().states[0]
    for vector, said in (
        (state.averaged, policy.act(states)),
        (state.action_function.vector, policy.explore(states, np.zeros((ROWS, 1), np.float32))),
    ):
        np.testing.assert_allclose(said, agent.action_function.guess(vector, states), rtol=1e-5, atol=1e-6)
    assert np.abs(policy.act(states) - agent.action_function.guess(state.action_function.vector, states)).max() > 0.01
    exported = policy_graph(policy).evaluate(states[:, :0], states)
    np.testing.assert_allclose(exported, policy.act(states), rtol=1e-4, atol=1e-5)


def test_clipped_double_q_takes_the_smaller_target():
    agent = CAQL(CAQLConfig(hidden=(), clipped_double_q=True), SPEC)
    state = agent.init(KEY)
    state = state._replace(
        q=state.q._replace(vector=linear_q(agent, state, 0.5)),
        target=linear_q(agent, state, 2.0),
        second_target=linear_q(agent, state, 1.5),
    )
    batch = batches().pick(0)
    question = agent.ask(state, batch)
    solution = agent.solve(question.problem, KEY)
    labels = agent.targets.answer(agent._context(state, batch), question, solution).labels
    np.testing.assert_allclose(labels, batch.rewards + 0.99 * 1.5, rtol=1e-5)


def two_lines(agent, *weights):
    """Critics Q_i(x, a) = weight_i * a + bias_i."""
    vectors = []
    for weight, bias in weights:
        vector = np.zeros(agent.q_network.network.size, np.float32)
        layers = agent.q_network.network.layers(vector)
        layers[0][0][2, 0], layers[0][1][0] = weight, bias
        vectors.append(vector)
    return jnp.concatenate(vectors)


@pytest.mark.parametrize(
    ("combine", "best", "label"),
    # min(a + 1, 1 - 2 a) is largest at 0; its target min(3 a - 1, a) is worth -1 there.  The mean 1 - a / 2 is
    # largest at -1, where the target's mean 2 a - 0.5 is worth -2.5.
    [("min", 0.0, -1.0), ("mean", -1.0, -2.5)],
)
def test_labels_by_hand_for_two_critics(combine, best, label):
    agent = CAQL(CAQLConfig(hidden=(), critics=2, combine=combine, solver=make_solver("exact")), SPEC)
    state = agent.init(KEY)
    state = state._replace(
        q=state.q._replace(vector=two_lines(agent, (1.0, 1.0), (-2.0, 1.0))),
        target=two_lines(agent, (3.0, -1.0), (1.0, 0.0)),
    )
    batch = batches().pick(0)
    question = agent.ask(state, batch)
    solution = agent.solve(question.problem, KEY)
    np.testing.assert_allclose(solution.actions[:, 0], best, atol=1e-5)
    labels = agent.targets.answer(agent._context(state, batch), question, solution).labels
    np.testing.assert_allclose(labels, batch.rewards + 0.99 * label, rtol=1e-4, atol=1e-4)


def test_every_critic_learns_the_label_and_not_the_combination():
    """With rewards of 5 and nothing after them both critics go up, also where the other is the smaller."""
    agent = CAQL(CAQLConfig(hidden=(), critics=2), SPEC)
    state = agent.init(KEY)
    start = two_lines(agent, (0.0, 1.0), (0.0, -1.0))
    state = state._replace(q=state.q._replace(vector=start))
    ended = batches(continues=0.0)._replace(rewards=np.full((STEPS, ROWS), 5.0, np.float32))
    after, statistics = agent.update(state, ended, KEY)
    lower, upper = (agent.q_network.network.layers(row)[0][1][0] for row in after.q.vector.reshape(2, -1))
    assert lower > 1.0 + 2e-3
    assert upper > -1.0 + 2e-3
    # The records speak of the combination: mean Q is the smaller critic's, and the loss is the sum of both.
    assert float(statistics["q_mean"]) == pytest.approx(-1.0, abs=0.05)
    assert float(statistics["loss"]) == pytest.approx(16 + 36, rel=0.05)


def test_critics_start_apart_and_one_is_what_it_always_was():
    alone, two = (CAQL(CAQLConfig(critics=count), SPEC) for count in (1, 2))
    first, second = np.asarray(two.init(KEY).q.vector).reshape(2, -1)
    assert not np.isclose(first, second).any()
    np.testing.assert_array_equal(alone.init(KEY).q.vector, alone.q_network.network.init(jax.random.split(KEY)[0]))


def test_the_filter_asks_the_smallest_critic():
    """A row is inactive only if no critic lies below its label: the mean of the two lies above, and yet one does."""
    agent = CAQL(CAQLConfig(hidden=(), critics=2, combine="mean", dual_filter=True, loss="hinge"), SPEC)
    state = agent.init(KEY)
    zero = two_lines(agent, (0.0, 0.0), (0.0, 0.0))
    batch = batches(continues=0.0).pick(0)._replace(rewards=np.zeros(ROWS, np.float32))
    for low, inactive in ((-1.0, False), (1.0, True)):
        apart = state._replace(q=state.q._replace(vector=two_lines(agent, (0.0, 9.0), (0.0, low))), target=zero)
        asked = np.asarray(agent.ask(apart, batch).problem.mask)
        assert (asked == (not inactive)).all()


class HostAscent:
    """Gradient ascent that pretends to be a solver on the host."""

    name, traceable, ascent = "host", False, GradientAscent()

    def solve(self, problem, key):
        return self.ascent.solve(problem, key)


@pytest.mark.parametrize("settings", [{}, {"dual_filter": True, "cluster_radius": 0.5, "dynamic_tolerance": 1.0}])
def test_a_solver_on_the_host_teaches_what_a_traced_one_does(settings):
    """Ascent without restarts draws nothing, so the two ways through an epoch must meet."""
    ends = []
    for solver in (GradientAscent(), HostAscent()):
        agent = CAQL(CAQLConfig(hidden=(8,), solver=solver, target_rate=0.1, **settings), SPEC)
        state, statistics = agent.update(agent.init(KEY), batches(), KEY)
        ends.append((state, statistics))
    (traced, seen), (hosted, timed) = ends
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), traced, hosted)
    assert all(float(timed[name]) == pytest.approx(float(seen[name]), rel=1e-3, abs=1e-5) for name in seen)
    assert set(timed) - set(seen) == {"solve_seconds", "solve_ms", "solve_ms_std"}


def test_targets_follow_softly_and_the_second_is_copied():
    agent = CAQL(CAQLConfig(hidden=(4,), clipped_double_q=True, second_target_every=2, target_rate=0.25), SPEC)
    start = agent.init(KEY)
    first = np.asarray(start.q.vector)
    one, _ = agent.update(start, batches().pick(slice(1)), KEY)
    q = np.asarray(one.q.vector)
    np.testing.assert_allclose(np.asarray(one.target), first + 0.25 * (q - first), rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(np.asarray(one.second_target), first)
    two, _ = agent.update(one, batches().pick(slice(1, 2)), KEY)
    np.testing.assert_array_equal(np.asarray(two.second_target), np.asarray(two.q.vector))


def test_a_bandit_is_learned_and_its_maximiser_distilled():
    """Every episode one step long, reward -(a - 0.4)^2: Q must become it, and the action function 0.4."""
    agent = CAQL(CAQLConfig(hidden=(32, 16), q_learning_rate=0.005, action_learning_rate=0.005), SPEC)
    state = agent.init(KEY)
    rng = np.random.default_rng(0)
    for _ in range(30):
        actions = rng.uniform(-1, 1, (20, 64, 1)).astype(np.float32)
        states = np.zeros((20, 64, 2), np.float32)
        rewards = -((actions[..., 0] - 0.4) ** 2)
        batch = Batch(states, actions, rewards, states, np.zeros((20, 64), np.float32))
        state, statistics = agent.update(state, batch, KEY)
    assert float(statistics["loss"]) < 1e-3
    action = agent.policy(state, 0).act(np.zeros(2, np.float32))
    assert float(action[0]) == pytest.approx(0.4, abs=0.08)


def test_a_clipped_action_function_can_die_and_the_others_cannot():
    """Outside the range the clip has no gradient; tanh and straight-through have one."""
    moved = {}
    for how in ("tanh", "straight_through", "clip"):
        agent = CAQL(CAQLConfig(hidden=(), action_hidden=(), squash=how, solver=GradientAscent(iterations=50)), SPEC)
        state = agent.init(KEY)
        # The action function says 1.5 (tanh: 0.9) whatever the state, where Q = -a wants -1.
        function = jnp.zeros_like(state.action_function.vector).at[-1].set(1.5)
        state = state._replace(
            q=state.q._replace(vector=linear_q(agent, state, -1.0)),
            action_function=state.action_function._replace(vector=function),
        )
        after, _ = agent.update(state, batches().pick(slice(1)), KEY)
        moved[how] = float(after.action_function.vector[-1]) - 1.5
    assert moved["clip"] == 0
    assert moved["tanh"] < 0
    assert moved["straight_through"] < 0


def test_host_policy_and_traced_action_function_agree():
    for how in ("tanh", "straight_through", "clip"):
        agent = CAQL(CAQLConfig(squash=how, action_hidden=(8, 8)), SPEC)
        state = agent.init(KEY)
        states = 5 * np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
        traced = agent.action_function.guess(state.action_function.vector, states)
        np.testing.assert_allclose(agent.policy(state, 0).act(states), traced, rtol=1e-5, atol=1e-6)


def test_the_recommended_preset_is_the_papers_with_two_critics_larger_networks_and_a_buffer_of_the_whole_run():
    paper, recommended = agent_config("paper"), agent_config("recommended")
    assert paper == CAQLConfig(exploration=Exploration(decay=0.9999))
    larger = {"hidden": (64, 64), "action_hidden": (64, 64)}
    assert recommended == dataclasses.replace(paper, critics=2, rate_decay=0.9998, **larger)
    task = ("Hopper", 1.0)
    for name, method in (("paper", "caql-ga"), ("recommended", "caql-recommended")):
        column = choose_columns(SPECS["table1"], [method])[0]
        run = configuration(SPECS["table1"], task, column)
        plain = dataclasses.replace(run, replay_size=100_000, replay_keeps="newest")
        assert run.id == dataclasses.replace(plain, agent=agent_config(name), **preset_loop(name)).id
    assert preset_loop("recommended") == {"replay_size": 1_000_000, "replay_keeps": "sample"}
    assert preset_loop("paper") == preset_loop("td3") == {}


@pytest.mark.parametrize("name", PRESETS)
def test_presets_learn_act_and_explore_within_the_range(name):
    agent = make_agent(agent_config(name), SPEC)
    state, statistics = agent.update(agent.init(KEY), batches(), KEY)
    assert all(np.isfinite(float(value)) for value in statistics.values())
    policy = agent.policy(state, 0)
    noise = np.random.default_rng(1).normal(size=(30, 1)).astype(np.float32)
    states = np.random.default_rng(2).normal(size=(30, 2)).astype(np.float32)
    explored = np.stack([policy.explore(x, e) for x, e in zip(states, noise, strict=True)])
    assert np.abs(explored).max() <= 1
    assert explored.std() > 0.05
    greedy = policy.act(states)
    np.testing.assert_array_equal(greedy, policy.act(states))


def test_qt_opt_acts_with_its_solver():
    agent = make_agent(agent_config("qt-opt"), SPEC)
    state = agent.init(KEY)
    states = np.random.default_rng(2).normal(size=(30, 2)).astype(np.float32)
    acted = agent.policy(state, 0).act(states)
    layers = agent.q_network.layers(state.q.vector)
    grid = np.linspace(-1, 1, 201, dtype=np.float32)
    best = np.max([q_value(layers, states, np.full((30, 1), a, np.float32)) for a in grid], axis=0)
    assert float(np.max(best - q_value(layers, states, acted))) < 0.02


def test_actor_expert_fits_the_maximisers():
    agent = make_agent(agent_config("actor-expert"), SPEC)
    state = agent.init(KEY)
    before = agent.policy(state, 0).act(np.zeros((1, 2), np.float32))
    answer = Answer(jnp.zeros(8), jnp.zeros(8), jnp.full((8, 1), 0.7), jnp.zeros(8, jnp.int8))
    vector = state.action_function.vector
    states = jnp.zeros((8, 2))
    batch = batches().pick(0)._replace(next_states=states)
    slope = jax.jit(jax.grad(lambda v: agent.action_function.loss(v, batch, None, answer).mean()))
    for _ in range(300):
        vector = vector - 0.01 * jnp.clip(slope(vector), -1, 1)
    after = agent.action_function.guess(vector, states[:1])
    assert abs(float(after[0, 0]) - 0.7) < abs(float(before[0, 0]) - 0.7)
    assert float(after[0, 0]) == pytest.approx(0.7, abs=0.1)


def stochastic_by_hand(spec):
    """An action function that says the mean tanh(0.3) and the log deviation -1, whatever the state."""
    function = Stochastic((), spec)
    return function, jnp.zeros(function.network.size).at[-2:].set(jnp.array([0.3, -1.0]))


def test_the_likelihood_by_hand_in_half_widths_of_the_range():
    function, vector = stochastic_by_hand(Spec(2, make_box([-1.0], [3.0])))
    answer = Answer(jnp.zeros(2), jnp.zeros(2), jnp.array([[2.0], [-1.0]]), jnp.full(2, SOLVED, jnp.int8))
    loss = function.loss(vector, at_rest(2), None, answer)
    # The maximisers 2 and -1 are 0.5 and -1 half-widths from the centre.
    expected = [0.5 * ((u - math.tanh(0.3)) * math.e) ** 2 - 1 for u in (0.5, -1.0)]
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_rows_without_a_maximiser_are_not_imitated():
    function, vector = stochastic_by_hand(SPEC)
    provenance = jnp.array([SOLVED, BOUNDED, EXTRAPOLATED], jnp.int8)
    answer = Answer(jnp.zeros(3), jnp.zeros(3), jnp.full((3, 1), 0.9), provenance)
    loss = function.loss(vector, at_rest(3), None, answer)
    assert loss[0] == loss[2] != 0
    assert loss[1] == 0
    gradient = jax.grad(lambda v: function.loss(v, at_rest(3), None, answer)[1])(vector)
    assert not np.asarray(gradient).any()


def test_a_stochastic_action_function_learns_nothing_from_a_filtered_batch():
    """Every transition ended with a reward far below Q: the filter takes all of them, and nothing was maximised."""
    agent = CAQL(CAQLConfig(hidden=(4,), action_function="stochastic", dual_filter=True), SPEC)
    state = agent.init(KEY)
    before = np.array(state.action_function.vector)
    ended = batches(continues=0.0)._replace(rewards=np.full((STEPS, ROWS), -100, np.float32))
    after, statistics = agent.update(state, ended, KEY)
    assert float(statistics["filtered"]) == 1
    np.testing.assert_array_equal(after.action_function.vector, before)


def test_the_hinge_loss_uses_the_learned_penalty():
    agent = CAQL(CAQLConfig(hidden=(), loss="hinge", hinge_penalty=3.0, hinge_penalty_learning_rate=0.1), SPEC)
    state = agent.init(KEY)
    state = state._replace(q=state.q._replace(vector=linear_q(agent, state, 0.0)), hinge_penalty=jnp.float32(5.0))
    ended = batches(continues=0.0).pick(slice(1))
    after, statistics = agent.update(state, ended, KEY)
    # Q is zero and the label the reward: lambda (r)+.
    violation = float(np.mean(np.maximum(ended.rewards, 0)))
    assert float(statistics["loss"]) == pytest.approx(5.0 * violation, rel=1e-5)
    assert float(after.hinge_penalty) == pytest.approx(5.0 + 0.1 * violation, rel=1e-5)


@pytest.mark.parametrize(
    ("target", "seen", "label", "left"),
    [
        (500.0, (0.0, 0.0), 0.0, (-3.0, 0.0)),  # no reward is above 0, so no return is
        (500.0, (-9.0, 2.0), 200.0, (-9.0, 2.0)),
        (-500.0, (-1.0, 0.0), -300.0, (-3.0, 0.0)),  # the smallest is of this batch
    ],
)
def test_clipped_labels_stay_within_what_the_rewards_so_far_allow(target, seen, label, left):
    """Q is zero and its target is a constant; rewards are -3 to -1 now."""
    agent = CAQL(CAQLConfig(hidden=(), clip_labels=True), SPEC)
    state = agent.init(KEY)
    np.testing.assert_array_equal(state.rewards, [0.0, 0.0])
    vector = np.zeros_like(np.asarray(state.q.vector))
    agent.q_network.layers(vector)[0][1][0] = target
    state = state._replace(
        q=state.q._replace(vector=jnp.zeros(vector.shape)), target=jnp.asarray(vector), rewards=jnp.float32(seen)
    )
    batch = batches().pick(slice(1))._replace(rewards=np.linspace(-3.0, -1.0, ROWS, dtype=np.float32)[None])
    after, statistics = agent.update(state, batch, KEY)
    assert float(statistics["td_error"]) == pytest.approx(abs(label), rel=1e-5)
    np.testing.assert_array_equal(after.rewards, left)


def test_labels_that_are_not_clipped_leave_the_state_as_it_was():
    assert CAQL(CAQLConfig(), SPEC).init(KEY).rewards is None


def test_dual_labels_of_the_action_function_are_the_bound():
    """The action function's loss is its distance from max-Q or, for `dual`, from the bound above it."""
    losses = {}
    for kind in ("primal", "dual"):
        config = CAQLConfig(hidden=(4,), action_hidden=(), action_labels=kind, solver=GradientAscent(iterations=50))
        agent = CAQL(config, SPEC)
        state = agent.init(KEY)
        question = agent.ask(state, batches().pick(0))
        labels = {
            "primal": agent.solve(question.problem, KEY).values,
            "dual": dual_bound(question.problem.network, SPEC.action_set),
        }
        guessed = folded_value(question.problem.network, question.problem.warm_start)
        expected = float(jnp.mean((labels[kind] - guessed) ** 2))
        _, statistics = agent.update(state, batches().pick(slice(1)), KEY)
        losses[kind] = float(statistics["action_loss"])
        assert losses[kind] == pytest.approx(expected, rel=1e-4)
    assert losses["dual"] > 1.01 * losses["primal"]


@pytest.mark.parametrize("penalty", [0.1, 1.0])
def test_a_hinge_that_cannot_learn_is_refused_where_a_run_starts(penalty):
    config = CAQLConfig(loss="hinge", hinge_penalty=penalty)
    with pytest.raises(CaqlError, match=f"hinge_penalty = {penalty} must be more than 1: a value below its label"):
        CAQL(config, SPEC)
    CAQL(dataclasses.replace(config, hinge_penalty_learning_rate=0.1), SPEC)
    CAQL(dataclasses.replace(config, loss="l2"), SPEC)
    CAQL(dataclasses.replace(config, hinge_penalty=1.5), SPEC)
    assert CAQLConfig(loss="hinge").hinge_penalty == 10


def test_a_stored_configuration_with_such_a_hinge_still_reads():
    config = RunConfig("Pendulum", agent=CAQLConfig(loss="hinge", hinge_penalty=1.0))
    assert from_json(to_json(config)) == config


def test_speed_ups_are_nested_in_the_papers_order():
    config = CAQLConfig(dual_filter=True, cluster_radius=0.5)
    assert config.stages() == (DualFilter(), Clustering(config))
    assert CAQLConfig(dual_only=True).stages() == (Dual(),)
    assert CAQLConfig().stages() == ()


def test_only_caql_has_something_to_measure():
    agent = CAQL(CAQLConfig(hidden=(4,), cluster_radius=0.5), SPEC)
    found = agent.measure(agent.init(KEY), batches(), KEY)
    assert set(found) == {"solve_seconds", "solve_ms", "solve_ms_std"}
    assert found["solve_seconds"] > 0
    sac = make_agent(agent_config("sac"), SPEC)
    assert sac.measure(sac.init(KEY), batches(), KEY) == {}


def test_a_dual_only_agent_has_no_maximisers_to_imitate():
    with pytest.raises(CaqlError, match="stochastic"):
        CAQLConfig(dual_only=True, action_function="stochastic")


def test_a_solver_that_fails_does_not_act_and_an_empty_set_has_its_centre():
    agent = CAQL(CAQLConfig(hidden=(4,), action_hidden=(4,)), Spec(3, make_box([-1.0, 0.0], [1.0, 4.0])))
    state, states = agent.init(KEY), np.zeros((3, 3), np.float32)
    found = agent.solve(agent.max_q(state, states), KEY)

    def answering(*status):
        flagged = found._replace(actions=jnp.full((3, 2), 0.5), status=jnp.array(status, jnp.int8))
        agent.solve = lambda problem, key: flagged
        return agent.best_actions(state, states)

    acted = answering(Status.OPTIMAL, Status.INFEASIBLE, Status.LIMIT)
    np.testing.assert_array_equal(acted, [[0.5, 0.5], [0.0, 2.0], [0.5, 0.5]])
    with pytest.raises(CaqlError, match="solver 'ga' failed at a state"):
        answering(Status.OPTIMAL, Status.FAILED, Status.LIMIT)


def test_what_is_learned_with_exact_does_not_depend_on_the_clock():
    """A limit of a nanosecond ends a search after its first node, which training must not notice."""
    hurried, plenty = Exact(time_limit=1e-9), Exact(node_limit=1000)
    made = []
    for solver in (hurried, plenty, Exact(node_limit=1)):
        agent = CAQL(CAQLConfig(solver=solver, hidden=(16, 8), action_hidden=(4,), tolerance=0.0), SPEC)
        state, _ = agent.update(agent.init(KEY), batches(), KEY)
        made.append((np.asarray(state.q.vector), agent.best_actions(state, batches().states[0])))
    for one, other, limited in zip(*made, strict=True):
        np.testing.assert_array_equal(one, other)
        assert not np.array_equal(one, limited)
    problem = agent.max_q(state, batches().states[0], tolerance=0.0)
    assert (hurried.solve(problem).status == Status.LIMIT).any()
    for solver in (GradientAscent(), make_solver("highs")):
        assert without_clock(solver) is solver


@pytest.mark.parametrize(("minimum", "left"), [(0.01, 0.25), (0.4, 0.4)])
def test_learning_rates_decay_by_the_epoch(minimum, left):
    """In the third epoch the step is a quarter of the undecayed one, or the least share, for both networks."""
    moved = []
    for decay in (1.0, 0.5):
        agent = CAQL(CAQLConfig(rate_decay=decay, rate_minimum=minimum), SPEC._replace(epoch_steps=STEPS))
        begun = agent.init(KEY)._replace(step=jnp.int32(2 * STEPS))
        before = [np.asarray(each.vector) for each in (begun.q, begun.action_function)]
        state, _ = agent.update(begun, jax.tree.map(lambda column: column[:1], batches()), KEY)
        after = (state.q.vector, state.action_function.vector)
        moved.append([np.asarray(new) - old for new, old in zip(after, before, strict=True)])
    for whole, part in zip(*moved, strict=True):
        assert np.abs(whole).max() > 5e-4
        np.testing.assert_allclose(part, left * whole, atol=2e-7)
