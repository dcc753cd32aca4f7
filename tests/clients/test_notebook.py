"""What a plug-in remembers: a round sees what earlier rounds wrote, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedse.clients.notebook import Notebook, Notes
from fedse.errors import BadInput
from fedse.types import Tensors


def filled(value: float) -> Tensors:
    return {"b": np.full((2, 1), value, dtype=np.float32)}


def test_a_round_sees_the_newest_notes_of_the_rounds_before_it(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path / "notes")
    assert notebook.before(1) == Notes({}, {})
    for number in (1, 2, 4):
        notebook.keep(number, filled(number), {"seen": [number]})
    found = {number: notebook.before(number) for number in (1, 2, 3, 4, 5, 12)}
    assert found[1] == Notes({}, {})
    assert [float(found[number].tensors["b"][0, 0]) for number in (2, 3, 4, 5, 12)] == [1, 2, 2, 4, 4]
    assert [found[number].values["seen"] for number in (2, 5)] == [[1], [4]]
    notebook.keep(4, filled(9))
    assert float(notebook.before(5).tensors["b"][0, 0]) == 9
    assert notebook.before(5).values == {}, "a repeated round replaces what it had kept"


def test_nothing_kept_is_no_folder(tmp_path: Path) -> None:
    Notebook(tmp_path / "notes").keep(1, {}, {})
    assert not (tmp_path / "notes").exists()


def test_values_alone_can_be_kept(tmp_path: Path) -> None:
    Notebook(tmp_path).keep(1, values={"arms": {"easy": 0.25}})
    assert Notebook(tmp_path).before(2) == Notes({}, {"arms": {"easy": 0.25}})


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path)
    notebook.keep(3, filled(0))
    file = tmp_path / "0003.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(BadInput, match=r"0003\.safetensors are damaged"):
        notebook.before(4)
