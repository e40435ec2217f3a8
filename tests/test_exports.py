"""Exported networks compute in onnxruntime what they compute here, and read back as themselves."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from caql import CAQL, NAF, SAC, TD3
from caql.errors import CaqlError
from caql.graphs import Network
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
