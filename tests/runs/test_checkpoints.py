import jax.numpy as jnp
import numpy as np
import pytest

from caql.errors import CaqlError
from caql.runs import checkpoints

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


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "metrics.jsonl"
    checkpoints.write_atomically(path, lambda file: file.write_text("old"))

    def disk_full(file):
        file.write_text("ne")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        checkpoints.write_atomically(path, disk_full)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_tree_of_another_shape_is_refused():
    tree = {"q": (jnp.zeros(3), jnp.int32(1))}
    arrays = checkpoints.flatten(tree, "state")
    back = checkpoints.unflatten(tree, arrays, "state")
    assert back["q"][1].dtype == jnp.int32
    with pytest.raises(CaqlError, match=r"state\['q'\]\[0\] should be \(4,\) and is \(3,\)"):
        checkpoints.unflatten({"q": (jnp.zeros(4), jnp.int32(1))}, arrays, "state")


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
