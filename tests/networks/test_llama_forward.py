from __future__ import annotations

from typing import Any

import peft
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from fedse.models.tiny import Tiny
from fedse.networks.decoding import stepwise
from fedse.networks.decoding.decoder import Decoder
from fedse.networks.decoding.graphed_network import GraphedNetwork
from fedse.networks.decoding.llama_forward import LlamaForward
from fedse.networks.decoding.network_forward import NetworkForward
from fedse.networks.decoding.packed_llama import PackedLlama
from fedse.networks.decoding.slot_cache import SlotCache
from fedse.networks.decoding.stepwise import StepwiseDecoder
from fedse.policies.transformer import TransformerPolicy
from fedse.rollouts.player import Player
from fedse.seeds import generator, stream
from fedse.types import Adapter, Episode, Purpose, Sampling, Trajectory
from fedse.worlds.maze import Maze
from small_llamas import NETWORKS, SHAPE, YARN

LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TARGETS = {"all": [*LAYERS, "lm_head"], "some": ["q_proj", "v_proj", "down_proj"]}


def adapted(base: Any, targets: list[str]) -> Any:
    network = peft.get_peft_model(
        base, peft.LoraConfig(r=4, lora_alpha=12, target_modules=targets, task_type="CAUSAL_LM")
    )
    return stirred(network.eval(), 0)


@torch.no_grad()
def stirred(network: Any, seed: int) -> Any:
    """Every tensor gets noise, so that none is the zero, the one or the absent bias it began as."""
    source = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        parameter += 0.1 * torch.randn(parameter.shape, generator=source)
    return network


def ids_of(rows: int, tokens: int) -> torch.Tensor:
    return torch.randint(0, SHAPE["vocab_size"], (rows, tokens), generator=torch.Generator().manual_seed(5))


@pytest.mark.filterwarnings("ignore:Model has .tie_word_embeddings:UserWarning")
@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("name", NETWORKS)
@torch.inference_mode()
def test_logits_are_those_of_the_network(name: str, targets: str) -> None:
    """New text in pieces, in any order of rows, then token after token, beyond the first columns of the cache."""
    network = adapted(NETWORKS[name](), TARGETS[targets])
    assert LlamaForward.suits(network)
    decoder, cache = LlamaForward(network), SlotCache(2, 3, 512)
    ids = ids_of(3, 150)
    plain = network(input_ids=ids).logits
    assert plain.std() > 0.1
    for start in range(0, 140, 20):
        rows = torch.tensor([2, 0])
        mask = cache.aim(rows, torch.tensor([start, start]), 20)
        got = decoder.logits(ids[rows, start : start + 20], mask, cache, torch.tensor([19, 7]))
        assert torch.allclose(got, plain[rows, [start + 19, start + 7]], atol=1e-5, rtol=1e-5)
    for place in range(140, 150):
        # The slot between the two holds a conversation that has just begun.
        starts = torch.tensor([place, place - 140, place])
        mask = cache.aim(None, starts, 1)
        got = decoder.logits(ids[[0, 1, 2], starts][:, None], mask, cache, torch.zeros(3, dtype=torch.long))
        assert torch.allclose(got, plain[[0, 1, 2], starts], atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_loading_takes_the_adapter_that_the_network_holds_then() -> None:
    network = adapted(NETWORKS["llama"](), TARGETS["all"])
    decoder = LlamaForward(network)
    ids, keep = ids_of(1, 9), torch.tensor([8])

    def answer() -> torch.Tensor:
        cache = SlotCache(2, 1, 512)
        return decoder.logits(ids, cache.aim(torch.tensor([0]), torch.tensor([0]), 9), cache, keep)

    before = answer()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if ".lora_B." in name:
                parameter.mul_(-1)
    assert torch.equal(answer(), before)
    decoder.load()
    assert not torch.allclose(answer(), before, atol=1e-2)
    assert torch.allclose(answer(), network(input_ids=ids).logits[:, -1], atol=1e-5)


def test_other_networks_run_through_transformers() -> None:
    llama = adapted(NETWORKS["llama"](), TARGETS["some"])
    gpt = GPT2LMHeadModel(GPT2Config(vocab_size=96, n_embd=48, n_layer=1, n_head=2))
    assert LlamaForward.suits(llama)
    assert not LlamaForward.suits(adapted(gpt, ["c_attn"]))
    assert not LlamaForward.suits(adapted(LlamaForCausalLM(LlamaConfig(**SHAPE, hidden_act="gelu")), TARGETS["some"]))
    assert not LlamaForward.suits(adapted(NETWORKS["llama"](), ["q_proj", "embed_tokens"]))
    eager = LlamaForCausalLM._from_config(LlamaConfig(**SHAPE), attn_implementation="eager")
    assert not LlamaForward.suits(adapted(eager, TARGETS["some"]))
    assert not LlamaForward.suits(llama.to(torch.bfloat16))


def test_recorded_steps_know_wide_heads_and_nothing_foreign() -> None:
    wide = SHAPE | {"head_dim": 16}
    assert GraphedNetwork.knows(adapted(LlamaForCausalLM(LlamaConfig(**wide)), TARGETS["some"]))
    for other in (
        GPT2LMHeadModel(GPT2Config(vocab_size=96, n_embd=48, n_layer=1, n_head=2)),
        LlamaForCausalLM(LlamaConfig(**wide, hidden_act="gelu")),
        LlamaForCausalLM(LlamaConfig(**wide, rope_parameters=YARN)),
        LlamaForCausalLM(LlamaConfig(**SHAPE)),
    ):
        targets = ["c_attn"] if isinstance(other, GPT2LMHeadModel) else TARGETS["some"]
        assert not GraphedNetwork.knows(adapted(other, targets))


def test_the_policy_chooses_by_precision() -> None:
    for dtype, expected in (("float32", PackedLlama), ("bfloat16", NetworkForward)):
        model = Tiny(width=32, layers=1, dtype=dtype, device="cpu")
        decoder = TransformerPolicy(model)._decoder
        assert isinstance(decoder, StepwiseDecoder)
        assert type(decoder.forward) is expected


class ThroughTransformers(TransformerPolicy):
    """The policy as it is for networks without a fast path."""

    def make_decoder(self) -> Decoder:
        return StepwiseDecoder(self.model, self.slots, NetworkForward(self.model.network))


def make_maze() -> Maze:
    return Maze(rules="brief", observation_length="brief", turn_limit=4)


@pytest.mark.slow
def test_episodes_are_the_same_through_transformers_and_in_any_batch(tiny: Any) -> None:
    start = tiny.initial_adapter(3)
    noise = {name: generator("stirred", name).standard_normal(held.shape) for name, held in start.tensors.items()}
    tensors = {name: (held + 0.05 * noise[name]).astype("float32") for name, held in start.tensors.items()}
    adapter = Adapter(tensors, start.config)
    episodes = [
        Episode("c", "maze", make_maze, task, Purpose.EXPLORE, 1, 0, Sampling(stream(task.id), temperature))
        for task in make_maze().tasks("train")[:3]
        for temperature in (0.0, 1.0)
    ]

    def play(policy: TransformerPolicy, batches: list[list[Episode]]) -> list[Trajectory]:
        policy.load(adapter)
        player = Player(policy, tiny.chat, tiny.context)
        return [trajectory for batch in batches for trajectory in player.play(batch, "adapter")]

    fast, usual = (kind(tiny, slots=12, reply_tokens=10) for kind in (TransformerPolicy, ThroughTransformers))
    together = play(usual, [episodes])
    assert play(fast, [episodes]) == together
    assert play(usual, [[episode] for episode in episodes]) == together
    assert len({trajectory.token_ids for trajectory in together}) > len(together) // 2


def test_new_text_is_read_alike_in_the_passes_of_every_device(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {slot: (0, ids_of(1, 20 + 17 * slot)[0].tolist()) for slot in range(11)}
    read = {}
    for device, shape in stepwise._NEW_TEXT.items():
        monkeypatch.setitem(stepwise._NEW_TEXT, "cpu", shape)
        decoder = StepwiseDecoder(tiny, 12, LlamaForward(tiny.network))
        with torch.inference_mode():
            read[device] = decoder._feed(texts)
    for slot, (_, ids) in texts.items():
        plain = tiny.network(input_ids=torch.tensor([ids])).logits[0, -1]
        assert all(torch.allclose(found[slot], plain, atol=1e-4) for found in read.values())


@torch.inference_mode()
def test_a_conversation_gets_the_same_bits_beside_a_much_longer_one() -> None:
    """The longer one widens the cache for both."""
    network = adapted(NETWORKS["llama"](), TARGETS["all"])
    decoder = LlamaForward(network)
    ids, keep = ids_of(2, 460), torch.zeros(2, dtype=torch.long)

    def answers(lengths: list[int]) -> torch.Tensor:
        cache = SlotCache(2, 2, 512)
        for start in range(0, max(lengths), 20):
            mask = cache.aim(None, torch.tensor([min(start, length) for length in lengths]), 20)
            pieces = [ids[row, min(start, length) :][:20] for row, length in enumerate(lengths)]
            decoder.logits(torch.stack(pieces), mask, cache, keep)
        mask = cache.aim(None, torch.tensor(lengths), 1)
        return decoder.logits(
            torch.stack([ids[row, place] for row, place in enumerate(lengths)])[:, None], mask, cache, keep
        )

    expected = answers([40, 40])[0]
    assert all(torch.equal(answers([40, other])[0], expected) for other in (120, 200, 300, 440))


def test_the_cache_grows_by_doubling_and_never_beyond_the_longest_conversation() -> None:
    cache, sizes = SlotCache(1, 2, 700), []
    for start in range(0, 700, 50):
        cache.aim(None, torch.tensor([start, 0]), 1)
        new = torch.full((2, 1, 1, 4), float(start))
        keys, _ = cache.layers[0].update(new, new)
        assert [keys[0, 0, place, 0].item() for place in range(0, start + 1, 50)] == list(range(0, start + 1, 50))
        sizes.append(cache.layers[0].keys.shape[1])
    assert list(dict.fromkeys(sizes)) == [128, 256, 512, 768]
