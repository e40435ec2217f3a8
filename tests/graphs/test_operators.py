"""Every ONNX operator that can be read computes what onnxruntime computes, on random inputs."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from caql.graphs.opaque import OPAQUE
from caql.network_files import read_network
from caql.network_files.export import write_onnx
from caql.network_files.operator_table import OPERATORS

RNG = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


W, V, BIAS = normal(6, 5), normal(5, 6), normal(5)
IMAGE = (1, 2, 5, 6)
KERNELS, GROUPED = normal(4, 2, 3, 2), normal(4, 1, 3, 2)
ints = np.int64
CASES: list[tuple[str, dict[str, Any], dict[str, Any], tuple[int, ...]]] = [
    ("Gemm", {"w": W, "b": BIAS}, {"alpha": 0.5, "beta": 2.0}, (1, 6)),
    ("Gemm", {"w": V}, {"transB": 1}, (1, 6)),
    ("Gemm", {"w": W}, {"transA": 1}, (6, 1)),
    ("MatMul", {"w": W}, {}, (1, 6)),
    ("MatMul", {"w": W}, {}, (1, 3, 6)),
    ("Add", {"b": normal(6)}, {}, (1, 6)),
    ("Sub", {"b": normal(6)}, {}, (1, 6)),
    ("Mul", {"b": normal(6)}, {}, (1, 6)),
    ("Mul", {"b": normal(3, 1, 1)}, {}, (1, 3, 2, 2)),
    ("Div", {"b": 1 + normal(6) ** 2}, {}, (1, 6)),
    ("Neg", {}, {}, (1, 6)),
    ("Sum", {"a": normal(6), "b": normal(1, 6)}, {}, (1, 6)),
    ("Max", {"a": normal(6), "b": normal(1, 6), "c": normal(1)}, {}, (1, 6)),
    ("Min", {"a": normal(6), "b": normal(1, 6)}, {}, (1, 6)),
    ("Relu", {}, {}, (1, 6)),
    ("LeakyRelu", {}, {"alpha": 0.3}, (1, 6)),
    ("PRelu", {"s": normal(6)}, {}, (1, 6)),
    ("PRelu", {"s": normal(2, 1, 1)}, {}, IMAGE),
    ("Abs", {}, {}, (1, 6)),
    ("Clip", {"low": np.float32(-0.5), "high": np.float32(0.7)}, {}, (1, 6)),
    ("Clip", {"low": np.float32(-0.5)}, {}, (1, 6)),
    ("HardSigmoid", {}, {"alpha": 0.4, "beta": 0.3}, (1, 6)),
    ("Tanh", {}, {}, (1, 6)),
    ("Sigmoid", {}, {}, (1, 6)),
    ("Softplus", {}, {}, (1, 6)),
    ("Elu", {}, {"alpha": 0.7}, (1, 6)),
    ("Selu", {}, {}, (1, 6)),
    ("Gelu", {}, {}, (1, 6)),
    ("Gelu", {}, {"approximate": "tanh"}, (1, 6)),
    ("Celu", {}, {"alpha": 0.6}, (1, 6)),
    *[(name, {}, {}, (1, 6)) for name in ("HardSwish", "Mish", "Softsign", "Sin", "Cos", "Erf")],
    ("Swish", {}, {"alpha": 0.7}, (1, 6)),
    (
        "BatchNormalization",
        {"s": normal(2), "b": normal(2), "m": normal(2), "v": normal(2) ** 2},
        {"epsilon": 0.01},
        IMAGE,
    ),
    ("Identity", {}, {}, (1, 6)),
    ("Dropout", {}, {}, (1, 6)),
    *[("Cast", {}, {"to": to}, (1, 6))
      for to in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.BOOL)],
    ("Softmax", {}, {"axis": 1}, (1, 6)),
    ("LayerNormalization", {"s": normal(3, 4), "b": normal(4)}, {"axis": -2, "epsilon": 0.1}, (2, 3, 4)),
    ("LayerNormalization", {"s": normal(6)}, {}, (1, 6)),
    ("Reshape", {"s": np.array([0, -1, 3], ints)}, {}, (1, 6)),
    ("Flatten", {}, {"axis": 2}, (1, 2, 3)),
    ("Squeeze", {"s": np.array([1], ints)}, {}, (2, 1, 3)),
    ("Squeeze", {}, {}, (1, 1, 3)),
    ("Unsqueeze", {"s": np.array([0, -1], ints)}, {}, (2, 3)),
    ("Transpose", {}, {"perm": [2, 0, 1]}, (2, 3, 4)),
    ("Transpose", {}, {}, (2, 3)),
    ("Concat", {"c": normal(1, 2)}, {"axis": -1}, (1, 6)),
    ("Slice", {"a": np.array([1, 0], ints), "b": np.array([9, -1], ints)}, {}, (3, 6)),
    (
        "Slice",
        {k: np.array(v, ints) for k, v in (("a", [-1]), ("b", [-99]), ("c", [1]), ("d", [-2]))},
        {},
        (3, 6),
    ),
    ("Split", {"s": np.array([2, 4], ints)}, {"axis": 1}, (1, 6)),
    ("Gather", {"i": np.array([[0, -1], [2, 2]], ints)}, {"axis": 1}, (2, 6)),
    ("Expand", {"s": np.array([4, 1, 6], ints)}, {}, (1, 6)),
    ("Shape", {}, {}, (2, 3)),
    ("Pad", {"p": np.array([0, 1, 0, 2], ints), "v": np.float32(0.5)}, {}, (2, 3)),
    *[(f"Reduce{kind}", {"a": np.array([0, 2], ints)}, {"keepdims": keep}, (2, 3, 4))
      for kind, keep in (("Sum", 0), ("Mean", 1), ("Max", 0), ("Min", 1))],
    ("Conv", {"w": KERNELS, "b": normal(4)}, {"pads": [1, 0, 2, 1], "strides": [2, 1]}, IMAGE),
    ("Conv", {"w": GROUPED}, {"group": 2, "dilations": [1, 2]}, IMAGE),
    ("Conv", {"w": KERNELS}, {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, IMAGE),
    ("Conv", {"w": normal(3, 2, 3)}, {"auto_pad": "SAME_LOWER"}, (1, 2, 7)),
    ("MaxPool", {}, {"kernel_shape": [2, 3], "strides": [2, 2], "pads": [1, 1, 0, 1]}, IMAGE),
    ("MaxPool", {}, {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}, IMAGE),
    ("AveragePool", {}, {"kernel_shape": [2, 3], "strides": [2, 2], "pads": [1, 1, 0, 1]}, IMAGE),
    ("AveragePool", {}, {"kernel_shape": [3, 2], "pads": [1, 1, 1, 0], "count_include_pad": 1}, IMAGE),
    ("GlobalAveragePool", {}, {}, IMAGE),
    ("GlobalMaxPool", {}, {}, IMAGE),
    ("Pow", {"p": np.float32(3.0)}, {}, (1, 6)),
    *[(name, {}, {}, (1, 6)) for name in sorted(OPAQUE) if name != "Pow"],
]  # fmt: skip


def write(path: Path, kind: str, constants: dict[str, Any], options: dict[str, Any], shape: tuple[int, ...]) -> None:
    outputs = ["y", "z"] if kind == "Split" else ["y"]
    kinds = TensorProto.INT64 if kind == "Shape" else options.get("to", TensorProto.FLOAT)
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node(kind, ["x", *constants], outputs, **options)],
            "one",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(name, kinds, None) for name in outputs],
            [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", {"HardSwish": 22, "Swish": 24}.get(kind, 20))],
        ir_version=10,
    )
    onnx.save(model, path)


@pytest.mark.parametrize("case", CASES, ids=[f"{k}-{case[0]}" for k, case in enumerate(CASES)])
def test_an_operator_computes_what_onnxruntime_computes(tmp_path: Path, case: Any) -> None:
    kind, _constants, _options, shape = case
    path = tmp_path / "net.onnx"
    write(path, *case)
    network = read_network(path).network
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    samples = 2.0 * normal(5, *shape)
    if kind in ("Log", "Sqrt"):
        samples = np.abs(samples) + 0.1
    for x in samples:
        expected = np.concatenate([np.ravel(each) for each in session.run(None, {"x": x})])
        found = network.evaluate(np.zeros((1, 0)), x.reshape(1, -1))[0]
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


def test_every_operator_is_tried() -> None:
    assert {case[0] for case in CASES} == set(OPERATORS)


WRITTEN = [
    case
    for case in CASES
    if case[0] not in ("Softmax", "LayerNormalization")
    and case[2].get("to", TensorProto.FLOAT) in (TensorProto.FLOAT, TensorProto.DOUBLE)
]


@pytest.mark.parametrize("case", WRITTEN, ids=[f"{k}-{case[0]}" for k, case in enumerate(WRITTEN)])
def test_an_operator_is_written_again_for_any_number_of_samples(tmp_path: Path, case: Any) -> None:
    write(tmp_path / "one.onnx", *case)
    network = read_network(tmp_path / "one.onnx").network
    write_onnx(network, tmp_path / "many.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "many.onnx"), providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    shape = case[3][1:] if len(case[3]) > 1 and case[3][0] == 1 else case[3]
    assert tuple(given.shape[1:]) == shape
    x = np.random.default_rng(1).normal(size=(3, *shape)).astype(np.float32)
    x = np.abs(x) + 0.1 if case[0] in ("Log", "Sqrt") else x
    found = np.concatenate([each.reshape(3, -1) for each in session.run(None, {given.name: x})], axis=1)
    expected = network.evaluate(np.zeros((3, 0)), x.reshape(3, -1))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
