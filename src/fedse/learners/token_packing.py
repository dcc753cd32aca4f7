"""Trajectories as training examples: which go into one step, which through the model at once, and laid end to end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fedse.errors import BadInput
from fedse.types import Trajectory

_WINDOW = 16
"""Batches that are sorted by length together: enough to keep lengths alike, few enough to keep the order random."""

Ids = npt.NDArray[np.int64]
T = TypeVar("T", bound=Sized)


@dataclass(frozen=True)
class Case:
    """What is learned from as a whole: one trajectory, or several that a rule compares within one step."""

    trajectories: tuple[Trajectory, ...]
    credits: tuple[float, ...] = (1.0,)
    """Of each, what the rule makes of it: an advantage, or 1 for a success and -1 for a failure."""
    replayed: bool = False
    """Remembered, and imitated beside what the rule compares."""


@dataclass(frozen=True)
class Example:
    ids: Ids
    train: npt.NDArray[np.bool_]
    """Which ids are the agent's own."""
    credit: float = 1.0
    """As of its case."""
    replayed: bool = False

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def agent_tokens(self) -> int:
        """Tokens with a loss: the first token of a conversation is predicted from nothing and has none."""
        return int(self.train[1:].sum())


@dataclass(frozen=True)
class Unit:
    """The examples of a case, which stand in one step of the optimiser."""

    examples: tuple[Example, ...]

    def __len__(self) -> int:
        """In tokens."""
        return sum(map(len, self.examples))


def units_of(cases: Sequence[Case], context: int) -> list[Unit]:
    """What can be learned from. Trajectories longer than the context are cut to it; a case of which one has no reply left
    is left out."""
    units = [Unit(tuple(_example(case, number, context) for number in range(len(case.trajectories)))) for case in cases]
    units = [unit for unit in units if all(example.agent_tokens for example in unit.examples)]
    if not units:
        raise BadInput(
            f"no trajectory has a reply within the model's context of {context} tokens: nothing to learn from."
        )
    return units


def examples_of(trajectories: Sequence[Trajectory], context: int) -> list[Example]:
    """Each trajectory by itself, with credit 1."""
    return [
        example for unit in units_of([Case((item,)) for item in trajectories], context) for example in unit.examples
    ]


def _example(case: Case, number: int, context: int) -> Example:
    trajectory = case.trajectories[number]
    ids = np.array(trajectory.token_ids[:context], dtype=np.int64)
    train = np.array(trajectory.train_mask[:context], dtype=np.bool_)
    return Example(ids, train, case.credits[number], case.replayed)


def group(examples: Sequence[T], batch: int, random: np.random.Generator) -> Iterator[list[T]]:
    """One epoch: shuffled, sorted by length within windows, cut into batches, the batches shuffled again."""
    order = random.permutation(len(examples))
    batches: list[list[T]] = []
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
