"""Random ONNX graphs: read, they compute what onnxruntime computes; written again they do too; maxima are proved.

Each step of a graph takes a value that is there and an operator with odd settings.  It is tried in onnxruntime at once,
and left out if that refuses it; what onnxruntime takes must be read here as well.
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from caql import maximize
from caql.network_files import read_network
from caql.network_files.export import write_onnx

Made = tuple[str, list[Any], dict[str, Any]]
"""An operator, its inputs after the value (arrays), and its attributes."""


def session(model: bytes | str) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def some(rng: Any, *shape: int) -> Any:
    drawn = rng.normal(size=shape)
    return (np.sign(drawn) * (np.abs(drawn) + 0.3)).astype(np.float32)


def broadcast(rng: Any, shape: tuple[int, ...]) -> Any:
    kept = shape[int(rng.integers(len(shape) + 1)) :]
    return some(rng, *(side if rng.random() < 0.7 else 1 for side in kept))


def whole(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def elementwise(rng: Any, shape: tuple[int, ...]) -> Made:
    kind = rng.choice(
        "Relu Abs Neg Tanh Sigmoid Softplus HardSwish Mish Elu Celu LeakyRelu HardSigmoid Gelu Selu".split()
    )
    alpha = {"alpha": float(rng.random() + 0.1)} if kind in ("Elu", "Celu", "LeakyRelu", "HardSigmoid") else {}
    return str(kind), [], alpha


def two(rng: Any, shape: tuple[int, ...]) -> Made:
    kind = str(rng.choice("Add Sub Mul Div Max Min PRelu".split()))
    return kind, [broadcast(rng, shape)], {}


def clip(rng: Any, shape: tuple[int, ...]) -> Made:
    low, high = np.sort(rng.normal(size=2)).astype(np.float32)
    return "Clip", [[low], [low, high], [None, high], [high, low]][int(rng.integers(4))], {}


def product(rng: Any, shape: tuple[int, ...]) -> Made:
    units = int(rng.integers(1, 5))
    if len(shape) == 2 and rng.random() < 0.6:
        first, second = (int(rng.integers(2)) for _ in range(2))
        inner = shape[0] if first else shape[1]
        weights = some(rng, units, inner) if second else some(rng, inner, units)
        options = {"transA": first, "transB": second, "alpha": 0.7, "beta": -1.3}
        return "Gemm", [weights, some(rng, *[(units,), (1, units), (1,)][int(rng.integers(3))])], options
    stack = (int(rng.integers(1, 3)),) if rng.random() < 0.3 else ()
    return "MatMul", [some(rng, *stack, shape[-1], units)], {}


def shaping(rng: Any, shape: tuple[int, ...]) -> Made:
    rank, kind = len(shape), int(rng.integers(8))
    axis = int(rng.integers(-rank, rank))
    if kind == 0:
        return "Transpose", [], {"perm": [int(k) for k in rng.permutation(rank)]}
    if kind == 1:
        return "Reshape", [whole(*[[0, -1], [-1, shape[-1]], [1, -1, 1]][int(rng.integers(3))])], {}
    if kind == 2:
        return "Unsqueeze", [whole(axis)], {}
    if kind == 3:
        step = int(rng.choice([-2, -1, 1, 2]))
        ends = int(rng.integers(-9, 9))
        return "Slice", [whole(int(rng.integers(-9, 9))), whole(ends), whole(axis), whole(step)], {}
    if kind == 4:
        return "Gather", [rng.integers(-shape[axis], shape[axis], (2, 1))], {"axis": axis}
    if kind == 5:
        return "Concat", [some(rng, *shape)], {"axis": axis}
    if kind == 6:
        return "Pad", [rng.integers(-1, 2, 2 * rank), np.float32(0.4)], {}
    kinds = "ReduceSum ReduceMean ReduceMax ReduceMin".split()
    return str(rng.choice(kinds)), [whole(axis)], {"keepdims": int(rng.integers(2))}


def windows(rng: Any, shape: tuple[int, ...]) -> Made:
    axes = len(shape) - 2
    sides = [int(k) for k in rng.integers(1, 4, axes)]
    options: dict[str, Any] = {"strides": [int(k) for k in rng.integers(1, 3, axes)]}
    if rng.random() < 0.6:
        options["pads"] = [int(k) for k in rng.integers(0, 2, 2 * axes)]
    else:
        options["auto_pad"] = str(rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"]))
    if rng.random() < 0.5:
        groups = shape[1] if rng.random() < 0.5 else 1
        kernels = some(rng, 2 * groups, shape[1] // groups, *sides)
        return (
            "Conv",
            [kernels, some(rng, 2 * groups)],
            {**options, "group": groups, "dilations": [1] * (axes - 1) + [2]},
        )
    options |= {"kernel_shape": sides, "ceil_mode": int(rng.integers(2))}
    return str(rng.choice(["MaxPool", "AveragePool"])), [], options


class Drawn:
    """A random graph, its nodes and constants as they are drawn."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        side = [int(k) for k in self.rng.integers(2, 5, 4)]
        self.shape = [(1, side[0]), (1, side[1], side[2]), (1, 2, side[2], side[3])][int(self.rng.integers(3))]
        self.values = {"x": self.rng.normal(size=self.shape).astype(np.float32)}
        for _ in range(int(self.rng.integers(2, 7))):
            self.step()

    def step(self) -> None:
        name = str(self.rng.choice(list(self.values)[-3:]))
        shape = self.values[name].shape
        kinds: list[Callable[..., Made]] = [elementwise, two, clip, shaping, shaping]
        kinds += [product, product] if shape else []
        kinds += [windows, windows] if 2 < len(shape) < 5 else []
        kind, given, options = kinds[int(self.rng.integers(len(kinds)))](self.rng, shape)
        fresh = [numpy_helper.from_array(np.asarray(each), f"k{len(self.constants)}_{k}")
                 for k, each in enumerate(given) if each is not None]  # fmt: skip
        names = iter(fresh)
        inputs = [name, *("" if each is None else next(names).name for each in given)]
        node = helper.make_node(kind, inputs, [f"v{len(self.nodes)}"], **options)
        try:
            (made,) = session(self.model([node], fresh, name, [node.output[0]])).run(None, {name: self.values[name]})
        except Exception:
            return  # onnxruntime does not take it either
        if 0 < made.size < 200 and np.abs(made).max() < 1e3:
            self.nodes.append(node)
            self.constants += fresh
            self.values[node.output[0]] = made

    def model(self, nodes: list[Any], constants: list[Any], given: str, outputs: list[str]) -> bytes:
        described = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        first = helper.make_tensor_value_info(given, TensorProto.FLOAT, self.values[given].shape)
        graph = helper.make_graph(nodes, "drawn", [first], described, constants)
        opset = [helper.make_opsetid("", 22)]
        return bytes(helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString())


@pytest.mark.parametrize("seed", range(60))
def test_a_random_graph(tmp_path: Path, seed: int) -> None:
    drawn = Drawn(seed)
    outputs = [*drawn.values][1:][-2:]
    if not outputs:
        return
    path = tmp_path / "net.onnx"
    path.write_bytes(drawn.model(drawn.nodes, drawn.constants, "x", outputs))
    network, whole_graph = read_network(path).network, session(str(path))
    x = drawn.rng.normal(size=(2, *drawn.shape)).astype(np.float32)
    flat = x.reshape(2, -1)
    expected = [np.concatenate([each.ravel() for each in whole_graph.run(None, {"x": one})]) for one in x]
    found = network.evaluate(flat[:, :0], flat)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * max(1.0, np.abs(expected).max()))
    write_onnx(network, tmp_path / "again.onnx")
    again = session(str(tmp_path / "again.onnx")).run(None, {"x": x[:, 0]})
    together = np.concatenate([each.reshape(2, -1) for each in again], axis=1)
    np.testing.assert_allclose(together, found, rtol=1e-3, atol=1e-3 * max(1.0, np.abs(found).max()))
    require_bound(network, flat[:1, :-2], drawn.rng)


def require_bound(network: Any, states: Any, rng: Any) -> None:
    """No sampled value of the last output, nor the one that was found, is above the proved bound."""
    if sum(node.size for node in network.graph.nodes if node.constant is None) > 400:
        return
    last = sum(network.size(port) for port in network.outputs) - 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a limit is no failure here
        solution = maximize(network, -1.5, 1.5, states, output=last, tolerance=1e-3, node_limit=30)
    sampled = network.evaluate(np.repeat(states, 200, axis=0), rng.uniform(-1.5, 1.5, (200, 2)))[:, last]
    at = network.evaluate(states, solution.actions)[0, last]
    assert max(sampled.max(), at) <= solution.upper[0] + 1e-9 * max(1.0, np.abs(sampled).max())
    np.testing.assert_allclose(solution.values[0], at, rtol=1e-9, atol=1e-9)
