from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import peft
import pytest
import torch

from fedse.networks.decoding.decoder import Due
from fedse.networks.decoding.packed import PackedDecoder
from fedse.networks.decoding.packed_llama import Look
from fedse.types import Sampling
from small_llamas import NETWORKS, SHAPE

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
LENGTHS = (1, 2, 11, 20, 43, 48, 49, 97, 150)
SLOTS = 12
STEPS = 6


def model_of(name: str) -> Any:
    base = NETWORKS[name]()
    network = peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules=TARGETS, task_type="CAUSAL_LM")).eval()
    source = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=source)
    return SimpleNamespace(network=network, device="cpu", context=448, chat=SimpleNamespace(end_ids=frozenset()))


def text(number: int, tokens: int) -> list[int]:
    source = torch.Generator().manual_seed(number)
    return torch.randint(0, SHAPE["vocab_size"], (tokens,), generator=source).tolist()


class Talk:
    """Conversations with a decoder: their tokens, the places before those that it drew, and what it found there."""

    def __init__(self, model: Any) -> None:
        self.decoder = PackedDecoder(model, SLOTS)
        self.ids: dict[int, list[int]] = {}
        self.places: dict[int, list[int]] = {}
        self.logits: dict[int, list[torch.Tensor]] = {}
        draw_all = self.decoder._draw_all

        def watched(slots: Sequence[int], logits: torch.Tensor) -> Any:
            for slot, row in zip(slots, logits.clone(), strict=True):
                self.logits.setdefault(slot, []).append(row)
            return draw_all(slots, logits)

        self.decoder._draw_all = watched  # type: ignore[method-assign]

    @torch.inference_mode()
    def turn(self, texts: Mapping[int, list[int]]) -> Talk:
        """Say something in some slots and take the likeliest reply in each."""
        due = []
        for slot, new in texts.items():
            # The last token of a reply was drawn and not read.
            start = max(0, len(self.ids.setdefault(slot, [])) - 1)
            self.ids[slot] += new
            due.append(Due(slot, start, self.ids[slot][start:], Sampling(0, 0.0), 0, STEPS))
        self.decoder.begin(due)
        for _ in range(STEPS):
            for slot, drawn in self.decoder.advance().items():
                self.places.setdefault(slot, []).append(len(self.ids[slot]) - 1)
                self.ids[slot] += drawn.tokens
        return self


def turns_of(slot: int) -> list[list[int]]:
    """Texts of one, two and three turns; what a pass holds is full of their beginnings and ends."""
    return [text(slot, LENGTHS[slot]), *(text(slot + 100 * turn, 5 + 9 * slot) for turn in range(1, 1 + slot % 3))]


@pytest.mark.filterwarnings("ignore:Model has .tie_word_embeddings:UserWarning")
@pytest.mark.parametrize("name", NETWORKS)
def test_replies_are_those_of_the_network(name: str) -> None:
    model = model_of(name)
    talk = Talk(model)
    for turn in range(3):
        talk.turn({slot: turns_of(slot)[turn] for slot in range(len(LENGTHS)) if turn < len(turns_of(slot))})
    for slot, ids in talk.ids.items():
        with torch.inference_mode():
            plain = model.network(input_ids=torch.tensor([ids])).logits[0]
        assert plain.std() > 0.1
        assert len(talk.logits[slot]) == STEPS * len(turns_of(slot))
        for place, found in zip(talk.places[slot], talk.logits[slot], strict=True):
            assert torch.allclose(found, plain[place], atol=2e-5, rtol=1e-5)


def test_a_conversation_gets_the_same_bits_alone_and_beside_any_others() -> None:
    model = model_of("llama")
    together, mirrored = Talk(model), Talk(model)
    for turn in range(3):
        texts = {slot: turns_of(slot)[turn] for slot in range(len(LENGTHS)) if turn < len(turns_of(slot))}
        together.turn(texts)
        mirrored.turn({SLOTS - 1 - slot: said for slot, said in reversed(texts.items())})
    for slot in range(len(LENGTHS)):
        alone = Talk(model)
        for said in turns_of(slot):
            alone.turn({5: said})
        assert alone.ids[5] == together.ids[slot] == mirrored.ids[SLOTS - 1 - slot]
        both = zip(together.logits[slot], mirrored.logits[SLOTS - 1 - slot], strict=True)
        assert all(
            torch.equal(found, first) and torch.equal(found, second)
            for found, (first, second) in zip(alone.logits[5], both, strict=True)
        )


def test_passes_over_new_text_are_full_before_there_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    talk, passes = Talk(model_of("llama")), []
    next_tokens = talk.decoder.forward.next_tokens

    def counted(ids: torch.Tensor, positions: torch.Tensor, looks: Sequence[Look], ends: Any, cache: Any) -> Any:
        if ends is not None:
            passes.append((len(ids), sum(look.tokens for look in looks)))
        return next_tokens(ids, positions, looks, ends, cache)

    monkeypatch.setattr(talk.decoder.forward, "next_tokens", counted)
    talk.turn({0: text(0, 20), 1: text(1, 100), 2: text(2, 28), 3: text(3, 47)})
    assert passes == [(96, 96), (96, 96), (96, 4)]
    passes.clear()
    talk.turn({slot: text(slot, 9) for slot in range(SLOTS)})
    assert [rows for _, rows in passes] == [80, 40]
