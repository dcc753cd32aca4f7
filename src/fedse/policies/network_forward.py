"""Forward passes through the network as transformers and PEFT run it: right for every architecture and precision."""

from __future__ import annotations

from typing import Any

import torch

from fedse.policies.slot_cache import SlotCache


class NetworkForward:
    """Asks the network itself, with the adapter beside its frozen weights."""

    def __init__(self, network: Any) -> None:
        self.network = network

    def load(self) -> None:
        """Nothing to prepare: the network holds the adapter."""

    def logits(self, ids: torch.Tensor, mask: torch.Tensor, cache: SlotCache, keep: torch.Tensor) -> torch.Tensor:
        """Next-token logits of each row after its token `keep`."""
        if self.network.config._attn_implementation == "eager":
            # This implementation adds its mask to the scores, where sdpa takes true and false.
            kind = self.network.dtype
            mask = torch.zeros_like(mask, dtype=kind).masked_fill_(~mask, torch.finfo(kind).min)
        single = ids.shape[1] == 1
        logits: torch.Tensor = self.network(
            input_ids=ids,
            attention_mask=mask,
            position_ids=cache.positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1 if single else keep,
        ).logits
        return logits[:, 0] if single else logits.diagonal().T
