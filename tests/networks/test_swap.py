"""An adapter inside a model: what fedse swaps in is what PEFT loads from the same folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")

from fedse.adapters.files import write_adapter  # noqa: E402
from fedse.errors import SwapFailed  # noqa: E402
from fedse.models.tiny import Tiny  # noqa: E402
from fedse.networks.swap import load_adapter, log_probabilities, read_adapter  # noqa: E402
from fedse.types import Adapter  # noqa: E402

IDS = list(b"Thought: here is some text.")


@pytest.fixture(scope="module")
def model() -> Tiny:
    return Tiny(width=32, layers=1, device="cpu")


@pytest.fixture
def adapter(model: Tiny) -> Adapter:
    """A random adapter with no zero factor, so that it changes the model's answers."""
    draw = np.random.default_rng(1)
    start = model.initial_adapter(0)
    tensors = {
        name: (0.2 * draw.standard_normal(tensor.shape)).astype(np.float32) for name, tensor in start.tensors.items()
    }
    return Adapter(tensors, start.config)


def _logits(network: Any) -> Any:
    with torch.no_grad():
        return network(input_ids=torch.tensor([IDS]), use_cache=False).logits


def test_the_initial_adapter_changes_nothing_about_the_base(model: Tiny) -> None:
    load_adapter(model.network, model.initial_adapter(3))
    with model.network.disable_adapter():
        base = _logits(model.network)
    assert torch.equal(_logits(model.network), base)


def test_peft_loads_the_folder_and_answers_with_the_same_logits(model: Tiny, adapter: Adapter, tmp_path: Path) -> None:
    write_adapter(adapter, tmp_path)
    base, _ = Tiny(width=32, layers=1, device="cpu").load(torch.float32)
    loaded = peft.PeftModel.from_pretrained(base, tmp_path).eval()
    load_adapter(model.network, model.initial_adapter(0))
    before = _logits(model.network)
    load_adapter(model.network, adapter)
    assert torch.equal(_logits(loaded), _logits(model.network))
    assert not torch.allclose(_logits(model.network), before, atol=1e-3)


def test_what_was_swapped_in_is_read_out_bit_for_bit(model: Tiny, adapter: Adapter) -> None:
    load_adapter(model.network, adapter)
    back = read_adapter(model.network, adapter)
    assert back.digest() == adapter.digest()
    assert back.config == adapter.config


def test_reading_out_copies(model: Tiny, adapter: Adapter) -> None:
    load_adapter(model.network, adapter)
    taken = read_adapter(model.network, adapter)
    load_adapter(model.network, model.initial_adapter(0))
    assert taken.digest() == adapter.digest()


def test_log_probabilities_are_those_of_the_next_tokens(model: Tiny, adapter: Adapter) -> None:
    load_adapter(model.network, adapter)
    expected = torch.log_softmax(_logits(model.network)[0].double(), dim=-1)
    found = log_probabilities(model.network, IDS)
    assert found.shape == (len(IDS) - 1,)
    for position, token in enumerate(IDS[1:]):
        assert float(found[position]) == pytest.approx(float(expected[position, token]), abs=1e-5)


def _without_first(tensors: dict[str, Any]) -> dict[str, Any]:
    return dict(list(tensors.items())[1:])


def _with_stranger(tensors: dict[str, Any]) -> dict[str, Any]:
    return {**tensors, "stranger.lora_A.weight": np.zeros((2, 2), dtype=np.float32)}


def _last_turned(tensors: dict[str, Any]) -> dict[str, Any]:
    name = list(tensors)[-1]
    return {**tensors, name: np.ascontiguousarray(tensors[name].T)}


@pytest.mark.parametrize("spoil", [_without_first, _with_stranger, _last_turned, lambda tensors: {}])
def test_an_adapter_that_does_not_fit_is_refused_and_changes_nothing(model: Tiny, adapter: Adapter, spoil: Any) -> None:
    start = model.initial_adapter(0)
    load_adapter(model.network, start)
    with pytest.raises(SwapFailed, match="does not fit the model"):
        load_adapter(model.network, Adapter(spoil(dict(adapter.tensors)), adapter.config))
    assert read_adapter(model.network, start).digest() == start.digest()
