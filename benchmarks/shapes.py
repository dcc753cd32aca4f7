"""Networks of the sizes that people use, with random weights: as fast and as large as the real ones, nothing to download.

Values are those of the models' published configurations; `parameters` is what their makers state, and a test counts.
Phi-4-mini's long positions are stretched by factors that are left at 1 here, which costs no time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fedse.models.causal_lm import CausalLM
from fedse.models.tiny import byte_tokenizer


@dataclass(frozen=True)
class Shape:
    family: str
    """Of transformers' class for the configuration, such as `Qwen2`."""
    parameters: int
    size: dict[str, Any]

    @property
    def config(self) -> Any:
        import transformers

        return getattr(transformers, f"{self.family}Config")(**self.size)


def _size(
    vocabulary: int, width: int, inner: int, layers: int, heads: int, key_heads: int, **more: Any
) -> dict[str, Any]:
    return {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "max_position_embeddings": 32_768,
        **more,
    }


def _theta(base: float, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": base, **more}}


def _llama3(factor: float) -> dict[str, Any]:
    frequencies = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    return _theta(500_000.0, rope_type="llama3", factor=factor, **frequencies)


TIED, APART = {"tie_word_embeddings": True}, {"tie_word_embeddings": False}
WIDE = {"head_dim": 128}
MILLION = _theta(1_000_000.0)
PHI_ROTATION = _theta(10_000.0, partial_rotary_factor=0.75)
PHI_TOKENS = {"bos_token_id": 199_999, "eos_token_id": 199_999, "pad_token_id": 199_999}
GEMMA = {"head_dim": 256, "sliding_window": 512, "query_pre_attn_scalar": 256}

SHAPES = {
    "SmolLM2-135M": Shape("Llama", 134_515_008, _size(49_152, 576, 1536, 30, 9, 3, **TIED, **_theta(100_000.0))),
    "Qwen2.5-0.5B": Shape("Qwen2", 494_032_768, _size(151_936, 896, 4864, 24, 14, 2, **TIED, **MILLION)),
    "Qwen2.5-1.5B": Shape("Qwen2", 1_543_714_304, _size(151_936, 1536, 8960, 28, 12, 2, **TIED, **MILLION)),
    "Qwen2.5-7B": Shape("Qwen2", 7_615_616_512, _size(152_064, 3584, 18_944, 28, 28, 4, **APART, **MILLION)),
    "Qwen3-1.7B": Shape("Qwen3", 1_720_574_976, _size(151_936, 2048, 6144, 28, 16, 8, **TIED, **WIDE, **MILLION)),
    "Qwen3-4B": Shape("Qwen3", 4_022_468_096, _size(151_936, 2560, 9728, 36, 32, 8, **TIED, **WIDE, **MILLION)),
    "Qwen3-8B": Shape("Qwen3", 8_190_735_360, _size(151_936, 4096, 12_288, 36, 32, 8, **APART, **WIDE, **MILLION)),
    "Llama-3.2-1B": Shape("Llama", 1_235_814_400, _size(128_256, 2048, 8192, 16, 32, 8, **TIED, **_llama3(32.0))),
    "Llama-3.1-8B": Shape("Llama", 8_030_261_248, _size(128_256, 4096, 14_336, 32, 32, 8, **APART, **_llama3(8.0))),
    "Gemma-3-1B": Shape("Gemma3Text", 999_885_952, _size(262_144, 1152, 6912, 26, 4, 1, **TIED, **GEMMA)),
    "Phi-4-mini": Shape(
        "Phi3",
        3_836_021_760,
        _size(200_064, 3072, 8192, 32, 24, 8, **TIED, **PHI_ROTATION, **PHI_TOKENS, sliding_window=262_144),
    ),
}


class ShapeModel(CausalLM):
    """Made on the device where it computes: weights of seven billion parameters are not drawn on a CPU."""

    shape: ClassVar[Shape]

    def load(self, dtype: Any) -> tuple[Any, Any]:
        from transformers import AutoModelForCausalLM

        with torch.device(self.device), torch.random.fork_rng():
            torch.manual_seed(0)
            network = AutoModelForCausalLM.from_config(self.shape.config, dtype=dtype, attn_implementation="sdpa")
        tokenizer = byte_tokenizer()
        network.generation_config.eos_token_id = tokenizer.eos_token_id
        return network, tokenizer


def model_class(name: str) -> type[ShapeModel]:
    return type("Shape", (ShapeModel,), {"name": f"benchmark/{name}", "shape": SHAPES[name]})
