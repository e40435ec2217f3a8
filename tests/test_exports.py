"""Exported networks compute in onnxruntime what they compute here, and read back as themselves."""

import resource
import signal
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from caql import CAQL, NAF, SAC, TD3
from caql.errors import CaqlError
from caql.graphs import Network
from caql.graphs.activations import LeakyRelu, Relu
from caql.graphs.builder import Builder
from caql.graphs.graph import Port
from caql.graphs.operations import Divide, Multiply
from caql.network_files import read_network
from caql.network_files.export import write_onnx
from tests.graphs.networks import ACTIONS, KINDS, SMOOTH, STATES, mlp, of_action_alone


def run(path: Path, **given: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {name: array.astype(np.float32) for name, array in given.items()})[0]


EVERY: dict[str, Network] = {
    **{name: make(7) for name, make in KINDS.items()},
    **{name: mlp(each, 7) for name, each in SMOOTH.items()},
    "smooth and kinks": of_action_alone(7),
}


@pytest.mark.parametrize("name", EVERY)
def test_onnxruntime_and_the_reader_agree_with_the_graph(tmp_path: Path, name: str) -> None:
    network, path = EVERY[name], tmp_path / "net.onnx"
    write_onnx(network, path)
    x = np.random.default_rng(0).normal(size=(8, STATES + ACTIONS)).astype(np.float32)
    states, actions = x[:, :STATES], x[:, STATES:]
    given = {"x": x} if len(network.inputs) == 1 else {"state": states, "action": actions}
    expected = network.evaluate(states, actions)
    np.testing.assert_allclose(run(path, **given).reshape(8, -1), expected, rtol=1e-4, atol=1e-4)
    again = read_network(path).network
    np.testing.assert_allclose(again.evaluate(states, actions), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("made", [CAQL, NAF, TD3, SAC])
def test_a_policy_is_exported_as_it_acts(tmp_path: Path, made: type) -> None:
    model = made("MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": [8, 6]})
    model.export(tmp_path / "policy.onnx")
    states = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    np.testing.assert_allclose(
        run(tmp_path / "policy.onnx", observation=states), model.predict(states)[0], rtol=1e-4, atol=1e-5
    )


def test_q_is_exported_as_it_is(tmp_path: Path) -> None:
    from caql import maximize

    model = CAQL("MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": [8, 6]})
    model.export(tmp_path / "q.onnx", what="q")
    states = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    certificate = model.certify(states)
    found = run(tmp_path / "q.onnx", observation=states, action=certificate.action)
    np.testing.assert_allclose(found[:, 0], certificate.value, rtol=1e-4, atol=1e-5)
    again = maximize(read_network(tmp_path / "q.onnx").network, model.task.low, model.task.high, states=states)
    np.testing.assert_allclose(again.values, certificate.value, atol=2e-4)


def test_what_cannot_be_exported_is_named(tmp_path: Path) -> None:
    model = CAQL("MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": [4]}, action_function="none", solver="exact")
    with pytest.raises(CaqlError, match="SolverPolicy is not a network alone"):
        model.export(tmp_path / "policy.onnx")
    with pytest.raises(CaqlError, match=r"ends in '\.pt'; right would be \.onnx"):
        model.export(tmp_path / "policy.pt", what="q")
    with pytest.raises(CaqlError, match="what = 'actor' must be 'policy' or 'q'"):
        model.export(tmp_path / "policy.onnx", what="actor")
    with pytest.raises(CaqlError, match="what = 'q' needs CAQL"):
        SAC("MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": [4]}).export(tmp_path / "q.onnx", what="q")


def test_dense_layers_are_written_as_readers_of_mip_libraries_want_them(tmp_path: Path) -> None:
    """OMLT: a Gemm of three inputs with all attributes, constants beside the nodes, and a name for each node."""
    import onnx

    builder, rng = Builder(), np.random.default_rng(0)
    first = value = builder.input((1, 5), "x")
    value = builder.add(Relu(), builder.dense(value, rng.normal(size=(5, 4)), rng.normal(size=4)))
    value = builder.dense(value, rng.normal(size=(4, 3)))
    value = builder.batch_norm(value, [rng.uniform(0.5, 2.0, size=3) for _ in range(4)], 1e-5)
    value = builder.add(Divide(), builder.add(LeakyRelu(0.1), value), builder.constant(2.0))
    network = Network(builder, (Port("x", first),), (Port("q", value),))
    write_onnx(network, tmp_path / "net.onnx")
    graph = onnx.load(tmp_path / "net.onnx").graph
    assert [node.op_type for node in graph.node] == ["Gemm", "Relu", "Gemm", "LeakyRelu", "Div"]
    assert len({node.name for node in graph.node} - {""}) == len(graph.node)
    assert {constant.name for constant in graph.initializer} <= {name for node in graph.node for name in node.input}
    for node in graph.node:
        if node.op_type == "Gemm":
            assert len(node.input) == 3
            assert {each.name for each in node.attribute} >= {"alpha", "beta", "transB"}
    assert [each.dim_value for each in graph.input[0].type.tensor_type.shape.dim] == [0, 5]  # 0: of any length
    x = rng.normal(size=(6, 5)).astype(np.float32)
    np.testing.assert_allclose(run(tmp_path / "net.onnx", x=x), network.evaluate(x[:, :0], x), rtol=1e-4, atol=1e-5)


def test_what_else_uses_a_dense_layer_still_gets_it(tmp_path: Path) -> None:
    """Constants are not drawn into a layer that is read before they are added, or that is an output itself."""
    builder, rng = Builder(), np.random.default_rng(0)
    first = builder.input((5,), "x")
    inner = builder.dense(first, rng.normal(size=(5, 4)))
    shifted = builder.shift(inner, 2.0)
    both = builder.add(Multiply(), builder.total([builder.add(Relu(), inner), shifted]), builder.constant(3.0))
    outer = builder.dense(both, rng.normal(size=(4, 4)))
    inverse = builder.add(Divide(), builder.constant(1.0), outer)
    ports = (Port("both", both), Port("outer", outer), Port("scaled", builder.scale(outer, 0.5)), Port("i", inverse))
    network = Network(builder, (Port("x", first),), ports)
    write_onnx(network, tmp_path / "net.onnx")
    x = rng.normal(size=(6, 5)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    found = np.concatenate(session.run(None, {"x": x}), axis=1)
    np.testing.assert_allclose(found, network.evaluate(x[:, :0], x), rtol=1e-3, atol=1e-4)


def test_the_batch_of_a_file_stays_one_side(tmp_path: Path) -> None:
    """Read and written again, a file keeps the shapes of its inputs and outputs, and its values."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, STATES + ACTIONS)).astype(np.float32)
    for name, network in EVERY.items():
        write_onnx(network, tmp_path / "first.onnx")
        write_onnx(read_network(tmp_path / "first.onnx").network, tmp_path / "second.onnx")
        sessions = [
            onnxruntime.InferenceSession(str(tmp_path / f"{each}.onnx"), providers=["CPUExecutionProvider"])
            for each in ("first", "second")
        ]
        ports = [[(port.name, port.shape) for port in (*s.get_inputs(), *s.get_outputs())] for s in sessions]
        assert ports[0] == ports[1], name
        given = {"x": x} if len(network.inputs) == 1 else {"state": x[:, :STATES], "action": x[:, STATES:]}
        first, second = (session.run(None, given)[0] for session in sessions)
        np.testing.assert_allclose(first, second, rtol=1e-3, atol=1e-4, err_msg=name)


def test_omlt_reads_what_is_written(tmp_path: Path) -> None:
    io = pytest.importorskip("omlt.io")
    import onnx

    for name in ("relu", "tanh", "sigmoid"):
        write_onnx(EVERY[name], tmp_path / "net.onnx")
        bounds = dict.fromkeys(range(STATES + ACTIONS), (-1.0, 1.0))
        definition = io.load_onnx_neural_network(onnx.load(tmp_path / "net.onnx"), input_bounds=bounds)
        assert [layer.activation for layer in definition.layers][1:] == [name, name, "linear"]
        x = np.random.default_rng(0).normal(size=STATES + ACTIONS)
        value = x
        for layer in list(definition.layers)[1:]:
            value = layer.eval_single_layer(value)
        np.testing.assert_allclose(value, EVERY[name].evaluate(x[None, :0], x[None])[0], rtol=1e-4, atol=1e-4)


def test_a_file_that_cannot_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "network.onnx"
    write_onnx(KINDS["residual"](7), path)
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, hard))
        with pytest.raises(OSError, match="too large"):
            write_onnx(KINDS["residual"](8), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["network.onnx"]


class Squared:
    """An encoder that is not caql's own."""

    def init(self, key, shape):
        del key
        return {"scale": np.ones(shape, np.float32)}

    def apply(self, parameters, observations):
        return observations**2 * parameters["scale"]


@pytest.mark.parametrize("encoder", ["cnn", "keypoints"])
def test_q_and_the_policy_are_exported_with_their_encoder(tmp_path: Path, encoder: str) -> None:
    from caql import maximize
    from caql.tasks.dot import Dot

    model = CAQL("CnnPolicy", Dot(), encoder=encoder, critics=2, policy_kwargs={"net_arch": [8, 6]})
    images = np.stack([Dot().reset(seed=seed)[0] for seed in range(3)])
    model.export(tmp_path / "q.onnx", what="q")
    certificate = model.certify(images)
    found = run(tmp_path / "q.onnx", observation=images, action=certificate.action)
    np.testing.assert_allclose(found[:, 0], certificate.value, rtol=1e-4, atol=1e-5)
    network = read_network(tmp_path / "q.onnx").network
    again = maximize(network, model.task.low, model.task.high, states=images.reshape(3, -1))
    np.testing.assert_allclose(again.values, certificate.value, atol=2e-4)
    model.export(tmp_path / "policy.onnx")
    acted = run(tmp_path / "policy.onnx", observation=images)
    np.testing.assert_allclose(acted, model.predict(images)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("what", ["q", "policy"])
def test_an_encoder_of_a_users_own_is_code(tmp_path: Path, what: str) -> None:
    model = CAQL("MlpPolicy", "Pendulum-v1", encoder=Squared(), policy_kwargs={"net_arch": [4]})
    with pytest.raises(CaqlError, match=r"an encoder of your own \(Squared\) is code and cannot be exported; right"):
        model.export(tmp_path / "net.onnx", what=what)
