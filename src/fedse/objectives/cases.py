"""What a rule learns from: trajectories, alone or compared with each other, as examples in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fedse.errors import BadInput
from fedse.networks.training.token_packing import Example
from fedse.types import Trajectory

_WINDOW = 16
"""Batches that are sorted by length together: enough to keep lengths alike, few enough to keep the order random."""

T = TypeVar("T", bound=Sized)


@dataclass(frozen=True)
class Case:
    """What is learned from as a whole: one trajectory, or several that a rule compares within one step."""

    trajectories: tuple[Trajectory, ...]
    credits: tuple[float, ...] = (1.0,)
    """Of each, what the rule makes of it: an advantage, or 1 for a success and -1 for a failure."""
    replayed: bool = False
    """Remembered, and learned beside what the rule compares."""
    by_step: tuple[float, ...] = ()
    """Of a single trajectory, what the rule makes of each of its replies, where it tells them apart."""

    def __post_init__(self) -> None:
        if len(self.credits) != len(self.trajectories):
            raise BadInput(
                f"a case has one credit for each of its trajectories, not {len(self.credits)} for {len(self.trajectories)}."
            )


@dataclass(frozen=True)
class CreditedExample(Example):
    """A trajectory of a case."""

    credit: float = 1.0
    """As of its case."""
    replayed: bool = False
    drawn: npt.NDArray[np.float64] | None = None
    """Log-probability with which each of the agent's tokens was drawn, where it was stored and is the model's own."""
    explorer: str = ""
    """Digest of the adapter that played it."""
    by_token: npt.NDArray[np.float64] | None = None
    """Credit of each of the agent's tokens, where a rule tells replies apart."""


@dataclass(frozen=True)
class Unit:
    """The examples of a case, which stand in one step of the optimiser."""

    examples: tuple[CreditedExample, ...]

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


def examples_of(trajectories: Sequence[Trajectory], context: int) -> list[CreditedExample]:
    """Each trajectory by itself, with credit 1."""
    return [
        example for unit in units_of([Case((item,)) for item in trajectories], context) for example in unit.examples
    ]


def _example(case: Case, number: int, context: int) -> CreditedExample:
    trajectory = case.trajectories[number]
    ids = np.array(trajectory.token_ids[:context], dtype=np.int64)
    train = np.frombuffer(bytearray(trajectory.train_mask[:context]), dtype=np.bool_)
    # One for each token of the whole mask; the first of all tokens is predicted from nothing.
    kept = slice(int(train[0]), int(train.sum()))
    drawn = np.array(trajectory.log_probs[kept]) if trajectory.log_probs and not trajectory.reshaped else None
    by_token = _by_token(trajectory, case.by_step)[kept] if case.by_step else None
    return CreditedExample(ids, train, case.credits[number], case.replayed, drawn, trajectory.adapter, by_token)


def _by_token(trajectory: Trajectory, by_step: Sequence[float]) -> npt.NDArray[np.float64]:
    """Each token of the mask has what its reply has. Between two replies stands what the world said."""
    mask = np.array(trajectory.train_mask, dtype=np.bool_)
    begins = mask & ~np.concatenate([[False], mask[:-1]])
    return np.asarray(np.array(by_step)[np.cumsum(begins)[mask] - 1], dtype=np.float64)


def group(examples: Sequence[T], batch: int, random: np.random.Generator) -> Iterator[list[T]]:
    """One epoch: shuffled, sorted by length within windows, cut into batches, the batches shuffled again."""
    order = random.permutation(len(examples))
    batches: list[list[T]] = []
    for start in range(0, len(order), _WINDOW * batch):
        window = sorted(order[start : start + _WINDOW * batch], key=lambda index: len(examples[index]))
        batches.extend([examples[index] for index in window[at : at + batch]] for at in range(0, len(window), batch))
    for position in random.permutation(len(batches)):
        yield batches[position]
