"""Part three: every loader fed with mutated files; it may succeed or say a `CaqlError`, and nothing else.

A parent makes mutants of valid files by the hundred; a child of limited memory reads them one after another and
writes down how each went, so that a child that dies or hangs names its last file by what is missing.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from campaign.ledger import Ledger
from campaign.mutations import mutate, originals
from campaign.networks import Random

BATCH = 600
SECONDS = 60
EXTRA_MEMORY = 3 * 2**30
"""What a loader may take beyond what its libraries map."""


def read(path: Path) -> None:
    """What caql does with the file, chosen by its name."""
    from caql.errors import CaqlError
    from caql.maxq.exact.solver import Exact
    from caql.maxq.maximize import maximize
    from caql.model import load_model
    from caql.network_files import read_network, read_states
    from caql.runs.checkpoints import latest_checkpoint

    kind = path.name.split("-", 1)[1]
    if kind in ("model.safetensors", "checkpoint.safetensors", "config.json"):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "run"
            (folder / "checkpoints").mkdir(parents=True)
            for part, place in (
                ("config.json", "config.json"),
                ("model.safetensors", "model.safetensors"),
                ("checkpoint.safetensors", "checkpoints/step-0000000002.safetensors"),
            ):
                data = path.read_bytes() if part == kind else originals()[part]
                (folder / place).write_bytes(data)
            if kind == "model.safetensors":
                load_model(folder / "model.safetensors").predict(np.zeros(3))
            elif kind == "checkpoint.safetensors":
                latest_checkpoint(folder, print)
                load_model(folder)
                _resume(folder)
            else:
                load_model(folder).predict(np.zeros(3))
                _report(folder.parent)
        return
    if kind.startswith("states"):
        read_states(path)
        return
    found = read_network(path)
    low, high = (side if given is None else given for given, side in ((found.low, -1.0), (found.high, 1.0)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            maximize(found.network, low, high, found.states, solver=Exact(node_limit=50, time_limit=1.0, threads=1))
        except CaqlError:
            return


def _resume(folder: Path) -> None:
    from caql.runs.checkpoints import latest_checkpoint
    from caql.runs.folder import read_config
    from caql.runs.training import Training

    Training(read_config(folder)).restore(*latest_checkpoint(folder, print))


def _report(folder: Path) -> None:
    from caql.experiments.report.results import read_results

    read_results(folder)


def outcome(path: Path) -> str:
    """`read`, `refused`, or what else happened."""
    from caql.errors import CaqlError

    signal.alarm(SECONDS)
    try:
        read(path)
        return "read"
    except CaqlError as problem:
        return "refused" if "\n" not in str(problem) else f"a sentence of several lines: {problem}"
    except BaseException:
        return traceback.format_exc(limit=-4)
    finally:
        signal.alarm(0)


def serve(folder: Path) -> None:
    """Read every file of a folder in a process of limited memory, and write down how each went."""
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

    def late(*_: object) -> None:
        raise TimeoutError(f"no answer after {SECONDS} s")

    from caql.maxq.exact.solver import Exact

    Exact().compile()  # which may take a minute on a busy machine, and is no file's fault
    signal.signal(signal.SIGALRM, late)
    originals()
    for name, data in originals().items():  # so that what is mapped once is not counted
        (folder / f"warm-{name}").write_bytes(data)
        assert outcome(folder / f"warm-{name}") == "read", f"{name}: {outcome(folder / f'warm-{name}')}"
        (folder / f"warm-{name}").unlink()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + EXTRA_MEMORY, used + EXTRA_MEMORY))
    with (folder / "outcomes.jsonl").open("w") as log:
        for path in sorted(folder.glob("[0-9]*-*")):
            log.write(json.dumps([path.name, outcome(path)]) + "\n")
            log.flush()


def make(rng: Random, folder: Path, count: int) -> None:
    """`count` mutants into a folder."""
    names = list(originals())
    for k in range(count):
        name = names[k % len(names)]
        (folder / f"{k:05d}-{name}").write_bytes(mutate(rng, name, originals()[name]))


def work(seed: list[int], number: int, ledger: Ledger, count: int = BATCH) -> None:
    """One batch of mutants."""
    folder = Path(tempfile.mkdtemp(prefix="caql-mutants-"))
    try:
        make(np.random.default_rng([*seed, number]), folder, count)
        ended = _serve_in_child(folder)
        lines = (folder / "outcomes.jsonl").read_text().splitlines() if (folder / "outcomes.jsonl").exists() else []
        results = dict(json.loads(line) for line in lines)
        left = [path for path in sorted(folder.glob("[0-9]*-*")) if path.name not in results]
        if left:
            results[left[0].name] = f"the process ended with status {ended.returncode}: {ended.stderr[-2000:]}"
        for name, said in results.items():
            kind = name.split("-", 1)[1]
            fine = said in ("read", "refused")
            ledger.count("files", kind, Counter({"files": 1, said if fine else "WRONG": 1}))
            if not fine:
                data = (folder / name).read_bytes()
                story = {"part": "files", "kind": kind, "check": said.strip().splitlines()[-1][:60], "detail": said}
                ledger.found({**story, "seed": [*seed, number]}, {f"-{kind}": lambda p, data=data: p.write_bytes(data)})
    finally:
        shutil.rmtree(folder)


def _serve_in_child(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"from campaign.files import serve, Path; serve(Path({str(folder)!r}))"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600, start_new_session=True)


def again(story: dict[str, Any], path: Path) -> list[str]:
    """Read a kept file once more."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / f"00000-{story['kind']}"
        shutil.copy(path, copy)
        _serve_in_child(Path(name))
        said = [json.loads(line)[1] for line in (Path(name) / "outcomes.jsonl").read_text().splitlines()]
    return [each for each in said if each not in ("read", "refused")] + ([] if said else ["the process died"])
