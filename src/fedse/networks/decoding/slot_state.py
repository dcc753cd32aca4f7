"""What a GPU keeps of the reply in every slot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch


@dataclass
class SlotState:
    """One number for each slot, and one more for rows that fill up a pass."""

    token: torch.Tensor
    """The token drawn last, which is not encoded yet."""
    log_prob: torch.Tensor
    """Of that token, as `Drawn` has it."""
    position: torch.Tensor
    """Where it goes."""
    left: torch.Tensor
    """Tokens that the reply may still get, this one included."""
    live: torch.Tensor
    key: torch.Tensor
    """Of its stream of random numbers (`signed`)."""
    drawn: torch.Tensor
    temperature: torch.Tensor
    adapter: torch.Tensor
    """Number of the one that the conversation is held with."""

    @classmethod
    def of(cls, slots: int, device: torch.device) -> SlotState:
        kinds = {"live": torch.bool, "temperature": torch.float64, "log_prob": torch.float32}
        return cls(
            **{
                item.name: torch.zeros(slots + 1, dtype=kinds.get(item.name, torch.long), device=device)
                for item in fields(cls)
            }
        )

    def copy(self) -> Mapping[str, torch.Tensor]:
        return {item.name: getattr(self, item.name).clone() for item in fields(self)}

    def restore(self, copy: Mapping[str, torch.Tensor]) -> None:
        for name, held in copy.items():
            getattr(self, name).copy_(held)


def signed(key: int) -> int:
    """A key of `seeds`, which has 64 bits without a sign, as torch can hold it."""
    return key - (1 << 64) if key >= 1 << 63 else key
