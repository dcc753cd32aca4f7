"""Replies in the form of the chat-completions protocol, whole or as a stream of events."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedse.serving.asked import Asked
from fedse.serving.worker import Choice


@dataclass(frozen=True)
class Completion:
    """What a request is answered with."""

    asked: Asked
    read: int
    """Tokens of the conversation."""
    choices: Sequence[Choice]
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def to_json(self) -> dict[str, Any]:
        choices = [
            {
                "index": number,
                "message": {"role": "assistant", "content": choice.text, "refusal": None},
                "logprobs": None,
                "finish_reason": choice.finish,
            }
            for number, choice in enumerate(self.choices)
        ]
        return {**self._head("chat.completion"), "choices": choices, "usage": self._usage()}

    def events(self) -> Iterator[str]:
        """Server-sent events. A policy gives a reply when it is complete, so each comes in one piece."""
        with_usage = self.asked.stream_options is not None and self.asked.stream_options.include_usage
        without = {"usage": None} if with_usage else {}
        for number, choice in enumerate(self.choices):
            for delta, finish in (({"role": "assistant", "content": choice.text}, None), ({}, choice.finish)):
                piece = {"index": number, "delta": delta, "logprobs": None, "finish_reason": finish}
                yield self._event({"choices": [piece], **without})
        if with_usage:
            yield self._event({"choices": [], "usage": self._usage()})
        yield "data: [DONE]\n\n"

    def _event(self, content: dict[str, Any]) -> str:
        return f"data: {json.dumps({**self._head('chat.completion.chunk'), **content})}\n\n"

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.asked.model}

    def _usage(self) -> dict[str, Any]:
        written = sum(choice.tokens for choice in self.choices)
        return {"prompt_tokens": self.read, "completion_tokens": written, "total_tokens": self.read + written}
