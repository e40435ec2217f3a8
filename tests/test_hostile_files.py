"""Network and state files that are broken, hostile or merely odd: each is one sentence, before memory is taken."""

import io
import json
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from caql.errors import CaqlError
from caql.network_files import read_network, read_rows, read_states

W, B = np.array([[1.0, -2.0], [0.5, 3.0]], np.float32), np.array([0.1, -0.2], np.float32)


def npy_header(shape: str, descr: str = "'<f8'", version: int = 1) -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode("latin1")
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text


def npz(path: Path, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array))
    return stream.getvalue()


def safetensors(path: Path, kind: str, size: int) -> None:
    parts = {"W0": {"dtype": kind, "shape": [1, 1], "data_offsets": [0, size]}}
    parts["b0"] = {"dtype": "F32", "shape": [1], "data_offsets": [size, size + 4]}
    header = json.dumps(parts).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(size + 4))


def encrypted(path: Path) -> None:
    npz(path, W0=npy(W), b0=npy(B))
    data = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = 0
        while (at := data.find(signature, at)) >= 0:
            data[at + offset] |= 1
            at += 4
    path.write_bytes(data)


def twice(path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate"):
        npz_twice(path)


def npz_twice(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("W0", "b0", "b0"):
            archive.writestr(f"{name}.npy", npy(W))


def flipped(path: Path) -> None:
    npz(path, W0=npy(W), b0=npy(B))
    data = bytearray(path.read_bytes())
    data[data.find(b"\x93NUMPY") + 130] ^= 1
    path.write_bytes(data)


ARRAY_FILES: list[tuple[str, Callable[[Path], object], str]] = [
    ("huge.npz", lambda p: npz(p, W0=npy_header("(1000000, 1000000)"), b0=npy(B)), "at most 268435456 numbers"),
    ("claims.npz", lambda p: npz(p, W0=npy_header("(8000, 8000)"), b0=npy(B)), "claims shape (8000, 8000)"),
    ("short.npz", lambda p: npz(p, W0=npy(W)[:-3], b0=npy(B)), "W0 claims shape (2, 2)"),
    ("negative.npz", lambda p: npz(p, W0=npy_header("(-4, 2)"), b0=npy(B)), "no side can be negative"),
    ("words.npz", lambda p: npz(p, W0=npy_header("('a', 2)"), b0=npy(B)), "is not an .npz of plain arrays"),
    ("descr.npz", lambda p: npz(p, W0=npy_header("(1,)", "()"), b0=npy(B)), "is not an .npz of plain arrays"),
    ("deep.npz", lambda p: npz(p, W0=npy_header("(1,)", "(" * 3000), b0=npy(B)), "is not an .npz of plain arrays"),
    ("version.npz", lambda p: npz(p, W0=npy_header("(1,)", version=9), b0=npy(B)), "W0 has version (9, 0)"),
    ("text.npz", lambda p: npz(p, W0=b"no array", b0=npy(B)), "is not an .npz of plain arrays"),
    ("encrypted.npz", encrypted, "encrypted"),
    ("flipped.npz", flipped, "Bad CRC-32"),
    ("twice.npz", twice, "two arrays are called b0"),
    ("complex.npz", lambda p: np.savez(p, W0=W * 1j, b0=B), "W0 holds complex64; right would be real numbers"),
    ("dates.npz", lambda p: np.savez(p, W0=W.astype("datetime64[D]"), b0=B), "W0 holds datetime64[D]"),
    ("struct.npz", lambda p: np.savez(p, W0=np.zeros((2, 2), "f4,f4"), b0=B), "W0 holds [('f0'"),
    ("bool.npz", lambda p: np.savez(p, W0=W > 0, b0=B), "W0 holds bool"),
    ("strings.npz", lambda p: np.savez(p, W0=W.astype(str), b0=B), "W0 holds <U"),
    ("both.npz", lambda p: np.savez(p, W0=W, b0=B, weights_0=W), "W0 and weights_0 are the same part of layer 0"),
    ("zeros.npz", lambda p: np.savez(p, W0=W, b0=B, b00=B), "b0 and b00 are the same part of layer 0"),
    ("empty.npz", lambda p: np.savez(p, W0=W, b0=B, states=np.zeros((0, 1))), "states has shape (0, 1)"),
    ("bf16.safetensors", lambda p: safetensors(p, "BF16", 2), "W0 holds BF16; right would be real numbers"),
    ("f8.safetensors", lambda p: safetensors(p, "F8_E4M3", 1), "W0 holds F8_E4M3"),
    ("bool.safetensors", lambda p: safetensors(p, "BOOL", 1), "W0 holds BOOL"),
    ("complex.safetensors", lambda p: safetensors(p, "C64", 8), "W0 holds C64"),
    ("new.safetensors", lambda p: safetensors(p, "F128", 16), "is not a safetensors file"),
    ("long.safetensors", lambda p: safetensors(p, "F32", 8), "is not a safetensors file"),
]


@pytest.mark.parametrize(("name", "write", "message"), ARRAY_FILES, ids=[name for name, *_ in ARRAY_FILES])
def test_array_files(tmp_path: Path, name: str, write: Callable[[Path], object], message: str) -> None:
    write(tmp_path / name)
    _refused(lambda: read_network(tmp_path / name), message)


ROWS_FILES: list[tuple[str, Callable[[Path], object], str]] = [
    ("huge.npz", lambda p: npz(p, C=npy_header("(1000000, 1000000)"), d=npy(B)), "at most 268435456 numbers"),
    ("claims.npz", lambda p: npz(p, C=npy_header("(8000, 8000)"), d=npy(B)), "C claims shape (8000, 8000)"),
    ("short.npz", lambda p: npz(p, C=npy(W)[:-3], d=npy(B)), "C claims shape (2, 2)"),
    ("text.npz", lambda p: npz(p, integer=b"no array"), "is not an .npz of plain arrays"),
    ("names.npz", lambda p: npz(p, **{f"x{k}" * 99: npy(B) for k in range(99)}), "right would be C and d, E and f"),
    ("network.npz", lambda p: npz(p, W0=npy(W), b0=npy(B)), "it holds W0, b0; right would be C and d"),
    ("empty.npz", lambda p: p.write_bytes(b""), "is not an .npz of plain arrays"),
    ("none.npz", lambda p: npz(p), "it holds nothing"),
]


@pytest.mark.parametrize(("name", "write", "message"), ROWS_FILES, ids=[name for name, *_ in ROWS_FILES])
def test_rows_files(tmp_path: Path, name: str, write: Callable[[Path], object], message: str) -> None:
    write(tmp_path / name)
    _refused(lambda: read_rows(tmp_path / name), message)


def _refused(read: Callable[[], object], message: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CaqlError) as raised:
            read()
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 800


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("huge.npy", npy_header("(1000000000000,)"), "at most 268435456 numbers"),
        ("claims.npy", npy_header("(10000000,)"), "claims shape (10000000,)"),
        ("empty.npy", npy(np.zeros((0, 3))), "states has shape (0, 3)"),
        ("columns.npy", npy(np.zeros((3, 0))), "states has shape (3, 0)"),
        ("cube.npy", npy(np.zeros((2, 2, 2))), "states has shape (2, 2, 2)"),
        ("complex.npy", npy(np.zeros(3, complex)), "holds complex128"),
        ("object.npy", npy_header("(1,)", "'|O'"), "Object arrays cannot be loaded"),
        ("empty.csv", b"", "states has shape"),
        ("bytes.csv", b"\xff\xfe\x00", "cannot be read"),
        ("ragged.csv", b"1,2\n3\n", "cannot be read"),
        ("nothing.npy", b"", "cannot be read"),
        ("cut.npz", b"PK\x03\x04", "cannot be read"),
    ],
)
def test_state_files(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    _refused(lambda: read_states(tmp_path / name), message)


def test_a_name_too_long_is_named(tmp_path: Path) -> None:
    _refused(lambda: read_network(tmp_path / ("n" * 300 + ".npz")), "is not a usable file name")
    _refused(lambda: read_states(tmp_path / ("n" * 300 + ".npy")), "is not a usable file name")


def test_other_byte_orders_and_fortran_order_are_read_as_they_are(tmp_path: Path) -> None:
    np.savez(tmp_path / "net.npz", W0=np.asfortranarray(W.astype(">f8")), b0=B.astype(">i2"))
    ((weights, bias),) = read_network(tmp_path / "net.npz").layers
    np.testing.assert_array_equal(weights, W)
    np.testing.assert_array_equal(bias, B.astype(np.int16))
    assert weights.dtype == np.float64


Node = tuple[str, list[str], list[str], dict[str, Any]]


def graph(
    path: Path, nodes: list[Node], shape: Any = ("N", 2), change: Callable[[Any], object] = lambda model: None
) -> Path:
    made = [helper.make_node(kind, inputs, outputs, **options) for kind, inputs, outputs, options in nodes]
    constants = {"w": W, "b": B, "column": B[:, None], "v": W[:, :1]}
    model = helper.make_model(
        helper.make_graph(
            made,
            "network",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(value, name) for name, value in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=10,
    )
    change(model)
    path.write_bytes(model.SerializeToString())
    return path


PLAIN: list[Node] = [("Gemm", ["x", "w", "b"], ["y"], {})]


def set_tensor(**fields: Any) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        tensor = model.graph.initializer[0]
        for name, value in fields.items():
            if name == "dims":
                del tensor.dims[:]
                tensor.dims.extend(value)
            else:
                setattr(tensor, name, value)

    return change


def replaced(model: Any, numbers: list[int]) -> None:
    """The constant b with other entries."""
    for tensor in model.graph.initializer:
        if tensor.name == "b":
            tensor.CopyFrom(numpy_helper.from_array(np.array(numbers, np.int64), "b"))


GRAPHS: dict[str, tuple[list[Node], Any, Callable[[Any], object]]] = {
    "has no output": ([("Relu", ["x"], [], {})], (2,), lambda model: None),
    "has 0 inputs": ([("Relu", [], ["y"], {})], (2,), lambda model: None),
    "has 1 inputs": ([("Gemm", ["x"], ["y"], {})], (2,), lambda model: None),
    "is of the domain 'foreign'": ([("Gemm", ["x", "w"], ["y"], {"domain": "foreign"})], ("N", 2), lambda model: None),
    "MatMul has operands of shapes (2, 2) and (1, 2)": (
        [("MatMul", ["x", "w"], ["h"], {}), ("MatMul", ["w", "h"], ["y"], {})],
        ("N", 2),
        lambda model: None,
    ),
    "a side without a fixed length ([1, 0]": ([("Relu", ["x"], ["y"], {})], ("N", "M"), lambda model: None),
    "already there": ([("Relu", ["x"], ["w"], {}), ("Relu", ["w"], ["y"], {})], ("N", 2), lambda model: None),
    "reads 'nowhere', which no node before it computes": (
        [("Gemm", ["x", "w", "nowhere"], ["y"], {})],
        ("N", 2),
        lambda model: None,
    ),
    "only a Constant of numbers": (
        [("Constant", [], ["c"], {"value_string": b"a"}), *PLAIN],
        ("N", 2),
        lambda m: None,
    ),
    "at most 268435456 numbers can be read": ([("Relu", ["x"], ["y"], {})], ("N", 10**12), lambda model: None),
    "axis 3, which does not exist": ([("Flatten", ["x"], ["y"], {"axis": 3})], ("N", 2), lambda model: None),
    "at most 268435456 numbers can be held": (
        [("Concat", ["x"] * 1000, ["c"], {"axis": 1}), ("Concat", ["c"] * 1000, ["y"], {"axis": 1})],
        ("N", 1000),
        lambda model: None,
    ),
    "and this needs": ([("Expand", ["x", "b"], ["y"], {})], ("N", 1), lambda model: replaced(model, [10**6, 10**6])),
    "windows of [3] with strides [0]": (
        [("MaxPool", ["x"], ["y"], {"kernel_shape": [3], "strides": [0], "pads": [0, 0, 0]})],
        (1, 1, 5),
        lambda model: None,
    ),
    "do not fit values of (5,)": ([("MaxPool", ["x"], ["y"], {"kernel_shape": [9]})], (1, 1, 5), lambda model: None),
    "a window lies in the padding alone": (
        [("MaxPool", ["x"], ["y"], {"kernel_shape": [2], "pads": [3, 3]})],
        (1, 1, 5),
        lambda model: None,
    ),
    "cannot be made of shape": ([("Reshape", ["x", "b"], ["y"], {})], ("N", 2), lambda m: replaced(m, [3, -1])),
    "axis -7 does not exist": ([("Concat", ["x", "x"], ["y"], {"axis": -7})], ("N", 2), lambda model: None),
    "its shape is computed": ([("Reshape", ["x", "x"], ["y"], {})], ("N", 2), lambda model: None),
    "cuts off more than shape": ([("Pad", ["x", "b"], ["y"], {})], ("N", 2), lambda m: replaced(m, [0, -2, 0, -1])),
    "is not an order of the 2 axes": ([("Transpose", ["x"], ["y"], {"perm": [0, 0]})], ("N", 2), lambda model: None),
    "two inputs are called 'x'": (
        PLAIN,
        ("N", 2),
        lambda model: model.graph.input.add().CopyFrom(model.graph.input[0]),
    ),
    "input 'x' has shape": (PLAIN, ("N", -3), lambda model: None),
    "claims shape (100, 100), 10000 numbers; it holds 4": (PLAIN, ("N", 2), set_tensor(dims=[100, 100])),
    "ONNX constant 'w' has shape (1000000, 1000000)": (PLAIN, ("N", 2), set_tensor(dims=[10**6, 10**6])),
    "'w' has shape (-1, 2); no side": (PLAIN, ("N", 2), set_tensor(dims=[-1, 2])),
    "it holds 3": (PLAIN, ("N", 2), set_tensor(raw_data=bytes(13))),
    "'w' holds COMPLEX64": (PLAIN, ("N", 2), set_tensor(data_type=TensorProto.COMPLEX64)),
    "'w' holds BFLOAT16": (PLAIN, ("N", 2), set_tensor(data_type=TensorProto.BFLOAT16)),
    "'w' holds STRING": (PLAIN, ("N", 2), set_tensor(data_type=TensorProto.STRING)),
    "'w' holds type 1234": (PLAIN, ("N", 2), set_tensor(data_type=1234)),
    "is there twice": (PLAIN, ("N", 2), lambda model: model.graph.initializer.add(name="w")),
    "has 1 inputs and 0 outputs": (PLAIN, ("N", 2), lambda model: model.graph.ClearField("output")),
    "has 0 inputs and 0 outputs": (PLAIN, ("N", 2), lambda model: model.ClearField("graph")),
}


@pytest.mark.parametrize("message", GRAPHS)
def test_graphs(tmp_path: Path, message: str) -> None:
    nodes, shape, change = GRAPHS[message]
    path = graph(tmp_path / "net.onnx", nodes, shape, change)
    _refused(lambda: read_network(path), message)


def test_one_large_constant_used_many_times_is_counted(tmp_path: Path) -> None:
    """Each use is small; together they would be 300 million numbers."""
    nodes: list[Node] = []
    for k in range(1200):
        nodes += [("Gemm", [f"r{k}" if k else "x", "w"], [f"h{k}"], {}), ("Relu", [f"h{k}"], [f"r{k + 1}"], {})]

    def widen(model: Any) -> None:
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((500, 500), np.float32), "w"))

    nodes.append(("Identity", ["r1200"], ["y"], {}))
    path = graph(tmp_path / "net.onnx", nodes, ("N", 500), widen)
    _refused(lambda: read_network(path).layers, "the network's layers hold more than")


def test_the_layers_of_a_very_wide_graph_are_refused_before_they_are_made(tmp_path: Path) -> None:
    path = graph(tmp_path / "net.onnx", [("Relu", ["x"], ["y"], {})], ("N", 10**5))
    _refused(lambda: read_network(path).layers, "the network's layers hold more than")


GOOD: dict[str, tuple[list[Node], Any]] = {
    "a Gemm whose bias is left out by an empty name": ([("Gemm", ["x", "w", ""], ["y"], {})], ("N", 2)),
    "a vector on the right": ([("MatMul", ["w", "x"], ["h"], {}), ("Add", ["h", "b"], ["y"], {})], (2,)),
    "columns": ([("MatMul", ["w", "x"], ["h"], {}), ("Add", ["h", "column"], ["y"], {})], (2, 1)),
    "a value that is added to itself, and columns": (
        [("MatMul", ["w", "x"], ["h"], {}), ("Add", ["h", "h"], ["y"], {})],
        (2, 1),
    ),
    "rows and a transposed operand": ([("Gemm", ["x", "w"], ["y"], {"transA": 1})], (2, 1)),
    "three axes, flattened": ([("Flatten", ["x"], ["f"], {}), ("Gemm", ["f", "w", "b"], ["y"], {})], ("N", 1, 2)),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_is_legal_is_read(tmp_path: Path, name: str) -> None:
    nodes, shape = GOOD[name]
    path = graph(tmp_path / "net.onnx", nodes, shape)
    x = np.array([0.3, -0.7], np.float32)
    sides = [1 if side == "N" else side for side in shape]
    expected = ReferenceEvaluator(str(path)).run(None, {"x": x.reshape(sides)})[0].ravel()
    ((weights, bias),) = read_network(path).layers
    np.testing.assert_allclose(x @ weights + bias, expected, rtol=1e-6)


def external(path: Path) -> Any:
    graph(path, PLAIN)
    model = onnx.load(path)
    onnx.save(model, path, save_as_external_data=True, location="net.data", size_threshold=0)
    return onnx.load(path, load_external_data=False)


def test_weights_in_a_file_beside_the_graph_are_read(tmp_path: Path) -> None:
    external(tmp_path / "net.onnx")
    ((weights, bias),) = read_network(tmp_path / "net.onnx").layers
    np.testing.assert_array_equal(weights, W)
    np.testing.assert_array_equal(bias, B)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("location", "../net.data", "right would be a file beside the graph"),
        ("location", "/dev/zero", "right would be a file beside the graph"),
        ("location", "other.data", "which is not beside the graph"),
        ("length", "99999999999", "holds 99999999999 for it"),
        ("offset", "-8", "for it"),
        ("offset", "word", "is not an ONNX model"),
    ],
)
def test_weights_elsewhere_are_refused(tmp_path: Path, key: str, value: str, message: str) -> None:
    model = external(tmp_path / "net.onnx")
    (tmp_path.parent / "net.data").write_bytes(bytes(100))
    for entry in model.graph.initializer[0].external_data:
        if entry.key == key:
            entry.value = value
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    _refused(lambda: read_network(tmp_path / "net.onnx"), message)
