"""Plays through a server that takes each round's adapter, while this machine trains: for models that need a card each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from fedse.errors import BadInput, ServerFailed, SwapFailed
from fedse.networks.decoding.probe import probe_ids
from fedse.protocols import Reply
from fedse.servers.adapter_folder import AdapterFolder
from fedse.servers.asking import Asking, Conversation
from fedse.servers.server import ServerOptions
from fedse.servers.token_server import SERVERS, Asked, Sampled
from fedse.types import Adapter

if TYPE_CHECKING:
    from fedse.models.causal_lm import CausalLM

_LOOKED_AT = 16
_ALLOWED = 0.25
"""Nats by which the server and this machine may differ on a token's log-probability, on average. Rounding to bfloat16 makes
a few hundredths, a base in 4 bits on one side a tenth; another model or another adapter makes more than one."""


class LoraServerOptions(ServerOptions):
    """Which server, how it reads adapters, and how hard to press it."""

    operational: ClassVar[frozenset[str]] = ServerOptions.operational | {"adapters"}
    rounding: ClassVar[frozenset[str]] = frozenset({"slots", "server"})

    server: Literal["vllm", "sglang"] = "vllm"
    """Whose routes it has."""
    adapters: str | None = None
    """Folder that this machine writes and the server reads under the same path; by default the system's temporary one. It
    holds one adapter at a time."""
    slots: int = Field(default=64, ge=1, le=1000)
    """Conversations at once, and so the most requests under way."""
    reply_tokens: int = Field(default=128, ge=1)
    """Longest reply; a longer one is cut and its action is read from what is there."""


class LoraServerPolicy(Asking[Sampled]):
    """Sends token ids and gets token ids with their log-probabilities, so that what was sampled is what is learned from.

    Each adapter is tried before it plays: the server's log-probabilities of a short reply have to be those that the network
    here gives to the same tokens.
    """

    Options = LoraServerOptions

    def __init__(self, model: CausalLM, **options: Any) -> None:
        if not hasattr(model, "network"):
            raise BadInput(
                "policy: 'lora_server' needs a language model that is trained on this machine; the model 'served' goes with "
                "policy 'api'."
            )
        self.options = LoraServerOptions(**options)
        super().__init__(self.options.slots)
        self.model = model
        self._ends = sorted(model.chat.end_ids)
        self._closing = model.chat.reply("")[-1]
        self._server = SERVERS[self.options.server](self.options)
        self._adapters = AdapterFolder(self._server, self.options.adapters)
        try:
            # A wrong address, a server without LoRA or with another model is found before there is a run to spoil.
            self.load(model.initial_adapter(0))
        except (ServerFailed, SwapFailed) as error:
            self.stop()
            raise BadInput(f"policy: {error}") from None

    def load(self, adapter: Adapter) -> None:
        if self._conversations:
            raise SwapFailed("an adapter cannot be swapped while conversations are open.")
        self._adapters.load(adapter)
        self._look(adapter)

    def _look(self, adapter: Adapter) -> None:
        """Whether the server speaks with this adapter on the same base."""
        from fedse.networks.swap import load_adapter, log_probabilities

        ids = probe_ids(self.model)
        told = self._server.ask(Asked(self._adapters.loaded, ids, _LOOKED_AT, 0.0, 0, self._ends))
        if told.full:
            raise SwapFailed("the served model has no room for a conversation of a few words.")
        load_adapter(self.model.network, adapter)
        own = log_probabilities(self.model.network, [*ids, *told.ids])[-len(told.ids) :].tolist()
        gap = sum(abs(a - b) for a, b in zip(own, told.log_probs, strict=True)) / len(own)
        if not gap <= _ALLOWED:
            raise SwapFailed(
                f"the server at {self.options.url} answers as another model or adapter would: its log-probabilities of a "
                f"short reply are {gap:.2f} from those of the model here (allowed {_ALLOWED}). Serve the same weights, and "
                "let --max-lora-rank reach the adapter's."
            )

    def request(self, conversation: Conversation) -> Callable[[], Sampled]:
        ids, sampling = tuple(conversation.ids), conversation.sampling
        most = max(1, min(self.options.reply_tokens, self.model.context - len(ids)))
        asked = Asked(self._adapters.loaded, ids, most, sampling.temperature, conversation.seed, self._ends)
        return partial(self._server.ask, asked)

    def read(self, slot: int, conversation: Conversation, answer: Sampled) -> Reply:
        if answer.full:
            return Reply(slot, (), ended=False, full=True)
        self.count(answer.tokens)
        conversation.ids.extend(answer.ids)
        conversation.replies += 1
        told = answer.log_probs if conversation.sampling.temperature > 0 else ()
        return Reply(slot, answer.ids, answer.ids[-1] == self._closing, log_probs=told)

    def stop(self) -> None:
        self._server.close()
        self._adapters.close()
