"""Networks from files: what comes back computes what the file says, and bad files are named."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from safetensors.numpy import save_file

from caql.errors import CaqlError
from caql.network_files import read_network, read_states

RNG = np.random.default_rng(0)
LAYERS = [
    (RNG.normal(size=s).astype(np.float32), RNG.normal(size=s[1]).astype(np.float32)) for s in ((4, 6), (6, 5), (5, 1))
]


def forward(layers: Any, x: Any) -> Any:
    for weights, bias in layers[:-1]:
        x = np.maximum(x @ weights + bias, 0)
    weights, bias = layers[-1]
    return x @ weights + bias


def arrays(pattern: tuple[str, str]) -> dict[str, Any]:
    return {name.format(k): part for k, layer in enumerate(LAYERS) for name, part in zip(pattern, layer, strict=True)}


def write_onnx(path: Path, nodes: list[Any], constants: dict[str, Any], width: Any = 4, inputs: int = 1) -> Path:
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info(f"x{k}" if k else "x", TensorProto.FLOAT, ["N", width]) for k in range(inputs)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", None])],
        [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


@pytest.mark.parametrize("pattern", [("W{}", "b{}"), ("weights_{}", "bias_{}")])
@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_named_arrays(tmp_path: Path, pattern: tuple[str, str], suffix: str) -> None:
    path = tmp_path / f"net{suffix}"
    extra = {"low": -np.ones(2, np.float32), "high": np.ones(2, np.float32), "states": np.zeros((3, 2), np.float32)}
    stored = {**arrays(pattern), **extra}
    (np.savez(path, **stored) if suffix == ".npz" else save_file(stored, path))
    found = read_network(path)
    for (weights, bias), (expected_weights, expected_bias) in zip(found.layers, LAYERS, strict=True):
        np.testing.assert_array_equal(weights, expected_weights)
        np.testing.assert_array_equal(bias, expected_bias)
    np.testing.assert_array_equal(found.states, extra["states"])
    np.testing.assert_array_equal(found.low, extra["low"])
    np.testing.assert_array_equal(found.high, extra["high"])


def test_box_and_states_are_optional(tmp_path: Path) -> None:
    np.savez(tmp_path / "net.npz", **arrays(("W{}", "b{}")))
    assert read_network(tmp_path / "net.npz")[1:] == (None, None, None)


W, B = [w for w, _ in LAYERS], [b for _, b in LAYERS]
GRAPHS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "Gemm with transB, as PyTorch exports": (
        [
            helper.make_node("Flatten", ["x"], ["f"]),
            helper.make_node("Gemm", ["f", "w0", "b0"], ["h0"], transB=1),
            helper.make_node("Relu", ["h0"], ["r0"]),
            helper.make_node("Gemm", ["r0", "w1", "b1"], ["h1"], transB=1),
            helper.make_node("Relu", ["h1"], ["r1"]),
            helper.make_node("Gemm", ["r1", "w2", "b2"], ["y"], transB=1),
        ],
        {f"w{k}": W[k].T for k in range(3)} | {f"b{k}": B[k] for k in range(3)},
    ),
    "MatMul and Add in either order": (
        [
            helper.make_node("Identity", ["x"], ["i"]),
            helper.make_node("MatMul", ["i", "w0"], ["m0"]),
            helper.make_node("Add", ["b0", "m0"], ["h0"]),
            helper.make_node("Relu", ["h0"], ["r0"]),
            helper.make_node("MatMul", ["r0", "w1"], ["m1"]),
            helper.make_node("Add", ["m1", "b1"], ["h1"]),
            helper.make_node("Relu", ["h1"], ["r1"]),
            helper.make_node("MatMul", ["r1", "w2"], ["y"]),
        ],
        {f"w{k}": W[k] for k in range(3)} | {"b0": B[0][None], "b1": B[1]},
    ),
    "alpha, beta, a scalar bias and two affine maps in a row": (
        [
            helper.make_node("Add", ["x", "shift"], ["s"]),
            helper.make_node("Gemm", ["s", "w0", "b0"], ["h0"], alpha=0.5, beta=-2.0),
            helper.make_node("Gemm", ["h0", "w1"], ["h1"], alpha=3.0),
            helper.make_node("Relu", ["h1"], ["r1"]),
            helper.make_node("Gemm", ["r1", "w2", "one"], ["y"]),
        ],
        {f"w{k}": W[k] for k in range(3)} | {"b0": B[0], "one": [0.7], "shift": [0.1, 0.2, 0.3, 0.4]},
    ),
    "a ReLU on the input and one on the output": (
        [
            helper.make_node("Relu", ["x"], ["r"]),
            helper.make_node("MatMul", ["r", "w"], ["m"]),
            helper.make_node("Relu", ["m"], ["y"]),
        ],
        {"w": W[0][:, :1]},
    ),
    "a Constant node": (
        [
            helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(W[0][:, :1])),
            helper.make_node("MatMul", ["x", "w"], ["y"]),
        ],
        {},
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_onnx_computes_what_the_reference_computes(tmp_path: Path, name: str) -> None:
    path = write_onnx(tmp_path / "net.onnx", *GRAPHS[name])
    x = np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32)
    expected = ReferenceEvaluator(str(path)).run(None, {"x": x})[0]
    assert np.ptp(expected) > 0
    np.testing.assert_allclose(forward(read_network(path).layers, x), expected, rtol=1e-4, atol=1e-5)


def test_onnx_with_the_values_on_the_right(tmp_path: Path) -> None:
    """Column vectors: y = Gemm(A, x) with A transposed or not."""
    nodes = [
        helper.make_node("Gemm", ["a", "x", "c"], ["h"], transA=1),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["m", "r"], ["y"]),
    ]
    constants = {"a": W[0], "c": B[0][:, None], "m": W[1][:, :1].T}
    graph = helper.make_graph(
        nodes,
        "columns",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1])],
        [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in constants.items()],
    )
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    layers = read_network(path).layers
    for x in np.random.default_rng(2).normal(size=(20, 4)).astype(np.float32):
        expected = ReferenceEvaluator(str(path)).run(None, {"x": x[:, None]})[0]
        np.testing.assert_allclose(forward(layers, x), expected[0], rtol=1e-4, atol=1e-5)


BAD_GRAPHS = {
    "ONNX node LSTM 'y': the operator LSTM is not supported; a network may hold Abs, Add": (
        [helper.make_node("LSTM", ["x"], ["y"])],
        {},
        1,
    ),
    "kernels of shape (4, 6); right is (outputs": ([helper.make_node("Conv", ["x", "w"], ["y"])], {"w": W[0]}, 1),
    "it has the inputs x, x1, and it is not clear which is the action": (
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        {"w": W[0]},
        2,
    ),
    "ONNX node MatMul 'y': MatMul has operands of shapes (1, 4) and (6, 5), whose inner sides are not equal": (
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        {"w": W[1]},
        1,
    ),
    "ONNX node Add 'y': Add has operands of shapes (1, 4) and (5,)": (
        [helper.make_node("Add", ["x", "b"], ["y"])],
        {"b": B[1]},
        1,
    ),
    "no node computes its output 'y'": ([helper.make_node("MatMul", ["x", "w"], ["z"])], {"w": W[0]}, 1),
}


@pytest.mark.parametrize("message", BAD_GRAPHS)
def test_a_bad_graph_is_named(tmp_path: Path, message: str) -> None:
    nodes, constants, inputs = BAD_GRAPHS[message]
    path = write_onnx(tmp_path / "net.onnx", nodes, constants, inputs=inputs)
    with pytest.raises(CaqlError) as raised:
        read_network(path)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([("Relu", ["x"], ["h"]), ("Add", ["h", "x"], ["y"])], "not a plain chain of layers"),
        ([("Tanh", ["x"], ["y"])], "smooth activations"),
        ([("Exp", ["x"], ["y"])], "ONNX node Exp 'y' depends on the action and Exp is not piecewise linear"),
        ([("Mul", ["x", "x"], ["y"])], "ONNX node Mul 'y': both operands of Multiply depend on the action"),
    ],
)
def test_the_layers_of_a_graph_that_is_no_plain_chain_are_refused(tmp_path: Path, nodes: Any, message: str) -> None:
    made = [helper.make_node(*node) for node in nodes]
    path = write_onnx(tmp_path / "net.onnx", made, {})
    with pytest.raises(CaqlError) as raised:
        _ = read_network(path).layers
    assert message in str(raised.value)


def missing_bias(path: Path) -> None:
    np.savez(path, **{name: array for name, array in arrays(("W{}", "b{}")).items() if name != "b1"})


def pickled(path: Path) -> None:
    np.savez(path, W0=np.array([{"a": 1}], dtype=object), b0=np.zeros(1))


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("net.npz", missing_bias, "right would be W0, b0, W1, b1"),
        ("net.npz", pickled, "W0 is pickled: Object arrays cannot be loaded"),
        ("net.npz", lambda path: path.write_bytes(b"nothing"), "is not an .npz of plain arrays"),
        ("net.npz", lambda path: path.write_bytes(b""), "is not an .npz of plain arrays"),
        ("net.safetensors", lambda path: path.write_bytes(b"nothing"), "is not a safetensors file"),
        ("net.onnx", lambda path: path.write_bytes(b"nothing"), "is not an ONNX model"),
        ("net.pt", lambda path: path.write_bytes(b""), "ends in '.pt'; right would be .npz"),
        ("net.npz", lambda path: None, "does not exist"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, name: str, write: Any, message: str) -> None:
    write(tmp_path / name)
    with pytest.raises(CaqlError) as raised:
        read_network(tmp_path / name)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_states_from_every_format(tmp_path: Path) -> None:
    states = np.random.default_rng(3).normal(size=(4, 2))
    np.save(tmp_path / "states.npy", states)
    np.savez(tmp_path / "one.npz", anything=states)
    np.savez(tmp_path / "named.npz", states=states, other=np.zeros(3))
    np.savetxt(tmp_path / "states.csv", states, delimiter=",")
    for name in ("states.npy", "one.npz", "named.npz", "states.csv"):
        np.testing.assert_allclose(read_states(tmp_path / name), states)


def test_bad_states_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", a=np.zeros(3), b=np.zeros(3))
    (tmp_path / "words.csv").write_text("a,b\n")
    (tmp_path / "broken.npy").write_bytes(b"nothing")
    for name, message in (
        ("two.npz", "holds a, b; name one of them 'states'"),
        ("words.csv", "cannot be read"),
        ("broken.npy", "cannot be read"),
        ("missing.npz", "does not exist"),
    ):
        with pytest.raises(CaqlError, match=message):
            read_states(tmp_path / name)
