from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fedse.adapters.swap import log_probabilities
from fedse.errors import BadInput
from fedse.models.huggingface import HuggingFace
from fedse.models.tiny import Tiny
from fedse.policies.transformer import TransformerPolicy


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model as anybody would have it on disk."""
    made = Tiny(width=32, layers=1, device="cpu")
    target = tmp_path_factory.mktemp("model")
    made.network.unload().save_pretrained(target)
    made.tokenizer.save_pretrained(target)
    return target


def test_a_model_from_a_folder_answers_like_the_one_that_was_saved(folder: Path) -> None:
    saved: Any = Tiny(width=32, layers=1, device="cpu")
    loaded: Any = HuggingFace(path=str(folder), device="cpu")
    assert loaded.chat.opening("rules") == saved.chat.opening("rules")
    assert loaded.initial_adapter(3).digest() == saved.initial_adapter(3).digest()
    ids = saved.chat.opening("rules") + saved.chat.turn("go")
    assert torch.equal(log_probabilities(loaded.network, ids), log_probabilities(saved.network, ids))
    policy = TransformerPolicy(loaded, slots=2)
    policy.load(loaded.initial_adapter(0))
    assert policy.probe_gap() < 1e-5


def test_lora_settings_reach_the_model(folder: Path) -> None:
    model = HuggingFace(path=str(folder), device="cpu", lora={"rank": 3, "alpha": 6, "targets": ["q_proj", "v_proj"]})
    adapter = model.initial_adapter(0)
    assert {name.split(".")[-3] for name in adapter.tensors} == {"q_proj", "v_proj"}
    assert {tensor.shape[0] for name, tensor in adapter.tensors.items() if ".lora_A." in name} == {3}
    assert (adapter.config["r"], adapter.config["lora_alpha"]) == (3, 6)


def test_targets_that_the_model_does_not_have_are_named(folder: Path) -> None:
    with pytest.raises(BadInput, match=r"model\.lora\.targets"):
        HuggingFace(path=str(folder), device="cpu", lora={"targets": ["no_such_layer"]})


def test_layers_with_a_sliding_window_are_refused_by_name(folder: Path) -> None:
    model: Any = HuggingFace(path=str(folder), device="cpu")
    model.network.config.sliding_window = 64
    with pytest.raises(BadInput, match="full attention only"):
        TransformerPolicy(model, slots=2)


def test_a_folder_without_a_model_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"model\.path: cannot load"):
        HuggingFace(path=str(tmp_path), device="cpu")
