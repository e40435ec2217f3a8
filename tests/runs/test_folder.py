"""One folder, one process, and a disk that may be full: what is there is never lost, and what is wrong is said."""

import contextlib
import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace

import pytest

from caql.agents.caql import CAQLConfig
from caql.config import RunConfig, to_json
from caql.errors import CaqlError
from caql.runs import checkpoints, clock, lock
from caql.runs import folder as folder_module
from caql.runs.board import Board
from caql.runs.folder import Busy, is_finished, read_config, read_metrics, run
from caql.runs.lock import alone

TINY = RunConfig(
    "Pendulum",
    episode_steps=20,
    train_steps=40,
    steps_per_epoch=10,
    batch_size=8,
    warm_up=40,
    evaluate_every=20,
    evaluation_episodes=1,
    agent=CAQLConfig(hidden=(4,), action_hidden=(4,)),
)
HOLDER = """
    import sys, time
    from pathlib import Path
    from caql.runs.lock import alone
    with alone(Path(sys.argv[1])) as ours:
        print(ours, flush=True)
        time.sleep(600)
"""


@contextlib.contextmanager
def held_elsewhere(path):
    """Another process that holds the lock; the caller ends it."""
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), str(path)], stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            assert holder.stdout.readline() == "True\n"
            yield holder
        finally:
            holder.kill()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert run(TINY, folder)
    return folder


def everything(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_in_use_is_refused_until_its_holder_is_gone_even_by_kill_9(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    with held_elsewhere(folder) as holder:
        for resume in (False, True):
            with pytest.raises(Busy, match=r"run is in use: another process is training in it"):
                run(TINY, folder, resume)
        assert list(folder.iterdir()) == []
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    assert run(TINY, folder)
    with alone(folder) as ours:
        assert ours, "the lock of a finished run is given back"
        with alone(folder) as again:
            assert not again


def test_a_live_run_is_not_resumed_by_another(finished):
    before = everything(finished)
    with alone(finished), pytest.raises(Busy):
        run(TINY, finished, resume=True)
    assert everything(finished) == before


def test_a_sweeps_worker_leaves_a_live_run_alone(finished):
    from caql.experiments.sweep.worker import perform

    before = everything(finished)
    with alone(finished):
        job = {"folder": str(finished), "config": to_json(TINY), "latency": False, "checkpoint_seconds": 60.0}
        assert perform(job).kind == "busy"
    assert everything(finished) == before


def test_the_lock_is_given_back_after_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "write_json", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(CaqlError, match="No space left"):
        run(TINY, tmp_path / "run")
    with alone(tmp_path / "run") as ours:
        assert ours


def test_a_run_that_another_began_in_the_meantime_is_not_overwritten(tmp_path, monkeypatch):
    """Both looked at the same empty folder; the slower one finds a run when it gets the lock."""
    folder = tmp_path / "run"

    @contextlib.contextmanager
    def late(path):
        checkpoints.write_json(path / "config.json", {"task": "Hopper"})
        yield True

    monkeypatch.setattr("caql.runs.folder.alone", late)
    with pytest.raises(CaqlError, match="already holds a run"):
        run(TINY, folder)


@pytest.mark.parametrize("error", sorted(lock.WITHOUT_LOCKS))
def test_a_file_system_without_locks_is_trained_on_all_the_same(tmp_path, monkeypatch, error):
    monkeypatch.setattr(fcntl, "flock", lambda *_: (_ for _ in ()).throw(OSError(error, "no locks here")))
    with alone(tmp_path) as ours:
        assert ours


def test_any_other_error_of_the_lock_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    with pytest.raises(CaqlError, match="Input/output error"):
        run(TINY, tmp_path / "run")


@contextlib.contextmanager
def small_disk(size):
    """No file may grow beyond so many bytes: what a full disk does, without one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [10, 100, 300, 2500])
def test_a_disk_that_fills_up_is_one_sentence_and_the_run_goes_on_later(tmp_path, finished, size):
    """Too small for the configuration; for an event file; for the metrics; for a checkpoint."""
    folder = tmp_path / "run"
    with small_disk(size), pytest.raises(CaqlError, match="too large") as raised:
        run(TINY, folder, checkpoint_seconds=0)
    assert "intact" in str(raised.value)
    assert not list(folder.rglob(".*.tmp"))
    assert not is_finished(folder)
    before = len(read_metrics(folder))
    assert run(TINY, folder, resume=True)
    assert len(read_metrics(folder)) == 3 >= before
    assert (folder / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()


@pytest.mark.parametrize(("seconds", "expected"), [(0, 7), (1e-6, 2)])
def test_checkpoints_that_take_long_to_write_are_rarer(tmp_path, monkeypatch, seconds, expected):
    """A write takes a second here, so the next is twenty seconds off, unless every epoch is to have one."""
    clock, written, save = [0.0], [], checkpoints.save_checkpoint

    def slowly(*arguments):
        clock[0] += 1.0
        written.append(save(*arguments))

    def tick():
        clock[0] += 1e-3
        return clock[0]

    monkeypatch.setattr(checkpoints, "save_checkpoint", slowly)
    monkeypatch.setattr(folder_module.time, "monotonic", tick)
    assert run(TINY, tmp_path / "run", checkpoint_seconds=seconds)
    assert len(written) == expected


def test_the_seconds_of_a_resumed_run_are_those_of_all_its_sessions(tmp_path, monkeypatch):
    """The first session seems to take a thousand times as long; the second, alone, would be far below it."""
    folder, true = tmp_path / "run", time.perf_counter
    with monkeypatch.context() as slow:
        slow.setattr(clock.time, "perf_counter", lambda: 1000 * true())
        run(replace(TINY, train_steps=20), folder)
    first = json.loads((folder / "finished.json").read_text())
    assert run(TINY, folder, resume=True)
    done = json.loads((folder / "finished.json").read_text())
    assert (first["train_step"], done["train_step"]) == (20, 40)
    session = done["seconds"] - first["seconds"]
    assert 0 < session < first["seconds"]
    assert done["seconds"] == pytest.approx(sum(read_metrics(folder)[-1]["seconds"].values()), abs=0.01)


def test_a_run_whose_checkpoints_are_all_damaged_begins_again(tmp_path, finished):
    import shutil

    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / "finished.json").unlink()
    for path in checkpoints.checkpoint_files(folder):
        path.write_bytes(b"nonsense")
    said = []
    assert run(TINY, folder, resume=True, reporter=Listening(said))
    assert any("begins again" in sentence for sentence in said)
    assert (folder / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()
    assert len(list((folder / "checkpoints").glob("*.damaged"))) == 1


def test_a_sound_checkpoint_of_something_else_is_named(tmp_path, finished):
    import shutil

    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / "finished.json").unlink()
    checkpoints.save_checkpoint(folder, 10**6, {}, {"epoch": 3})
    before = everything(folder)
    with pytest.raises(CaqlError, match=r"step-0001000000\.safetensors cannot be resumed from: .* train_step"):
        run(TINY, folder, resume=True)
    assert everything(folder) == before


class Listening:
    """A reporter that keeps what it is told."""

    def __init__(self, said):
        self.said = said

    def say(self, sentence):
        self.said.append(sentence)

    def follow(self, training):
        return contextlib.nullcontext()

    def epoch(self, epoch):
        pass


def test_events_are_on_the_disk_at_once(tmp_path):
    board = Board(tmp_path, 0)
    before = sum(path.stat().st_size for path in tmp_path.iterdir())
    board.add({"return": 3.5, "returns": [3.5]}, 20)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) > before
    board.close()


def test_event_files_hold_every_evaluation(finished):
    from tensorboardX.proto.event_pb2 import Event

    data = next((finished / "tensorboard").iterdir()).read_bytes()
    found = []
    while data:
        size = int.from_bytes(data[:8], "little")
        event = Event.FromString(data[12 : 12 + size])
        found += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
        data = data[16 + size :]
    returns = [(step, value) for step, tag, value in found if tag == "return"]
    rows = read_metrics(finished)
    assert returns == [(row["train_step"], pytest.approx(row["return"], rel=1e-6)) for row in rows]
    assert {"loss", "q_mean", "environment_steps"} <= {tag for _, tag, _ in found}


@pytest.mark.parametrize("text", ["[" * 100_000, '{"agent": ' * 100_000, '{"task": "Pendulum", "agent":', "\x00"])
def test_a_configuration_that_is_no_json_is_one_sentence(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CaqlError, match=r"config\.json is damaged: ") as caught:
        read_config(tmp_path)
    assert len(str(caught.value)) < 300


def test_metrics_that_are_no_json_are_left_out(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"train_step": 1}\n' + "[" * 100_000 + '\n{"train_step": 2}\n{"train_st')
    assert [row["train_step"] for row in read_metrics(tmp_path)] == [1, 2]
