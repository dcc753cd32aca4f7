"""Decoding one token at a time for all conversations: right for every device and every network.

Every forward pass has one of two fixed shapes: one for new text (`_NEW_TEXT`) and `slots` x 1 for decoding, filled up with
rows that nobody reads. Matrix libraries may round differently for different numbers of rows; with fixed shapes a
conversation gets the same bits whatever is decoded beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from fedse.networks.decoding.decoder import Drawn, Due
from fedse.networks.decoding.legal_reply import Choice, LegalReply
from fedse.networks.decoding.slot_cache import SlotCache
from fedse.seeds import uniform
from fedse.stopwatch import during
from fedse.types import Sampling

_NEW_TEXT = {"cpu": (2, 48), "other": (8, 32)}
"""Rows and tokens of a pass. In the demo two or three conversations get new text between two steps of decoding, some 30
tokens each: a CPU pays for every row, a GPU for every pass."""


class ForwardPass(Protocol):
    """Runs the network over the slots' keys and values."""

    def load(self) -> None:
        """Take the adapter that the network holds now."""
        ...

    def logits(self, ids: torch.Tensor, mask: torch.Tensor, cache: SlotCache, keep: torch.Tensor) -> torch.Tensor:
        """Next-token logits of each row after its token `keep`; `cache.aim` has said where the tokens go."""
        ...


@dataclass
class _Reply:
    sampling: Sampling
    drawn: int
    left: int
    """Tokens that the reply may still get."""
    token: int = -1
    """The token drawn last, which is not in the cache."""
    legal: LegalReply | None = None


class StepwiseDecoder:
    """Draws on the host, so that a network may lie on any device or on several."""

    def __init__(self, model: Any, slots: int, forward: ForwardPass) -> None:
        self.forward = forward
        self._slots = slots
        self._device = model.device
        self._end_ids = model.chat.end_ids
        self._piece_rows, self._piece_tokens = _NEW_TEXT["cpu" if torch.device(model.device).type == "cpu" else "other"]
        layers = model.network.config.get_text_config().num_hidden_layers
        # Kept from adapter to adapter: what slots hold of the last one lies behind the tokens that count. A piece that ends
        # at the context's edge is filled up beyond it.
        self._cache = SlotCache(layers, slots, model.context + self._piece_tokens)
        self._forget()

    def _forget(self) -> None:
        # Every pass writes one token into every slot. One that nobody waits for goes behind the tokens that count.
        self._lengths = [0] * self._slots
        self._replies: dict[int, _Reply] = {}
        self._fresh: dict[int, Drawn] = {}

    def load(self) -> None:
        self.forward.load()
        self._forget()

    def encode(self, slot: int, ids: Sequence[int]) -> torch.Tensor:
        return self._feed({slot: (0, list(ids))})[slot]

    def copy_out(self, slot: int, length: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return self._cache.copy_out(slot, length)

    def copy_in(self, slot: int, content: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        self._cache.copy_in(slot, content)
        self._lengths[slot] = len(content[0][0])

    def close(self, slot: int) -> None:
        self._lengths[slot] = 0

    def begin(self, due: Sequence[Due]) -> None:
        logits = self._feed({item.slot: (item.start, list(item.ids)) for item in due})
        for item in due:
            self._replies[item.slot] = _Reply(item.sampling, item.drawn, item.most, legal=item.legal)
        slots = [item.slot for item in due]
        self._fresh.update(self._draw_all(slots, torch.stack([logits[slot] for slot in slots])))

    def advance(self) -> Mapping[int, Drawn]:
        if self._fresh:
            fresh, self._fresh = self._fresh, {}
            return fresh
        slots = list(self._replies)
        return self._draw_all(slots, self._decode(slots))

    def _draw_all(self, slots: Sequence[int], logits: torch.Tensor) -> dict[int, Drawn]:
        """The next token of each reply; a reply that ends here is under way no more."""
        replies = [self._replies[slot] for slot in slots]
        rule_out(logits, [reply.legal.choice(reply.left) if reply.legal else None for reply in replies])
        tokens, log_probs = self.draw(replies, logits)
        tokens = [
            reply.legal.take(token) if reply.legal else token for reply, token in zip(replies, tokens, strict=True)
        ]
        for slot, token in zip(slots, tokens, strict=True):
            reply = self._replies[slot]
            reply.token = token
            reply.drawn += 1
            reply.left -= 1
            if reply.left == 0 or token in self._end_ids:
                del self._replies[slot]
        # Where a legal reply says another token than was drawn, the number is that of the drawn one.
        drawn = zip(tokens, log_probs, strict=True)
        return {slot: Drawn([token], [log_prob]) for slot, (token, log_prob) in zip(slots, drawn, strict=True)}

    def draw(self, replies: Sequence[_Reply], logits: torch.Tensor) -> tuple[list[int], list[float]]:
        """A token from each row of logits, the likeliest or by the next number of the conversation's stream, and its
        log-probability."""
        warm = [index for index, reply in enumerate(replies) if reply.sampling.temperature > 0]
        tokens = logits.argmax(dim=-1)
        log_probs = torch.zeros(len(replies), dtype=torch.float64, device=logits.device)
        if warm:
            temperatures = torch.tensor([replies[index].sampling.temperature for index in warm], dtype=torch.float64)
            draws = torch.tensor(
                [uniform(replies[index].sampling.key, replies[index].drawn) for index in warm], dtype=torch.float64
            )
            scaled = logits[warm].double() / temperatures[:, None].to(logits.device)
            shares = torch.softmax(scaled, dim=-1)
            ladder = shares.cumsum(dim=-1)
            aims = draws[:, None].to(logits.device) * ladder[:, -1:]
            drawn = torch.searchsorted(ladder, aims, right=True).clamp(max=logits.shape[1] - 1)
            tokens[warm] = drawn.squeeze(1)
            log_probs[warm] = shares.gather(1, drawn).squeeze(1).log()
        with during("transfer"):
            return tokens.tolist(), log_probs.tolist()

    def _feed(self, texts: Mapping[int, tuple[int, list[int]]]) -> dict[int, torch.Tensor]:
        """Encode tokens of conversations from a position on, piece by piece; returns the logits after the last of each."""
        answers: dict[int, torch.Tensor] = {}
        left = [(slot, start, ids) for slot, (start, ids) in texts.items()]
        while left:
            turn, left = left[: self._piece_rows], left[self._piece_rows :]
            logits = self._prefill([(slot, start, ids[: self._piece_tokens]) for slot, start, ids in turn])
            for row, (slot, start, ids) in enumerate(turn):
                if len(ids) > self._piece_tokens:
                    left.append((slot, start + self._piece_tokens, ids[self._piece_tokens :]))
                else:
                    answers[slot] = logits[row]
                    self._lengths[slot] = start + len(ids)
        return answers

    def _prefill(self, pieces: Sequence[tuple[int, int, list[int]]]) -> torch.Tensor:
        # However few wait, a pass has all its rows. The first is repeated to fill it up, which writes the same values again.
        filled = [*pieces, *[pieces[0]] * (self._piece_rows - len(pieces))]
        ids = self._tensor([[*ids, *[0] * (self._piece_tokens - len(ids))] for _, _, ids in filled])
        rows, starts, last = (
            self._tensor(column)
            for column in zip(*((slot, start, len(ids) - 1) for slot, start, ids in filled), strict=True)
        )
        return self._forward(ids, rows, starts, last)[: len(pieces)]

    def _decode(self, slots: Sequence[int]) -> torch.Tensor:
        tokens = [0] * self._slots
        for slot in slots:
            tokens[slot] = self._replies[slot].token
        ids = self._tensor(tokens)[:, None]
        logits = self._forward(ids, None, self._tensor(self._lengths), torch.zeros_like(ids[:, 0]))
        for slot in slots:
            self._lengths[slot] += 1
        return logits[self._tensor(slots)]

    def _forward(
        self, ids: torch.Tensor, rows: torch.Tensor | None, starts: torch.Tensor, keep: torch.Tensor
    ) -> torch.Tensor:
        mask = self._cache.aim(rows, starts, ids.shape[1])
        return self.forward.logits(ids, mask, self._cache, keep)

    def _tensor(self, values: Any) -> torch.Tensor:
        with during("transfer"):
            return torch.tensor(values, device=self._device)


def rule_out(logits: torch.Tensor, choices: Sequence[Choice | None]) -> None:
    """Give every token that its row's choice leaves out, in place, no probability at all."""
    narrow = [row for row, choice in enumerate(choices) if choice and choice.only]
    barred = [row for row, choice in enumerate(choices) if choice and not choice.only and len(choice.ids)]
    if narrow:
        places = _places(narrow, choices, logits.device)
        kept = logits[places]
        logits[narrow] = -torch.inf
        logits[places] = kept
    if barred:
        logits[_places(barred, choices, logits.device)] = -torch.inf


def _places(rows: Sequence[int], choices: Sequence[Choice | None], device: torch.device) -> tuple[torch.Tensor, ...]:
    ids = [choice.ids for row in rows if (choice := choices[row])]
    both = np.stack([np.repeat(rows, [len(item) for item in ids]), np.concatenate(ids)])
    return tuple(torch.from_numpy(both).to(device))
