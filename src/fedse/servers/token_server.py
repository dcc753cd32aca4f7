"""Servers that take LoRA adapters while they run, and token ids in place of text: what each calls its routes.

Written after the documentation and the source of vLLM (`/v1/completions` with `return_token_ids`, `/v1/load_lora_adapter`)
and SGLang (`/generate`, `/load_lora_adapter`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fedse.errors import ServerFailed
from fedse.servers.server import Server, Tokens, counted


@dataclass(frozen=True, slots=True)
class Asked:
    """One reply that is wanted."""

    adapter: str
    ids: Sequence[int]
    most: int
    temperature: float
    seed: int
    ends: Sequence[int]
    """Ids that end a reply."""


@dataclass(frozen=True, slots=True)
class Sampled:
    ids: tuple[int, ...] = ()
    log_probs: tuple[float, ...] = ()
    full: bool = False
    """Refused, because the conversation does not fit the model."""
    tokens: Tokens | None = None


class TokenServer(Server):
    wanted_by = "policy 'lora_server'"
    gives = "completion in token ids"

    @abstractmethod
    def body(self, asked: Asked) -> tuple[str, dict[str, Any]]:
        """Route and body of the request."""

    @abstractmethod
    def sampled(self, answer: Mapping[str, Any], asked: Asked) -> Sampled:
        """What was answered. A `LookupError`, `TypeError` or `ValueError` says that it is something else."""

    def ask(self, asked: Asked) -> Sampled:
        taken = self.tokens.take(len(asked.ids) + asked.most)
        route, body = self.body(asked)
        try:
            answer = self._post(route, body)
        except (self.openai.OpenAIError, ValueError) as error:
            if self.is_too_long(error):
                return Sampled(full=True)
            raise self.failure(error) from None
        try:
            sampled = self.sampled(answer.json(), asked)
        except (LookupError, TypeError, ValueError):
            raise self.no_answer() from None
        if sampled.tokens is not None:
            self.tokens.correct(taken, sampled.tokens.read + sampled.tokens.written)
        return sampled

    def load(self, name: str, folder: Path) -> None:
        """Let it read an adapter in PEFT's layout."""
        self._adapter("/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})

    def unload(self, name: str) -> None:
        self._adapter("/unload_lora_adapter", {"lora_name": name})

    def _adapter(self, route: str, body: dict[str, Any]) -> None:
        try:
            answer = self._post(route, body)
        except (self.openai.OpenAIError, ValueError) as error:
            raise self.failure(error) from None
        self.accept(answer)

    def accept(self, answer: Any) -> None:
        """Raises `ServerFailed` where a server refuses an adapter with status 200."""

    def _post(self, route: str, body: dict[str, Any]) -> Any:
        import httpx

        return self.client.post(route, body=body, cast_to=httpx.Response)


class Vllm(TokenServer):
    def body(self, asked: Asked) -> tuple[str, dict[str, Any]]:
        return "/completions", {
            "model": asked.adapter,
            "prompt": list(asked.ids),
            "max_tokens": asked.most,
            "temperature": asked.temperature,
            # Written out, since what is left out comes from the model's generation_config.json.
            **{"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0},
            "seed": asked.seed,
            "stop_token_ids": list(asked.ends),
            "logprobs": 1,
            "return_token_ids": True,
        }

    def sampled(self, answer: Mapping[str, Any], asked: Asked) -> Sampled:
        choice = answer["choices"][0]
        ids = [int(one) for one in choice["token_ids"]]
        log_probs = [float(one) for one in choice["logprobs"]["token_logprobs"]]
        return _whole(ids, log_probs, asked, counted(_attributes(answer.get("usage"))))

    def not_there(self) -> str:
        return (
            "has no such route (status 404): start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its "
            "environment, and check that policy.url ends in /v1."
        )


class SGLang(TokenServer):
    usual_end = ", which ends with the port"

    def body(self, asked: Asked) -> tuple[str, dict[str, Any]]:
        sampling = {
            "max_new_tokens": asked.most,
            "temperature": asked.temperature,
            **{"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0},
            "stop_token_ids": list(asked.ends),
            "sampling_seed": asked.seed,
            "skip_special_tokens": False,
        }
        return "/generate", {
            "input_ids": list(asked.ids),
            "sampling_params": sampling,
            "return_logprob": True,
            "lora_path": asked.adapter,
        }

    def sampled(self, answer: Mapping[str, Any], asked: Asked) -> Sampled:
        told = answer["meta_info"]
        # The ids stand beside their log-probabilities; `output_ids` may lack the one that ended the reply.
        drawn = told["output_token_logprobs"]
        usage = {**told, "prompt_tokens_details": _attributes({"cached_tokens": told.get("cached_tokens")})}
        return _whole(
            [int(one[1]) for one in drawn], [float(one[0]) for one in drawn], asked, counted(_attributes(usage))
        )

    def accept(self, answer: Any) -> None:
        try:
            said = answer.json()
            accepted, why = bool(said["success"]), str(said.get("error_message", ""))
        except (LookupError, TypeError, ValueError, AttributeError):
            raise self.no_answer() from None
        if not accepted:
            raise ServerFailed(f"the server at {self.options.url} refused an adapter: {why[:200]}")

    def not_there(self) -> str:
        return (
            "has no such route (status 404): start it with --enable-lora, and check that policy.url is its address, without "
            "/v1."
        )


SERVERS: dict[str, type[TokenServer]] = {"vllm": Vllm, "sglang": SGLang}


def _whole(ids: list[int], log_probs: list[float], asked: Asked, tokens: Tokens | None) -> Sampled:
    if not ids or len(ids) != len(log_probs) or len(ids) > asked.most:
        raise ValueError("no reply, or not a log-probability for each of its tokens")
    return Sampled(tuple(ids), tuple(log_probs), tokens=tokens)


def _attributes(value: Any) -> Any:
    return SimpleNamespace(**value) if isinstance(value, Mapping) else None
