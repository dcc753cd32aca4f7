"""A server that speaks the OpenAI chat-completions protocol: one request, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from fedse.servers.server import Server, ServerOptions, Tokens, counted

_BYTES_A_TOKEN = 4


class ChatServerOptions(ServerOptions):
    """Which server, which of its models, and how hard to press it."""

    model: str = Field(min_length=1)
    """The name by which the server knows the model."""


@dataclass(frozen=True, slots=True)
class Completion:
    text: str = ""
    ended: bool = False
    full: bool = False
    """Refused, because the conversation does not fit the model."""
    tokens: Tokens | None = None


class ChatServer(Server):
    def __init__(self, options: ChatServerOptions) -> None:
        super().__init__(options)
        self._model = options.model

    def ask(self, messages: Sequence[Mapping[str, str]], temperature: float, seed: int) -> Completion:
        """The reply to a conversation. Raises `ServerFailed` once the retries are used up."""
        size = sum(len(message["content"].encode()) for message in messages)
        taken = self.tokens.take(size / _BYTES_A_TOKEN + self.options.reply_tokens)
        try:
            made = self.client.chat.completions.create(
                model=self._model,
                messages=list(messages),  # type: ignore[arg-type]
                temperature=temperature,
                top_p=1.0,
                seed=seed,
                # Not the newer max_completion_tokens, which not every server knows.
                max_tokens=self.options.reply_tokens,
            )
        except (self.openai.OpenAIError, ValueError) as error:
            if self.is_too_long(error):
                return Completion(full=True)
            # The cause is left out of the traceback: what a server says may repeat the key it was given.
            raise self.failure(error) from None
        completion = self._read(made)
        if completion.tokens is not None:
            self.tokens.correct(taken, completion.tokens.read + completion.tokens.written)
        return completion

    def _read(self, made: Any) -> Completion:
        choices = getattr(made, "choices", None)
        choice = choices[0] if isinstance(choices, list) and choices else None
        message: Any = getattr(choice, "message", None)
        if not (hasattr(message, "content") and isinstance(message.content, str | None)):
            raise self.no_answer()
        # JSON can hold half a character, which UTF-8 cannot.
        text = (message.content or "").encode(errors="replace").decode()
        cut = getattr(choice, "finish_reason", None) == "length"
        return Completion(text, ended=not cut, tokens=counted(getattr(made, "usage", None)))

    def not_there(self) -> str:
        return (
            f"knows no model '{self._model}', or has no chat completions at this address (status 404): check policy.model, "
            "and policy.url, which usually ends in /v1."
        )
