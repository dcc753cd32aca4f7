"""An adapter's folder is read back bit for bit and refuses damage; a stored update is read in pieces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedse.adapters.files import CONFIG, TENSORS, read_adapter, write_adapter
from fedse.adapters.stored import store_update
from fedse.errors import BadInput, CannotWrite
from fedse.types import Adapter, ClientUpdate

ADAPTER = Adapter(
    {
        "m.lora_B.weight": np.array([[0.1], [-0.0], [1e-45]], dtype=np.float32),
        "m.lora_A.weight": np.arange(4, dtype=np.float32).reshape(1, 4).T.reshape(4, 1),
    },
    {"peft_type": "LORA", "r": 1, "target_modules": ["m"]},
)


def test_a_written_adapter_reads_back_bit_for_bit(tmp_path: Path) -> None:
    write_adapter(ADAPTER, tmp_path)
    back = read_adapter(tmp_path)
    assert back.digest() == ADAPTER.digest()
    assert back.config == ADAPTER.config


def test_equal_adapters_make_equal_files(tmp_path: Path) -> None:
    for number, names in enumerate([list(ADAPTER.tensors), list(reversed(list(ADAPTER.tensors)))]):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_adapter(Adapter({name: ADAPTER.tensors[name] for name in names}, ADAPTER.config), folder)
    for name in (TENSORS, CONFIG):
        assert (tmp_path / "0" / name).read_bytes() == (tmp_path / "1" / name).read_bytes()


def test_tensors_in_another_memory_order_are_written_by_value(tmp_path: Path) -> None:
    turned = Adapter({"x": np.arange(6, dtype=np.float32).reshape(2, 3).T})
    write_adapter(turned, tmp_path)
    assert read_adapter(tmp_path).tensors["x"].tolist() == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize("name", [TENSORS, CONFIG])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    write_adapter(ADAPTER, tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(BadInput, match=f"holds no adapter: {name} is missing"):
        read_adapter(tmp_path)


@pytest.mark.parametrize("name", [TENSORS, CONFIG])
@pytest.mark.parametrize("keep", [0, 5, -3])
def test_a_cut_off_file_is_called_damaged(tmp_path: Path, name: str, keep: int) -> None:
    write_adapter(ADAPTER, tmp_path)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:keep])
    with pytest.raises(BadInput, match="is damaged"):
        read_adapter(tmp_path)


def _update(vector: np.ndarray | None) -> ClientUpdate:
    return ClientUpdate("site", 1, vector, (("x", (10,)),), {"buffer": 3}, {})


def test_a_stored_update_is_read_whole_or_in_pieces(tmp_path: Path) -> None:
    vector = np.arange(10, dtype=np.float32)
    stored = store_update(_update(vector), tmp_path / "new" / "folder")
    assert (stored.client, stored.counts, stored.layout) == ("site", {"buffer": 3}, (("x", (10,)),))
    assert stored.read().tobytes() == vector.tobytes()
    assert stored.read(3, 6).tolist() == [3, 4, 5]
    assert stored.read(8).tolist() == [8, 9]


def test_a_piece_that_was_read_can_be_changed_without_touching_the_file(tmp_path: Path) -> None:
    stored = store_update(_update(np.zeros(10, dtype=np.float32)), tmp_path)
    stored.read()[:] = 7
    assert not stored.read().any()


def test_an_update_without_a_vector_cannot_be_stored(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="site sent no vector"):
        store_update(_update(None), tmp_path)


def test_a_spool_that_cannot_be_written_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match="a part of the path is a file"):
        store_update(_update(np.zeros(10, dtype=np.float32)), tmp_path / "file" / "spool")
