import json
import struct

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from caql.errors import CaqlError
from caql.runs import checkpoints
from caql.whole_files import write_atomically

ARRAYS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "count": np.int32(7), "none": np.zeros((0, 3))}


def test_arrays_and_json_come_back(tmp_path):
    checkpoints.save(tmp_path / "x.safetensors", ARRAYS, {"step": 3, "rows": [1, None]})
    arrays, meta = checkpoints.load(tmp_path / "x.safetensors")
    assert meta == {"step": 3, "rows": [1, None]}
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape


@pytest.mark.parametrize("place", [0.02, 0.5, 0.9, 1.0])
def test_one_changed_byte_is_noticed(tmp_path, place):
    path = tmp_path / "x.safetensors"
    checkpoints.save(path, {"a": np.ones(1000)}, {"step": 3})
    data = bytearray(path.read_bytes())
    data[int(place * (len(data) - 1))] ^= 0x01
    path.write_bytes(data)
    with pytest.raises(CaqlError, match=r"x\.safetensors"):
        checkpoints.load(path)


def rewrite(path, change):
    """Change what a file's header says and leave its arrays and digest as they are."""
    with safe_open(path, framework="numpy") as file:
        header = json.loads(file.metadata()["caql"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    save_file(arrays, path, metadata={"caql": json.dumps(change(header))})


def test_changed_values_are_noticed_too(tmp_path):
    path = tmp_path / "x.safetensors"
    checkpoints.save(path, {"a": np.ones(3)}, {"step": 3})
    rewrite(path, lambda header: header | {"meta": '{"step": 4}'})
    with pytest.raises(CaqlError, match="do not match its digest"):
        checkpoints.load(path)


def test_the_digest_covers_names_types_and_shapes():
    arrays = {"a": np.zeros((2, 3), np.float32)}
    others = [{"b": arrays["a"]}, {"a": np.zeros((2, 3), np.int32)}, {"a": np.zeros((3, 2), np.float32)}, {}]
    assert len({checkpoints._digest(each, "{}") for each in (arrays, *others)}) == 5
    assert checkpoints._digest(arrays, "{}") != checkpoints._digest(arrays, "[]")


@pytest.mark.parametrize("text", ["", "[3]", "7", '{"step": ', "[" * 100_000])
def test_values_that_are_no_values_are_one_sentence(tmp_path, text):
    path = tmp_path / "x.safetensors"
    checkpoints.save(path, {}, {})
    rewrite(path, lambda _: {"meta": text, "sha256": checkpoints._digest({}, text)})
    with pytest.raises(CaqlError, match=r"x\.safetensors is damaged"):
        checkpoints.load(path)


@pytest.mark.parametrize("header", [None, {"format": "pt"}, {"caql": "[]"}, {"caql": '{"meta": 3, "sha256": "x"}'}])
def test_a_foreign_file_is_named(tmp_path, header):
    path = tmp_path / "x.safetensors"
    save_file({"a": np.ones(3)}, path, metadata=header)
    with pytest.raises(CaqlError, match="was not written by caql"):
        checkpoints.load(path)


def test_numbers_that_numpy_has_no_type_for_are_one_sentence(tmp_path):
    path = tmp_path / "x.safetensors"
    head = json.dumps({"a": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + b"xx")
    with pytest.raises(CaqlError, match=r"x\.safetensors"):
        checkpoints.load(path)


def test_files_of_the_first_version_are_read(tmp_path):
    path = tmp_path / "x.safetensors"
    arrays, text = {"a": np.arange(3.0)}, json.dumps({"step": 3})
    save_file(arrays, path, metadata={"meta": text, "sha256": checkpoints._digest(arrays, text)})
    found, meta = checkpoints.load(path)
    assert meta == {"step": 3}
    np.testing.assert_array_equal(found["a"], arrays["a"])


def test_equal_contents_are_equal_bytes(tmp_path):
    arrays = {name: np.arange(4, dtype=kind) for name, kind in (("b", np.float32), ("a", np.float64), ("c", np.int32))}
    for number in range(20):
        checkpoints.save(
            tmp_path / f"{number}", dict(sorted(arrays.items(), reverse=number % 2 == 1)), {"x": 1, "y": [2]}
        )
    assert len({(tmp_path / f"{number}").read_bytes() for number in range(20)}) == 1


def test_a_truncated_file_is_noticed(tmp_path):
    path = tmp_path / "x.safetensors"
    checkpoints.save(path, {"a": np.ones(1000)}, {})
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CaqlError, match="damaged"):
        checkpoints.load(path)


def test_two_checkpoints_are_kept_and_a_damaged_one_falls_back(tmp_path):
    for step in (20, 40, 60):
        checkpoints.save_checkpoint(tmp_path, step, {"a": np.full(3, step)}, {"step": step})
    files = checkpoints.checkpoint_files(tmp_path)
    assert [file.name for file in files] == ["step-0000000040.safetensors", "step-0000000060.safetensors"]
    files[-1].write_bytes(b"nonsense")
    told: list[str] = []
    arrays, meta = checkpoints.latest_checkpoint(tmp_path, told.append)
    assert meta == {"step": 40}
    np.testing.assert_array_equal(arrays["a"], np.full(3, 40))
    assert len(told) == 1
    assert "step-0000000060" in told[0]
    files[0].write_bytes(b"")
    with pytest.raises(CaqlError, match="every checkpoint"):
        checkpoints.latest_checkpoint(tmp_path, told.append)


def test_a_damaged_checkpoint_is_set_aside_and_two_sound_ones_are_kept(tmp_path):
    def save(step):
        return checkpoints.save_checkpoint(tmp_path, step, {"a": np.full(3, step)}, {"step": step})

    assert checkpoints.resume_from(tmp_path, pytest.fail) is None
    for step in (20, 40):
        save(step)
    save(60).write_bytes(b"nonsense")
    told = []
    path, arrays, meta = checkpoints.resume_from(tmp_path, told.append)
    assert (path.name, meta) == ("step-0000000040.safetensors", {"step": 40})
    np.testing.assert_array_equal(arrays["a"], np.full(3, 40))
    assert len(told) == 1
    assert "set aside as step-0000000060.damaged" in told[0]
    assert (tmp_path / "checkpoints" / "step-0000000060.damaged").read_bytes() == b"nonsense"
    save(60)
    kept = checkpoints.checkpoint_files(tmp_path)
    assert [checkpoints.load(file)[1]["step"] for file in kept] == [40, 60]
    for file in kept:
        file.write_bytes(b"")
    assert checkpoints.resume_from(tmp_path, told.append) is None
    assert checkpoints.checkpoint_files(tmp_path) == []


def test_reading_a_run_moves_nothing(tmp_path):
    for step in (20, 40):
        path = checkpoints.save_checkpoint(tmp_path, step, {}, {"step": step})
    path.write_bytes(b"nonsense")
    assert checkpoints.latest_checkpoint(tmp_path, lambda _: None)[1] == {"step": 20}
    assert path.read_bytes() == b"nonsense"


def test_other_files_among_the_checkpoints_are_left_alone(tmp_path):
    checkpoints.save_checkpoint(tmp_path, 20, {}, {})
    for name in ("step-7.safetensors.bak", "step-x.safetensors", "notes.txt"):
        (tmp_path / "checkpoints" / name).write_text("mine")
    for step in (40, 60):
        checkpoints.save_checkpoint(tmp_path, step, {}, {})
    assert len(list((tmp_path / "checkpoints").iterdir())) == 5


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write_atomically(path, lambda file: file.write_text("old"))

    def disk_full(file):
        file.write_text("ne")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_atomically(path, disk_full)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_tree_of_another_shape_is_refused():
    tree = {"q": (jnp.zeros(3), jnp.int32(1))}
    arrays = checkpoints.flatten(tree, "state")
    back = checkpoints.unflatten(tree, arrays, "state")
    assert back["q"][1].dtype == jnp.int32
    with pytest.raises(CaqlError, match=r"state\['q'\]\[0\] should be \(4,\) and is \(3,\)"):
        checkpoints.unflatten({"q": (jnp.zeros(4), jnp.int32(1))}, arrays, "state")
    with pytest.raises(CaqlError, match=r"\[1\] should be float32 and is int32"):
        checkpoints.unflatten({"q": (jnp.zeros(3), jnp.float32(1))}, arrays, "state")
    with pytest.raises(CaqlError, match=r"should be .* and is nothing"):
        checkpoints.unflatten({"p": jnp.zeros(3)}, arrays, "state")
    with pytest.raises(CaqlError, match="not finite"):
        checkpoints.unflatten(tree, arrays | {"state['q'][0]": np.full(3, np.nan, np.float32)}, "state")


def test_a_full_disk_is_one_sentence_and_harms_nothing(tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    checkpoints.save(path, {"a": np.ones(3)}, {"step": 1})

    def disk_full(arrays, file, metadata):
        file.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "save_file", disk_full)
    with pytest.raises(CaqlError, match=r"could not be written: .*No space left.*intact"):
        checkpoints.save(path, {"a": np.ones(3)}, {"step": 2})
    assert checkpoints.load(path)[1] == {"step": 1}
