"""Forward passes through the network as transformers and PEFT run it: right for every architecture and precision."""

from __future__ import annotations

from typing import Any

import torch

from fedse.networks.attention_backends import for_any_length
from fedse.networks.decoding.slot_cache import SlotCache


class NetworkForward:
    """Asks the network itself, with the adapter beside its frozen weights."""

    def __init__(self, network: Any, window: int = 0) -> None:
        """Layers with sliding attention see as many tokens as the window is wide; 0: there are none."""
        self.network = network
        self._window = window
        self._kinds = getattr(network.config.get_text_config(), "layer_types", None)

    def load(self) -> None:
        """Nothing to prepare: the network holds the adapter."""

    def logits(self, ids: torch.Tensor, mask: torch.Tensor, cache: SlotCache, keep: torch.Tensor) -> torch.Tensor:
        """Next-token logits of each row after its token `keep`."""
        single = ids.shape[1] == 1
        with for_any_length():
            logits: torch.Tensor = self.network(
                input_ids=ids,
                attention_mask=self._masks(mask, cache),
                position_ids=cache.positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1 if single else keep,
            ).logits
        return logits[:, 0] if single else logits.diagonal().T

    def _masks(self, mask: torch.Tensor, cache: SlotCache) -> torch.Tensor | dict[str, torch.Tensor]:
        """What each token sees, in the form that the network takes; one for each kind of layer where it has several."""
        if not self._window:
            return self._as_taken(mask)
        # Every column of the cache is the place of a token in its conversation.
        first = cache.positions[:, None, :, None] - self._window
        narrow = self._as_taken(mask & (torch.arange(mask.shape[-1], device=mask.device) > first))
        return {"full_attention": self._as_taken(mask), "sliding_attention": narrow} if self._kinds else narrow

    def _as_taken(self, mask: torch.Tensor) -> torch.Tensor:
        if self.network.config._attn_implementation != "eager":
            return mask
        # This implementation adds its mask to the scores, where sdpa takes true and false.
        kind = self.network.dtype
        return torch.zeros_like(mask, dtype=kind).masked_fill_(~mask, torch.finfo(kind).min)
