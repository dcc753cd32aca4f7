"""A server that speaks the OpenAI chat-completions protocol: one request, and a sentence for each way it can fail."""

from __future__ import annotations

import math
import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fedse.errors import BadInput, MissingExtra, ServerFailed
from fedse.policies.rate_limit import RateLimit

if TYPE_CHECKING:
    from fedse.policies.api import ApiOptions

_NO_KEY = "none"
_BYTES_A_TOKEN = 4
_TOO_LONG = re.compile(r"context[ _-]?(length|size|window)|maximum model length|prompt is too long", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Tokens:
    """What the server counted for one request."""

    read: int
    reused: int
    """Of those read, the ones it had in its cache."""
    written: int


@dataclass(frozen=True, slots=True)
class Completion:
    text: str = ""
    ended: bool = False
    full: bool = False
    """Refused, because the conversation does not fit the model."""
    tokens: Tokens | None = None


class ChatServer:
    """Asks with the retries, time-outs and Retry-After handling of the library `openai`. Safe to use from many threads."""

    def __init__(self, options: ApiOptions) -> None:
        try:
            import openai
        except ImportError as error:
            raise MissingExtra("policy 'api'", "openai", "api") from error
        self._openai: Any = openai
        self._options = options
        self._key = _key(options.key_from)
        _plain_address(options.url)
        self._requests = RateLimit(options.requests_per_minute or math.inf)
        self._tokens = RateLimit(options.tokens_per_minute or math.inf)
        self._closed = threading.Event()
        transport = openai.DefaultHttpxClient(event_hooks={"request": [self._before_request]})
        self._client = openai.OpenAI(
            base_url=options.url,
            api_key=self._key,
            timeout=options.timeout,
            max_retries=options.retries,
            http_client=transport,
        )

    def ask(self, messages: Sequence[Mapping[str, str]], temperature: float, seed: int) -> Completion:
        """The reply to a conversation. Raises `ServerFailed` once the retries are used up."""
        size = sum(len(message["content"].encode()) for message in messages)
        taken = self._tokens.take(size / _BYTES_A_TOKEN + self._options.reply_tokens)
        try:
            made = self._client.chat.completions.create(
                model=self._options.model,
                messages=list(messages),  # type: ignore[arg-type]
                temperature=temperature,
                top_p=1.0,
                seed=seed,
                # Not the newer max_completion_tokens, which not every server knows.
                max_tokens=self._options.reply_tokens,
            )
        except (self._openai.OpenAIError, ValueError) as error:
            if getattr(error, "status_code", 0) in (400, 413, 422) and _TOO_LONG.search(_said(error)):
                return Completion(full=True)
            # The cause is left out of the traceback: what a server says may repeat the key it was given.
            raise ServerFailed(self._sentence(error)) from None
        completion = self._read(made)
        if completion.tokens is not None:
            self._tokens.correct(taken, completion.tokens.read + completion.tokens.written)
        return completion

    def _before_request(self, _: object) -> None:
        """Called where requests leave, so that the library's own retries are limited like any other request."""
        self._requests.take()
        if self._closed.is_set():
            raise ServerFailed(f"the server at {self._options.url} is not asked any more.")

    def close(self) -> None:
        """Break off whatever is under way, and let nothing that still waits go."""
        self._closed.set()
        self._client.close()

    def _read(self, made: Any) -> Completion:
        choices = getattr(made, "choices", None)
        if not choices or getattr(choices[0], "message", None) is None:
            raise ServerFailed(
                f"the server at {self._options.url} answered with something that is no chat completion: check policy.url, "
                "which usually ends in /v1."
            )
        # JSON can hold half a character, which UTF-8 cannot.
        text = (choices[0].message.content or "").encode(errors="replace").decode()
        tokens = None
        if (usage := made.usage) is not None:
            details = usage.prompt_tokens_details
            reused = (details.cached_tokens or 0) if details is not None else 0
            tokens = Tokens(usage.prompt_tokens or 0, reused, usage.completion_tokens or 0)
        return Completion(text, ended=choices[0].finish_reason != "length", tokens=tokens)

    def _sentence(self, error: Exception) -> str:
        options, openai = self._options, self._openai
        server = f"the server at {options.url}"
        status = getattr(error, "status_code", None)
        tries = f"(policy.retries: {options.retries})"
        if isinstance(error, openai.APITimeoutError):
            return (
                f"{server} did not answer within {options.timeout:g} seconds, however often it was asked {tries}: raise "
                "policy.timeout, or lower policy.slots."
            )
        if isinstance(error, openai.APIConnectionError):
            return (
                f"{server} cannot be reached or breaks off the connection, however often it was asked {tries}: check that "
                "it runs, and that policy.url is its address."
            )
        if status in (401, 403):
            check = (
                f"check the environment variable {options.key_from}"
                if options.key_from
                else "set policy.key_from to the name of the environment variable that holds one"
            )
            return f"{server} refused the key (status {status}): {check}."
        if status == 404:
            return (
                f"{server} knows no model '{options.model}', or has no chat completions at this address (status 404): check "
                "policy.model, and policy.url, which usually ends in /v1."
            )
        if status == 429:
            return (
                f"{server} refuses more requests (status 429), however often it was asked {tries}: check the quota, or set "
                "policy.requests_per_minute or policy.tokens_per_minute."
            )
        if status is None:
            return (
                f"{server} answered with something that is no chat completion ({self._shown(error)}): check policy.url."
            )
        return f"{server} answered with status {status} ({self._shown(error)}): look at what it says in its own log."

    def _shown(self, error: Exception) -> str:
        """What the server said, on one short line, without the key."""
        said = " ".join(_said(error).replace(self._key, "***").split())
        return said if len(said) <= 200 else said[:197] + "..."


def _said(error: Exception) -> str:
    body = getattr(error, "body", None)
    if isinstance(body, Mapping):
        # `message` is the protocol's word, `detail` FastAPI's; the type may say what the message does not.
        told = [str(body[name]) for name in ("type", "message", "detail") if body.get(name)]
        body = ": ".join(told) or body
    return str(body or error)


def _key(variable: str | None) -> str:
    if variable is None:
        return _NO_KEY
    if not re.fullmatch("[A-Z_][A-Z0-9_]*", variable):
        # What stands there may be the key itself, so it is not repeated.
        raise BadInput(
            "policy.key_from must be the name of an environment variable, in capitals, such as OPENAI_API_KEY, and never "
            "the key itself."
        )
    if not (key := os.environ.get(variable, "").strip()):
        raise BadInput(
            f"policy.key_from: the environment variable {variable} is not set: put the server's key into it."
        )
    return key


def _plain_address(url: str) -> None:
    parts = urlsplit(url)
    if not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
        raise BadInput(
            "policy.url must be a plain address such as http://localhost:8000/v1, without user, password or question mark; "
            "a key goes into the environment variable that policy.key_from names."
        )
