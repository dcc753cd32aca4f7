"""Trajectories as training examples: which go into one step, which through the model at once, and laid end to end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedse.errors import BadInput
from fedse.types import Trajectory

_WINDOW = 16
"""Batches that are sorted by length together: enough to keep lengths alike, few enough to keep the order random."""

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


def examples_of(trajectories: Sequence[Trajectory], context: int) -> list[Example]:
    """What can be learned from. Trajectories longer than the context are cut to it."""
    examples = [
        Example(np.array(item.token_ids[:context], dtype=np.int64), np.array(item.train_mask[:context], dtype=np.bool_))
        for item in trajectories
    ]
    examples = [example for example in examples if example.agent_tokens]
    if not examples:
        raise BadInput(
            f"no trajectory has a reply within the model's context of {context} tokens: nothing to learn from."
        )
    return examples


def group(examples: Sequence[Example], batch: int, random: np.random.Generator) -> Iterator[list[Example]]:
    """One epoch: shuffled, sorted by length within windows, cut into batches, the batches shuffled again."""
    order = random.permutation(len(examples))
    batches: list[list[Example]] = []
    for start in range(0, len(order), _WINDOW * batch):
        window = sorted(order[start : start + _WINDOW * batch], key=lambda index: len(examples[index]))
        batches.extend([examples[index] for index in window[at : at + batch]] for at in range(0, len(window), batch))
    for position in random.permutation(len(batches)):
        yield batches[position]


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


def micro_batches(batch: Sequence[Example], opening: int, tokens: int) -> Iterator[list[Example]]:
    """Pieces of a batch with at most so many tokens, the shared opening counted once. A longer example goes alone."""
    part: list[Example] = []
    filled = opening
    for example in batch:
        if part and filled + len(example) - opening > tokens:
            yield part
            part, filled = [], opening
        part.append(example)
        filled += len(example) - opening
    yield part


@dataclass(frozen=True)
class Pack:
    """Examples end to end: the shared opening, if there is one, then what each example goes on with."""

    ids: Ids
    positions: Ids
    """Place of each token in its own conversation."""
    lengths: tuple[int, ...]
    """Of the segments, the opening first."""
    opening: int
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
        opening=opening,
        predicting=np.concatenate(predicting),
        targets=np.concatenate(targets),
    )
