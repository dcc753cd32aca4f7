"""A policy whose replies come from a function of the conversation: no model, no torch, no surprises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from fedse.protocols import Chat, Reply, Usage
from fedse.seeds import uniform
from fedse.types import Adapter, Sampling

Script = Callable[[str, float], str]
"""The text of the last turn and a uniform draw -> the reply."""


@dataclass
class _Conversation:
    sampling: Sampling
    length: int
    draws: int = 0
    due: list[int] | None = field(default=None)


class ScriptedPolicy:
    """Answers every turn with what the script says; a variant overrides `answer`."""

    def __init__(self, chat: Chat, script: Script | None = None, slots: int = 256) -> None:
        self.chat = chat
        self.script = script
        self.slots = slots
        self.usage = Usage()
        self._conversations: dict[int, _Conversation] = {}

    def answer(self, turn: str, draw: float, temperature: float) -> str:
        del temperature
        if self.script is None:
            raise ValueError("a scripted policy needs a script")
        return self.script(turn, draw)

    def load(self, adapter: Adapter) -> None:
        """A script does not change with the adapter."""

    def open(self, opening: Sequence[int], sampling: Sampling) -> int:
        self.usage.prefilled += len(opening)
        return self._placed(_Conversation(sampling, len(opening)))

    def fork(self, slot: int, sampling: Sampling | None = None) -> int:
        held = self._conversations[slot]
        if held.due is not None:
            raise ValueError(f"the conversation in slot {slot} waits for a reply: fork it before or after")
        return self._placed(replace(held, sampling=sampling or held.sampling))

    def _placed(self, conversation: _Conversation) -> int:
        slot = next(number for number in range(self.slots) if number not in self._conversations)
        self._conversations[slot] = conversation
        return slot

    def extend(self, slot: int, ids: Sequence[int]) -> None:
        conversation = self._conversations[slot]
        conversation.due = list(ids)
        conversation.length += len(ids)
        self.usage.prefilled += len(ids)
        self.usage.prefilled_without_cache += conversation.length

    def ready(self) -> list[Reply]:
        replies = []
        for slot, conversation in self._conversations.items():
            if conversation.due is None:
                continue
            draw = uniform(conversation.sampling.key, conversation.draws)
            text = self.answer(self.chat.text(conversation.due), draw, conversation.sampling.temperature)
            ids = self.chat.reply(text)
            conversation.draws += 1
            conversation.due = None
            conversation.length += len(ids)
            self.usage.decoded += len(ids)
            replies.append(Reply(slot, tuple(ids), ended=True))
        return replies

    def close(self, slot: int) -> None:
        del self._conversations[slot]
