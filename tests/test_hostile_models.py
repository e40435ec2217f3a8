"""Saved models and runs from strangers: nothing they name is imported, whatever is wrong in them is one sentence."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from caql.cli.evaluate import main as evaluate
from caql.cli.solve import main as solve
from caql.cli.train import main as train
from caql.errors import CaqlError
from caql.experiments.report.results import read_results
from caql.model import CAQL, load_model
from caql.runs import checkpoints

TINY = (
    "--train-steps 40 --episode-steps 20 --warm-up 40 --evaluate-every 20 --evaluation-episodes 1 --hidden 4 "
    "--action-hidden 4 --checkpoint-seconds 0"
).split()
MODULE = """
import gymnasium
from gymnasium.envs.classic_control.pendulum import PendulumEnv
gymnasium.register("Stranger-v0", PendulumEnv)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    train(["Pendulum", *TINY, "--out", str(folder)])
    return folder


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that must not be imported; says whether it was."""
    (tmp_path / "stranger.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda: "stranger" in sys.modules
    sys.modules.pop("stranger", None)
    import gymnasium

    gymnasium.registry.pop("Stranger-v0", None)


def rewritten(source: Path, to: Path, meta: dict[str, Any] | None = None, **arrays: Any) -> Path:
    """A saved file with other values and a sound digest; None takes a value away, `config.a.b` reaches inside."""
    stored, values = checkpoints.load(source)
    for name, value in (meta or {}).items():
        *inner, last = name.split(".")
        place = values
        for step in inner:
            place = place[step]
        if value is None:
            del place[last]
        else:
            place[last] = value
    checkpoints.save(to, {**stored, **arrays}, values)
    return to


def foreign(run: Path, to: Path, finished: bool = True) -> Path:
    """The run as one of `stranger:Stranger-v0`."""
    shutil.copytree(run, to)
    config = json.loads((to / "config.json").read_text())
    (to / "config.json").write_text(json.dumps({**config, "task": "stranger:Stranger-v0"}))
    rewritten(run / "model.safetensors", to / "model.safetensors", {"config.task": "stranger:Stranger-v0"})
    if not finished:
        (to / "finished.json").unlink()
    return to


@pytest.mark.parametrize("finished", [True, False])
def test_a_stored_task_does_not_import_a_module(run: Path, tmp_path: Path, stranger: Any, finished: bool) -> None:
    folder = foreign(run, tmp_path / "results" / "run", finished)
    sentence = r"asks to import 'stranger' for its task 'stranger:Stranger-v0'; give env= .* --trust"
    for load in (
        lambda: load_model(folder),
        lambda: CAQL.load(folder / "model.safetensors"),
        lambda: evaluate([str(folder), "--episodes", "1"]),
        lambda: solve([str(folder)]),
        lambda: train(["--out", str(folder), "--resume"]),
    ):
        with pytest.raises(CaqlError, match=sentence):
            load()
    assert len(read_results(tmp_path / "results").runs) == 1
    assert not stranger()
    # Under a name of the user's own choice the weights serve as ever.
    assert CAQL.load(folder, env="Pendulum-v1").train_step == 40
    assert not stranger()


def test_trust_imports_it(run: Path, tmp_path: Path, stranger: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = foreign(run, tmp_path / "run", finished=False)
    evaluate([str(folder), "--episodes", "1", "--trust"])
    assert stranger()
    solve([str(folder), "--solver", "ga", "--limit-rows", "1", "--trust"])
    train(["--out", str(folder), "--resume", "--trust"])
    train(["stranger:Stranger-v0", "--out", str(folder), "--resume"])
    assert "stranger:Stranger-v0: caql after 40 training steps" in capsys.readouterr().out


NESTED: Any = []
for _ in range(400):
    NESTED = [NESTED]

BAD_META: dict[str, dict[str, Any]] = {
    "no epoch": {"epoch": None},
    "epoch is a word": {"epoch": "three"},
    "steps below zero": {"train_step": -1},
    "steps as a fraction": {"environment_steps": 1.5},
    "steps as a truth value": {"train_step": True},
    "no configuration": {"config": None},
    "a configuration that is a list": {"config": [1]},
    "no task": {"config.task": None},
    "task is a number": {"config.task": 7},
    "unknown agent": {"config.agent.name": "mystery"},
    "agent without a name": {"config.agent.name": None},
    "agent is a word": {"config.agent": "caql"},
    "solver is a number": {"config.agent.solver": 5},
    "hidden is a word": {"config.agent.hidden": "wide"},
    "hidden is nested": {"config.agent.hidden": NESTED},
    "hidden holds words": {"config.agent.hidden": ["a", "b"]},
    "other hidden layers": {"config.agent.hidden": [5]},
    "a hidden layer of 10^9 units": {"config.agent.hidden": [10**9, 10**9]},
    "a hidden layer of 10^30 units": {"config.agent.hidden": [10**30]},
    "a buffer of 10^15 transitions": {"config.replay_size": 10**15},
    "a batch that is a word": {"config.batch_size": "many"},
    "a range that is a word": {"config.action_range": "wide"},
    "an episode of words": {"config.episode_steps": "long"},
    "an unknown setting": {"config.colour": "red"},
    "a discount that is a list": {"config.agent.discount": [1]},
}


@pytest.mark.parametrize("name", BAD_META)
def test_models_with_wrong_fields(run: Path, tmp_path: Path, name: str) -> None:
    path = rewritten(run / "model.safetensors", tmp_path / "model.safetensors", BAD_META[name])
    with pytest.raises(CaqlError) as raised:
        load_model(path)
    assert "model.safetensors" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_models_with_wrong_arrays(run: Path, tmp_path: Path) -> None:
    arrays, _ = checkpoints.load(run / "model.safetensors")
    name = next(name for name, array in arrays.items() if array.dtype == np.float32 and array.size > 4)
    bad = arrays[name].copy()
    bad[0] = np.nan
    for change, message in (
        ({name: bad}, "holds numbers that are not finite"),
        ({name: arrays[name].astype(np.float64)}, "should be float32 and is float64"),
        ({name: arrays[name] > 0}, "should be float32 and is bool"),
        ({name: arrays[name][:-1]}, "should be"),
    ):
        path = rewritten(run / "model.safetensors", tmp_path / "model.safetensors", **change)
        with pytest.raises(CaqlError, match=message):
            evaluate([str(path), "--episodes", "1"])


BAD_CHECKPOINTS: dict[str, dict[str, Any]] = {
    "no counter": {"written": None},
    "records are a number": {"records": 3},
    "more written than there": {"written": 10**6},
    "since is a word": {"since": "monday"},
    "seconds are a list": {"seconds": []},
}


@pytest.mark.parametrize("name", BAD_CHECKPOINTS)
def test_checkpoints_with_wrong_fields(run: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    (folder / "finished.json").unlink()
    for path in checkpoints.checkpoint_files(folder):
        rewritten(path, path, BAD_CHECKPOINTS[name])
    with pytest.raises(CaqlError, match=r"saved (state|replay buffer) does not fit"):
        train(["Pendulum", *TINY, "--out", str(folder), "--resume"])


def test_a_header_that_is_not_json(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    for text, message in (("{", "not JSON"), ("[" * 100_000, "not JSON"), ("[]", "no named values")):
        header = {"meta": text, "sha256": checkpoints._digest({}, text)}
        save_file({}, tmp_path / "model.safetensors", metadata=header)
        with pytest.raises(CaqlError, match=message):
            load_model(tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"task": ' * 50_000, "\xff", "{}", "[]", '{"task": {"a": 1}}', "null"]
)
def test_a_configuration_that_is_none(run: Path, tmp_path: Path, text: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    (folder / "finished.json").unlink()
    (folder / "config.json").write_text(text, "latin1")
    with pytest.raises(CaqlError, match=r"config\.json"):
        load_model(folder)
    results = read_results(tmp_path)
    assert not results.runs
    assert len(results.problems) == 1


def test_runs_that_no_memory_could_hold_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CaqlError, match=r"hidden = \(1000000000,\) needs .* GB of memory"):
        train(["Pendulum", "--hidden", "1000000000", "--out", str(tmp_path / "a")])
    with pytest.raises(CaqlError, match=r"replay_size = 1000000000000 needs .* GB of memory"):
        train(["Pendulum", "--replay-size", "1000000000000", "--out", str(tmp_path / "b")])
    assert not list(tmp_path.iterdir())


def command(*arguments: str, shell: str) -> subprocess.CompletedProcess[str]:
    quoted = " ".join(f"'{argument}'" for argument in arguments)
    code = "import sys; from caql.cli import main; sys.argv[0] = 'caql'; main()"
    return subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -c \"{code}\" {quoted} {shell}"],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("shell", "message"), [("> /dev/full", "No space left on device"), (">&-", "the standard output is closed")]
)
def test_a_full_or_closed_output_is_one_sentence(run: Path, shell: str, message: str) -> None:
    for arguments in (["solve", str(run), "--solver", "ga"], ["evaluate", str(run), "--episodes", "1"]):
        ended = command(*arguments, shell=shell)
        assert ended.returncode == 2, ended.stderr
        assert message in ended.stderr
        assert len(ended.stderr.strip().splitlines()) == 1


def test_bad_command_lines_of_evaluate(run: Path) -> None:
    for arguments, message in (
        (["--seed", "-3"], "--seed = -3 must not be negative"),
        (["--episodes", "-1"], "--episodes = -1"),
        (["--greedy", "nobody"], "greedy = 'nobody'"),
    ):
        with pytest.raises(CaqlError, match=message):
            evaluate([str(run), *arguments])
    with pytest.raises(CaqlError, match="is not a usable file name"):
        evaluate(["n" * 300])
    with pytest.raises(CaqlError, match=r"threads = .* at least 1 and at most 1024"):
        solve([str(run), "--threads", "1000000000"])
