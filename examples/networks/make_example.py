"""Write examples/networks/example.onnx: an untrained 24 x 12 ReLU network of two inputs and one output.

    python examples/networks/make_example.py

It is a chain of Gemm and Relu nodes, as PyTorch and others export such networks, with He-normal weights from seed 0.
Try it with `caql solve examples/networks/example.onnx --action-range 1`.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZES = (2, 24, 12, 1)


def make_layers() -> list[tuple[Any, Any]]:
    """The layers `(W, b)`, W of shape (inputs, outputs), float32."""
    rng = np.random.default_rng(0)
    return [
        ((rng.normal(size=(a, b)) * np.sqrt(2 / a)).astype(np.float32), (0.3 * rng.normal(size=b)).astype(np.float32))
        for a, b in pairwise(SIZES)
    ]


def make_model() -> Any:
    """The network as an ONNX model."""
    nodes, constants, current = [], [], "action"
    for index, (weights, bias) in enumerate(make_layers()):
        last = index == len(SIZES) - 2
        constants += [numpy_helper.from_array(weights, f"W{index}"), numpy_helper.from_array(bias, f"b{index}")]
        output = "q" if last else f"h{index}"
        nodes.append(helper.make_node("Gemm", [current, f"W{index}", f"b{index}"], [output]))
        if not last:
            nodes.append(helper.make_node("Relu", [output], [f"z{index}"]))
        current = f"z{index}"
    given = helper.make_tensor_value_info("action", TensorProto.FLOAT, [1, SIZES[0]])
    found = helper.make_tensor_value_info("q", TensorProto.FLOAT, [1, 1])
    graph = helper.make_graph(nodes, "example", [given], [found], constants)
    return helper.make_model(graph, producer_name="caql", opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    onnx.save(make_model(), Path(__file__).with_name("example.onnx"))
