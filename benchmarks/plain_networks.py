"""What lowering costs a plain ReLU network: `maximize` of layers, of the same as a graph, and of the same as ONNX.

    python benchmarks/plain_networks.py                         # layers, graph and ONNX file
    python benchmarks/plain_networks.py --before OTHER/src      # the layers in another version of caql as well

Each form answers the same questions, 64 states at once and one state at a time, in turns; the processor time of each is
the best of all turns, and ratios are to the layers.  The other version runs in a process of its own, in the same turns.
The last row is the whole command `caql solve examples/networks/example.onnx`.  On a busy machine, processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
NETWORKS = ("pendulum", "hopper", "halfcheetah")
"""Trained networks of 32 x 16 units, of 1, 3 and 6 actions."""
STATES, ALONE = 64, 16

Call = Callable[[], object]


def questions(name: str) -> tuple[list[tuple[Any, Any]], Any]:
    """Layers and states of a trained network."""
    from safetensors.numpy import load_file

    arrays = load_file(ROOT / "src" / "caql" / "bench" / "networks" / f"{name}.safetensors")
    layers = [(arrays[f"weights_{k}"].astype(float), arrays[f"bias_{k}"].astype(float)) for k in range(3)]
    return layers, arrays["states"][:STATES].astype(float)


def calls(form: str) -> dict[str, Call]:
    """What is timed, by network: 64 states at once, and 16 of them one by one."""
    from caql import maximize

    found: dict[str, Call] = {}
    for name in NETWORKS:
        layers, states = questions(name)
        network: Any = layers
        if form != "layers":
            from caql.graphs.chain import network_of_layers

            network = network_of_layers(layers)
        if form == "onnx":
            network = written_and_read(network)
        alone = states[:ALONE, None]
        settings = {"low": -1.0, "high": 1.0, "relative_tolerance": 1e-4, "threads": 1}
        found[f"{name}, {STATES} states at once"] = lambda n=network, s=states, w=settings: maximize(n, states=s, **w)
        found[f"{name}, {ALONE} states one by one"] = lambda n=network, s=alone, w=settings: [
            maximize(n, states=each, **w) for each in s
        ]
    return found


def written_and_read(network: Any) -> Any:
    from caql.network_files import read_network
    from caql.network_files.export import write_onnx

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        write_onnx(network, path)
        return read_network(path).network


def serve() -> None:
    """Another version's side: one question a line, the seconds in answer."""
    known = calls("layers")
    for line in sys.stdin:
        began = time.process_time()
        known[json.loads(line)]()
        print(json.dumps(time.process_time() - began), flush=True)


class Other:
    """A process that answers with another version of caql."""

    def __init__(self, source: str) -> None:
        environment = {**os.environ, "PYTHONPATH": source}
        command = [sys.executable, __file__, "--serve"]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, name: str) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(name) + "\n")
        self.process.stdin.flush()
        return float(json.loads(self.process.stdout.readline()))


def timed(call: Call) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def command_seconds(source: str) -> float:
    """Processor time of the whole command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    file = ROOT / "examples" / "networks" / "example.onnx"
    start = "import sys; from caql.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", start, "solve", str(file), "--action-range", "1"]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": source}, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", help="the source folder of another version of caql")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    forms = {form: calls(form) for form in ("layers", "graph", "onnx")}
    other = Other(options.before) if options.before else None
    columns = [*forms, *(["before"] if other else [])]
    print(f"| network | {' | '.join(f'{each}, ms' for each in columns)} | {' | '.join(columns[1:])} / layers |")
    print("|---|" + "---|" * (len(columns) + 1))
    for name in forms["layers"]:
        best = dict.fromkeys(columns, float("inf"))
        for _ in range(options.turns):
            for each in columns:
                seconds = other(name) if each == "before" and other else timed(forms[each][name])
                best[each] = min(best[each], seconds)
        show(name, best)
    best = {"layers": float("inf")} | ({"before": float("inf")} if other else {})
    for _ in range(max(3, options.turns // 5)):
        for each, source in (("layers", str(ROOT / "src")), ("before", options.before)):
            if each in best:
                best[each] = min(best[each], command_seconds(source))
    print("caql solve example.onnx: " + ", ".join(f"{each} {seconds:.2f} s" for each, seconds in best.items()))
    if other:
        other.process.kill()


def show(name: str, best: dict[str, float]) -> None:
    ratios = " | ".join(f"{best[each] / best['layers']:.2f}" for each in best if each != "layers")
    print(f"| {name} | {' | '.join(f'{1e3 * each:.2f}' for each in best.values())} | {ratios} |", flush=True)


if __name__ == "__main__":
    main()
