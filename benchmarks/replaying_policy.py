"""The transformer policy with replies of the lengths that a replayed world asks for; random weights would rarely end one.

Everything else is as in a run: slots, passes over new text, steps, and what is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedse.networks.decoding.decoder import Decoder, Due
from fedse.policies.transformer import TransformerPolicy

NEVER = -1
"""No token has this number."""


class ReplayingPolicy(TransformerPolicy):
    """No token ends a reply: it has the length that its observation begins with."""

    def __init__(self, model: Any, **options: Any) -> None:
        super().__init__(model, **options)
        self._closing = NEVER
        self._asked: dict[int, int] = {}

    def make_decoder(self) -> Decoder:
        self.model.chat.end_ids = frozenset({NEVER})
        return super().make_decoder()

    def extend(self, slot: int, ids: Sequence[int]) -> None:
        super().extend(slot, ids)
        self._asked[slot] = int(self.model.chat.text(ids).split(maxsplit=1)[0])

    def _due(self, slot: int) -> Due:
        due = super()._due(slot)
        self._conversations[slot].most = self._asked.pop(slot)
        return replace(due, most=self._conversations[slot].most)
