"""Networks of other families than Llama, tiny and random: they learn what plain PEFT learns, and play as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers

from fedse.errors import BadInput
from fedse.learners.imitation import Imitation
from fedse.models.causal_lm import CausalLM
from fedse.models.tiny import byte_tokenizer
from fedse.networks.swap import load_adapter, train_only
from fedse.networks.training.lora_vector import LoraVector
from fedse.networks.training.padded_network import PaddedNetwork
from fedse.networks.training.token_packing import Example
from fedse.policies.transformer import TransformerPolicy
from fedse.starts.demonstrations import demonstrate
from fedse.types import Adapter, Lesson, Sampling
from fedse.worlds.maze import Maze

TOKENIZER = byte_tokenizer()
SHAPE: dict[str, Any] = {
    "vocab_size": len(TOKENIZER),
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 2048,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "pad_token_id": TOKENIZER.pad_token_id,
}
GPT2 = {"vocab_size": len(TOKENIZER), "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 2048}
OPT = {
    **{key: SHAPE[key] for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")},
    "ffn_dim": 48,
}
OPT |= {"max_position_embeddings": 2048, "word_embed_proj_dim": 32}
WITH_DROPOUT = {
    "gpt2": ("GPT2", GPT2),
    "opt": ("OPT", OPT),
    "seed_oss": ("SeedOss", {**SHAPE, "attention_dropout": 0.2, "residual_dropout": 0.2}),
}
WITH_WINDOWS = {
    "gemma2": ("Gemma2", {**SHAPE, "sliding_window": 24}, "eager"),
    "gemma3": (
        "Gemma3",
        {**SHAPE, "sliding_window": 24, "layer_types": ["sliding_attention", "full_attention"]},
        "sdpa",
    ),
    "mistral": ("Mistral", {**SHAPE, "sliding_window": 24}, "sdpa"),
    "phi3": ("Phi3", {**{key: SHAPE[key] for key in SHAPE if key != "head_dim"}, "sliding_window": 24}, "eager"),
}


class Family(CausalLM):
    """A random network of a family, with bytes as tokens."""

    name = "test/family"

    def __init__(self, family: str, shape: dict[str, Any], attention: str = "sdpa", **options: Any) -> None:
        self._made = family, shape, attention
        super().__init__(**{"device": "cpu", **options})

    def load(self, dtype: Any) -> tuple[Any, Any]:
        family, shape, attention = self._made
        text = "Text" if family == "Gemma3" else ""
        torch.manual_seed(0)
        config = getattr(transformers, f"{family}{text}Config")(**shape)
        network = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention)
        network.generation_config.eos_token_id = shape.get("ends", TOKENIZER.eos_token_id)
        return network.to(dtype), TOKENIZER


def stirred(adapter: Adapter) -> Adapter:
    random = np.random.default_rng(0)
    noise = {name: random.normal(0, 0.1, tensor.shape) for name, tensor in adapter.tensors.items()}
    return Adapter({name: (adapter.tensors[name] + noise[name]).astype(np.float32) for name in noise}, adapter.config)


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("family", WITH_DROPOUT)
def test_a_network_with_dropout_learns_without_it(family: str, checkpointing: bool) -> None:
    made = Family(*WITH_DROPOUT[family])
    maze = Maze(mode="original", rules="brief", observation_length="brief")
    shown = [demonstrate("c", "maze", maze, task, made.chat) for task in maze.tasks("train")[:2]]
    start = stirred(made.initial_adapter(0))
    learner = Imitation(made, epochs=1, learning_rate=1e-3, batch_size=2, checkpointing=checkpointing)
    assert learner.learn(Lesson(start, shown, 1))[0].digest() == learner.learn(Lesson(start, shown, 1))[0].digest()
    load_adapter(made.network, start)
    train_only(made.network, start)
    vector = LoraVector(made.network)
    ids = np.array(shown[0].token_ids[:300])
    example = Example(ids, np.arange(len(ids)) % 3 == 2)
    PaddedNetwork(made.network, vector, checkpointing).add_gradient([example], 1.0)
    labels = torch.tensor(np.where(example.train, ids, -100))[None]
    logits = made.network.eval()(input_ids=torch.tensor(ids)[None], use_cache=False).logits
    plain = torch.nn.functional.cross_entropy(logits[0, :-1].float(), labels[0, 1:], reduction="sum")
    expected = torch.cat([part.flatten() for part in torch.autograd.grad(plain, vector.parameters)])
    torch.testing.assert_close(vector.gradient.flatten(), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("family", WITH_WINDOWS)
def test_a_sliding_window_hides_in_play_what_it_hides_in_the_network(family: str) -> None:
    made = Family(*WITH_WINDOWS[family])
    policy = TransformerPolicy(made, slots=2)
    adapter = stirred(made.initial_adapter(0))
    policy.load(adapter)
    ids = [*made.chat.opening("rules " * 8), *made.chat.turn("left or right? " * 6)]
    with torch.inference_mode():
        plain = made.network(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].float()
        played = policy._decoder.encode(0, ids).float()
    torch.testing.assert_close(torch.softmax(played, -1), torch.softmax(plain, -1), rtol=1e-3, atol=1e-4)
    # Without the window the same text means something else.
    name, shape, attention = WITH_WINDOWS[family]
    wide = Family(name, {**shape, "sliding_window": 2048}, attention)
    load_adapter(wide.network, adapter)
    with torch.inference_mode():
        seen = wide.network(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].float()
    assert len(ids) > 100 and not torch.allclose(seen, plain, atol=1e-2)


def test_a_context_as_short_as_the_window_is_played_as_usual() -> None:
    made = Family("Mistral", {**SHAPE, "sliding_window": 256}, context=256)
    assert made.context == 256 and TransformerPolicy(made, slots=2)._window == 0


def test_the_context_can_be_set_up_to_what_the_model_holds() -> None:
    assert Family("GPT2", GPT2).context == 2048
    assert Family("GPT2", GPT2, context=512).context == 512
    with pytest.raises(BadInput, match=r"model\.context: .* holds 2048 tokens, and 4096 are asked for"):
        Family("GPT2", GPT2, context=4096)


def test_every_end_token_of_the_generation_configuration_ends_a_reply() -> None:
    further = TOKENIZER.pad_token_id
    assert further != TOKENIZER.eos_token_id and further in TOKENIZER.all_special_ids
    made = Family("GPT2", {**GPT2, "ends": [TOKENIZER.eos_token_id, further, 65]})
    closing = made.chat.reply("")[-1]
    # A letter is no end, whatever a configuration says.
    assert made.chat.end_ids == {closing, further}
    policy = TransformerPolicy(made, slots=2, reply_tokens=50)
    policy.load(made.initial_adapter(0))
    head = made.network.get_base_model().lm_head
    with torch.no_grad():
        slot = policy.open(made.chat.opening("rules"), Sampling(0, 0.0))
        policy.extend(slot, made.chat.turn("go"))
        hook = head.register_forward_hook(
            lambda _, __, out: torch.where(torch.arange(out.shape[-1]) == further, 1e4, out)
        )
        [reply] = policy.ready()
        hook.remove()
    assert reply.ids == (further,)
    # The turn is closed as the template wants it, so the next one begins as always.
    assert not reply.ended


@pytest.mark.parametrize("family", ["Mixtral", "Qwen3Moe", "GptOss"])
def test_fused_experts_are_not_left_out_in_silence(family: str) -> None:
    shape = {**SHAPE, "num_local_experts": 4, "num_experts": 4, "moe_intermediate_size": 16, "num_experts_per_tok": 2}
    with pytest.raises(BadInput, match=r"model\.lora\.targets: .*experts.*targets: \[k_proj, o_proj, q_proj, v_proj\]"):
        Family(family, shape, "eager")
    made = Family(family, shape, "eager", lora={"targets": ["k_proj", "o_proj", "q_proj", "v_proj"]})
    assert made.initial_adapter(0).tensors
