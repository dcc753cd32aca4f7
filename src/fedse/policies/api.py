"""Plays through a server that speaks the OpenAI chat-completions protocol: vLLM, SGLang, llama.cpp, a hosted model.

A request for each due reply is under way in a thread of its own, so the server can answer all open conversations at once.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from fedse.errors import BadInput, ServerFailed, SwapFailed
from fedse.models.served import Served
from fedse.plugins import PluginOptions
from fedse.policies.chat_server import ChatServer, Completion
from fedse.protocols import Reply, Sampling, Usage
from fedse.seeds import stream
from fedse.types import Adapter


class ApiOptions(PluginOptions):
    """Which server, and how hard to press it."""

    url: str = Field(pattern="^https?://")
    """Where the server listens, such as http://localhost:8000/v1."""
    model: str = Field(min_length=1)
    """The name by which the server knows the model."""
    key_from: str | None = None
    """Name of the environment variable, in capitals, that holds the server's key; the key itself is never written."""
    slots: int = Field(default=16, ge=1, le=1000)
    """Conversations at once, and so the most requests under way."""
    reply_tokens: int = Field(default=256, ge=1)
    """Longest reply, in the server's tokens; a longer one is cut and its action is read from what is there."""
    timeout: float = Field(default=120.0, gt=0)
    """Seconds to wait for one reply."""
    retries: int = Field(default=5, ge=0)
    """How often a request is repeated, after growing pauses, when the server is busy, broken or gone."""
    requests_per_minute: int | None = Field(default=None, ge=1)
    """Most requests in any 60 seconds, repeated ones included."""
    tokens_per_minute: int | None = Field(default=None, ge=1)
    """Most tokens in any 60 seconds: estimated at four bytes each before a request, corrected by the server's count."""


@dataclass
class _Conversation:
    sampling: Sampling
    ids: list[int]
    replies: int = 0


class ApiPolicy:
    """Answers with a model that is served elsewhere. Temperature and a seed are sent; the randomness is the server's own."""

    Options = ApiOptions

    # The model comes by position only: `model` is also an option.
    def __init__(self, served: Served, /, **options: Any) -> None:
        if not isinstance(served, Served):
            raise BadInput("policy: 'api' works with the model 'served' only; use 'transformer' for a language model.")
        self.options = ApiOptions(**options)
        self.slots = self.options.slots
        self.usage = Usage()
        self._chat = served.chat
        self._conversations: dict[int, _Conversation] = {}
        self._due = 0
        self._arrived: queue.SimpleQueue[tuple[int, Completion | Exception]] = queue.SimpleQueue()
        self._server = ChatServer(self.options)
        try:
            # A wrong key, name or address is found before there is a run that it could spoil.
            self._server.ask([{"role": "user", "content": "Say OK."}], 0.0, 0)
        except ServerFailed as error:
            raise BadInput(str(error)) from None

    def load(self, adapter: Adapter) -> None:
        if adapter.tensors:
            raise SwapFailed("a served model answers as it is served: it cannot load an adapter.")

    def open(self, opening: Sequence[int], sampling: Sampling) -> int:
        slot = next(number for number in range(self.slots) if number not in self._conversations)
        self._conversations[slot] = _Conversation(sampling, list(opening))
        return slot

    def extend(self, slot: int, ids: Sequence[int]) -> None:
        conversation = self._conversations[slot]
        conversation.ids.extend(ids)
        seed = stream(conversation.sampling.key, conversation.replies) >> 33  # What every server takes: 31 bits.
        asked = (slot, self._chat.messages(conversation.ids), conversation.sampling.temperature, seed)
        self._due += 1
        # A daemon, so that an interrupted run does not wait for replies nobody will read.
        threading.Thread(target=self._ask, args=asked, daemon=True).start()

    def _ask(self, slot: int, messages: Sequence[Mapping[str, str]], temperature: float, seed: int) -> None:
        try:
            self._arrived.put((slot, self._server.ask(messages, temperature, seed)))
        except Exception as error:
            self._arrived.put((slot, error))

    def ready(self) -> list[Reply]:
        if not self._due:
            return []
        arrived = [self._arrived.get()]
        with suppress(queue.Empty):
            while True:
                arrived.append(self._arrived.get_nowait())
        self._due -= len(arrived)
        return [self._reply(slot, completion) for slot, completion in arrived]

    def _reply(self, slot: int, completion: Completion | Exception) -> Reply:
        if isinstance(completion, Exception):
            # The world is not at fault and neither is the agent, so no episode is given an outcome.
            self._server.close()
            if isinstance(completion, ServerFailed):
                raise ServerFailed(f"{completion} Every complete round is kept, and the same command goes on.")
            raise completion
        if completion.full:
            return Reply(slot, (), ended=False, full=True)
        self._count(completion)
        conversation = self._conversations[slot]
        ids = self._chat.reply(completion.text)
        ids = ids if completion.ended else ids[:-1]
        conversation.ids.extend(ids)
        conversation.replies += 1
        return Reply(slot, tuple(ids), completion.ended)

    def _count(self, completion: Completion) -> None:
        if completion.tokens is None:
            self.usage.uncounted += 1
            return
        self.usage.prefilled += completion.tokens.read - completion.tokens.reused
        self.usage.prefilled_without_cache += completion.tokens.read
        self.usage.decoded += completion.tokens.written

    def close(self, slot: int) -> None:
        del self._conversations[slot]
