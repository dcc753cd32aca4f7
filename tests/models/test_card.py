from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from fedse.models.card import BRING_YOUR_OWN, ModelCard, Presence
from fedse.models.table import Table
from fedse.models.tiny import Tiny


def test_a_model_without_files_says_so() -> None:
    made = ModelCard(parameters=7)
    assert (made.presence(), made.size(), made.count()) == (Presence.IN_CODE, None, 7)
    assert (BRING_YOUR_OWN.presence(), BRING_YOUR_OWN.size(), BRING_YOUR_OWN.count()) == ("bring your own", None, None)


def test_size_and_parameters_are_those_of_the_files(tmp_path: Path) -> None:
    card = ModelCard(folder=lambda: tmp_path)
    assert (card.presence(), card.size(), card.count()) == (Presence.MISSING, None, None)
    (tmp_path / "config.json").write_text("{}")
    assert card.presence() is Presence.MISSING
    save_file({"a": np.zeros((3, 5), np.float32), "b": np.zeros(2, np.float16)}, tmp_path / "model.safetensors")
    size = 2 + (tmp_path / "model.safetensors").stat().st_size
    assert (card.presence(), card.size(), card.count()) == (Presence.PRESENT, size, 17)
    assert ModelCard(parameters=9, folder=lambda: tmp_path).count() == 9


def test_the_numbers_on_the_cards_are_those_of_the_models() -> None:
    base = Tiny(device="cpu").network.unload()
    assert Tiny.card.count() == sum(tensor.numel() for tensor in base.parameters())
    adapter = Table().initial_adapter(0)
    assert Table.card.count() == sum(tensor.size for tensor in adapter.tensors.values())
