"""What a client has lived through: what its buffer begins with, what it found, what it learns from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fedse.clients.guards import checked_kept, checked_start
from fedse.clients.notebook import Notebook
from fedse.clients.site import Site
from fedse.evaluation.metrics import score
from fedse.experience.buffer import Buffer
from fedse.experience.journal import Journal
from fedse.privacy.noise import NoiseKey
from fedse.protocols import Filter, Past, Start, StartsAhead
from fedse.rollouts.hinted import hint_tokens
from fedse.rollouts.replaying import has_prefix
from fedse.seeds import stream
from fedse.stopwatch import during
from fedse.types import Adapter, Ahead, Lesson, Outcome, Trajectory, WorldScore


class Experience:
    """Filter, buffer and episode log of one client."""

    def __init__(
        self,
        site: Site,
        start: Start,
        filter: Filter,
        buffer: Buffer,
        journal: Journal,
        failures: bool = False,
        noise: NoiseKey | None = None,
        own: Notebook | None = None,
        attempts: bool = False,
    ) -> None:
        """With `failures`, a lesson also has what its round explored, whatever came of it; with `noise`, a secret; with
        `own`, what the last round of learning made; with `attempts`, how all explorations ended."""
        self.site = site
        self.start = start
        self.filter = filter
        self.buffer = buffer
        self.journal = journal
        self.failures = failures
        self.noise = noise
        self.own = own
        self.attempts = attempts

    def past(self, round: int) -> Past:
        """Every attempt of earlier rounds, failures included."""
        return self.buffer.past(round)

    def log(self, name: str, trajectories: Sequence[Trajectory]) -> None:
        """Write episodes down for people to read, if there are any."""
        if trajectories:
            with during("disk"):
                self.journal.write(name, trajectories)

    def of_round(
        self,
        round: int,
        measured: Sequence[Trajectory],
        explored: Sequence[Trajectory],
        rescued: Sequence[Trajectory] = (),
    ) -> RoundMemory:
        return RoundMemory(self, round, measured, explored, rescued)

    def ahead(self) -> Iterator[Ahead]:
        """What `begin` will need."""
        try:
            begun = not self.site.learns or 0 in self.buffer.rounds()
        finally:
            self.buffer.close()
        if not begun and isinstance(self.start, StartsAhead):
            for place in self.site.places.values():
                yield from self.start.ahead(*place.origin, place.make, self.site.seed)

    def begin(self) -> None:
        """Put what the experiment says into an empty buffer, once."""
        if 0 in self.buffer.rounds():
            return
        with during("world"):
            shown = [
                replace(trajectory, client=self.site.name, world=place.label)
                for place in self.site.places.values()
                for trajectory in checked_start(
                    self.site,
                    place,
                    self.start.trajectories(*place.origin, place.world, self.site.chat, self.site.seed),
                )
            ]
        if shown:
            with during("disk"):
                self.buffer.remember(0, shown)

    def lesson(
        self, round: int, adapter: Adapter, explored: Sequence[Trajectory] = (), number: int = 1
    ) -> Lesson | None:
        """What is learned in a round from an adapter, by the first or a later lesson of it; None without experience."""
        fresh = explored if self.failures and self.site.learns else ()
        with during("disk"):
            remembered = self.buffer.read(round)
            attempts = self.buffer.attempts(round + 1) if self.attempts else ()
        key = stream(self.site.seed, self.site.name, round, "learn", *([number] if number > 1 else []))
        secret = self.noise.secret(round, number, adapter.digest(), *remembered) if self.noise else b""
        own = Adapter(made, adapter.config) if self.own and (made := self.own.before(round).tensors) else None
        return Lesson(adapter, remembered, key, fresh, secret, own, attempts) if remembered or fresh else None


class RoundMemory:
    """What a round found. Nothing is written before the lesson is granted: a client whose time is over before it can
    learn has the buffer of the round before."""

    def __init__(
        self,
        experience: Experience,
        round: int,
        measured: Sequence[Trajectory],
        explored: Sequence[Trajectory],
        rescued: Sequence[Trajectory],
    ) -> None:
        """`rescued` was made of failures: it may be remembered, and nobody attempted it."""
        self._experience = experience
        self._round = round
        self._measured = measured
        self._explored = explored
        self._rescued = rescued
        self._lesson: Lesson | None = None
        self.counts: dict[str, int] = {}
        self.start: Adapter
        """What the lesson begins with. There is none before it was granted."""

    def lesson(self, adapter: Adapter) -> Lesson | None:
        """Remember what the filter keeps, and read what there is to learn from."""
        experience, self.start = self._experience, adapter
        try:
            finished = self._finished()
            found = [*finished, *self._rescued]
            kept = checked_kept(found, experience.filter.keep(found))
            if experience.site.learns:
                experience.begin()
            with during("disk"):
                # Whoever begins half-way says nothing about a task's chances.
                attempts = [item for item in self._explored if not has_prefix(item)]
                added = experience.buffer.remember(self._round, kept, attempts)
            with during("disk"):
                experience.journal.write(f"{self._round:04d}", [*self._measured, *self._explored, *self._rescued])
            self._lesson = experience.lesson(self._round, adapter, finished)
            self.counts = {
                "explored": len(self._explored),
                "errors": len(self._explored) - len(finished),
                "successes": sum(item.outcome is Outcome.SUCCESS for item in finished),
                "kept": len(kept),
                "added": added,
                "buffer": len(experience.buffer),
                "learned_from": 0,
                "steps": sum(len(item.steps) for item in finished),
                "invalid": sum(item.invalid_actions for item in finished),
                "agent_tokens": sum(item.agent_tokens for item in finished),
            }
            hinted = [item for item in self._explored if any(step.hint for step in item.steps)]
            if hinted:
                self.counts["hinted"] = len(hinted)
                self.counts["hint_tokens"] = sum(hint_tokens(experience.site.chat, item) for item in hinted)
            if prefixed := sum(map(has_prefix, self._explored)):
                self.counts["prefixed"] = prefixed
            if self._rescued:
                self.counts["rescued"] = len(self._rescued)
            if not experience.site.learns:
                self.counts["only_measures"] = 1
            return self._lesson
        finally:
            experience.buffer.close()

    def _finished(self) -> list[Trajectory]:
        return [item for item in self._explored if item.outcome is not Outcome.ERROR]

    def by_world(self) -> list[WorldScore]:
        """How much of each world the lesson is made of."""
        learned_from = self._lesson.trajectories if self._lesson is not None else ()
        return [
            score(label, "train", own, 0.0, None)
            for label in self._experience.site.places
            if (own := [item for item in learned_from if item.world == label])
        ]

    def further_lesson(self, adapter: Adapter, number: int) -> Lesson | None:
        """The same to learn from once more."""
        try:
            return self._experience.lesson(self._round, adapter, self._finished(), number)
        finally:
            self._experience.buffer.close()

    def note_diverged(self) -> None:
        """Note that what came of the lesson is not kept."""
        self.counts["diverged"] = 1

    def note_learned(self, adapter: Adapter) -> None:
        """Note that this came of the lesson."""
        assert self._lesson is not None
        if self._experience.own is not None:
            self._experience.own.keep(self._round, adapter.tensors)
        self.counts["learned_from"] = len(self._lesson.trajectories)
        if self._lesson.fresh:
            self.counts["fresh"] = len(self._lesson.fresh)
        with during("disk"):
            try:
                self._experience.buffer.note_learned(self._round)
            finally:
                self._experience.buffer.close()
