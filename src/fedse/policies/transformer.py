"""The language-model policy: many conversations decoded together, each with its keys and values kept between turns.

Every forward pass has one of two fixed shapes: `PREFILL_ROWS` x `PREFILL_TOKENS` for new text and `slots` x 1 for decoding,
filled up with rows that nobody reads. Matrix libraries may round differently for different numbers of rows; with fixed
shapes a conversation gets the same bits whatever is decoded beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import Field

from fedse.errors import BadInput, SwapFailed
from fedse.plugins import PluginOptions
from fedse.protocols import Reply, Sampling, Usage
from fedse.seeds import uniform
from fedse.types import Adapter

if TYPE_CHECKING:
    import torch

    from fedse.models.causal_lm import CausalLM
    from fedse.policies.slot_cache import SlotCache

PREFILL_ROWS = 8
PREFILL_TOKENS = 32
_PROBE = "Which adapter is speaking?"
_PROBE_TOLERANCE = {"float32": 1e-4, "bfloat16": 0.05}


class TransformerOptions(PluginOptions):
    """How conversations are decoded."""

    slots: int = Field(default=64, ge=2)
    """Conversations decoded together. Another number may change the last bits of a result."""
    reply_tokens: int = Field(default=128, ge=1)
    """Longest reply; a longer one is cut and its action is read from what is there."""


class Decoder(Protocol):
    """Runs forward passes over the slots' keys and values."""

    def load(self) -> None:
        """Take the adapter that the network holds now."""
        ...

    def logits(self, ids: torch.Tensor, mask: torch.Tensor, cache: SlotCache, keep: torch.Tensor) -> torch.Tensor:
        """Next-token logits of each row after its token `keep`; `cache.aim` has said where the tokens go."""
        ...


@dataclass
class _Conversation:
    sampling: Sampling
    length: int
    """Tokens whose keys and values are in the cache."""
    unfed: list[int] = field(default_factory=list)
    """Tokens that belong to the conversation and are not in the cache yet."""
    reply: list[int] | None = None
    """The reply so far; None while no reply is due."""
    drawn: int = 0


class TransformerPolicy:
    """Decodes any Hugging Face causal language model with a LoRA adapter.

    A Llama, Mistral, Qwen2 or Qwen3 in float32 on one device, of at most 4 GiB and with `attention: sdpa`, gets a fast path
    of its own (`llama_decoder`); everything else runs through transformers. Both give the same probabilities within 1e-4.
    """

    Options = TransformerOptions

    def __init__(self, model: CausalLM, **options: Any) -> None:
        if not hasattr(model, "network"):
            raise BadInput(
                "policy: 'transformer' needs a language model; the model 'table' goes with policy 'table', the model "
                "'served' with policy 'api'."
            )
        config = model.network.config.get_text_config()
        # A window as wide as the context hides nothing.
        windowed = 0 < (getattr(config, "sliding_window", None) or 0) < model.context
        kinds = getattr(config, "layer_types", None) or (["sliding"] if windowed else [])
        if odd := next((kind for kind in kinds if kind != "full_attention"), None):
            raise BadInput(
                f"model: {model.name} has layers with {odd.replace('_', ' ')}, and the transformer policy keeps full "
                "attention only: choose a model without them."
            )
        import torch

        from fedse.policies.slot_cache import SlotCache

        self.options = TransformerOptions(**options)
        self.slots = self.options.slots
        self.usage = Usage()
        self.model = model
        self._torch = torch
        self._cache_type: Any = SlotCache
        self._decoder = self.make_decoder()
        self._forget()

    def make_decoder(self) -> Decoder:
        """The fastest decoder that computes what the network does."""
        from fedse.policies.llama_decoder import LlamaDecoder
        from fedse.policies.network_decoder import NetworkDecoder

        network = self.model.network
        return LlamaDecoder(network) if LlamaDecoder.suits(network) else NetworkDecoder(network)

    def _forget(self) -> None:
        # A piece that ends at the context's edge is filled up beyond it.
        longest = self.model.context + PREFILL_TOKENS
        self._cache = self._cache_type(
            self.model.network.config.get_text_config().num_hidden_layers, self.slots, longest
        )
        self._conversations: dict[int, _Conversation] = {}
        self._openings: dict[tuple[int, ...], Any] = {}

    def load(self, adapter: Adapter) -> None:
        from fedse.adapters.swap import load_adapter, read_adapter

        if self._conversations:
            raise SwapFailed("an adapter cannot be swapped while conversations are open.")
        load_adapter(self.model.network, adapter)
        self._decoder.load()
        self._forget()
        if read_adapter(self.model.network, like=adapter).digest() != adapter.digest():
            raise SwapFailed("after the swap the model holds other LoRA tensors than were given to it.")
        gap = self.probe_gap()
        allowed = _PROBE_TOLERANCE["float32" if self.model.network.dtype == self._torch.float32 else "bfloat16"]
        if not gap <= allowed:
            raise SwapFailed(
                f"after the swap, decoding and learning disagree about the same text by {gap:.3g} (allowed {allowed})."
            )

    def probe_gap(self) -> float:
        """Largest difference of a next-token probability between this policy's path and a plain forward pass."""
        ids = [*self.model.chat.opening(_PROBE), *self.model.chat.turn(_PROBE)]
        with self._torch.inference_mode():
            plain = self.model.network(
                input_ids=self._torch.tensor([ids], device=self.model.device), use_cache=False, logits_to_keep=1
            ).logits[0, -1]
            self._conversations[0] = _Conversation(Sampling(0, 0.0), 0, unfed=list(ids))
            cached = self._feed([0])[0]
            del self._conversations[0]
            gap = self._torch.softmax(plain.float(), -1) - self._torch.softmax(cached.float(), -1)
        return float(gap.abs().max())

    def open(self, opening: Sequence[int], sampling: Sampling) -> int:
        slot = next(number for number in range(self.slots) if number not in self._conversations)
        conversation = self._conversations[slot] = _Conversation(sampling, 0)
        known = tuple(opening)
        with self._torch.inference_mode():
            if known not in self._openings:
                # All conversations of a world begin alike, so this part is encoded once for each adapter.
                conversation.unfed = list(known)
                self._feed([slot])
                self._openings[known] = self._cache.copy_out(slot, len(known))
                self.usage.prefilled += len(known)
            else:
                self._cache.copy_in(slot, self._openings[known])
                conversation.length = len(known)
        return slot

    def extend(self, slot: int, ids: Sequence[int]) -> None:
        conversation = self._conversations[slot]
        conversation.unfed.extend(ids)
        conversation.reply = []
        self.usage.prefilled += len(conversation.unfed)
        self.usage.prefilled_without_cache += conversation.length + len(conversation.unfed)

    def ready(self) -> list[Reply]:
        with self._torch.inference_mode():
            while True:
                waiting = [slot for slot, held in self._conversations.items() if held.reply == []]
                if waiting:
                    self._append(waiting, self._feed(waiting))
                done = [reply for slot in self._conversations if (reply := self._finished(slot))]
                due = [slot for slot, held in self._conversations.items() if held.reply]
                if done or not due:
                    return done
                self._append(due, self._decode(due))

    def close(self, slot: int) -> None:
        del self._conversations[slot]

    def _finished(self, slot: int) -> Reply | None:
        conversation = self._conversations[slot]
        reply = conversation.reply
        if not reply:
            return None
        ended = reply[-1] in self.model.chat.end_ids
        full = conversation.length + len(conversation.unfed) >= self.model.context
        if not ended and not full and len(reply) < self.options.reply_tokens:
            return None
        conversation.reply = None
        return Reply(slot, tuple(reply), ended)

    def _append(self, slots: Sequence[int], logits: torch.Tensor) -> None:
        """Draw the next token of each conversation from its row of logits."""
        held = [self._conversations[slot] for slot in slots]
        for conversation, token in zip(held, self._draw(held, logits), strict=True):
            conversation.unfed.append(token)
            conversation.drawn += 1
            assert conversation.reply is not None
            conversation.reply.append(token)
        self.usage.decoded += len(slots)

    def _draw(self, held: Sequence[_Conversation], logits: torch.Tensor) -> list[int]:
        torch = self._torch
        warm = [index for index, conversation in enumerate(held) if conversation.sampling.temperature > 0]
        tokens = logits.argmax(dim=-1)
        if warm:
            temperatures = torch.tensor([held[index].sampling.temperature for index in warm], dtype=torch.float64)
            draws = torch.tensor(
                [uniform(held[index].sampling.key, held[index].drawn) for index in warm], dtype=torch.float64
            )
            scaled = logits[warm].double() / temperatures[:, None].to(logits.device)
            ladder = torch.softmax(scaled, dim=-1).cumsum(dim=-1)
            aims = draws[:, None].to(logits.device) * ladder[:, -1:]
            tokens[warm] = torch.searchsorted(ladder, aims, right=True).squeeze(1).clamp(max=logits.shape[1] - 1)
        return [int(token) for token in tokens.tolist()]

    def _feed(self, slots: Sequence[int]) -> torch.Tensor:
        """Encode all unfed tokens of these conversations, piece by piece; returns the logits after the last of each."""
        answers: dict[int, Any] = {}
        left = list(slots)
        while left:
            turn, left = left[:PREFILL_ROWS], left[PREFILL_ROWS:]
            pieces = [self._conversations[slot].unfed[:PREFILL_TOKENS] for slot in turn]
            logits = self._prefill(turn, pieces)
            for row, (slot, piece) in enumerate(zip(turn, pieces, strict=True)):
                conversation = self._conversations[slot]
                conversation.length += len(piece)
                del conversation.unfed[: len(piece)]
                if conversation.unfed:
                    left.append(slot)
                else:
                    answers[slot] = logits[row]
        return self._torch.stack([answers[slot] for slot in slots])

    def _prefill(self, slots: Sequence[int], pieces: Sequence[Sequence[int]]) -> torch.Tensor:
        torch = self._torch
        device = self.model.device
        # A pass always has PREFILL_ROWS rows. The first is repeated to fill it up: a repeated row writes the same values.
        rows = [*slots, *[slots[0]] * (PREFILL_ROWS - len(slots))]
        filled = [*pieces, *[pieces[0]] * (PREFILL_ROWS - len(slots))]
        ids = torch.tensor([[*piece, *[0] * (PREFILL_TOKENS - len(piece))] for piece in filled], device=device)
        starts = torch.tensor([self._conversations[slot].length for slot in rows], device=device)
        last = torch.tensor([len(piece) - 1 for piece in filled], device=device)
        return self._forward(ids, torch.tensor(rows, device=device), starts, last)[: len(slots)]

    def _decode(self, slots: Sequence[int]) -> torch.Tensor:
        torch = self._torch
        device = self.model.device
        tokens, lengths = [0] * self.slots, [0] * self.slots
        for slot, conversation in self._conversations.items():
            lengths[slot] = conversation.length
        for slot in slots:
            conversation = self._conversations[slot]
            [tokens[slot]] = conversation.unfed
            conversation.length += 1
            conversation.unfed.clear()
        ids = torch.tensor(tokens, device=device)[:, None]
        logits = self._forward(ids, None, torch.tensor(lengths, device=device), torch.zeros_like(ids[:, 0]))
        return logits[torch.tensor(slots, device=device)]

    def _forward(
        self, ids: torch.Tensor, rows: torch.Tensor | None, starts: torch.Tensor, keep: torch.Tensor
    ) -> torch.Tensor:
        mask = self._cache.aim(rows, starts, ids.shape[1])
        return self._decoder.logits(ids, mask, self._cache, keep)
