"""On a GPU: packed and recorded passes against the plain padded one, in float32 and in bfloat16."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from fedse.learners.imitation import Imitation
from fedse.learners.kto import Kto
from fedse.models.tiny import Tiny
from fedse.networks.swap import load_adapter
from fedse.networks.training import packed_llama
from fedse.networks.training.lora_vector import LoraVector
from fedse.networks.training.packed_llama import PackedLlama
from fedse.networks.training.padded_network import PaddedNetwork
from fedse.networks.training.passes import PackedPass, PaddedPass, Pass, RecordedPass, pass_for
from fedse.networks.training.soft_targets import SoftTargets
from fedse.networks.training.token_packing import Example
from fedse.starts.demonstrations import Demonstrations
from fedse.types import Lesson, Outcome
from fedse.worlds.maze import Maze
from padded_reference import TARGETS, adapted, conversations, further_pairs, padded_gradient

pytestmark = pytest.mark.gpu

SHAPE: dict[str, Any] = {
    "vocab_size": 1000,
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}


def network(dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    return adapted(LlamaForCausalLM(LlamaConfig(**SHAPE)).to(dtype), TARGETS["all"]).to("cuda")


def gradient_of(through: Pass, examples: Sequence[Example], opening: int) -> tuple[float, torch.Tensor]:
    through.vector.gradient.zero_()
    loss, _ = through.add_gradient(examples, opening, 1.0)
    return loss.item(), through.vector.gradient.clone()


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return ((one - other).norm() / other.norm()).item()


@pytest.mark.parametrize("opening", [0, 90])
def test_float32_equals_the_padded_pass(opening: int) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    net = network(torch.float32)
    through = pass_for(net, checkpointing=False)
    assert type(through) is PackedPass
    examples = conversations(400, 250, 700, 120, opening=90, vocabulary=1000)
    loss, gradient = padded_gradient(net, examples)
    found, packed = gradient_of(through, examples, opening)
    assert found == pytest.approx(loss, rel=1e-5)
    assert distance(packed, gradient) < 1e-4


@pytest.mark.parametrize("way", ["recorded", "checkpointing", "not recorded", "padded", "further pairs"])
@pytest.mark.parametrize("opening", [0, 90])
def test_bfloat16_is_as_near_to_the_true_gradient_as_the_padded_pass(way: str, opening: int) -> None:
    net = network(torch.bfloat16)
    if way == "further pairs":
        further_pairs(net, "residual", "lora_A.weight")
    if way == "not recorded":
        vector = LoraVector(net)
        through: Pass = PackedPass(vector, PackedLlama(net, vector))
    elif way == "padded":
        vector = LoraVector(net)
        through = PaddedPass(vector, PaddedNetwork(net, vector))
    else:
        through = pass_for(net, checkpointing=way == "checkpointing")
        assert type(through) is RecordedPass
    # The second has other sizes; the third is of the first's, so that a graph is replayed with other contents.
    packs = [
        conversations(*lengths, opening=90, vocabulary=1000, seed=seed)
        for seed, lengths in enumerate([(400, 250, 700, 120), (1500, 95), (390, 260, 705, 120)])
    ]
    found = [gradient_of(through, examples, opening) for examples in packs]
    padded = [padded_gradient(net, examples) for examples in packs]
    true = [padded_gradient(net.float(), examples) for examples in packs]
    for ours, theirs, exact in zip(found, padded, true, strict=True):
        assert ours[0] == pytest.approx(exact[0], rel=1e-2)
        assert distance(ours[1], exact[1]) < max(1.5 * distance(theirs[1], exact[1]), 0.01)
        # bfloat16 alone moves the padded gradient by 0.08, and by 0.10 with further pairs.
        assert distance(ours[1], exact[1]) < 0.15


@pytest.mark.parametrize(("dtype", "way", "nearest"), [("bfloat16", RecordedPass, 0.15), ("float32", PackedPass, 1e-4)])
def test_a_pass_reads_the_frozen_tensors_of_the_adapter_that_it_holds_now(
    dtype: str, way: type[Pass], nearest: float
) -> None:
    """Smaller factors, not larger ones, make the other adapter: with factors 1.5 times as large the padded pass in bfloat16
    is itself 0.46 away from the gradient in float32, and with these 0.06."""
    torch.backends.cuda.matmul.allow_tf32 = False
    net = network(torch.bfloat16)
    adapter = further_pairs(net, "residual", "lora_A.weight")
    other = replace(adapter, tensors={name: 0.7 * tensor for name, tensor in adapter.tensors.items()})
    examples = conversations(400, 250, opening=90, vocabulary=1000)
    net = net.to(getattr(torch, dtype))
    first = pass_for(net, checkpointing=False)
    assert type(first) is way
    second = first.beside()
    exact, true = network(torch.bfloat16).float(), {}
    further_pairs(exact, "residual", "lora_A.weight")
    for held in (adapter, other):
        load_adapter(exact, held)
        true[id(held)] = padded_gradient(exact, examples)[1]
    assert distance(true[id(adapter)], true[id(other)]) > 0.5
    for held, beside in ((adapter, other), (other, adapter), (adapter, adapter)):
        first.begin(held)
        second.begin(beside)
        assert distance(gradient_of(first, examples, 90)[1], true[id(held)]) < nearest
        assert distance(gradient_of(second, examples, 90)[1], true[id(beside)]) < nearest


@pytest.mark.parametrize(("dtype", "way", "nearest"), [("bfloat16", RecordedPass, 0.15), ("float32", PackedPass, 1e-4)])
def test_soft_targets_go_through_without_a_recording_and_beside_recorded_ones(
    dtype: str, way: type[Pass], nearest: float
) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    net = network(getattr(torch, dtype))
    examples = conversations(400, 250, opening=90, vocabulary=1000)
    through = pass_for(net, checkpointing=False)
    assert type(through) is way
    _, hard = gradient_of(through, examples, 90)
    told = through.likely_tokens(examples, 90, 1000)
    random = np.random.default_rng(0)
    soft = SoftTargets(told.ids[:, 3:9], random.random((len(told.ids), 6)).astype(np.float32))
    through.vector.gradient.zero_()
    loss, _ = through.add_gradient(examples, 90, 0.5, soft)
    found = through.vector.gradient.clone()
    exact = network(torch.bfloat16).float() if dtype == "bfloat16" else net
    vector = LoraVector(exact)
    padded = PaddedNetwork(exact, vector)
    wanted, _ = padded.add_gradient(examples, 0.5, soft)
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-2)
    assert distance(found, vector.gradient) < nearest
    likeliest, _ = padded.likely_tokens(examples, 1)
    assert (torch.from_numpy(told.ids[:, :1]) == likeliest.cpu()).float().mean() > 0.5
    _, again = gradient_of(through, examples, 90)
    assert distance(again, hard) < 0.01


@pytest.mark.parametrize("normed", [False, True], ids=["plain", "normed"])
@pytest.mark.parametrize(("dtype", "way", "nearest"), [("bfloat16", RecordedPass, 0.15), ("float32", PackedPass, 1e-4)])
def test_an_inner_layer_is_gone_through_without_a_recording_and_beside_recorded_passes(
    dtype: str, way: type[Pass], nearest: float, normed: bool
) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    net = network(getattr(torch, dtype))
    examples = conversations(400, 250, opening=90, vocabulary=1000)
    through = pass_for(net, checkpointing=False)
    assert type(through) is way
    _, whole = gradient_of(through, examples, 90)
    inner = through.inner(2, normed)
    assert type(inner) is PackedPass and inner.vector is through.vector
    loss, found = gradient_of(inner, examples, 90)
    exact = network(torch.bfloat16).float() if dtype == "bfloat16" else net
    base, likely, entropies = exact.get_base_model(), [], []
    for example in examples:
        ids, places = torch.from_numpy(example.ids).to("cuda"), torch.from_numpy(example.train[1:]).to("cuda")
        told = exact(input_ids=ids[None], use_cache=False, output_hidden_states=True).hidden_states
        for layer in (1, 2, 3):
            # What transformers tells of the last layer has gone through the norm.
            stream = told[layer][0, :-1][places]
            logits = base.lm_head(base.model.norm(stream) if normed and layer < 3 else stream)
            own = torch.log_softmax(logits, -1)
            entropies.append((-(own.exp() * own).sum(-1)).detach())
            if layer == 2:
                likely.append(own.gather(1, ids[1:][places][:, None]))
    wanted = -torch.cat(likely).sum()
    parameters = [parameter for parameter in exact.parameters() if parameter.requires_grad]
    pieces = torch.autograd.grad(wanted, parameters, allow_unused=True)
    true = torch.cat(
        [
            (torch.zeros_like(own) if piece is None else piece).flatten()
            for own, piece in zip(parameters, pieces, strict=True)
        ]
    )
    assert loss == pytest.approx(wanted.item(), rel=1e-2)
    assert distance(found, true) < nearest
    assert not found[true == 0].any(), "layers above have no gradient"
    means = torch.stack([torch.cat(entropies[layer::3]) for layer in range(3)]).mean(1).cpu().numpy()
    assert through.layer_entropies(examples, 90, normed).mean(1) == pytest.approx(means, rel=0.05)
    _, again = gradient_of(through, examples, 90)
    assert distance(again, whole) < 0.01


def test_recording_adds_a_gradient_once_and_on_top_of_what_is_there() -> None:
    through = pass_for(network(torch.bfloat16), checkpointing=False)
    examples = conversations(400, 250, opening=90, vocabulary=1000)
    _, first = gradient_of(through, examples, 90)
    _, replayed = gradient_of(through, examples, 90)
    assert distance(replayed, first) < 0.01
    through.add_gradient(examples, 90, 1.0)
    assert distance(through.vector.gradient, 2 * first) < 0.01
    others = conversations(1300, 95, opening=90, vocabulary=1000)
    through.add_gradient(others, 90, 1.0)  # Recorded now, with a gradient already there.
    _, theirs = gradient_of(through, others, 90)
    through.vector.gradient.zero_()
    for part in (examples, others):
        through.add_gradient(part, 90, 0.5)
    assert distance(through.vector.gradient, 0.5 * (first + theirs)) < 0.01


def test_scoring_is_recorded_in_the_sizes_of_what_is_learned_from_and_finds_the_same() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    net = network(torch.bfloat16)
    through, vector = pass_for(net, checkpointing=False), LoraVector(net)
    assert isinstance(through, RecordedPass)
    plain = PackedPass(vector, PackedLlama(net, vector))
    exact = network(torch.bfloat16).float()
    true = pass_for(exact, checkpointing=False)
    # The third goes through the recording of the first, with other contents; the second is larger than anything expected.
    packs = [
        conversations(*lengths, opening=90, vocabulary=1000, seed=seed)
        for seed, lengths in enumerate([(400, 250, 700, 120), (1500, 1400, 95), (390, 260, 705, 120)])
    ]
    before = through.log_probabilities(packs[0], 90)
    assert not through._graphs._scoring  # Nothing is expected: whoever scores once records nothing.
    through.expect([packs[0]], 90)
    _, gradient = gradient_of(through, packs[0], 90)
    for examples in (*packs, packs[0]):
        found, wanted = through.log_probabilities(examples, 90), true.log_probabilities(examples, 90)
        usual = plain.log_probabilities(examples, 90)
        assert found.shape == usual.shape == (sum(example.agent_tokens for example in examples),)
        assert np.abs(found - wanted).mean() <= 1.1 * np.abs(usual - wanted).mean() < 0.2 * wanted.std()
    assert len(through._graphs._scoring) == 1
    _, again = gradient_of(through, packs[0], 90)
    assert distance(again, gradient) < 0.01
    with torch.no_grad():
        through.vector.values.mul_(1.5)
    assert np.abs(through.log_probabilities(packs[0], 90) - before).mean() > 0.01  # It reads what the vector holds now.


def test_a_rule_learns_through_recorded_scores_what_it_learns_through_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It scores anew before every step, so that a wrong score would turn the next one."""
    model = Tiny(width=64, layers=2, device="cuda", dtype="bfloat16")
    world = Maze(rules="brief", observation_length="brief")
    fresh = [
        replace(item, task=str(number // 2), outcome=Outcome.FAILURE if number % 2 else Outcome.SUCCESS)
        for number, item in enumerate(Demonstrations(12).trajectories("maze", "maze", world, model.chat, 0))
    ]
    lesson = Lesson(model.initial_adapter(0), fresh[::2], 1, fresh)

    def learned() -> dict[str, float]:
        _, told = Kto(model, learning_rate=2e-4, batch_size=4, epochs=3).learn(lesson)
        return told

    recorded = learned()
    monkeypatch.setattr(RecordedPass, "log_probabilities", PackedPass.log_probabilities)
    usual = learned()
    for name in ("first_loss", "loss", "success_log_ratio", "failure_log_ratio"):
        assert recorded[name] == pytest.approx(usual[name], rel=0.03)
    assert usual["success_log_ratio"] > 5  # It has moved.


def test_learning_on_a_gpu_goes_where_learning_on_a_cpu_goes() -> None:
    world = Maze(rules="brief", observation_length="brief")
    learned = {}
    for device in ("cpu", "cuda"):
        model = Tiny(width=64, layers=2, device=device)
        shown = Demonstrations(12).trajectories("maze", "maze", world, model.chat, 0)
        learned[device] = Imitation(model, learning_rate=3e-3, batch_size=2).learn(
            Lesson(model.initial_adapter(0), shown, 1)
        )
    (_, on_cpu), (_, on_gpu) = learned["cpu"], learned["cuda"]
    assert on_gpu["first_loss"] == pytest.approx(on_cpu["first_loss"], rel=0.02)
    assert on_gpu["loss"] == pytest.approx(on_cpu["loss"], rel=0.05)


@pytest.mark.parametrize("adapters", [2, 5])
def test_adapters_trained_at_once_on_a_gpu_are_those_trained_one_after_another(adapters: int) -> None:
    """But for roundings: products of more rows and of all factors add up in another order."""
    model = Tiny(width=64, layers=2, device="cuda", dtype="bfloat16")
    shown = Demonstrations(40).trajectories(
        "maze", "maze", Maze(rules="brief", observation_length="brief"), model.chat, 0
    )
    learner = Imitation(model, learning_rate=3e-3, batch_size=4)
    start = model.initial_adapter(0)
    lessons = [Lesson(start, shown[: 40 - 7 * number], number) for number in range(adapters)]

    def changes(learned: Sequence[Any]) -> list[torch.Tensor]:
        return [
            torch.cat(
                [torch.from_numpy(adapter.tensors[name] - start.tensors[name]).flatten() for name in start.tensors]
            )
            for adapter, _ in learned
        ]

    in_turn = changes([learner.learn(lesson) for lesson in lessons])
    for _ in range(3):
        for ours, one in zip(changes(learner.learn_together(lessons)), in_turn, strict=True):
            assert torch.cosine_similarity(ours, one, dim=0) > 0.99
            assert ours.norm().item() == pytest.approx(one.norm().item(), rel=0.1)
    assert torch.cosine_similarity(in_turn[0], in_turn[1], dim=0) < 0.98


def test_a_large_network_is_neither_recorded_nor_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its packs would be padded to the sizes of graphs, and one adapter's batch fills the card."""
    assert Imitation(Tiny(device="cuda", dtype="bfloat16")).at_once > 1
    monkeypatch.setattr(packed_llama, "_LARGE", 0)
    assert Imitation(Tiny(device="cuda", dtype="bfloat16")).at_once == 1
    net, examples = network(torch.bfloat16), conversations(400, 250, opening=90, vocabulary=1000)
    through = pass_for(net, checkpointing=False)
    assert type(through) is PackedPass
    loss, tokens = through.add_gradient(examples, 90, 1.0)
    assert tokens == 400 + 250 - 90
    _, true = padded_gradient(net.float(), examples)
    assert distance(through.vector.gradient, true) < 0.15 and loss.item() > 0
