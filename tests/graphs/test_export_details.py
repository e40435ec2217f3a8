"""What is hard about writing a graph: names that are taken, values that are one in the file, stacks of matrices."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from caql.errors import CaqlError
from caql.graphs import Network
from caql.graphs.activations import Relu
from caql.graphs.builder import Builder
from caql.graphs.graph import Port
from caql.graphs.opaque import standardised
from caql.graphs.operations import MatMul, Opaque
from caql.network_files.export import write_onnx

RNG = np.random.default_rng(0)


def outputs_of(network: Network, path: Path, samples: int = 2) -> tuple[list[str], Any, Any]:
    """The names in the file, and what onnxruntime and the graph make of random inputs."""
    write_onnx(network, path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    given = {port.name: RNG.normal(size=(samples, *port.shape[1:])).astype(np.float32) for port in session.get_inputs()}
    found = np.concatenate([each.reshape(samples, -1) for each in session.run(None, given)], axis=1)
    flat = [given[port.name].reshape(samples, -1) for port in network.inputs]
    actions = flat.pop(network.action or 0)
    states = np.concatenate(flat, axis=1) if flat else actions[:, :0]
    return [port.name for port in session.get_outputs()], found, network.evaluate(states, actions)


@pytest.mark.parametrize("names", [("x", "v0", "c0"), ("v0", "v1", "c1"), ("c0", "c0", "c0"), ("x", "x", "y")])
def test_names_that_the_file_would_use_itself(tmp_path: Path, names: tuple[str, str, str]) -> None:
    builder = Builder()
    first = builder.input((3,), "x")
    hidden = builder.add(Relu(), builder.dense(first, RNG.normal(size=(3, 4)), RNG.normal(size=4)))
    value = builder.dense(hidden, RNG.normal(size=(4, 2)), RNG.normal(size=2))
    network = Network(builder, (Port(names[0], first),), (Port(names[1], hidden), Port(names[2], value)))
    called, found, expected = outputs_of(network, tmp_path / "net.onnx")
    assert all(name.startswith(wanted) for name, wanted in zip(called, names[1:], strict=True))
    assert len({*called, names[0]}) == 3
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_two_outputs_that_are_one_value_of_the_file(tmp_path: Path) -> None:
    """A row of one sample and the vector in it are the same once the batch has its side."""
    builder = Builder()
    first = builder.input((1, 3), "x")
    row = builder.add(Relu(), builder.dense(first, RNG.normal(size=(3, 4))))
    vector = builder.reshape(row, (4,))
    ports = (Port("row", row), Port("vector", vector), Port("again", row), Port("given", first))
    called, found, expected = outputs_of(Network(builder, (Port("x", first),), ports), tmp_path / "net.onnx")
    assert called == ["row", "vector", "again", "given"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


SHAPES = [((1, 3), (2, 3, 4)), ((3,), (3, 4)), ((3,), (2, 3, 4)), ((1, 3), (3,)), ((2, 3), (5, 3, 2)), ((3,), (3,))]


@pytest.mark.parametrize("known", ["left", "right", "neither"])
@pytest.mark.parametrize("shapes", SHAPES)
def test_products_of_every_rank(tmp_path: Path, shapes: tuple[tuple[int, ...], tuple[int, ...]], known: str) -> None:
    builder, inputs, operands = Builder(), [], []
    for side, shape in zip(("left", "right"), shapes, strict=True):
        fixed = builder.constant(RNG.normal(size=shape)) if side == known else builder.input(shape, side)
        operands.append(fixed)
        inputs += [] if side == known else [Port(side, fixed)]
    product = builder.add(MatMul(), *operands)
    network = Network(builder, tuple(inputs), (Port("y", product),), 0 if len(inputs) > 1 else None)
    for samples in (1, 2, 5):
        _, found, expected = outputs_of(network, tmp_path / "net.onnx", samples)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_what_onnx_has_no_like_of_is_named(tmp_path: Path) -> None:
    builder = Builder(label="norm 1")
    first = builder.input((4,), "x")
    normal = builder.add(Opaque("LayerNorm", standardised(1, 1e-5), lambda shape: shape), first)
    with pytest.raises(CaqlError, match=r"norm 1: LayerNorm cannot be exported; right would be Exp, Log"):
        write_onnx(Network(builder, (Port("x", first),), (Port("y", normal),)), tmp_path / "net.onnx")
    nothing = builder.reshape(builder.rearranged(first, lambda a: a[:0]), (0, 1))
    with pytest.raises(CaqlError, match=r"a value of shape \(0, 1\) holds no numbers and cannot be exported"):
        write_onnx(Network(builder, (Port("x", first),), (Port("y", nothing),)), tmp_path / "net.onnx")
