"""Every way to get a gradient gives that of the plain padded pass, and conversations do not touch each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from attention_in_one_call import InOneCall
from fedse.networks.swap import load_adapter
from fedse.networks.training import packed_llama
from fedse.networks.training.attention_kernels import Plain
from fedse.networks.training.graph_sizes import Sizes
from fedse.networks.training.lora_vector import LoraVector
from fedse.networks.training.packed_llama import PackedLlama
from fedse.networks.training.pass_graphs import filled, unfilled
from fedse.networks.training.passes import PackedPass, PaddedPass, Pass, pass_for
from fedse.networks.training.token_packing import Example, opening_of, pack
from padded_reference import TARGETS, adapted, conversations, further_pairs, padded_gradient
from small_llamas import NETWORKS, SHAPE

pytestmark = pytest.mark.filterwarnings("ignore:Model has .tie_word_embeddings:UserWarning")


def gradient_of(through: Pass, examples: Sequence[Example], opening: int = 0) -> tuple[float, torch.Tensor]:
    through.vector.gradient.zero_()
    loss, _ = through.add_gradient(examples, opening, 1.0)
    return loss.item(), through.vector.gradient.clone()


def assert_same(found: tuple[float, torch.Tensor], wanted: tuple[float, torch.Tensor], tolerance: float = 1e-5) -> None:
    assert found[0] == pytest.approx(wanted[0], rel=tolerance)
    assert (found[1] - wanted[1]).norm() < tolerance * wanted[1].norm()
    assert torch.allclose(found[1], wanted[1], atol=10 * tolerance * wanted[1].abs().max().item(), rtol=0)


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("name", NETWORKS)
def test_packed_loss_and_gradient_are_those_of_the_padded_pass(name: str, targets: str) -> None:
    network = adapted(NETWORKS[name](), TARGETS[targets])
    through = pass_for(network, checkpointing=False)
    assert type(through) is PackedPass
    examples = conversations(40, 25, 150, 12)
    wanted = padded_gradient(network, examples)
    assert opening_of(examples) == 9
    assert_same(gradient_of(through, examples, 0), wanted)
    assert_same(gradient_of(through, examples, 9), wanted)
    assert_same(gradient_of(through, examples[:1], 9), padded_gradient(network, examples[:1]))


@pytest.mark.parametrize("frozen", [("residual",), ("lora_A.weight", "residual"), ("lora_B.",), ()])
@pytest.mark.parametrize("targets", TARGETS)
def test_further_pairs_and_frozen_tensors_are_packed_too(targets: str, frozen: tuple[str, ...]) -> None:
    network = adapted(NETWORKS["qwen2"](), TARGETS[targets])
    adapter = further_pairs(network, *frozen)
    through = pass_for(network, checkpointing=False)
    assert type(through) is PackedPass
    examples = conversations(40, 25, 150, 12)
    wanted = padded_gradient(network, examples)
    assert_same(gradient_of(through, examples, 9), wanted)
    # Another adapter of the kind, frozen tensors included, and a second pass at the same time.
    other = replace(adapter, tensors={name: 1.5 * tensor for name, tensor in adapter.tensors.items()})
    beside = through.beside()
    for each, held in ((through, other), (beside, adapter)):
        each.begin(held)
    assert_same(gradient_of(beside, examples, 9), wanted)
    assert through.result(other).digest() == other.digest()
    load_adapter(network, other)
    # Larger tensors, larger roundings: up to 1e-5 with the forty networks that were tried.
    assert_same(gradient_of(through, examples, 9), padded_gradient(network, examples), 5e-5)


def test_ways_to_save_memory_change_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    network = adapted(NETWORKS["qwen3, tied"](), TARGETS["some"])
    examples = conversations(40, 25, 150, 12)
    wanted = padded_gradient(network, examples)
    assert_same(gradient_of(pass_for(network, checkpointing=True), examples, 9), wanted)
    for limit in ("_LARGE", "_HIGHEST_RANK"):
        with monkeypatch.context() as changed:
            changed.setattr(packed_llama, limit, 0)
            assert_same(gradient_of(pass_for(network, checkpointing=False), examples, 9), wanted)


def test_plain_attention_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    network = adapted(NETWORKS["llama"](), TARGETS["all"])
    examples = conversations(40, 25, 70)
    monkeypatch.setattr(packed_llama, "kernel_for", lambda device, dtype: Plain())
    assert_same(
        gradient_of(pass_for(network, checkpointing=False), examples, 9),
        padded_gradient(network, examples),
    )


@pytest.mark.parametrize("opening", [0, 9])
def test_a_conversation_does_not_see_its_neighbours(opening: int) -> None:
    network = adapted(NETWORKS["llama"](), TARGETS["all"])
    through = pass_for(network, checkpointing=False)
    silent, speaking, last = conversations(50, 60, 30)
    silent = Example(silent.ids, np.zeros_like(silent.train))
    last = Example(last.ids, np.zeros_like(last.train))
    wanted = gradient_of(through, [speaking])
    assert_same(gradient_of(through, [silent, speaking, last], opening), wanted)
    others = [Example(np.append(item.ids[:9], (item.ids[9:] + 17) % 96), item.train) for item in (silent, last)]
    changed = gradient_of(through, [others[0], speaking, others[1]], opening)
    assert_same(changed, wanted)
    assert wanted[1].norm() > 0


def test_the_gradient_of_two_parts_is_their_sum() -> None:
    network = adapted(NETWORKS["llama"](), TARGETS["all"])
    through = pass_for(network, checkpointing=False)
    examples = conversations(50, 60, 30)
    whole = gradient_of(through, examples, 9)
    through.vector.gradient.zero_()
    first, _ = through.add_gradient(examples[:1], 9, 1.0)
    rest, _ = through.add_gradient(examples[1:], 9, 1.0)
    assert_same(((first + rest).item(), through.vector.gradient), whole)


@pytest.mark.parametrize("opening", [0, 9])
@pytest.mark.parametrize("others", [(), (150, 60, 260), (150, 70, 257)])
def test_a_pack_that_is_padded_to_fixed_sizes_gives_the_same(opening: int, others: tuple[int, ...]) -> None:
    """What a CUDA graph computes, its own or one that is there already, here without the graph."""
    network = adapted(NETWORKS["llama"](), TARGETS["all"])
    examples = conversations(150, 60, 233)
    packed = pack(examples, opening)
    need = Sizes.of_pack(packed)
    sizes = (Sizes.of_pack(pack(conversations(*others), opening)) if others else need).rounded_up()
    assert sizes.holds(need)
    assert (sizes == need.rounded_up()) == (not others)
    assert sizes.tokens > len(packed.ids) and sizes.predicting > len(packed.targets)
    importance = (torch.arange(sizes.predicting) < len(packed.targets)).float()
    tensors = unfilled(torch.from_numpy(filled(packed, sizes)), importance, sizes)
    lengths = tuple(length for length in tensors.segments.boundaries.diff().tolist() if length)
    tensors = replace(tensors, segments=replace(tensors.segments, lengths=lengths, groups=packed.groups))
    vector = LoraVector(network)
    loss = PackedLlama(network, vector).add_gradient(tensors)
    assert_same((loss.item(), vector.gradient), padded_gradient(network, examples))


@pytest.mark.slow
def test_in_bfloat16_the_gradient_is_as_near_to_the_true_one_as_that_of_the_padded_pass() -> None:
    network = adapted(NETWORKS["llama"]().to(torch.bfloat16), TARGETS["all"])
    assert {parameter.dtype for parameter in network.parameters() if parameter.requires_grad} == {torch.float32}
    examples = conversations(40, 25, 150, 12)
    _, packed = gradient_of(pass_for(network, checkpointing=False), examples, 9)
    _, padded = padded_gradient(network, examples)
    _, true = padded_gradient(network.float(), examples)
    assert (packed - true).norm() < 1.5 * (padded - true).norm() < 0.1 * true.norm()


def test_other_networks_go_through_their_own_forward_pass() -> None:
    gpt = adapted(GPT2LMHeadModel(GPT2Config(vocab_size=96, n_embd=48, n_layer=2, n_head=2)), ["c_attn", "c_fc"])
    examples = conversations(40, 25, 70)
    for checkpointing in (False, True):
        through = pass_for(gpt, checkpointing=checkpointing)
        assert type(through) is PaddedPass
        # Dropout of the base is on while it learns: without it the result can be compared.
        for module in gpt.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        assert_same(gradient_of(through, examples), padded_gradient(gpt, examples))
    assert not gpt.training and not gpt.get_base_model().is_gradient_checkpointing


def test_what_the_packed_pass_does_not_know_it_leaves_alone() -> None:
    def llama(**changes: Any) -> Any:
        return LlamaForCausalLM(LlamaConfig(**SHAPE | changes))

    some = TARGETS["some"]
    assert PackedLlama.suits(adapted(llama(), some))
    assert not PackedLlama.suits(adapted(llama(hidden_act="gelu"), some))
    assert not PackedLlama.suits(adapted(llama(attention_dropout=0.1), some))
    assert not PackedLlama.suits(adapted(llama(), [*some, "lm_head"]))
    dynamic = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 4.0}
    assert not PackedLlama.suits(adapted(llama(rope_parameters=dynamic), some))
    window = MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=64))
    assert not PackedLlama.suits(adapted(window, some))
    several = adapted(llama(), some)
    further_pairs(several)
    assert PackedLlama.suits(several)
    several.base_model.set_adapter(["default", "residual"])
    assert not PackedLlama.suits(several)
    uneven = adapted(llama(), some)
    uneven.get_base_model().model.layers[0].self_attn.v_proj.scaling["default"] *= 2
    assert not PackedLlama.suits(uneven)


def test_the_vector_is_the_networks_adapter_and_goes_back_to_it() -> None:
    network = adapted(NETWORKS["llama"](), TARGETS["some"])
    vector = LoraVector(network)
    with torch.no_grad():
        for parameter in vector.parameters:
            parameter.mul_(3)
    vector.take()
    joined = torch.cat([parameter.flatten() for parameter in vector.parameters])
    assert torch.equal(vector.values, joined)
    with torch.no_grad():
        vector.values.add_(1)
    assert not torch.equal(vector.values, torch.cat([parameter.flatten() for parameter in vector.parameters]))
    vector.put_back()
    assert torch.equal(torch.cat([parameter.flatten() for parameter in vector.parameters]), joined + 1)


@pytest.mark.parametrize("opening", [0, 9])
def test_all_segments_in_one_call_give_the_same(monkeypatch: pytest.MonkeyPatch, opening: int) -> None:
    network = adapted(NETWORKS["llama"](), TARGETS["all"])
    examples = conversations(40, 25, 70)
    monkeypatch.setattr(packed_llama, "kernel_for", lambda device, dtype: InOneCall())
    vector = LoraVector(network)
    through = PackedPass(vector, PackedLlama(network, vector))
    assert_same(gradient_of(through, examples, opening), padded_gradient(network, examples))
