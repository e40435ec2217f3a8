"""Valid files of every kind that caql reads, and mutants of them: by bytes, and by structure where one is known."""

from __future__ import annotations

import io
import json
import re
import struct
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from campaign.networks import Random

ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 1.5, 2**31, 10**9, 10**12, 2**63, -(2**63), 10**400, 1e308, float("nan"), float("inf")),
    *(
        "",
        "x",
        "NaN",
        "\x00",
        "a" * 5000,
        [],
        [[]],
        [1, "a"],
        {},
        {"name": "caql"},
        {"name": 3},
        "../..",
        "F32",
        "BF16",
    ),
)


@cache
def originals() -> dict[str, bytes]:
    """Valid files of every kind, by name."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    from safetensors.numpy import save

    rng = np.random.default_rng(0)
    layers = [(rng.normal(size=s), rng.normal(size=s[1])) for s in ((4, 5), (5, 3), (3, 1))]
    arrays = {f"W{k}": w for k, (w, _) in enumerate(layers)} | {f"b{k}": b for k, (_, b) in enumerate(layers)}
    full = {**arrays, "low": -np.ones(2), "high": np.ones(2), "states": rng.normal(size=(3, 2))}
    stream, packed, states = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.savez(stream, **full)
    np.savez_compressed(packed, **full)
    np.save(states, full["states"])
    nodes, last = [], "x"
    for k in range(3):
        out = "y" if k == 2 else f"h{k}"
        nodes.append(helper.make_node("Gemm", [last, f"W{k}", f"b{k}"], [out], transB=0, alpha=1.0))
        if k < 2:
            nodes.append(helper.make_node("Relu", [out], [f"r{k}"]))
            last = f"r{k}"
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1])],
        [numpy_helper.from_array(np.float32(value), name) for name, value in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.checker.check_model(model)
    return {
        "network.npz": stream.getvalue(),
        "packed.npz": packed.getvalue(),
        "network.safetensors": save({name: np.float32(value) for name, value in full.items()}),
        "network.onnx": model.SerializeToString(),
        "states.npy": states.getvalue(),
        "states.csv": b"1,2\n3,4.5\n-1e3,nan\n",
        **_run_files(),
    }


@cache
def _run_files() -> dict[str, bytes]:
    """A tiny run's model, checkpoint and configuration."""
    from caql.agents import agent_config
    from caql.config import RunConfig, to_json
    from caql.runs import checkpoints
    from caql.runs.folder import save_model
    from caql.runs.training import Training

    agent = replace(agent_config("caql"), hidden=(4,), action_hidden=(4,))
    config = RunConfig("Pendulum", agent=agent, replay_size=64, warm_up=32, batch_size=8, steps_per_epoch=2)
    training = Training(config)
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder) / "model.safetensors", training)
        path = checkpoints.save_checkpoint(Path(folder), 2, *training.snapshot())
        return {
            "model.safetensors": (Path(folder) / "model.safetensors").read_bytes(),
            "checkpoint.safetensors": path.read_bytes(),
            "config.json": json.dumps(to_json(config)).encode(),
        }


def mutate(rng: Random, name: str, data: bytes) -> bytes:
    """A mutant: by its structure where the format has one that we know, else, or as well, by its bytes."""
    if rng.random() < 0.6:
        by_suffix: dict[str, Callable[[Random, str, bytes], bytes]] = {
            "safetensors": _safetensors,
            "json": _json,
            "onnx": _onnx,
            "npy": _npy,
            "npz": _npy,
            "csv": _npy,
        }
        data = by_suffix[name.rsplit(".", 1)[1]](rng, name, data)
        if rng.random() < 0.8:
            return data
    return _bytes(rng, data)


def _bytes(rng: Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(int(rng.choice([1, 1, 1, 2, 4]))):
        if not out:
            return bytes(out)
        at = int(rng.integers(min(len(out), 400) if rng.random() < 0.5 else len(out)))
        what = rng.integers(7)
        if what == 0:
            out[at] ^= 1 << int(rng.integers(8))
        elif what == 1:
            out[at] = int(rng.choice([0, 1, 127, 128, 255]))
        elif what == 2:
            del out[at:]
        elif what == 3:
            out[at:at] = rng.bytes(int(rng.integers(1, 20)))
        elif what == 4:
            del out[at : at + int(rng.integers(1, 20))]
        elif what == 5:
            out[at : at + 8] = struct.pack("<q", int(rng.choice([-1, 2**31, 2**40, 2**62])))[: len(out) - at]
        else:
            other = list(originals().values())[int(rng.integers(len(originals())))]
            out[:at] = other[:at]
    return bytes(out)


def _inside(rng: Random, value: Any, depth: int = 0) -> Any:
    """JSON with one thing in it changed."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = list(value)[int(rng.integers(len(value)))]
        if rng.random() < 0.15:
            return {k: v for k, v in value.items() if k != key}
        if rng.random() < 0.1:
            return {**value, str(rng.choice(["extra", "name", "W0", "weights_0", "b1"])): value[key]}
        return {**value, key: _inside(rng, value[key], depth + 1)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = int(rng.integers(len(value)))
        return [*value[:at], _inside(rng, value[at], depth + 1), *value[at + 1 :]]
    if rng.random() < 0.05:
        nested: Any = []
        for _ in range(int(rng.choice([5, 500]))):
            nested = [nested]
        return nested
    return ODD[int(rng.integers(len(ODD)))]


def _json(rng: Random, name: str, data: bytes) -> bytes:
    del name
    return json.dumps(_inside(rng, json.loads(data))).encode()


def _safetensors(rng: Random, name: str, data: bytes) -> bytes:
    """Another header; for our own files half the time with a digest that is sound again."""
    if name != "network.safetensors" and rng.random() < 0.5:
        return _signed(rng, data)
    size = struct.unpack("<Q", data[:8])[0]
    header = json.dumps(_inside(rng, json.loads(data[8 : 8 + size]))).encode()
    return struct.pack("<Q", len(header)) + header + data[8 + size :]


def _signed(rng: Random, data: bytes) -> bytes:
    """One of our own files with other values and a digest that is sound again."""
    from caql.runs import checkpoints

    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "mutant.safetensors"
        path.write_bytes(data)
        arrays, meta = checkpoints.load(path)
        if rng.random() < 0.6:
            meta = _inside(rng, meta)
        else:
            chosen = list(arrays)[int(rng.integers(len(arrays)))]
            array = arrays.pop(chosen)
            odd = rng.choice([np.nan, np.inf, -1e30, 1e38]) if array.dtype.kind == "f" else -7
            others = (
                None,
                np.full_like(array, odd),
                array.astype(bool),
                array.astype(np.float64),
                array[None],
                array.astype(np.uint8),
            )
            other = others[int(rng.integers(len(others)))]
            arrays |= {} if other is None else {chosen: other}
        checkpoints.save(path, arrays, meta)
        return path.read_bytes()


def _onnx(rng: Random, name: str, data: bytes) -> bytes:
    """Another graph: the protobuf message is walked to a random field, which is changed."""
    del name
    import onnx

    model = onnx.load_model_from_string(data)
    message: Any = model.graph if rng.random() < 0.9 else model
    while True:
        fields = [field for field, _ in message.ListFields()]
        if not fields:
            break
        field = fields[int(rng.integers(len(fields)))]
        value = getattr(message, field.name)
        repeated = hasattr(value, "append") or hasattr(value, "add")
        if field.message_type is not None:
            if repeated and rng.random() < 0.2:
                at = int(rng.integers(len(value)))
                value.append(value[at]) if rng.random() < 0.5 else value.pop(at)
                break
            message = value[int(rng.integers(len(value)))] if repeated else value
            continue
        if rng.random() < 0.2:
            message.ClearField(field.name)
            break
        choices = [x for x in (*ODD, b"", b"x", b"Tanh", "Conv", "Add", "MatMul", "W0", "x", "y") if x is not None]
        for _ in range(20):
            new = choices[int(rng.integers(len(choices)))]
            try:
                if repeated:
                    value[int(rng.integers(len(value)))] = new
                else:
                    setattr(message, field.name, new)
                break
            except (TypeError, ValueError):
                continue
        break
    try:
        return model.SerializeToString()
    except Exception:  # a string that protobuf cannot encode
        return data


def _npy(rng: Random, name: str, data: bytes) -> bytes:
    """A number or a word in the text of a header replaced by another."""
    del name
    found = list(re.finditer(rb"\d+|<f8|False|shape|descr", data[:4000]))
    if not found:
        return data
    spot = found[int(rng.integers(len(found)))]
    new = [
        b"9" * len(spot[0]),
        b"0" * len(spot[0]),
        b"-1",
        b"<c8",
        b"|O8",
        b"<M8[s]",
        b"True ",
        b"999999999999",
        b"(" * 200,
    ]
    chosen = new[int(rng.integers(len(new)))]
    return data[: spot.start()] + chosen + data[spot.end() :]
