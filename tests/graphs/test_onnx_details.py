"""Where versions of ONNX differ, or ONNX and NumPy do: each reads as onnxruntime computes it, or not at all."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from caql.errors import CaqlError
from caql.network_files import read_network

ints = np.int64
Node = tuple[str, list[str], str, dict[str, Any]]


def written(
    path: Path, nodes: list[Node], constants: dict[str, Any], shape: tuple[int, ...], opset: int = 17, kind: int = 1
) -> Path:
    graph = helper.make_graph(
        [helper.make_node(name, inputs, [output], **options) for name, inputs, output, options in nodes],
        "details",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def whole(**given: Any) -> dict[str, Any]:
    return {name: np.array(value, ints) for name, value in given.items()}


def single(*numbers: float) -> Any:
    return np.array(numbers, np.float32)


SQRT = float(np.sqrt(2.0))
AGREE: dict[str, tuple[list[Node], dict[str, Any], tuple[int, ...], int]] = {
    "softmax of old goes over all later axes": ([("Softmax", ["x"], "y", {})], {}, (1, 3, 4), 11),
    "softmax of old along an axis": ([("Softmax", ["x"], "y", {"axis": 2})], {}, (1, 3, 4), 12),
    "softmax of today": ([("Softmax", ["x"], "y", {})], {}, (1, 3, 4), 13),
    "a slice backwards from before the first entry": (
        [("Slice", ["x", "a", "b", "c", "d"], "y", {})], whole(a=[-7], b=[-9], c=[1], d=[-1]), (1, 4), 17),
    "a slice backwards from beyond the last": (
        [("Slice", ["x", "a", "b", "c", "d"], "y", {})], whole(a=[99], b=[-(2**40)], c=[1], d=[-2]), (1, 5), 17),
    "quotients of whole numbers": (
        [("Shape", ["x"], "s", {}), ("Div", ["s", "two"], "h", {}), ("Mul", ["h", "two"], "t", {}),
         ("Slice", ["x", "zero", "t"], "y", {})], whole(two=[2, 2], zero=[0, 0]), (2, 5), 17),
    "one side of a shape, as torch asks for the batch": (
        [("Shape", ["x"], "s", {}), ("Gather", ["s", "first"], "n", {"axis": 0}), ("Unsqueeze", ["n", "zero"], "u", {}),
         ("Concat", ["u", "rest"], "t", {"axis": 0}), ("Reshape", ["x", "t"], "y", {})],
        {"first": np.array(0, ints), **whole(zero=[0], rest=[3, -1])}, (1, 6), 17),
    "numbers as attributes of constants": (
        [("Constant", [], "a", {"value_float": 2.0}), ("Constant", [], "b", {"value_floats": [1.0, 2.0, 3.0]}),
         ("Constant", [], "c", {"value_ints": [3, -1]}), ("Constant", [], "d", {"value_int": 1}),
         ("Mul", ["x", "a"], "p", {}), ("Add", ["p", "b"], "q", {}), ("Reshape", ["q", "c"], "r", {}),
         ("Gather", ["r", "d"], "y", {})], {}, (1, 3), 17),
    "padding by its own entries": (
        [("Pad", ["x", "p"], "z", {"mode": "reflect"}), ("Pad", ["z", "p"], "y", {"mode": "edge"})],
        whole(p=[0, 2, 0, 1]), (1, 4), 18),
    "padding that cuts off": ([("Pad", ["x", "p"], "y", {})], whole(p=[0, -1, 0, 2]), (1, 4), 18),
    "padding that cuts everything off": ([("Pad", ["x", "p"], "y", {})], whole(p=[0, -1, 0, 2]), (3, 1), 18),
    "erf of a sum is no GELU": (
        [("Add", ["x", "s"], "a", {}), ("Erf", ["a"], "e", {}), ("Add", ["e", "one"], "f", {}),
         ("Mul", ["x", "f"], "y", {})], {"s": single(1 / SQRT), "one": single(1.0)}, (1, 4), 17),
    "a GELU with more sides than its operand": (
        [("Div", ["x", "s"], "a", {}), ("Erf", ["a"], "e", {}), ("Add", ["e", "one"], "f", {}),
         ("Mul", ["x", "f"], "y", {})], {"s": single(SQRT), "one": np.ones((1, 1, 1), np.float32)}, (1, 4), 17),
    "a GELU": (
        [("Div", ["x", "s"], "a", {}), ("Erf", ["a"], "e", {}), ("Add", ["e", "one"], "f", {}),
         ("Mul", ["x", "f"], "g", {}), ("Mul", ["g", "half"], "y", {})],
        {"s": single(SQRT), "one": single(1.0), "half": single(0.5)}, (1, 4), 17),
    "dropout that says it is not in training": (
        [("Dropout", ["x", "r", "t"], "y", {})], {"r": np.float32(0.5), "t": np.array(False)}, (1, 4), 17),
}  # fmt: skip


@pytest.mark.parametrize("name", AGREE)
def test_it_computes_what_onnxruntime_computes(tmp_path: Path, name: str) -> None:
    nodes, constants, shape, opset = AGREE[name]
    path = written(tmp_path / "net.onnx", nodes, constants, shape, opset)
    network = read_network(path).network
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for x in np.random.default_rng(0).normal(size=(4, *shape)).astype(np.float32):
        (expected,) = session.run(None, {"x": x})
        assert network.graph.shape(network.outputs[0].node) == expected.shape
        found = network.evaluate(np.zeros((1, 0)), x.reshape(1, -1))[0]
        np.testing.assert_allclose(found, expected.ravel(), rtol=2e-5, atol=2e-6)


def test_an_input_of_whole_numbers_is_divided_as_such(tmp_path: Path) -> None:
    nodes: list[Node] = [("Div", ["x", "two"], "h", {}), ("Cast", ["h"], "f", {"to": 1}), ("Div", ["f", "g"], "y", {})]
    path = written(tmp_path / "net.onnx", nodes, whole(two=[2]) | {"g": single(2.0)}, (1, 3), 17, TensorProto.INT64)
    found = read_network(path).network.evaluate(np.array([[5.0, -5.0]]), np.array([[4.0]]))
    np.testing.assert_array_equal(found, [[1.0, -1.0, 1.0]])


REFUSED: dict[str, tuple[list[Node], dict[str, Any], tuple[int, ...], int]] = {
    "it is written in version 6 of ONNX's operators, which broadcast in another way; right would be 7 or later": (
        [("Add", ["x", "c"], "y", {"broadcast": 1, "axis": 1})], {"c": single(1.0, 2.0)}, (1, 2, 3), 6),
    "it goes backwards to 2147483647, which runtimes read in different ways; right would be -2147483648": (
        [("Slice", ["x", "a", "b", "c", "d"], "y", {})], whole(a=[-1], b=[2**31 - 1], c=[1], d=[-1]), (1, 4), 17),
    "runtimes differ in what auto_pad = 'SAME_UPPER' means for a pooling with dilations [2, 2]; right would be pads": (
        [("MaxPool", ["x"], "y", {"auto_pad": "SAME_UPPER", "dilations": [2, 2], "kernel_shape": [2, 2]})],
        {}, (1, 1, 5, 5), 17),
    "mode = 'mirror' is not known; right are constant, edge, reflect, wrap": (
        [("Pad", ["x", "p"], "y", {"mode": "mirror"})], whole(p=[0, 1, 0, 1]), (1, 4), 18),
    "is more than values of shape (1, 4) can repeat": (
        [("Pad", ["x", "p"], "y", {"mode": "reflect"})], whole(p=[0, 4, 0, 0]), (1, 4), 18),
    "only a Constant of numbers can be read": ([("Constant", [], "y", {"value_string": b"a"})], {}, (1, 4), 17),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_not_clear_is_refused_in_one_sentence(tmp_path: Path, message: str) -> None:
    nodes, constants, shape, opset = REFUSED[message]
    with pytest.raises(CaqlError) as raised:
        read_network(written(tmp_path / "net.onnx", nodes, constants, shape, opset))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
