"""A Llama with about one million random parameters and bytes as tokens, built in code: nothing to download.

It knows no language. It is there to see the whole machinery work on any computer within a minute.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from fedse.models.card import ModelCard
from fedse.models.causal_lm import CausalLM, ModelOptions

TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|user|>' if message['role'] == 'user' else '<|agent|>' }}{{ message['content'] }}<|end|>"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|agent|>{% endif %}"
)
"""The simplest append-only chat template; the model `nano` has the same one."""


class Tiny(CausalLM):
    """A seeded random Llama."""

    name = "fedse/tiny"
    card = ModelCard(parameters=919_680, licence="Apache-2.0")
    only_here = True

    class Options(ModelOptions):
        seed: int = 0
        """Seed of the random weights."""
        width: int = Field(default=128, ge=16, multiple_of=16)
        """Hidden size."""
        layers: int = Field(default=4, ge=1)
        """Number of transformer layers."""
        context: int = Field(default=2048, ge=128)
        """Longest conversation in bytes."""

    options: Options

    def load(self, dtype: Any) -> tuple[Any, Any]:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        shape = self.options
        tokenizer = byte_tokenizer()
        config = LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=shape.width,
            intermediate_size=3 * shape.width,
            num_hidden_layers=shape.layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=shape.context,
            tie_word_embeddings=False,
            # Larger than Llama's 0.02: a frozen random network has to let something through for LoRA to steer.
            initializer_range=shape.width**-0.5,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(shape.seed)
            network = LlamaForCausalLM(config)
        return network.to(dtype), tokenizer


def byte_tokenizer() -> Any:
    """One token for each byte, and four delimiters."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={symbol: index for index, symbol in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        additional_special_tokens=["<|user|>", "<|agent|>"],
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer
