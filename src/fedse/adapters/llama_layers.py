"""Which networks are Llamas in every part, so that code of our own may compute what they compute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_FAMILY = ("llama", "mistral", "qwen2", "qwen3")
_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_FEED_FORWARD = ("gate_proj", "up_proj", "down_proj")


def linear_modules(base: Any) -> Iterator[Any]:
    """Every linear layer, the head last; with an adapter on it, PEFT's wrapper of the layer."""
    for layer in base.model.layers:
        yield from (getattr(layer.self_attn, name) for name in _ATTENTION)
        yield from (getattr(layer.mlp, name) for name in _FEED_FORWARD)
    yield base.lm_head


def is_plain_llama(network: Any) -> bool:
    """Whether a PEFT model is one of the family with plain LoRA on plain linear layers and no other adapter."""
    import torch
    from peft.tuners.lora import Linear
    from peft.tuners.tuners_utils import BaseTunerLayer

    if network.config.model_type not in _FAMILY or network.config.hidden_act != "silu":
        return False
    base = network.get_base_model()
    linear = set(linear_modules(base))
    adapted = {module for module in base.modules() if isinstance(module, BaseTunerLayer)}
    return (
        adapted <= linear
        and all(type(module) is Linear and not module.lora_variant for module in adapted)
        and all(type(getattr(module, "base_layer", module)) is torch.nn.Linear for module in linear)
    )
