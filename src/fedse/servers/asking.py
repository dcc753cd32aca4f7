"""Conversations whose replies somebody else makes.

A request for each due reply is under way in a thread of its own, so that whoever answers can answer all of them at once.
"""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from fedse.errors import ServerFailed
from fedse.protocols import Reply, Usage
from fedse.seeds import stream
from fedse.servers.server import Tokens
from fedse.types import Sampling

_LOOK_UP = 0.5
"""Seconds after which whoever waits for replies looks whether the run was interrupted."""

Answer = TypeVar("Answer")


@dataclass
class Conversation:
    sampling: Sampling
    ids: list[int]
    replies: int = 0
    due: bool = False

    @property
    def seed(self) -> int:
        """Of the reply that is due; 31 bits are what every server takes."""
        return stream(self.sampling.key, self.replies) >> 33


_Arrived = tuple[int, Conversation, Answer | Exception]
"""A slot, the conversation that was in it when a reply was asked for, and the answer."""


class Asking(ABC, Generic[Answer]):
    """Slots, threads and counts. What is asked and what the answer means is the subclass's business."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.usage = Usage()
        self._conversations: dict[int, Conversation] = {}
        self._due = 0
        self._arrived: queue.SimpleQueue[_Arrived[Answer]] = queue.SimpleQueue()

    @abstractmethod
    def request(self, conversation: Conversation) -> Callable[[], Answer]:
        """What a thread has to do for the reply that is due."""

    @abstractmethod
    def read(self, slot: int, conversation: Conversation, answer: Answer) -> Reply:
        """The reply, after it was added to the conversation."""

    @abstractmethod
    def stop(self) -> None:
        """Break off whatever is under way."""

    def open(self, opening: Sequence[int], sampling: Sampling) -> int:
        return self._placed(Conversation(sampling, list(opening)))

    def fork(self, slot: int, sampling: Sampling | None = None) -> int:
        """Every request holds its whole conversation, so that a copy of it is all there is to do."""
        held = self._conversations[slot]
        if held.due:
            raise ValueError(f"the conversation in slot {slot} waits for a reply: fork it before or after")
        return self._placed(replace(held, sampling=sampling or held.sampling, ids=list(held.ids)))

    def _placed(self, conversation: Conversation) -> int:
        slot = next(number for number in range(self.slots) if number not in self._conversations)
        self._conversations[slot] = conversation
        return slot

    def extend(self, slot: int, ids: Sequence[int]) -> None:
        conversation = self._conversations[slot]
        conversation.ids.extend(ids)
        self._due += 1
        conversation.due = True
        # A daemon, so that an interrupted run does not wait for replies nobody will read.
        threading.Thread(target=self._ask, args=(slot, conversation, self.request(conversation)), daemon=True).start()

    def _ask(self, slot: int, conversation: Conversation, request: Callable[[], Answer]) -> None:
        try:
            self._arrived.put((slot, conversation, request()))
        except Exception as error:
            self._arrived.put((slot, conversation, error))

    def ready(self) -> list[Reply]:
        replies: list[Reply] = []
        while self._due and not replies:
            arrived = [self._next()]
            with suppress(queue.Empty):
                while True:
                    arrived.append(self._arrived.get_nowait())
            # Of a conversation that was closed in the meantime nobody wants to know, not even that it failed.
            wanted = [item for item in arrived if self._conversations.get(item[0]) is item[1]]
            self._due -= len(wanted)
            replies = [self._reply(slot, answer) for slot, _, answer in wanted]
        return replies

    def _next(self) -> _Arrived[Answer]:
        while True:
            # Woken now and then, because an interrupt that comes as the thread falls asleep is not seen before it wakes.
            with suppress(queue.Empty):
                return self._arrived.get(timeout=_LOOK_UP)

    def _reply(self, slot: int, answer: Answer | Exception) -> Reply:
        if isinstance(answer, Exception):
            # The world is not at fault and neither is the agent, so no episode is given an outcome.
            self.stop()
            if isinstance(answer, ServerFailed):
                raise ServerFailed(f"{answer} Every complete round is kept, and the same command resumes the run.")
            raise answer
        self._conversations[slot].due = False
        return self.read(slot, self._conversations[slot], answer)

    def count(self, tokens: Tokens | None) -> None:
        if tokens is None:
            self.usage.uncounted += 1
            return
        self.usage.prefilled += tokens.read - tokens.reused
        self.usage.prefilled_without_cache += tokens.read
        self.usage.decoded += tokens.written

    def close(self, slot: int) -> None:
        self._due -= self._conversations.pop(slot).due
