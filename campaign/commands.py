"""Part four: random command lines, most of them bad; exit status 0, 2 or 130, and never a traceback.

Each runs in a forked child of a process that has imported the commands once: a real process with its own standard
output (sometimes a full one), without two seconds of imports for each.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from campaign.ledger import Ledger
from campaign.networks import Random

BATCH = 60
SECONDS = 120
ALLOWED = (0, 2, 130)

VALUES = (
    *(
        "0",
        "1",
        "-1",
        "2",
        "0.5",
        "-0.5",
        "nan",
        "inf",
        "-inf",
        "1e400",
        "abc",
        "",
        " ",
        "--",
        "-",
        "1,2",
        "1:2",
        "none",
    ),
    *(
        "99999999999999999999",
        "True",
        "[1]",
        "{}",
        "ä",
        "💥",
        "a b",
        "\n",
        "../x",
        "/dev/null",
        "/dev/null/x",
        "/proc/self/mem",
    ),
    *(
        "exact",
        "ga",
        "cem",
        "mip",
        "highs",
        "caql",
        "sac",
        "td3",
        "naf",
        "Pendulum",
        "pendulum",
        "CartPole-v1",
        "no_such:Env-v0",
    ),
    *(
        "net.npz",
        "net.onnx",
        "broken.npz",
        "states.npy",
        "empty.npy",
        "folder",
        "file",
        "locked",
        "missing",
        "n" * 300,
        ".",
    ),
)
OPTIONS = {
    "train": (
        "--train-steps --seed --hidden --action-range --agent --solver --out --resume --episode-steps --batch-size "
        "--discount --replay-size --warm-up --steps-per-epoch --evaluate-every --evaluation-episodes --trust "
        "--checkpoint-seconds --target-rate --exploration.decay --solver.iterations --cluster-radius --dual-filter"
    ).split(),
    "evaluate": "--episodes --seed --greedy --trust".split(),
    "solve": (
        "--low --high --action-range --states --solver --tolerance --relative-tolerance --threads --limit-rows --trust"
    ).split(),
    "sweep": (
        "--list --tasks --methods --seeds --first-seed --workers --out --train-steps --search --set "
        "--checkpoint-seconds"
    ).split(),
    "report": "--out --help".split(),
    "bench": "--help --states --solvers --tasks --threads".split(),
}
SHORT = "--train-steps 2 --warm-up 4 --episode-steps 2 --evaluate-every 0 --steps-per-epoch 2 --batch-size 2"
SETTINGS = (
    "agent.discount=abc",
    "seed=-1",
    "x=1",
    "agent.hidden=[0]",
    "=",
    "a.b.c=1",
    "task=7",
    "agent=3",
    "agent.solver={}",
)


def fixtures(folder: Path) -> None:
    """Files and folders that the command lines name."""
    rng = np.random.default_rng(0)
    layers = [(rng.normal(size=s), rng.normal(size=s[1])) for s in ((3, 4), (4, 1))]
    arrays = {f"W{k}": w for k, (w, _) in enumerate(layers)} | {f"b{k}": b for k, (_, b) in enumerate(layers)}
    np.savez(folder / "net.npz", **arrays, low=-np.ones(2), high=np.ones(2), states=rng.normal(size=(3, 1)))
    (folder / "broken.npz").write_bytes((folder / "net.npz").read_bytes()[:200])
    (folder / "net.onnx").write_bytes(b"no graph")
    np.save(folder / "states.npy", rng.normal(size=(2, 1)))
    np.save(folder / "empty.npy", np.zeros((0, 1)))
    (folder / "folder").mkdir()
    (folder / "file").write_text("text")
    (folder / "locked").mkdir(mode=0o500)


def line(rng: Random) -> list[str]:
    """A command line: a command, perhaps what it needs, and a few options with odd values."""
    if rng.random() < 0.05:
        return [str(rng.choice(VALUES)) for _ in range(int(rng.integers(0, 4)))]
    command = str(rng.choice([*OPTIONS, "solve", "solve", "evaluate", "train"]))
    usual = {
        "train": ["Pendulum"],
        "solve": ["net.npz"],
        "evaluate": ["folder"],
        "sweep": ["table1"],
        "report": ["folder"],
    }
    words = [command, *(usual.get(command, []) if rng.random() < 0.7 else [_value(rng)])]
    for _ in range(int(rng.integers(0, 4))):
        option = str(rng.choice(OPTIONS[command]))
        if option == "--set":
            words += [option, str(rng.choice(SETTINGS))]
        else:
            words += (
                [f"{option}={_value(rng)}"]
                if rng.random() < 0.2
                else [option, *([_value(rng)] if rng.random() < 0.85 else [])]
            )
    # Runs that would be in order are kept short, or only shown.
    if command == "train" and "--train-steps" not in words:
        words += SHORT.split()
    if command == "sweep":
        words.append("--dry-run")
    if command == "bench":
        words.append("--help")
    return words


def _value(rng: Random) -> str:
    return VALUES[int(rng.integers(len(VALUES)))]


def serve(folder: Path) -> None:
    """Run each command line of `lines.json` in a forked child and write down its status and what it said."""
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    import importlib

    # Only what starts no threads: a fork would lose them.
    for name in ("train", "evaluate", "solve", "sweep", "report", "bench"):
        importlib.import_module(f"caql.cli.{name}")
    place = folder / "place"
    with (folder / "outcomes.jsonl").open("w") as log:
        for words, full in json.loads((folder / "lines.json").read_text()):
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            fixtures(place)
            child = os.fork()
            if not child:
                _run(words, full, place, folder)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            said = (folder / "stderr").read_text(errors="replace")
            log.write(json.dumps([words, full, status, said[-4000:]]) + "\n")
            log.flush()


def _run(words: list[str], full: bool, place: Path, folder: Path) -> None:
    """In the child: become the command."""
    signal.alarm(SECONDS)
    os.chdir(place)
    for number, path in ((0, os.devnull), (1, "/dev/full" if full else os.devnull), (2, str(folder / "stderr"))):
        target = os.open(path, os.O_RDWR | os.O_CREAT | (os.O_TRUNC if number == 2 else 0))
        os.dup2(target, number)
    sys.argv = ["caql", *words]
    status: Any = 0
    try:
        from caql.cli import main

        main()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    try:
        sys.stdout.flush()
    except OSError:
        print("Exception ignored: the output could not be flushed", file=sys.stderr)
        status = 120
    sys.stderr.flush()
    os._exit(status)


def _serve_in_child(lines: list[tuple[list[str], bool]]) -> tuple[list[Any], subprocess.CompletedProcess[str]]:
    folder = Path(tempfile.mkdtemp(prefix="caql-commands-"))
    try:
        (folder / "lines.json").write_text(json.dumps(lines))
        command = [sys.executable, "-c", f"from campaign.commands import serve, Path; serve(Path({str(folder)!r}))"]
        ended = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=7200, start_new_session=True
        )
        path = folder / "outcomes.jsonl"
        return [json.loads(each) for each in path.read_text().splitlines()] if path.exists() else [], ended
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def wrong(status: int, said: str) -> str | None:
    """What is wrong with an ending, if anything."""
    if "Traceback" in said:
        return said.strip().splitlines()[-1][:120]
    if status == -signal.SIGALRM:
        return None  # a run in order that took too long: counted, not blamed
    if status not in ALLOWED:
        return f"status {status}"
    return None


def work(seed: list[int], number: int, ledger: Ledger, count: int = BATCH) -> None:
    """One batch of command lines."""
    rng = np.random.default_rng([*seed, number])
    lines = [(line(rng), bool(rng.random() < 0.1)) for _ in range(count)]
    outcomes, ended = _serve_in_child(lines)
    if len(outcomes) < len(lines):
        story = {"part": "commands", "kind": "server", "check": "the server died", "detail": ended.stderr[-3000:]}
        ledger.found({**story, "words": lines[len(outcomes)][0], "full": lines[len(outcomes)][1]}, {})
        ledger.count("commands", "server", Counter({"WRONG": 1}))
    for words, full, status, said in outcomes:
        kind = words[0] if words and words[0] in OPTIONS else "other"
        fault = wrong(status, said)
        late = status == -signal.SIGALRM
        ledger.count(
            "commands", kind, Counter({"lines": 1, "WRONG" if fault else "late" if late else f"status {status}": 1})
        )
        if fault:
            story = {"part": "commands", "kind": kind, "check": fault, "detail": said, "words": words, "full": full}
            ledger.found({**story, "seed": [*seed, number]}, {})


def again(story: dict[str, Any], path: Path) -> list[str]:
    """Run a kept command line once more."""
    del path
    outcomes, _ = _serve_in_child([(story["words"], story["full"])])
    return [f"{fault}\n{said}" for _, _, status, said in outcomes if (fault := wrong(status, said))]
