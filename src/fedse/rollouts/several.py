"""What a policy can do that holds several adapters at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from fedse.types import Adapter


@runtime_checkable
class AnswersWithSeveral(Protocol):
    """A policy that may hold several adapters of one layout, and answer in each conversation with one of them."""

    adapters_at_once: int

    def load_all(self, adapters: Sequence[Adapter]) -> None:
        """Answer with these from now on. No conversation may be open."""

    def choose(self, digest: str) -> None:
        """Conversations that are opened from now on are held with the adapter of this digest."""
