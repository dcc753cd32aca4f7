"""Examples: which go through the network at once, and laid end to end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Example:
    ids: Ids
    train: npt.NDArray[np.bool_]
    """Which ids are the agent's own."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def agent_tokens(self) -> int:
        """Tokens with a loss: the first token of a conversation is predicted from nothing and has none."""
        return int(self.train[1:].sum())


E = TypeVar("E", bound=Example)


def opening_of(examples: Sequence[Example]) -> int:
    """How many tokens all examples begin with alike, not counting any that predicts a token of the agent.

    These are the rules of a world. Hidden states of a beginning do not depend on what follows, so computing them once for
    all examples gives the same loss and the same gradient.
    """
    if len(examples) == 1:
        return 0
    shortest = min(len(example) for example in examples)
    beginnings = np.stack([example.ids[:shortest] for example in examples])
    alike = (beginnings == beginnings[0]).all(axis=0)
    first_reply = min(int(example.train[1:].argmax()) for example in examples)
    return min(first_reply, shortest if alike.all() else int(alike.argmin()))


def micro_batches(batch: Sequence[E], opening: int, tokens: int) -> Iterator[list[E]]:
    """Pieces of a batch with at most so many tokens, the shared opening counted once. A longer example goes alone."""
    part: list[E] = []
    filled = opening
    for example in batch:
        if part and filled + len(example) - opening > tokens:
            yield part
            part, filled = [], opening
        part.append(example)
        filled += len(example) - opening
    if part:
        yield part


@dataclass(frozen=True)
class Group:
    """Conversations of a pack that share an opening, and in a pack of several adapters those of one."""

    opening: int
    """Tokens of the opening, which is the group's first segment; 0: there is none."""
    segments: int
    tokens: int
    targets: int

    @property
    def copies(self) -> int:
        """Tokens of the opening, once for each segment that looks at it."""
        return self.opening * (self.segments - 1) if self.opening else 0


_NOBODY = Group(0, 0, 0, 0)


@dataclass(frozen=True)
class Pack:
    """Examples end to end: the shared opening, if there is one, then what each example goes on with."""

    ids: Ids
    positions: Ids
    """Place of each token in its own conversation."""
    lengths: tuple[int, ...]
    """Of the segments, the opening first."""
    groups: tuple[Group, ...]
    """One after another, all that is here."""
    predicting: Ids
    """Places in this pack whose next token is the agent's."""
    targets: Ids
    """Those next tokens."""


def pack(examples: Sequence[Example], opening: int) -> Pack:
    ids = [examples[0].ids[:opening]] if opening else []
    positions = [np.arange(opening)] if opening else []
    lengths = [opening] if opening else []
    predicting, targets = [], []
    at = opening
    for example in examples:
        ids.append(example.ids[opening:])
        positions.append(np.arange(opening, len(example)))
        lengths.append(len(example) - opening)
        learned = np.flatnonzero(example.train[1:])
        predicting.append(learned - opening + at)
        targets.append(example.ids[learned + 1])
        at += len(example) - opening
    return Pack(
        ids=np.concatenate(ids),
        positions=np.concatenate(positions),
        lengths=tuple(lengths),
        groups=(Group(opening, len(lengths), at, sum(map(len, targets))),),
        predicting=np.concatenate(predicting),
        targets=np.concatenate(targets),
    )


def end_to_end(packs: Sequence[Pack | None]) -> Pack:
    """One of several adapters, at least one of which has something to learn. Groups stay apart."""
    there = [each for each in packs if each is not None]
    begins = accumulate((len(each.ids) for each in there), initial=0)
    return Pack(
        ids=np.concatenate([each.ids for each in there]),
        positions=np.concatenate([each.positions for each in there]),
        lengths=tuple(length for each in there for length in each.lengths),
        groups=tuple(group for each in packs for group in (each.groups if each is not None else (_NOBODY,))),
        predicting=np.concatenate([each.predicting + begin for each, begin in zip(there, begins, strict=False)]),
        targets=np.concatenate([each.targets for each in there]),
    )
