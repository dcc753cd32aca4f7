"""Plays through a server that speaks the OpenAI chat-completions protocol: vLLM, SGLang, llama.cpp, a hosted model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from pydantic import Field

from fedse.errors import BadInput, ServerFailed, SwapFailed
from fedse.models.served import Served
from fedse.protocols import Reply
from fedse.servers.asking import Asking, Conversation
from fedse.servers.chat_server import ChatServer, ChatServerOptions, Completion
from fedse.types import Adapter


class ApiOptions(ChatServerOptions):
    """Which server, and how hard to press it."""

    # Every reply is asked for with a seed of its own, so what is asked does not depend on how much is asked at once.
    operational: ClassVar[frozenset[str]] = ChatServerOptions.operational | {"slots"}

    slots: int = Field(default=16, ge=1, le=1000)
    """Conversations at once, and so the most requests under way."""


class ApiPolicy(Asking[Completion]):
    """Answers with a model that is served elsewhere. Temperature and a seed are sent; the randomness is the server's own."""

    Options = ApiOptions

    # The model comes by position only: `model` is also an option.
    def __init__(self, served: Served, /, **options: Any) -> None:
        if not isinstance(served, Served):
            raise BadInput(
                "policy: 'api' works with the model 'served' only; use 'transformer' for a language model, or "
                "'lora_server' for one that a server plays and this machine trains."
            )
        self.options = ApiOptions(**options)
        super().__init__(self.options.slots)
        self._chat = served.chat
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

    def request(self, conversation: Conversation) -> Callable[[], Completion]:
        messages = self._chat.messages(conversation.ids)
        return partial(self._server.ask, messages, conversation.sampling.temperature, conversation.seed)

    def read(self, slot: int, conversation: Conversation, answer: Completion) -> Reply:
        if answer.full:
            return Reply(slot, (), ended=False, full=True)
        self.count(answer.tokens)
        ids = self._chat.reply(answer.text)
        ids = ids if answer.ended else ids[:-1]
        conversation.ids.extend(ids)
        conversation.replies += 1
        return Reply(slot, tuple(ids), answer.ended)

    def stop(self) -> None:
        self._server.close()
