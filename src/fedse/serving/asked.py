"""What a chat-completions request may say. What would be ignored is refused, unless it could make no difference."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedse.serving.refused import Refused
from fedse.storage import strict_json

_NO_DIFFERENCE = frozenset(
    {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "parallel_tool_calls"}
)
"""Parameters that say nothing about the reply."""
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "top_p": (1,),
    "top_k": (-1, 0),
    "min_p": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
}
"""Parameters that are not supported, with the values at which they do nothing."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TextPart(_Strict):
    type: Literal["text"]
    text: str


class Message(_Strict):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = None

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class StreamOptions(_Strict):
    include_usage: bool = False


class Asked(_Strict):
    """A request, checked."""

    model: str
    messages: list[Message] = Field(min_length=1)
    temperature: float = Field(default=1.0, ge=0, le=2)
    seed: int | None = None
    n: int = Field(default=1, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    stop: str | Annotated[list[str], Field(max_length=4)] = ""
    stream: bool = False
    stream_options: StreamOptions | None = None

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        if None not in (self.max_tokens, self.max_completion_tokens) and self.max_tokens != self.max_completion_tokens:
            raise ValueError("max_tokens and max_completion_tokens are the same limit and say different things")
        return self

    @property
    def most(self) -> int | None:
        return self.max_tokens or self.max_completion_tokens

    @property
    def stops(self) -> list[str]:
        return [stop for stop in ([self.stop] if isinstance(self.stop, str) else self.stop) if stop]


def read_request(body: bytes) -> Asked:
    try:
        content = strict_json.parse(body.decode("utf-8"))
        # JSON may name half a character, which neither a tokenizer nor an answer can spell.
        json.dumps(content, ensure_ascii=False).encode("utf-8")
    except ValueError as error:
        raise Refused(400, f"the body is no JSON text ({error}).") from error
    if not isinstance(content, dict):
        raise Refused(400, "the body must be a JSON object.")
    # Libraries send null for what was not set.
    given = {name: value for name, value in content.items() if value is not None and name not in _NO_DIFFERENCE}
    for name, values in _NEUTRAL.items():
        if name in given and given.pop(name) not in values:
            raise Refused(400, f"'{name}' is not supported here: leave it out.", name, "unsupported_parameter")
    try:
        return Asked.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise Refused(400, f"'{where}' is not known here: leave it out.", where, "unknown_parameter") from error
        message = first["msg"].removeprefix("Value error, ")
        raise Refused(400, f"{where}: {message}." if where else f"{message}.", where or None) from error
