"""What the host knows of the replies that a GPU draws: which are under way, what they say so far, which are complete."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedse.networks.decoding.decoder import Drawn, Due

Slots = NDArray[np.int64]


class RepliesUnderWay:
    """At most one for each slot.

    Steps are launched a few at a time, and launches are numbered. A reply takes part from the launch that it was begun for,
    so which replies a step goes on with never depends on what took how long.
    """

    def __init__(self, slots: int, ends: Sequence[int]) -> None:
        """`ends`: the tokens that a reply ends with."""
        self._ends = np.array(ends, dtype=np.int64)
        self._tokens = np.zeros((slots, 0), dtype=np.int64)
        self._log_probs = np.zeros((slots, 0), dtype=np.float32)
        self._said = np.zeros(slots, dtype=np.int64)
        """Tokens of each reply so far."""
        self._left = np.zeros(slots, dtype=np.int64)
        """Tokens that it may still get; 0 where none is under way."""
        self._since = np.zeros(slots, dtype=np.int64)
        """The first launch that it takes part in."""
        self._complete: deque[int] = deque()

    def forget(self) -> None:
        self._left[:] = 0
        self._complete.clear()

    def begin(self, due: Sequence[Due], launch: int) -> None:
        """These take part from this launch on."""
        slots = [item.slot for item in due]
        self._left[slots] = [item.most for item in due]
        self._said[slots] = 0
        self._since[slots] = launch
        room = self._tokens.shape[1]
        if (longest := max(item.most for item in due)) > room:
            more = (0, 0), (0, max(longest, 2 * room) - room)
            self._tokens, self._log_probs = np.pad(self._tokens, more), np.pad(self._log_probs, more)

    def give_up(self, slot: int) -> bool:
        """Nobody waits for a reply there any more; whether one was under way."""
        speaking = bool(self._left[slot])
        self._left[slot] = 0
        if slot in self._complete:
            self._complete.remove(slot)
        return speaking

    @property
    def speaking(self) -> bool:
        """Whether any is not complete."""
        return bool(self._left.any())

    @property
    def untold(self) -> list[int]:
        """Slots with a reply that was begun and not told."""
        return sorted([*self._left.nonzero()[0].tolist(), *self._complete])

    @property
    def next_launch(self) -> int:
        """The first that one of those takes part in that are not complete."""
        return int(self._since[self._left > 0].min())

    def of_launch(self, launch: int) -> Slots:
        """Those of them that take part in it."""
        return ((self._left > 0) & (self._since <= launch)).nonzero()[0]

    def read(self, launch: int, slots: Slots, tokens: NDArray[np.int64], log_probs: NDArray[np.float32]) -> None:
        """What came of a launch for these slots: one line for each of its steps, a negative token where there is none."""
        # A reply that was given up has left its slot to another.
        slots = slots[(self._since[slots] <= launch) & (self._left[slots] > 0)]
        for line, chances in zip(tokens, log_probs, strict=True):
            speaking = slots[(line[slots] >= 0) & (self._left[slots] > 0)]
            said, drawn = self._said[speaking], line[speaking]
            self._tokens[speaking, said] = drawn
            self._log_probs[speaking, said] = chances[speaking]
            self._said[speaking] = said + 1
            self._left[speaking] -= 1
            self._left[speaking[(drawn[:, None] == self._ends).any(axis=1)]] = 0
        self._complete.extend(slots[self._left[slots] == 0].tolist())

    def tell(self, most: int) -> Mapping[int, Drawn]:
        """Complete replies that were not told yet, at most so many."""
        told = {}
        for _ in range(min(most, len(self._complete))):
            slot = self._complete.popleft()
            said = self._said[slot]
            told[slot] = Drawn(self._tokens[slot, :said].tolist(), self._log_probs[slot, :said].tolist())
        return told
