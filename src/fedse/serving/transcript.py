"""Messages to token ids, as the agent was trained to read them: the rules, its acceptance, then turns and replies."""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from fedse.conversation import ACCEPTANCE
from fedse.protocols import Chat, Reply
from fedse.serving.asked import Message
from fedse.serving.refused import Refused

_REMEMBERED = 20_000
"""Replies whose tokens are kept."""


@dataclass(frozen=True)
class Prompt:
    """A conversation up to where a reply begins."""

    opening: tuple[int, ...]
    """What many conversations may begin with."""
    before: tuple[int, ...]
    """What was said between the opening and the last turn."""
    turn: tuple[int, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        return (*self.opening, *self.before, *self.turn)


class Transcript:
    """Renders with a model's chat. A reply that was given here is read again with the very tokens that were sampled; text
    alone could be split into other ones."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._accepted = len(chat.reply(ACCEPTANCE))
        self._sampled: OrderedDict[tuple[bytes, str], tuple[int, ...]] = OrderedDict()

    def prompt(self, messages: Sequence[Message]) -> Prompt:
        system, said = _split(messages)
        if system is not None:
            ids = self._chat.opening(system)
        elif len(said) > 2 and said[1].text == ACCEPTANCE:
            ids, said = self._chat.opening(said[0].text), said[2:]
        else:
            # Without the acceptance it is a first message and everything up to where its reply begins.
            ids = self._chat.opening(said[0].text)[: -self._accepted]
            if len(said) == 1:
                return Prompt(tuple(ids[:1]), (), tuple(ids[1:]))
            return self._after([*ids, *self._reply(ids, said[1].text)], 1, said[2:])
        return self._after(ids, len(ids), said)

    def _after(self, ids: list[int], opening: int, said: Sequence[Message]) -> Prompt:
        """What was said after these ids, of which the first so many are an opening."""
        for message in said[:-1]:
            ids += self._chat.turn(message.text) if message.role == "user" else self._reply(ids, message.text)
        return Prompt(tuple(ids[:opening]), tuple(ids[opening:]), tuple(self._chat.turn(said[-1].text)))

    def remember(self, prompt: Prompt, reply: Reply) -> None:
        """Keep what was sampled, for when the conversation goes on."""
        closing = () if reply.ended else self._chat.reply("")
        self._sampled[_digest(prompt.ids), self._chat.text(reply.ids)] = (*reply.ids, *closing)
        while len(self._sampled) > _REMEMBERED:
            self._sampled.popitem(last=False)

    def _reply(self, before: Sequence[int], text: str) -> Sequence[int]:
        return self._sampled.get((_digest(before), text)) or self._chat.reply(text)


def _split(messages: Sequence[Message]) -> tuple[str | None, list[Message]]:
    """What the system says at the beginning, and the conversation."""
    said = [message for message in messages if message.role in ("user", "assistant")]
    system = messages[: len(messages) - len(said)]
    if any(message.role in ("user", "assistant") for message in system):
        raise Refused(400, "messages: a system message may stand at the beginning only.", "messages")
    if not said or any(message.role != ("user", "assistant")[place % 2] for place, message in enumerate(said)):
        raise Refused(400, "messages: user and assistant must take turns, and the user begins.", "messages")
    if len(said) % 2 == 0:
        raise Refused(400, "messages: the last one must be the user's, since it is answered.", "messages")
    return ("\n\n".join(message.text for message in system) if system else None), said


def _digest(ids: Sequence[int]) -> bytes:
    return hashlib.blake2b(array("q", ids).tobytes(), digest_size=16).digest()
