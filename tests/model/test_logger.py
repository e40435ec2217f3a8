"""The log: a table, TensorBoard's files, and names after Stable-Baselines3's."""

import numpy as np
import pytest

from caql import CAQL, CaqlError
from caql.model.logger import Logger, next_folder, table
from caql.runs.board import Board


def events(folder):
    """name -> steps and values in TensorBoard's file of a folder."""
    from tensorboardX.proto.event_pb2 import Event

    found = {}
    (file,) = folder.glob("events*")
    data = file.read_bytes()
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 8], "little")
        event = Event.FromString(data[at + 12 : at + 12 + length])
        for value in event.summary.value:
            found.setdefault(value.tag, []).append((event.step, value.simple_value))
        at += 12 + length + 4
    return found


def test_a_table_groups_its_names():
    lines = table({"train/loss": 0.25, "time/fps": 12, "alone": "word", "train/x": np.float32(2)}).splitlines()
    assert lines[0] == lines[-1] == "-" * len(lines[1])
    assert [line.strip("| ").split("|")[0].strip() for line in lines[1:-1]] == [
        "alone",
        "time/",
        "fps",
        "train/",
        "loss",
        "x",
    ]
    assert "0.25" in lines[5]


def test_records_are_kept_until_a_dump_and_means_are_means(tmp_path, capsys):
    logger = Logger(tmp_path, to_terminal=True)
    logger.record("a/x", 1.0)
    logger.record("a/x", 3.0)
    logger.record("a/hidden", 5, exclude="stdout")
    logger.record("a/shown", 7, exclude=("tensorboard",))
    logger.record("a/picture", object(), exclude="stdout")
    for value in (1.0, 2.0, 6.0, None):
        logger.record_mean("a/mean", value)
    assert logger.name_to_value["a/mean"] == pytest.approx(3.0)
    logger.dump(42)
    assert logger.name_to_value == {}
    logger.close()
    said = capsys.readouterr().out
    assert "hidden" not in said
    assert "shown" in said
    assert events(tmp_path) == {"a/x": [(42, 3.0)], "a/hidden": [(42, 5.0)], "a/mean": [(42, 3.0)]}
    assert logger.get_dir() == logger.dir == str(tmp_path)
    logger.info("a word")
    logger.debug("not this")
    assert capsys.readouterr().out == "a word\n"


def test_folders_are_numbered(tmp_path):
    assert next_folder(tmp_path, "CAQL", again=False).name == "CAQL_1"
    assert next_folder(tmp_path, "CAQL", again=True).name == "CAQL_1"
    for name in ("CAQL_1", "CAQL_10", "CAQL_x", "CAQL_old_77"):
        (tmp_path / name).mkdir()
    assert next_folder(tmp_path, "CAQL", again=False).name == "CAQL_11"
    assert next_folder(tmp_path, "CAQL", again=True).name == "CAQL_10"


SMALL = {"batch_size": 8, "policy_kwargs": {"net_arch": [4]}, "episode_steps": 20, "learning_starts": 30}


def test_learning_prints_a_table_and_writes_for_tensorboard(tmp_path, capsys):
    model = CAQL("MlpPolicy", "Pendulum-v1", verbose=1, tensorboard_log=tmp_path, **SMALL)
    model.learn(100, log_interval=2)
    said = capsys.readouterr().out
    # Five episodes of twenty steps: after the second and the fourth.
    assert said.count("ep_rew_mean") == 2
    for name in ("ep_len_mean", "episodes", "fps", "time_elapsed", "total_timesteps", "n_updates", "loss"):
        assert name in said
    found = events(tmp_path / "CAQL_1")
    assert [step for step, _ in found["rollout/ep_rew_mean"]] == [40, 80]
    assert found["rollout/ep_len_mean"][0][1] == 20.0
    model.learn(60, tb_log_name="other", log_interval=1)
    assert [step for step, _ in events(tmp_path / "other_1")["rollout/ep_rew_mean"]] == [20, 40, 60]
    model.learn(20, tb_log_name="other", log_interval=1, reset_num_timesteps=False)
    assert {path.name for path in tmp_path.iterdir()} == {"CAQL_1", "other_1"}
    assert model.num_timesteps == 80


def test_silence_and_no_log(capsys):
    CAQL("MlpPolicy", "Pendulum-v1", **SMALL).learn(60)
    CAQL("MlpPolicy", "Pendulum-v1", verbose=1, **SMALL).learn(60, log_interval=None)
    assert capsys.readouterr().out == ""


def test_a_log_of_ones_own():
    class Mine:
        def __init__(self):
            self.values, self.steps = {}, []

        def record(self, name, value, exclude=None):
            self.values[name] = value

        def dump(self, step):
            self.steps.append(step)

    model, mine = CAQL("MlpPolicy", "Pendulum-v1", **SMALL), Mine()
    model.set_logger(mine)
    model.learn(40, log_interval=1)
    assert mine.steps == [20, 40]
    assert mine.values["time/total_timesteps"] == 40
    assert model.logger is mine
    with pytest.raises(CaqlError, match="must have record"):
        model.set_logger(3)
    with pytest.raises(CaqlError, match="log_interval = 0"):
        model.learn(5, log_interval=0)


def test_the_boards_step_is_kept(tmp_path):
    board = Board(tmp_path, 0)
    board.add({"x": 1}, 7)
    board.close()
    assert events(tmp_path) == {"x": [(7, 1.0)]}
