"""Encoders: what they must be, and that everything behind them sees features where it saw states."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caql import CAQL, TD3, encoders
from caql.actions import make_box
from caql.agents import caql as agents
from caql.agents.agent import Spec
from caql.agents.caql import CAQLConfig
from caql.encoders import Cnn, FlatEncoder, Keypoints
from caql.errors import CaqlError
from caql.maxq.problem import Status
from caql.maxq.solvers import make_solver
from caql.networks import q_value
from caql.replay import Batch, Replay
from caql.tasks.dot import Dot

KEY = jax.random.key(0)
SHAPE = (5,)


class Doubled:
    """Features [2 x, 1] with one parameter, the 2: folded away by hand."""

    def init(self, key, shape):
        return {"factor": jnp.full((), 2.0), "unused": jnp.zeros((2, 3))}

    def apply(self, parameters, observations):
        return jnp.concatenate([parameters["factor"] * observations, jnp.ones((len(observations), 1))], axis=1)


NAME = encoders.use(Doubled())
SPEC = Spec(5, make_box([-1.0, -1.0], [1.0, 1.0]), observation_shape=SHAPE)
SMALL = {"hidden": (8, 6), "action_hidden": (8,)}


def batches(seed=0, steps=2, rows=16):
    rng = np.random.default_rng(seed)

    def draw(*shape):
        return rng.normal(size=(steps, rows, *shape)).astype(np.float32)

    actions = rng.uniform(-1, 1, (steps, rows, 2)).astype(np.float32)
    return Batch(draw(5), actions, draw(), draw(5), np.ones((steps, rows), np.float32))


def test_a_convolution_by_hand():
    """One filter of ones over a 12 x 12 image of ones: every output is the kernel's size, plus the bias."""
    cnn = Cnn(channels=(1,), kernels=(4,), strides=(2,), features=3)
    filters, _ = cnn.init(KEY, (12, 12, 1))
    assert filters[0][0].shape == (4, 4, 1, 1)
    last = (jnp.ones((25, 3)), jnp.zeros(3))
    ones = [(jnp.ones((4, 4, 1, 1)), jnp.full(1, 0.5))]
    pixels = np.full((2, 12, 12, 1), 255, np.uint8)
    np.testing.assert_allclose(cnn.apply((ones, (last,)), pixels), np.full((2, 3), 25 * 16.5), rtol=1e-6)
    # Numbers that are not pixels are taken as they are.
    np.testing.assert_allclose(
        cnn.apply((ones, (last,)), pixels / np.float32(255)), np.full((2, 3), 25 * 16.5), rtol=1e-6
    )


@pytest.mark.parametrize(("kernel", "stride"), [(4, 2), (3, 1), (5, 3)])
def test_the_convolution_is_xlas(kernel, stride):
    rng = np.random.default_rng(0)
    pixels = jnp.asarray(rng.normal(size=(2, 17, 13, 3)), jnp.float32)
    filters = jnp.asarray(rng.normal(size=(kernel, kernel, 3, 5)), jnp.float32)
    names = ("NHWC", "HWIO", "NHWC")
    expected = jax.lax.conv_general_dilated(pixels, filters, (stride, stride), "VALID", dimension_numbers=names)
    np.testing.assert_allclose(encoders._convolve(pixels, filters, stride), expected, atol=1e-4)


def test_a_signal_keeps_its_size_through_the_encoder():
    """He et al.: the mean square of what goes on is that of what came in, within a factor of about two."""
    pixels = np.random.default_rng(0).normal(size=(64, 84, 84, 3)).astype(np.float32)
    features = np.asarray(Cnn().apply(Cnn().init(KEY, (84, 84, 3)), pixels))
    assert 0.3 < np.sqrt((features**2).mean()) < 2.0


def test_keypoints_are_where_a_channel_is_active():
    """A filter of ones sees one bright pixel in the windows around it; their centre is known by hand."""
    encoder = Keypoints(channels=(1,), kernels=(4,), strides=(2,), features=2)
    parameters = [(jnp.ones((4, 4, 1, 1)), jnp.zeros(1))], ((jnp.zeros((25, 2)), jnp.zeros(2)),)
    pixels = np.zeros((3, 12, 12, 1), np.uint8)
    pixels[0, 2, 7] = 255  # in windows 0 and 1 from above, 2 and 3 from the left, of 5 that go from -1 to 1
    pixels[1, 11, 0] = 255  # in window 4 and in window 0 alone
    found = np.asarray(encoder.apply(parameters, pixels))
    np.testing.assert_allclose(found, [[-0.75, 0.25, 0, 0], [1, -1, 0, 0], [0, 0, 0, 0]], atol=0.02)
    assert FlatEncoder("keypoints", (16, 16, 2), np.uint8).features == 64 + 2 * 16


@pytest.mark.parametrize(("side", "convolutions"), [(84, 3), (40, 2), (16, 1), (8, 0)])
def test_small_images_take_fewer_convolutions(side, convolutions):
    encoder = FlatEncoder("cnn", (side, side, 3), np.uint8)
    filters, _ = jax.eval_shape(lambda: Cnn().init(KEY, (side, side, 3)))
    assert len(filters) == convolutions
    assert encoder.features == 64
    vector = encoder.init(KEY)
    assert vector.shape == (encoder.size,)
    assert encoder.apply(vector, jnp.zeros((2, side * side * 3), jnp.float32)).shape == (2, 64)


def test_the_flat_vector_holds_the_encoders_parameters():
    encoder = FlatEncoder(NAME, SHAPE)
    assert (encoder.size, encoder.features) == (7, 6)
    states = np.arange(10, dtype=np.float32).reshape(2, 5)
    expected = np.concatenate([2 * states, np.ones((2, 1))], axis=1)
    np.testing.assert_array_equal(encoder.apply(encoder.init(KEY), states), expected)


@pytest.mark.parametrize("clipped", [False, True])
def test_labels_are_those_of_networks_with_their_own_features(clipped):
    """Q, its target and the second target have encoders of their own; the label is made of the right ones."""
    config = CAQLConfig(solver=make_solver("exact"), encoder=NAME, clipped_double_q=clipped, critics=2, **SMALL)
    agent = agents.CAQL(config, SPEC)
    state = agent.init(KEY)
    other, third = (agent.init(jax.random.key(seed)).q.vector for seed in (1, 2))
    # Factors of 2, 3 and -1: taking another network's features would show.
    state = state._replace(target=other.at[0].set(3.0), second_target=third.at[0].set(-1.0))
    batch = batches().pick(0)
    question = agent.ask(state, batch)
    solution = agent.solve(question.problem, KEY)
    found = agent.targets.answer(agent._context(state, batch), question, solution)

    def value(vector, states, actions):
        return agent.q_network.combined(agent.q_network.values(vector, states, actions))

    np.testing.assert_allclose(solution.values, value(state.q.vector, batch.next_states, solution.actions), atol=1e-5)
    expected = value(state.target, batch.next_states, solution.actions)
    if clipped:
        expected = jnp.minimum(expected, value(state.second_target, batch.next_states, solution.actions))
    np.testing.assert_allclose(found.answer.values, expected, atol=1e-5)


@pytest.mark.parametrize(
    "settings", [{}, {"dual_filter": True, "cluster_radius": 1.5, "action_function": "stochastic"}]
)
def test_the_encoder_learns_with_q_and_follows_into_the_target(settings):
    agent = agents.CAQL(CAQLConfig(encoder=NAME, target_rate=0.5, **SMALL, **settings), SPEC)
    state = agent.init(KEY)
    before = np.array(state.q.vector)
    after, statistics = agent.update(state, batches(), KEY)
    assert float(after.q.vector[0]) != before[0]
    np.testing.assert_array_equal(after.q.vector[1:7], before[1:7])
    assert before[0] != float(after.target[0]) != float(after.q.vector[0])
    assert all(np.isfinite(float(value)) for value in statistics.values())


def test_a_policy_acts_on_the_features_it_was_made_with():
    agent = agents.CAQL(CAQLConfig(encoder=NAME, **SMALL), SPEC)
    state = agent.init(KEY)
    states = batches().states[0]
    policy = agent.policy(state, 0)
    guess = agent.action_function.guess(state.action_function.vector, agent.inputs(state, states))
    first = policy.act(states)
    np.testing.assert_allclose(first, guess, atol=1e-5)
    np.testing.assert_allclose(policy.act(states[0]), first[0], atol=1e-5)
    agent.update(state, batches(), KEY)
    np.testing.assert_array_equal(policy.act(states), first)


def test_pixels_are_stored_as_pixels():
    replay = Replay(3, 4, 1, dtype=np.uint8)
    pixels = np.array([[0, 1, 254, 255]], np.float32)
    replay.extend(Batch(pixels, np.zeros((1, 1)), np.zeros(1), pixels, np.ones(1)))
    assert replay.data.states.dtype == replay.data.next_states.dtype == np.uint8
    np.testing.assert_array_equal(replay.data.states[0], pixels[0])


def test_images_end_to_end(tmp_path):
    """A few steps on Dot: learn, act, certify, save and load; the certificate is of the whole of Q."""
    model = CAQL("CnnPolicy", Dot(), warm_up=64, batch_size=16, steps_per_epoch=2, **SMALL)
    model.learn(80)
    assert model.training.replay.data.states.dtype == np.uint8
    image, _ = Dot().reset(seed=3)
    action, _ = model.predict(image)
    assert action.shape == (2,)
    images = np.stack([image, Dot().reset(seed=4)[0]])
    assert model.predict(images)[0].shape == (2, 2)
    certificate = model.certify(image)
    assert certificate.action.shape == (2,)
    assert certificate.status == Status.OPTIMAL
    sides = np.linspace(-1, 1, 21, dtype=np.float32)
    grid = np.array([[a, b] for a in sides for b in sides])
    inputs = model.q_inputs(image.reshape(1, -1))
    assert inputs.shape == (1, 64)
    values = np.asarray(q_value(model.q_layers(), np.tile(inputs, (len(grid), 1)), grid))
    assert values.max() <= certificate.upper + 1e-5
    whole = model.training.agent.q_network.values(
        model.training.state.q.vector, image.reshape(1, -1), certificate.action[None].astype(np.float32)
    )
    assert float(whole[0, 0]) == pytest.approx(float(certificate.value), abs=1e-4)
    model.save(tmp_path / "dot")
    loaded = CAQL.load(tmp_path / "dot", env=Dot())
    np.testing.assert_array_equal(loaded.predict(images)[0], model.predict(images)[0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CAQL("CnnPolicy", "Pendulum"), r"CnnPolicy needs images .* have shape \(3,\)"),
        (lambda: TD3("CnnPolicy", Dot()), r"'CnnPolicy' with an encoder needs CAQL; td3 takes vectors"),
        (lambda: CAQL("LstmPolicy", "Pendulum"), r"policy = 'LstmPolicy' is not known"),
        (lambda: CAQL("MlpPolicy", "Pendulum", encoder=3), r"encoder = 3 must have the functions init"),
        (
            lambda: CAQL("MlpPolicy", "Pendulum", encoder="cn"),
            r"encoder = 'cn' must be 'cnn', 'keypoints' or MODULE:NAME",
        ),
        (lambda: encoders.use("no_such_module:thing"), r"encoder = 'no_such_module:thing' cannot be imported"),
        (lambda: FlatEncoder("os:path", SHAPE), r"encoder = 'os:path' is not known here"),
    ],
)
def test_what_cannot_be_encoded_is_said(make, message):
    with pytest.raises(CaqlError, match=message):
        make()


def test_features_of_a_wrong_shape_are_named():
    class Wrong(Doubled):
        def apply(self, parameters, observations):
            return observations.sum()

    with pytest.raises(CaqlError, match=r"gives float32 of shape \(\) for two observations of shape \(5,\)"):
        FlatEncoder(encoders.use(Wrong()), SHAPE)


def test_a_file_cannot_name_the_code_to_run(tmp_path):
    model = CAQL("MlpPolicy", "Pendulum", encoder=Doubled(), **SMALL)
    model.save(tmp_path / "own")
    kept = encoders._KNOWN.pop(NAME)
    try:
        with pytest.raises(CaqlError, match="is not known here, and files hold its name alone"):
            CAQL.load(tmp_path / "own")
    finally:
        encoders._KNOWN[NAME] = kept
    assert CAQL.load(tmp_path / "own").predict(np.zeros(3))[0].shape == (1,)
