"""Training tasks drawn by how much there is to learn from them, as earlier attempts of the same site tell.

A task counts for what the signal makes of its own attempts; one that was not tried lately, for what it makes of all attempts
at its category; one of a category that was not tried lately, for as much as the best category. Tasks are drawn one after
another, each with a probability in proportion to what it counts for. What counts for nothing, or less, comes only with the
uniform part of a round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import Field

from fedse.clients.site import Site
from fedse.curricula.signals import SIGNALS, Tried
from fedse.curricula.uniform import Uniform
from fedse.plugins import PluginOptions
from fedse.protocols import Past
from fedse.seeds import generator
from fedse.types import Attempt, Task

SignalName = Literal[
    "learnability", "azr", "agent0", "dr_zero", "ttcs", "ssr", "webrl", "exit_variance", "eva_gap", "sec_advantage"
]


class BySignalOptions(PluginOptions):
    """What a site prefers, and how much of a round it draws so. The numbers are not those of a paper."""

    signal: SignalName = "learnability"
    """What a task is worth, by its successes or rewards; docs/curricula.md has the formulas."""
    per: Literal["task", "category"] = "task"
    """Whose attempts the signal is made of: each task's own, or all those at tasks of its category. One attempt at a task
    says nothing about its chances: where tasks are seldom tried again, take categories."""
    share: float = Field(default=0.8, ge=0, le=1)
    """Share of a round's tasks that are drawn so; the others are drawn uniformly."""
    rounds: int | None = Field(default=5, ge=1)
    """So many rounds back attempts count; empty: all of them. The agent that made older ones was another one."""


class BySignal(Uniform):
    """Prefers tasks from which there is most to learn, by a signal of the site's own attempts."""

    Options = BySignalOptions

    def __init__(
        self,
        site: Site,
        signal: SignalName = "learnability",
        per: Literal["task", "category"] = "task",
        share: float = 0.8,
        rounds: int | None = 5,
    ) -> None:
        super().__init__(site)
        self.signal = SIGNALS[signal]
        self.per = per
        self.share = share
        self.rounds = rounds

    def chosen(self, label: str, round: int, past: Past) -> list[Task]:
        anyhow = super().chosen(label, round, past)
        since = 0 if self.rounds is None else round - self.rounds
        worth = self._worth(anyhow, [item for item in past.attempts(label) if item.round >= since])
        preferred = self._drawn(label, round, anyhow, worth)
        first = {task.id for task in preferred}
        return [*preferred, *(task for task in anyhow if task.id not in first)]

    def _worth(self, tasks: Sequence[Task], attempts: Sequence[Attempt]) -> list[float]:
        of_category = self._signals(attempts, lambda item: item.category)
        of_task = self._signals(attempts, self.counts_for) if self.per == "task" else {}
        best = max(of_category.values(), default=0.0)
        untried = best if best > 0 else 1.0
        return [of_task.get(task.id, of_category.get(task.category, untried)) for task in tasks]

    def counts_for(self, attempt: Attempt) -> str:
        """Id of the training task for which an attempt counts."""
        return attempt.task

    def _signals(self, attempts: Sequence[Attempt], key: Callable[[Attempt], str]) -> dict[str, float]:
        groups: dict[str, list[Attempt]] = {}
        for item in attempts:
            groups.setdefault(key(item), []).append(item)
        tried = {name: Tried.of(group) for name, group in groups.items()}
        return {name: self.signal(found) for name, found in tried.items() if found.tries}

    def _drawn(self, label: str, round: int, tasks: Sequence[Task], worth: Sequence[float]) -> list[Task]:
        """Without putting back: the earliest of exponential times whose rates are what the tasks count for."""
        assert self.site.exploration is not None, "a site that explores nothing plans nothing"
        origin = self.site.places[label].origin
        times = generator(self.site.seed, origin.client, round, origin.label, "by_signal").exponential(size=len(tasks))
        due = sorted(
            (time / rate, place) for place, (time, rate) in enumerate(zip(times, worth, strict=True)) if rate > 0
        )
        wanted = int(self.share * self.site.exploration.tasks + 0.5)
        return [tasks[place] for _, place in due[:wanted]]
