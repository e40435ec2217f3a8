"""Real processes, really killed: whatever the moment, the resumed run ends in the same weights."""

import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from caql.cli.train import main
from caql.errors import CaqlError
from caql.runs import checkpoints
from caql.runs.folder import read_metrics
from tests.runs.kill_storm import COMMAND, TINY, being_written, newest_step, storm


def start(folder: Path, *extra: str) -> subprocess.Popen:
    return subprocess.Popen(
        [*COMMAND, *TINY, "--out", str(folder), *extra], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def wait_for(condition, process, seconds=240.0):
    end = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            pytest.fail(f"nothing happened: {process.communicate()[0]}")
        time.sleep(0.001)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    main([*TINY, "--out", str(folder)])
    return folder


def test_killed_at_several_moments_and_resumed_the_weights_are_the_same(tmp_path, uninterrupted):
    folder = tmp_path / "run"
    moments = [
        lambda: newest_step(folder) >= 0,  # right after the first checkpoint
        lambda: (
            newest_step(folder) >= 140 and being_written(folder / "checkpoints", "step")
        ),  # while one is being written
        lambda: newest_step(folder) >= 320,  # somewhere in an epoch
    ]
    for number, moment in enumerate(moments):
        process = start(folder, *(["--resume"] if number else []))
        wait_for(moment, process)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert not (folder / "finished.json").exists()
    process = start(folder, "--resume")
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 0, output
    assert "resuming at training step" in output
    whole, _ = checkpoints.load(uninterrupted / "model.safetensors")
    broken, _ = checkpoints.load(folder / "model.safetensors")
    assert whole.keys() == broken.keys()
    for name, array in whole.items():
        np.testing.assert_array_equal(array, broken[name], err_msg=name)
    assert [r["returns"] for r in read_metrics(folder)] == [r["returns"] for r in read_metrics(uninterrupted)]
    assert not list(folder.rglob("*.tmp"))


def test_a_storm_of_kills_and_damage_changes_nothing(tmp_path, uninterrupted):
    outcome = storm(4, tmp_path / "run", uninterrupted, kills=1)
    assert (outcome.kills, outcome.damaged) == (1, 1)
    assert outcome.differences == [], outcome.story


def test_a_live_run_is_not_resumed_and_an_interrupt_leaves_a_checkpoint(tmp_path):
    folder = tmp_path / "run"
    process = start(folder)
    wait_for(lambda: newest_step(folder) >= 0, process)
    with pytest.raises(CaqlError, match="is in use"):
        main([*TINY, "--out", str(folder), "--resume"])
    wait_for(lambda: newest_step(folder) >= 60, process)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 130, output
    assert "--resume goes on from here" in output
    assert 0 < newest_step(folder) < 600


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(tmp_path, uninterrupted, capsys):
    import shutil

    folder = tmp_path / "run"
    shutil.copytree(uninterrupted, folder)
    (folder / "finished.json").unlink()
    last = checkpoints.checkpoint_files(folder)[-1]
    data = bytearray(last.read_bytes())
    data[-7] ^= 1
    last.write_bytes(data)
    main([*TINY, "--out", str(folder), "--resume"])
    said = capsys.readouterr().out.replace("\n", " ")
    assert last.name in said.replace(" ", "")
    assert "damaged" in said
    assert last.with_suffix(".damaged").exists()
    assert len(checkpoints.checkpoint_files(folder)) == 2
    whole, _ = checkpoints.load(uninterrupted / "model.safetensors")
    again, _ = checkpoints.load(folder / "model.safetensors")
    for name, array in whole.items():
        np.testing.assert_array_equal(array, again[name])


def test_folders_are_never_overwritten(tmp_path, uninterrupted):
    before = {path: path.read_bytes() for path in uninterrupted.rglob("*") if path.is_file()}
    with pytest.raises(CaqlError, match="already holds a run"):
        main([*TINY, "--out", str(uninterrupted)])
    with pytest.raises(CaqlError, match=r"agent\.discount: 0\.99 -> 0\.9"):
        main([*TINY, "--out", str(uninterrupted), "--resume", "--discount", "0.9"])
    with pytest.raises(CaqlError, match="is less than the 600"):
        main(["--out", str(uninterrupted), "--resume", "Pendulum", "--train-steps", "100"])
    assert before == {path: path.read_bytes() for path in uninterrupted.rglob("*") if path.is_file()}
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("ten years of work")
    with pytest.raises(CaqlError, match="not empty"):
        main([*TINY, "--out", str(foreign)])
    with pytest.raises(CaqlError, match="holds no run"):
        main(["Pendulum", "--out", str(tmp_path / "nowhere"), "--resume"])
    bad = tmp_path / "bad"
    with pytest.raises(CaqlError, match="wider"):
        main([*TINY, "--action-range", "9", "--out", str(bad)])
    assert not bad.exists()


def test_a_finished_run_can_be_made_longer(tmp_path, uninterrupted):
    import shutil

    folder = tmp_path / "run"
    shutil.copytree(uninterrupted, folder)
    main(["Pendulum", "--out", str(folder), "--resume", "--train-steps", "700", "--checkpoint-seconds", "0"])
    assert read_metrics(folder)[-1]["train_step"] == 700
    assert newest_step(folder) == 700
