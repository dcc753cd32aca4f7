"""A server that answers for a model: who it is, how hard to press it, and a sentence for each way a request can fail."""

from __future__ import annotations

import math
import os
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeGuard
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from fedse.errors import BadInput, MissingExtra, ServerFailed
from fedse.plugins import PluginOptions
from fedse.servers.rate_limit import RateLimit

_NO_KEY = "none"
_TOO_LONG = re.compile(r"context[ _-]?(length|size|window)|maximum model length|prompt is too long", re.IGNORECASE)


class ServerOptions(PluginOptions):
    """Which server, and how hard to press it."""

    model_config = ConfigDict(hide_input_in_errors=True)
    operational: ClassVar[frozenset[str]] = frozenset(
        {"url", "key_from", "timeout", "retries", "requests_per_minute", "tokens_per_minute"}
    )

    url: str
    """Where the server listens, such as http://localhost:8000/v1."""
    key_from: str | None = None
    """Name of the environment variable, in capitals, that holds the server's key; the key itself is never written."""
    reply_tokens: int = Field(default=256, ge=1)
    """Longest reply, in the server's tokens; a longer one is cut and its action is read from what is there."""
    timeout: float = Field(default=120.0, gt=0)
    """Seconds to wait for one reply."""
    retries: int = Field(default=5, ge=0)
    """How often a request is repeated, after growing pauses, when the server is busy, broken or gone."""
    requests_per_minute: int | None = Field(default=None, ge=1)
    """Most requests in any 60 seconds, repeated ones included."""
    tokens_per_minute: int | None = Field(default=None, ge=1)
    """Most tokens in any 60 seconds: estimated at four bytes each before a request, corrected by the server's count.
    Requests that the library repeats are not counted again."""

    # Whatever stands in these two may be a secret in the wrong place, so the errors do not repeat it.

    @field_validator("url", mode="before")
    @classmethod
    def _is_a_plain_address(cls, url: Any) -> Any:
        try:
            parts = urlsplit(url)
            plain = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
            plain = plain and not ("@" in parts.netloc or parts.query or parts.fragment)
            plain = plain and url.isascii() and url.isprintable() and " " not in url
        except (ValueError, TypeError, AttributeError):
            plain = False
        if not plain:
            raise PydanticCustomError(
                "secret",
                "must be a plain address such as http://localhost:8000/v1, without user, password or question mark; a key "
                "goes into the environment variable that `key_from` names.",
            )
        return url

    @field_validator("key_from", mode="before")
    @classmethod
    def _is_a_name(cls, variable: Any) -> Any:
        if variable is not None and not (isinstance(variable, str) and re.fullmatch("[A-Z_][A-Z0-9_]*", variable)):
            raise PydanticCustomError(
                "secret",
                "must be the name of an environment variable, in capitals, such as OPENAI_API_KEY, never the key itself.",
            )
        return variable


@dataclass(frozen=True, slots=True)
class Tokens:
    """What the server counted for one request."""

    read: int
    reused: int
    """Of those read, the ones it had in its cache."""
    written: int


class Server(ABC):
    """Asks with the retries, time-outs and Retry-After handling of the library `openai`. Safe to use from many threads."""

    wanted_by = "policy 'api'"
    gives = "chat completion"
    usual_end = ", which usually ends in /v1"
    """What to look for in an address that is wrong."""

    def __init__(self, options: ServerOptions) -> None:
        try:
            import openai
        except ImportError as error:
            raise MissingExtra(self.wanted_by, "openai", "api") from error
        self.openai: Any = openai
        self.options = options
        self._key = _key(options.key_from)
        self._requests = RateLimit(options.requests_per_minute or math.inf)
        self.tokens = RateLimit(options.tokens_per_minute or math.inf)
        self._closed = threading.Event()
        transport = openai.DefaultHttpxClient(event_hooks={"request": [self._before_request]})
        self.client = openai.OpenAI(
            base_url=options.url,
            api_key=self._key,
            timeout=options.timeout,
            max_retries=options.retries,
            http_client=transport,
        )

    def _before_request(self, _: object) -> None:
        """Called where requests leave, so that the library's own retries are limited like any other request."""
        self._requests.take()
        if self._closed.is_set():
            raise ServerFailed(f"the server at {self.options.url} is not asked any more.")

    def close(self) -> None:
        """Break off whatever is under way, and let nothing that still waits go."""
        self._closed.set()
        self.client.close()

    def no_answer(self) -> ServerFailed:
        return ServerFailed(
            f"the server at {self.options.url} answered with something that is no {self.gives}: check policy.url"
            f"{self.usual_end}."
        )

    @abstractmethod
    def not_there(self) -> str:
        """What status 404 means."""

    def is_too_long(self, error: Exception) -> bool:
        """Whether it refused a conversation that does not fit the model."""
        return getattr(error, "status_code", 0) in (400, 413, 422) and bool(_TOO_LONG.search(_said(error)))

    def failure(self, error: Exception) -> ServerFailed:
        return ServerFailed(self._sentence(error))

    def _sentence(self, error: Exception) -> str:
        options, openai = self.options, self.openai
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
            return f"{server} {self.not_there()}"
        if status == 429:
            return (
                f"{server} refuses more requests (status 429), however often it was asked {tries}: check the quota, or set "
                "policy.requests_per_minute or policy.tokens_per_minute."
            )
        if status is None:
            return f"{server} answered with something that is no {self.gives} ({self._shown(error)}): check policy.url."
        return f"{server} answered with status {status} ({self._shown(error)}): look at what it says in its own log."

    def _shown(self, error: Exception) -> str:
        """What the server said, on one short line, without the key."""
        said = " ".join((_said(error) if self._key == _NO_KEY else _said(error).replace(self._key, "***")).split())
        return said if len(said) <= 200 else said[:197] + "..."


def _said(error: Exception) -> str:
    body = getattr(error, "body", None)
    if isinstance(body, Mapping):
        # `message` is the protocol's word, `detail` FastAPI's; the type may say what the message does not.
        told = [str(body[name]) for name in ("type", "message", "detail") if body.get(name)]
        body = ": ".join(told) or body
    return str(body or error)


def counted(usage: Any) -> Tokens | None:
    """None where the server told no numbers, or something else in their place."""
    read, written = (getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens"))
    if not (_is_count(read) and _is_count(written)):
        return None
    reused = getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", None)
    return Tokens(read, min(reused, read) if _is_count(reused) else 0, written)


def _is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and value >= 0


def _key(variable: str | None) -> str:
    if variable is None:
        return _NO_KEY
    if not (key := os.environ.get(variable, "").strip()):
        # Not named here: a key made of capitals would pass for a name.
        raise BadInput("policy.key_from: the environment variable it names is not set: put the server's key into it.")
    if not (key.isascii() and key.isprintable()):
        raise BadInput(
            "policy.key_from: the environment variable it names holds a character that no key has, such as a line break: "
            "copy the key again."
        )
    return key
