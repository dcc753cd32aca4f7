"""Plays through a server that speaks the OpenAI chat-completions protocol: vLLM, SGLang, llama.cpp, a hosted model.

A request for each due reply is under way in a thread of its own, so the server can answer all open conversations at once.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from fedse.errors import BadInput, ServerFailed, SwapFailed
from fedse.models.chat_server import ChatServer, Completion, ServerOptions
from fedse.models.served import Served
from fedse.protocols import Reply, Usage
from fedse.seeds import stream
from fedse.types import Adapter, Sampling

_LOOK_UP = 0.5
"""Seconds after which whoever waits for replies looks whether the run was interrupted."""


class ApiOptions(ServerOptions):
    """Which server, and how hard to press it."""

    # Every reply is asked for with a seed of its own, so what is asked does not depend on how much is asked at once.
    operational: ClassVar[frozenset[str]] = ServerOptions.operational | {"slots"}

    slots: int = Field(default=16, ge=1, le=1000)
    """Conversations at once, and so the most requests under way."""


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
            first = self._server.ask([{"role": "user", "content": "Say OK."}], 0.0, 0)
        except ServerFailed as error:
            raise BadInput(str(error)) from None
        if first.full:
            raise BadInput(
                f"policy.reply_tokens: {self.options.reply_tokens} tokens are more than the served model's context holds: "
                "lower it."
            )

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
        arrived = [self._next()]
        with suppress(queue.Empty):
            while True:
                arrived.append(self._arrived.get_nowait())
        self._due -= len(arrived)
        return [self._reply(slot, completion) for slot, completion in arrived]

    def _next(self) -> tuple[int, Completion | Exception]:
        while True:
            # Woken now and then, because an interrupt that comes as the thread falls asleep is not seen before it wakes.
            with suppress(queue.Empty):
                return self._arrived.get(timeout=_LOOK_UP)

    def _reply(self, slot: int, completion: Completion | Exception) -> Reply:
        if isinstance(completion, Exception):
            # The world is not at fault and neither is the agent, so no episode is given an outcome.
            self._server.close()
            if isinstance(completion, ServerFailed):
                raise ServerFailed(f"{completion} Every complete round is kept, and the same command resumes the run.")
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
