"""The updates of several clients in one, where nobody sees a single one."""

from __future__ import annotations

from dataclasses import dataclass

from fedse.adapters.held_update import HeldUpdate


@dataclass(frozen=True)
class SummedUpdate(HeldUpdate):
    """Their mean, with the mean of the squared lengths of their changes."""

    clients: int = 1
    """How many they are."""
    mean_square: float = 0.0
