"""Which sizes CUDA graphs get: few, since recording one takes long; fitting, since padding is computed too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from fedse.networks.training.token_packing import Example, Pack

_STEPS = 8
"""Numbers of tokens between a power of two and the next."""
_TARGET = 0.25
"""What a predicted token costs beside what every token costs: the output layer of a small network."""
_COPY = 0.5
"""What a token of an opening costs for each segment that looks at it: its keys and values are copied in every layer."""
_RECORDING = 8192
"""What recording a graph costs, in tokens: a tenth of a second, shared by some rounds that use it."""

_MORE_SEGMENTS = 2
"""Room for padding of packs that need fewer tokens."""


@dataclass(frozen=True)
class Sizes:
    """What is fixed in a graph, and what a pack needs."""

    tokens: int
    opening: int
    """No opening is longer."""
    segments: int
    longest: int
    predicting: int
    copies: int
    """Tokens of openings, once for each segment that looks at one."""

    @classmethod
    def of_part(cls, part: Sequence[Example], opening: int) -> Sizes:
        rests = [len(example) - opening for example in part]
        return cls(
            tokens=opening + sum(rests),
            opening=opening,
            segments=len(rests) + bool(opening),
            longest=max(opening, *rests),
            predicting=sum(example.agent_tokens for example in part),
            copies=opening * len(rests),
        )

    @classmethod
    def of_pack(cls, pack: Pack) -> Sizes:
        opening, copies = max(group.opening for group in pack.groups), sum(group.copies for group in pack.groups)
        return cls(len(pack.ids), opening, len(pack.lengths), max(pack.lengths), len(pack.targets), copies)

    @classmethod
    def of_all(cls, needs: Sequence[Sizes]) -> Sizes:
        """Of packs that lie end to end."""
        tokens, segments, predicting, copies = (
            sum(getattr(need, name) for need in needs) for name in ("tokens", "segments", "predicting", "copies")
        )
        opening, longest = (max(getattr(need, name) for need in needs) for name in ("opening", "longest"))
        return cls(tokens, opening, segments, longest, predicting, copies)

    @property
    def work(self) -> float:
        """What a pass takes, in tokens."""
        return self.tokens + _TARGET * self.predicting + _COPY * self.copies

    def holds(self, need: Sizes) -> bool:
        return (
            self.opening >= need.opening
            and self.copies >= need.copies
            and self.tokens >= need.tokens
            and self.predicting >= need.predicting
            and self.longest >= need.longest
            and self.segments >= self._segments_for(need)
        )

    def _segments_for(self, need: Sizes) -> int:
        """Padding is segments of its own."""
        return need.segments + -(-(self.tokens - need.tokens) // self.longest)

    def covering(self, *others: Sizes) -> Sizes:
        """The least that hold this and others."""
        tokens, opening, longest, predicting, copies = (
            max(getattr(each, name) for each in (self, *others))
            for name in ("tokens", "opening", "longest", "predicting", "copies")
        )
        wide = Sizes(tokens, opening, 0, longest, predicting, copies)
        return replace(wide, segments=max(wide._segments_for(each) for each in (self, *others)))

    def rounded_up(self) -> Sizes:
        """With room for what later rounds bring, so that little is recorded then."""
        tokens, longest = _rounded_up(self.tokens, _STEPS), _rounded_up(self.longest, 1)
        segments = self.segments + -(-(tokens - self.tokens) // longest) + _MORE_SEGMENTS
        opening, copies = _rounded_up(self.opening, _STEPS), _rounded_up(self.copies, _STEPS)
        return Sizes(tokens, opening, segments, longest, _rounded_up(self.predicting, 4), copies)


def chosen_sizes(needs: Iterable[Sizes], present: Sequence[Sizes]) -> list[Sizes]:
    """Sizes to record beside those that are there, so that passes over all packs and recording take least together.

    In the order of their tokens, each run of them gets new sizes or each goes through what is there already.
    """
    alike: dict[int, list[Sizes]] = {}
    for need in needs:
        alike.setdefault(_rounded_up(need.tokens, _STEPS), []).append(need)
    steps = [(reduce(Sizes.covering, alike[tokens]), alike[tokens]) for tokens in sorted(alike)]
    best: list[tuple[float, tuple[Sizes, ...]]] = [(0.0, ())]
    for end, (_, group) in enumerate(steps, start=1):
        already = sum(_least_work(need, present) for need in group)
        cost, new = best[end - 1]
        options = [(cost + already, new)]
        cover, count = steps[end - 1][0], 0
        for begin in range(end - 1, -1, -1):
            cover, count = cover.covering(steps[begin][0]), count + len(steps[begin][1])
            made = cover.rounded_up()
            cost, new = best[begin]
            options.append((cost + count * made.work + _RECORDING, (*new, made)))
        best.append(min(options, key=lambda option: option[0]))
    return list(best[-1][1])


def fitting(need: Sizes, present: Iterable[Sizes]) -> Sizes | None:
    """The sizes that hold a pack with the least work."""
    return min((sizes for sizes in present if sizes.holds(need)), key=lambda sizes: sizes.work, default=None)


def _least_work(need: Sizes, present: Iterable[Sizes]) -> float:
    found = fitting(need, present)
    return float("inf") if found is None else found.work


def _rounded_up(count: int, steps: int) -> int:
    """To one of `steps` evenly spaced sizes between a power of two and the next."""
    step = max(8, (1 << max(0, (count - 1).bit_length() - 1)) // steps)
    return -(-count // step) * step
