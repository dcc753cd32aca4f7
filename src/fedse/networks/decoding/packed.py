"""Decoding on a CPU: new text of many conversations fills passes with hardly a gap.

Passes have fixed numbers of rows, as those of `StepwiseDecoder` have, and for the same reason; which conversation stands in
which row makes no difference to any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch

from fedse.networks.decoding.packed_llama import Ends, Look, PackedLlama
from fedse.networks.decoding.stepwise import StepwiseDecoder

_ROWS = 96
"""Of a pass over new text."""
_PIECE = 48
"""Tokens of a text that are read at once: even, and at most `_ROWS`."""
_ENDS = 8
"""Texts that end in a pass, at most."""
_STEP = 128
"""A conversation looks at a multiple of this many columns: its own length, rounded up."""


@dataclass(frozen=True)
class _Piece:
    slot: int
    start: int
    ids: Sequence[int]
    last: bool
    """Whether the reply follows."""

    @property
    def rows(self) -> int:
        """Some libraries round a product with a single row unlike all others; an even number of tokens never makes one."""
        return len(self.ids) + len(self.ids) % 2


class PackedDecoder(StepwiseDecoder):
    """For networks in main memory that `LlamaForward` suits."""

    forward: PackedLlama

    def __init__(self, model: Any, slots: int) -> None:
        super().__init__(model, slots, PackedLlama(model.network))
        self._every_slot = torch.arange(slots)

    def _feed(self, texts: Mapping[int, tuple[int, list[int]]]) -> dict[int, torch.Tensor]:
        pieces = [piece for slot, (start, ids) in texts.items() for piece in _pieces(slot, start, ids)]
        # The largest first leave the smallest gaps. All but the last of a text are equally large and stay in their order.
        left = sorted(pieces, key=lambda piece: -piece.rows)
        answers: dict[int, torch.Tensor] = {}
        while left:
            now, left = _packed(left)
            answers.update(self._read(now))
        for slot, (start, ids) in texts.items():
            self._lengths[slot] = start + len(ids)
        return answers

    def _read(self, pieces: Sequence[_Piece]) -> dict[int, torch.Tensor]:
        """One pass; returns the logits after each text that ends in it."""
        ids, positions, slots = list[int](), list[int](), list[int]()
        looks, last_looks, last = list[Look](), list[Look](), dict[int, int]()
        for piece in pieces:
            columns = _columns(piece.start + piece.rows)
            looks.append(Look(len(ids), piece.slot, columns, tokens=piece.rows))
            if piece.last:
                last_looks.append(Look(2 * len(last), piece.slot, columns, tokens=2))
                last[piece.slot] = len(ids) + len(piece.ids) - 1
            ids += [*piece.ids, *[0] * (piece.rows - len(piece.ids))]
            positions += range(piece.start, piece.start + piece.rows)
            slots += [piece.slot] * piece.rows
        nothing = [0] * (_ROWS - len(ids))
        rows = self._tensor([*last.values(), *[0] * (_ENDS - len(last))])
        where = self._tensor(positions + nothing)
        self._cache.aim_at(self._tensor(slots), where[: len(slots)], max(look.columns for look in looks))
        logits = self.forward.next_tokens(
            self._tensor(ids + nothing), where, looks, Ends(rows, last_looks), self._cache
        )
        return {slot: logits[number] for number, slot in enumerate(last)}

    def _decode(self, slots: Sequence[int]) -> torch.Tensor:
        tokens = [0] * self._slots
        for slot in slots:
            tokens[slot] = self._replies[slot].token
        where = self._tensor(self._lengths)
        self._cache.aim_at(self._every_slot, where, max(self._lengths) + 1)
        logits = self.forward.next_tokens(
            self._tensor(tokens), where, list(self._side_by_side(slots)), None, self._cache
        )
        for slot in slots:
            self._lengths[slot] += 1
        return logits[self._tensor(slots)]

    def _side_by_side(self, slots: Sequence[int]) -> Iterator[Look]:
        """One look for slots that look equally far. Who is silent between them costs about as much as another look would."""
        by_columns = groupby(sorted(slots), lambda slot: _columns(self._lengths[slot] + 1))
        for columns, alike in by_columns:
            first, *others = alike
            yield Look(first, first, columns, conversations=(others[-1] if others else first) + 1 - first)


def _columns(length: int) -> int:
    return -(-length // _STEP) * _STEP


def _pieces(slot: int, start: int, ids: Sequence[int]) -> Iterator[_Piece]:
    for begin in range(0, len(ids), _PIECE):
        yield _Piece(slot, start + begin, ids[begin : begin + _PIECE], begin + _PIECE >= len(ids))


def _packed(pieces: Sequence[_Piece]) -> tuple[list[_Piece], list[_Piece]]:
    """Pieces of the next pass, and those that are left."""
    now, later = list[_Piece](), list[_Piece]()
    room, ends, waiting = _ROWS, _ENDS, set[int]()
    for piece in pieces:
        if piece.rows > room or (piece.last and not ends) or piece.slot in waiting:
            later.append(piece)
            # What follows in this text must not be read before it.
            waiting.add(piece.slot)
        else:
            now.append(piece)
            room -= piece.rows
            ends -= piece.last
    return now, later
