"""The one reader of a Llama: what its layers hold, and the adapters on them, for all code of ours that computes one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

_FAMILY = ("llama", "mistral", "qwen2", "qwen3")
_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_FEED_FORWARD = ("gate_proj", "up_proj", "down_proj")

M = TypeVar("M")
N = TypeVar("N")


@dataclass(frozen=True)
class LoraPair:
    """LoRA's two factors on one linear layer, as the network holds them."""

    down: torch.Tensor
    """A: rank x inputs."""
    up: torch.Tensor
    """B: outputs x rank."""
    scale: float


@dataclass(frozen=True)
class Linear:
    """One linear layer, with the pairs that are active on it."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    module: Any
    """The layer itself, or PEFT's wrapper of it where it has an adapter."""

    @property
    def adapted(self) -> bool:
        return hasattr(self.module, "base_layer")

    @property
    def all_active(self) -> bool:
        """Whether every pair that is there takes part, beside the weight and not merged into it."""
        module = self.module
        return not self.adapted or (set(module.active_adapters) == set(module.lora_A) and not module.merged)

    @property
    def pairs(self) -> list[LoraPair]:
        """Read anew each time: an adapter with further pairs brings other tensors."""
        module = self.module
        return [
            LoraPair(module.lora_A[name].weight, module.lora_B[name].weight, module.scaling[name])
            for name in getattr(module, "active_adapters", ())
        ]


Linears = tuple[Linear, ...]
"""Linear layers of the same input, which one product can compute."""


def joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """One below the other; a single one is not copied."""
    return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors))


@dataclass(frozen=True)
class LlamaLayer(Generic[M]):
    """Gains of the norms, and the matrices in whatever form they are computed with."""

    before_attention: torch.Tensor
    query_key_value: M
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None
    out: M
    before_feed_forward: torch.Tensor
    gate_up: M
    down: M

    @property
    def matrices(self) -> tuple[M, M, M, M]:
        return self.query_key_value, self.out, self.gate_up, self.down

    def each(self, make: Callable[[M], N]) -> LlamaLayer[N]:
        """The same layer with something made of each matrix."""
        return LlamaLayer(
            before_attention=self.before_attention,
            query_key_value=make(self.query_key_value),
            query_norm=self.query_norm,
            key_norm=self.key_norm,
            out=make(self.out),
            before_feed_forward=self.before_feed_forward,
            gate_up=make(self.gate_up),
            down=make(self.down),
        )


class Llama:
    """A network for which `is_plain_llama` holds, with or without adapters."""

    def __init__(self, network: Any) -> None:
        base = network.get_base_model()
        attention = base.model.layers[0].self_attn
        self.layers = [_layer(layer) for layer in base.model.layers]
        self.head = _linear(base.lm_head)
        self.embedding: torch.Tensor = base.model.embed_tokens.weight
        self.last_norm: torch.Tensor = base.model.norm.weight
        self.epsilon: float = base.model.norm.variance_epsilon
        self.rotary_embedding = base.model.rotary_emb
        self.heads, self.key_heads = base.config.num_attention_heads, base.config.num_key_value_heads
        self.head_size: int = attention.head_dim
        self.scale: float = attention.scaling
        self.dtype: torch.dtype = self.head.weight.dtype
        self.device: torch.device = self.head.weight.device

    def linears(self) -> Iterator[Linear]:
        """Every linear layer but the head."""
        for layer in self.layers:
            for matrix in layer.matrices:
                yield from matrix

    def rotary(self, like: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine by which vectors are turned at these positions, in the precision of `like`."""
        cosine, sine = self.rotary_embedding(like, positions)
        # Turning a vector takes its halves exchanged, the then first one negated; the sign goes into the sine once.
        sine[..., : self.head_size // 2].neg_()
        return cosine, sine


def _layer(layer: Any) -> LlamaLayer[Linears]:
    attention, feed_forward = layer.self_attn, layer.mlp
    return LlamaLayer(
        before_attention=layer.input_layernorm.weight,
        query_key_value=(_linear(attention.q_proj), _linear(attention.k_proj), _linear(attention.v_proj)),
        query_norm=attention.q_norm.weight if hasattr(attention, "q_norm") else None,
        key_norm=attention.k_norm.weight if hasattr(attention, "k_norm") else None,
        out=(_linear(attention.o_proj),),
        before_feed_forward=layer.post_attention_layernorm.weight,
        gate_up=(_linear(feed_forward.gate_proj), _linear(feed_forward.up_proj)),
        down=(_linear(feed_forward.down_proj),),
    )


def _linear(module: Any) -> Linear:
    plain = getattr(module, "base_layer", module)
    return Linear(plain.weight, plain.bias, module)


def is_plain_llama(network: Any) -> bool:
    """Whether a PEFT model is one of the family with plain LoRA on plain linear layers and no other adapter, so that code
    of our own may compute what it computes."""
    from peft.tuners.lora import Linear as LoraLinear
    from peft.tuners.tuners_utils import BaseTunerLayer

    if network.config.model_type not in _FAMILY or network.config.hidden_act != "silu":
        return False
    base = network.get_base_model()
    linear = set(_linear_modules(base))
    adapted = {module for module in base.modules() if isinstance(module, BaseTunerLayer)}
    return (
        adapted <= linear
        and all(type(module) is LoraLinear and not module.lora_variant for module in adapted)
        and all(type(getattr(module, "base_layer", module)) is torch.nn.Linear for module in linear)
    )


def _linear_modules(base: Any) -> Iterator[Any]:
    for layer in base.model.layers:
        yield from (getattr(layer.self_attn, name) for name in _ATTENTION)
        yield from (getattr(layer.mlp, name) for name in _FEED_FORWARD)
    yield base.lm_head
