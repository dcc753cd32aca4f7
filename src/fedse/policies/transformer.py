"""The language-model policy: many conversations decoded together, each with its keys and values kept between turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from fedse.errors import BadInput, SwapFailed
from fedse.networks.decoding.choosing import decoder_for, window_of
from fedse.networks.decoding.conversation import Conversation
from fedse.networks.decoding.decoder import Decoder, Due, SeveralAdapters
from fedse.networks.decoding.legal_reply import LegalReply
from fedse.networks.decoding.probe import check_agrees
from fedse.networks.decoding.spelling import Spelling
from fedse.plugins import PluginOptions
from fedse.protocols import Reply, Usage
from fedse.stopwatch import during
from fedse.types import Adapter, LegalActions, Sampling

if TYPE_CHECKING:
    from fedse.models.causal_lm import CausalLM


class TransformerOptions(PluginOptions):
    """How conversations are decoded."""

    rounding: ClassVar[frozenset[str]] = frozenset({"slots"})
    slots: int = Field(default=64, ge=2)
    """Conversations decoded together. Another number may change the last bits of a result."""
    reply_tokens: int = Field(default=128, ge=1)
    """Longest reply; a longer one is cut and its action is read from what is there."""
    legal_actions: bool = False
    """Draw the action of each reply from those that the world lists; the thought stays free. This helps the agent beyond
    what it has learned and costs speed on a GPU (docs/legal_actions.md)."""


class TransformerPolicy:
    """Decodes any Hugging Face causal language model with a LoRA adapter.

    A Llama, Mistral, Qwen2 or Qwen3 in float32 on one device, of at most 4 GiB and with `attention: sdpa`, gets a fast path
    of its own (`LlamaForward`); everything else runs through transformers. Both give the same probabilities within 1e-4.
    """

    Options = TransformerOptions

    def __init__(self, model: CausalLM, **options: Any) -> None:
        if not hasattr(model, "network"):
            raise BadInput(
                "policy: 'transformer' needs a language model; the model 'table' goes with policy 'table', the model "
                "'served' with policy 'api'."
            )
        import torch

        self.options = TransformerOptions(**options)
        self.slots = self.options.slots
        self.asks_for_actions = self.options.legal_actions
        self.usage = Usage()
        self.model = model
        self._window = window_of(model)
        self._torch = torch
        self._decoder = self.make_decoder()
        self._conversations: dict[int, Conversation] = {}
        self._openings: dict[tuple[int, tuple[int, ...]], Any] = {}
        self._numbers: dict[str, int] = {}
        self._chosen = 0
        self._closing = model.chat.reply("")[-1]
        if self.asks_for_actions:
            vocabulary = model.network.config.get_text_config().vocab_size
            self._spelling = Spelling(model.chat, vocabulary, model.name)

    def make_decoder(self) -> Decoder:
        """A subclass may want another than the fastest."""
        return decoder_for(self.model, self.slots, self._window, self.options.legal_actions)

    @property
    def adapters_at_once(self) -> int:
        return self._decoder.most_adapters if isinstance(self._decoder, SeveralAdapters) else 1

    def load(self, adapter: Adapter) -> None:
        self.load_all([adapter])

    def load_all(self, adapters: Sequence[Adapter]) -> None:
        if self._conversations:
            raise SwapFailed("an adapter cannot be swapped while conversations are open.")
        self._openings.clear()
        self._numbers = {adapter.digest(): number for number, adapter in enumerate(adapters)}
        for number, adapter in enumerate(adapters):
            self._load(number, adapter, len(adapters))
        self._chosen = 0

    def _load(self, number: int, adapter: Adapter, of: int) -> None:
        from fedse.networks.swap import check_holds, load_adapter

        load_adapter(self.model.network, adapter)
        if of == 1:
            self._decoder.load()
        else:
            assert isinstance(self._decoder, SeveralAdapters)
            self._decoder.hold(number, of)
            self._decoder.assign(0, number)  # Where the probe speaks.
        check_holds(self.model.network, adapter)
        check_agrees(self.model, self._decoder)

    def choose(self, digest: str) -> None:
        self._chosen = self._numbers[digest]

    def open(self, opening: Sequence[int], sampling: Sampling) -> int:
        slot, known = self._free_slot(), (self._chosen, tuple(opening))
        with self._torch.inference_mode():
            self._assign(slot, self._chosen)
            if known not in self._openings:
                # All conversations of a world begin alike, so this part is encoded once for each adapter.
                self._decoder.encode(slot, known[1])
                self._openings[known] = self._decoder.copy_out(slot, len(opening))
                self.usage.prefilled += len(opening)
            else:
                self._decoder.copy_in(slot, self._openings[known])
        self._conversations[slot] = Conversation(sampling, self._chosen, len(opening))
        return slot

    def _assign(self, slot: int, adapter: int) -> None:
        if len(self._numbers) > 1 and isinstance(self._decoder, SeveralAdapters):
            self._decoder.assign(slot, adapter)

    def fork(self, slot: int, sampling: Sampling | None = None) -> int:
        """Keys and values are copied, and nothing is encoded again."""
        held, copy = self._conversations[slot], self._free_slot()
        if held.reply is not None:
            raise ValueError(f"the conversation in slot {slot} waits for a reply: fork it before or after")
        with self._torch.inference_mode():
            self._assign(copy, held.adapter)
            self._decoder.copy_in(copy, self._decoder.copy_out(slot, held.length))
        self._conversations[copy] = held.fork(sampling)
        return copy

    def _free_slot(self) -> int:
        return next(number for number in range(self.slots) if number not in self._conversations)

    def extend(self, slot: int, ids: Sequence[int]) -> None:
        conversation = self._conversations[slot]
        conversation.extend(ids)
        self.usage.prefilled += len(conversation.unfed)
        self.usage.prefilled_without_cache += conversation.tokens

    def restrict(self, slot: int, actions: LegalActions) -> None:
        """The reply that is due does one of these."""
        self.require_room(actions)
        self._conversations[slot].actions = actions

    def require_room(self, actions: LegalActions) -> None:
        """A reply must be able to hold each of these, if nothing else."""
        needed, longest = self._spelling.needed(actions)
        if needed > self.options.reply_tokens:
            raise BadInput(
                f"policy.reply_tokens: the line with the action '{longest}' takes {needed} tokens, and a reply has "
                f"{self.options.reply_tokens}: raise it, or leave `policy.legal_actions` off."
            )

    def ready(self) -> list[Reply]:
        with self._torch.inference_mode():
            while True:
                if full := [slot for slot, held in self._conversations.items() if self._is_full(held)]:
                    return [self._no_reply(slot) for slot in full]
                if waiting := [slot for slot, held in self._conversations.items() if held.waits]:
                    with during("prefill"):
                        self._decoder.begin([self._due(slot) for slot in waiting])
                if all(held.reply is None for held in self._conversations.values()):
                    return []
                done = []
                for slot, drawn in self._decoder.advance().items():
                    self.usage.decoded += len(drawn.tokens)
                    if reply := self._conversations[slot].grow(drawn, self.model.chat.end_ids):
                        # With another end than the template's, the turn is still to be closed.
                        closed = reply.ids[-1] == self._closing
                        done.append(Reply(slot, reply.ids, closed, log_probs=reply.log_probs))
                if done:
                    return done

    def close(self, slot: int) -> None:
        del self._conversations[slot]
        self._decoder.close(slot)

    def _is_full(self, held: Conversation) -> bool:
        """Whether a restricted reply is due for which the context has no room."""
        if held.actions is None or not held.waits:
            return False
        needed, _ = self._spelling.needed(held.actions)
        return held.tokens + needed > self.model.context

    def _no_reply(self, slot: int) -> Reply:
        self._conversations[slot].reply = None
        return Reply(slot, (), ended=False, full=True)

    def _due(self, slot: int) -> Due:
        held = self._conversations[slot]
        most = max(1, min(self.options.reply_tokens, self.model.context - held.tokens))
        return held.begin(slot, most, LegalReply(self._spelling, held.actions) if held.actions else None)
