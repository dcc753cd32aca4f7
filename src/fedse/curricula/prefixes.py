"""Starts from where earlier episodes have been, after ExIt (Jiang and others, arXiv 2509.04575).

A part of a round's tasks is begun after the first turns of a remembered episode: its replies are carried out again, and the
agent reads them as its own and goes on. Tasks to begin so are drawn by a signal of earlier attempts, in ExIt the
variance of their rewards, or at random; the episode and the number of turns at random. What is learned are the replies that
the agent gives itself. ExIt keeps the histories of all episodes; here they are what the filter kept, and demonstrations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field

from fedse.clients.site import Site
from fedse.curricula.by_signal import BySignal, BySignalOptions, SignalName
from fedse.curricula.uniform import Uniform
from fedse.protocols import Past
from fedse.rollouts.replaying import reply_spans
from fedse.seeds import stream, uniform
from fedse.starts.canaries import CATEGORY as CANARY
from fedse.types import Planned, RoundTask, Task, Trajectory

Prefix = tuple[tuple[int, ...], ...]


class PrefixesOptions(BySignalOptions):
    """Which episodes are taken up again, and how much of a round. The numbers are not those of the paper."""

    signal: SignalName | None = "exit_variance"  # type: ignore[assignment]
    """What a task is worth, by earlier attempts from its beginning; docs/curricula.md has the formulas. Empty: at random."""
    per: Literal["task", "category"] = "category"
    """Whose attempts the signal is made of."""
    share: float = Field(default=0.5, ge=0, le=1)
    """Share of a round's tasks that begin after a prefix, as far as there are tasks to draw; the others are those of
    `uniform`, from their beginning."""


class Prefixes(BySignal):
    """Uniform, with a part of the tasks begun where remembered episodes have been."""

    Options = PrefixesOptions

    def __init__(
        self,
        site: Site,
        signal: SignalName | None = "exit_variance",
        per: Literal["task", "category"] = "category",
        share: float = 0.5,
        rounds: int | None = 5,
    ) -> None:
        super().__init__(site, signal or "learnability", per, share, rounds)
        self.at_random = signal is None
        self._starts: Mapping[str, Mapping[Task, Prefix]] = {}

    def plan(self, task: RoundTask, past: Past) -> Planned:
        self._starts = {label: self._drawn_starts(label, task.round, past) for label in self.site.places}
        planned = yield from super().plan(task, past)
        return [replace(item, prefix=self._starts[item.world].get(item.task, ())) for item in planned]

    def chosen(self, label: str, round: int, past: Past) -> list[Task]:
        starts = self._starts[label]
        taken = {task.id for task in starts}
        return [*starts, *(task for task in Uniform.chosen(self, label, round, past) if task.id not in taken)]

    def _drawn_starts(self, label: str, round: int, past: Past) -> dict[Task, Prefix]:
        place = self.site.places[label]
        training = {task.id: task for task in place.tasks("train")}
        stored: dict[Task, list[Trajectory]] = {}
        for item in past.remembered(label):
            spans = reply_spans(item)
            # The last reply ended the episode. The names in a canary are invented: its world does not know them.
            if spans is not None and len(spans) > 1 and item.category != CANARY and place.may_explore(item.task):
                task = training.get(item.task, Task(item.task, item.category))
                stored.setdefault(task, []).append(item)
        tasks = list(stored)
        since = 0 if self.rounds is None else round - self.rounds
        attempts = [item for item in past.attempts(label) if item.round >= since]
        worth = [1.0] * len(tasks) if self.at_random else self._worth(tasks, attempts)
        drawn = self._drawn(label, round, tasks, worth)
        return {task: self._cut(label, round, task, stored[task]) for task in drawn}

    def _cut(self, label: str, round: int, task: Task, stored: Sequence[Trajectory]) -> Prefix:
        """The first turns of one of the episodes, at least one and not all; fewer where no room would be left after them."""
        origin = self.site.places[label].origin
        key = stream(self.site.seed, origin.client, round, origin.label, "prefix", task.id)
        item = stored[int(uniform(key, 0) * len(stored))]
        spans = reply_spans(item)
        assert spans is not None, "what was not all sampled is not stored"
        turns = 1 + int(uniform(key, 1) * (len(spans) - 1))
        # What is remembered may be longer than the model's context: demonstrations are cut when they are learned.
        while turns and spans[turns][0] >= self.site.context:
            turns -= 1
        return tuple(item.token_ids[start:end] for start, end in spans[:turns])
