"""Plain ReLU networks as graphs go to the solver as they are, and what is not plain is lowered."""

from pathlib import Path

import numpy as np
import pytest

import caql.maxq.objectives as objectives
from caql import maximize
from caql.errors import CaqlError
from caql.exports import q_graph
from caql.graphs import Network
from caql.graphs.activations import LeakyRelu, Relu
from caql.graphs.builder import Builder
from caql.graphs.chain import dense_chain, network_of_layers
from caql.graphs.graph import Port
from caql.maxq.maximize import posed
from caql.maxq.objectives import AtStates
from caql.network_files import read_network
from caql.network_files.export import write_onnx
from caql.networks import FoldedNetwork
from tests.graphs.networks import KINDS, SMOOTH, mlp

RNG = np.random.default_rng(0)
LAYERS = [(RNG.normal(size=(a, b)), RNG.normal(size=b)) for a, b in ((5, 6), (6, 4), (4, 3))]
STATES = RNG.normal(size=(4, 3))


def read_again(network: Network, folder: Path) -> Network:
    write_onnx(network, folder / "net.onnx")
    return read_network(folder / "net.onnx").network


def image(layers: list) -> Network:
    """The same layers over a picture of one row, which is flattened, and without the second bias."""
    builder = Builder()
    first = builder.input((1, 1, 5), "x")
    value = builder.add(Relu(), builder.dense(builder.reshape(first, (1, 5)), *layers[0]))
    value = builder.add(Relu(), builder.dense(builder.reshape(value, (6,)), layers[1][0]))
    return Network(builder, (Port("x", first),), (Port("y", builder.dense(value, *layers[2])),))


@pytest.mark.parametrize(
    "form", ["chain", "file", "two inputs", "two inputs in a file", "a picture", "no hidden layer"]
)
def test_plain_networks_are_seen(form: str, tmp_path: Path) -> None:
    network = network_of_layers(LAYERS) if form in ("chain", "file") else q_graph(LAYERS, 3)
    network = read_again(network, tmp_path) if "file" in form else network
    layers = [LAYERS[0], (LAYERS[1][0], np.zeros(4)), LAYERS[2]] if form == "a picture" else LAYERS
    network = image(LAYERS) if form == "a picture" else network
    if form == "no hidden layer":
        layers = LAYERS[:1]
        network = network_of_layers(layers)
    assert network.layers is not None
    for found, expected in zip(network.layers, layers, strict=True):
        for array, own in zip(found, expected, strict=True):
            np.testing.assert_allclose(array, own, rtol=1e-6)  # a file is in float32
    for output, minimize in ((0, False), (2, False), (1, True)):
        question = posed(network, STATES, output, minimize).question
        assert isinstance(question, FoldedNetwork)
        solution = maximize(network, -1, 1, states=STATES, output=output)
        own = network.evaluate(STATES, solution.actions)[:, output]
        np.testing.assert_allclose(solution.values, own, rtol=1e-12, atol=1e-12)
    least = maximize(network, -1, 1, states=STATES, output=1, minimize=True)
    np.testing.assert_allclose(least.values, network.evaluate(STATES, least.actions)[:, 1], rtol=1e-12, atol=1e-12)
    assert isinstance(posed(network, STATES, [1.0, 0.5, *[0.0] * (len(layers[-1][1]) - 2)]).question, AtStates)


@pytest.mark.parametrize("name", [name for name in KINDS if name != "relu"] + list(SMOOTH))
def test_other_networks_are_not_taken_for_plain_ones(name: str) -> None:
    network = KINDS[name](0) if name in KINDS else mlp(SMOOTH[name])
    assert network.layers is None


def test_inputs_in_another_order_or_twice_are_not_plain() -> None:
    builder = Builder()
    state, action = builder.input((3,), "state"), builder.input((2,), "action")
    ports = (Port("state", state), Port("action", action))
    for parts in ([action, state], [state, action, action], [state, state, action]):
        joined = builder.concat(parts, 0)
        layers = [(RNG.normal(size=(builder.shape(joined)[0], 4)), np.zeros(4)), (RNG.normal(size=(4, 1)), np.zeros(1))]
        value = dense_chain(builder, joined, layers, Relu())
        network = Network(builder, ports, (Port("q", value),), 1)
        assert network.layers is None
        solution = maximize(network, -1, 1, states=STATES)
        np.testing.assert_allclose(solution.values, network.evaluate(STATES, solution.actions)[:, 0], rtol=1e-12)


def test_numbers_that_are_not_finite_are_still_refused() -> None:
    layers = [(np.full((2, 3), np.inf), np.zeros(3)), (np.ones((3, 1)), np.zeros(1))]
    assert network_of_layers(layers).layers is None
    with pytest.raises(CaqlError, match="finite"):
        maximize(network_of_layers(layers), -1, 1)


def test_a_batch_is_lowered_at_once_however_large_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []
    own = objectives.lower
    monkeypatch.setattr(objectives, "lower", lambda *given: counted.append(len(given[1])) or own(*given))
    maximize(mlp(LeakyRelu(0.2), hidden=(32, 16)), -1, 1, states=RNG.normal(size=(64, 3)))
    assert counted == [64]
