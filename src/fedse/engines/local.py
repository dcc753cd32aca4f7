"""One process, one shared base model: the episodes of all clients are one batch, then clients learn, in turn or, where the
learner can, several at once.

Clients that keep something private have adapters of their own; then there is one batch for each adapter. Very many clients
are taken in groups, so that memory holds the episodes of one group only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar

from pydantic import Field

from fedse.errors import TooLate
from fedse.federation.sites import Sites
from fedse.plugins import PluginOptions
from fedse.rollouts.player import Episode, Player
from fedse.stopwatch import during
from fedse.types import Adapter, ClientFailure, ClientUpdate, Learned, Lesson, RoundTask, Trajectory

WAVES = 16
"""Episodes of a group for each slot of the policy: so many that the end of a group, with empty slots, matters little."""


class LocalEngine:
    """Plays the plans of all clients together. Results equal those of clients that play one after another."""

    class Options(PluginOptions):
        operational: ClassVar[frozenset[str]] = frozenset({"processes"})

        processes: int = Field(default=0, ge=0)
        """Worker processes in which worlds take their steps; 0 steps them in this one. The results are the same."""

    def __init__(self, sites: Sites, processes: int = 0) -> None:
        model, self.policy, clients = sites.here()
        self._clients = {client.name: client for client in clients}
        self._learner = clients[0].learner
        self.clients = tuple(sorted(self._clients))
        self.tracker = sites.tracker
        self.player = Player(self.policy, model.chat, model.context, self._episode_finished, processes)
        self._answers: Iterator[ClientUpdate | ClientFailure] = iter(())

    def send(self, tasks: Mapping[str, RoundTask]) -> None:
        # What an earlier round closed without is finished first, as a slow site would.
        self._answers = chain(self._answers, self._work(dict(tasks), time.monotonic()))

    def poll(self, seconds: float | None = None) -> list[ClientUpdate | ClientFailure]:
        del seconds  # Nothing happens while nobody waits, so there is nothing to wait for.
        return [next(self._answers)]

    def _work(self, tasks: dict[str, RoundTask], began: float) -> Iterator[ClientUpdate | ClientFailure]:
        if not tasks:
            return
        names = sorted(tasks)
        with during("world"):
            plans = {name: self._clients[name].plan(tasks[name]) for name in names}
        self.tracker.record("episodes_planned", clients={name: len(plans[name]) for name in names})
        seconds = tasks[names[0]].seconds
        until = None if seconds is None else began + seconds
        for group in groups(plans, WAVES * self.policy.slots):
            yield from self._work_together({name: tasks[name] for name in group}, plans, until)

    def _work_together(
        self, tasks: Mapping[str, RoundTask], plans: Mapping[str, Sequence[Episode]], until: float | None
    ) -> Iterator[ClientUpdate | ClientFailure]:
        names = list(tasks)
        batches: dict[str, tuple[Adapter, list[Episode]]] = {}
        for name in names:
            with during("adapter"):
                adapter = self._clients[name].adapter(tasks[name])
                digest = adapter.digest()
            batches.setdefault(digest, (adapter, []))[1].extend(plans[name])
        played: dict[str, list[Trajectory]] = {name: [] for name in names}
        try:
            for digest, (adapter, episodes) in batches.items():
                for trajectory in self._play(tasks[names[0]].round, adapter, digest, episodes, until):
                    played[trajectory.client].append(trajectory)
        except TooLate:
            yield from (ClientFailure(name, tasks[name].name, TooLate.__name__) for name in names)
            return
        for together in self._learning_together(names, until):
            if until is not None and time.monotonic() >= until:
                yield from (ClientFailure(name, tasks[name].name, TooLate.__name__) for name in together)
                continue
            yield from self._learn_together({name: tasks[name] for name in together}, played)

    def _learning_together(self, names: Sequence[str], until: float | None) -> Iterator[Sequence[str]]:
        """In groups of even size. Where time may run out, who learned is not kept waiting for others."""
        most = getattr(self._learner, "at_once", 1) if until is None else 1
        number = -(-len(names) // max(1, most))
        for group in range(number):
            yield names[group * len(names) // number : (group + 1) * len(names) // number]

    def _learn_together(
        self, tasks: Mapping[str, RoundTask], played: dict[str, list[Trajectory]]
    ) -> list[ClientUpdate]:
        reviewed = []
        for name, task in tasks.items():
            self.tracker.record("client_learning", client=name, round=task.round)
            # Made anew for each client: nothing one client does to its arrays can reach another.
            with during("adapter"):
                adapter = self._clients[name].adapter(task)
            reviewed.append(self._clients[name].review(task, adapter, played.pop(name)))
        learned = iter(_taught(self._learner, [item.lesson for item in reviewed if item.lesson is not None]))
        return [
            self._clients[name].answer(item, None if item.lesson is None else next(learned))
            for name, item in zip(tasks, reviewed, strict=True)
        ]

    def _play(
        self, round: int, adapter: Adapter, digest: str, episodes: Sequence[Episode], until: float | None
    ) -> list[Trajectory]:
        if not episodes:
            return []
        with during("adapter"):
            self.policy.load(adapter)
        before = replace(self.policy.usage)
        played = self.player.play(episodes, digest, until)
        usage = self.policy.usage
        self.tracker.record(
            "episodes_played",
            round=round,
            episodes=len(played),
            prefilled=usage.prefilled - before.prefilled,
            prefilled_without_cache=usage.prefilled_without_cache - before.prefilled_without_cache,
            decoded=usage.decoded - before.decoded,
            uncounted=usage.uncounted - before.uncounted,
        )
        return played

    def _episode_finished(self, trajectory: Trajectory) -> None:
        self.tracker.record("episode", client=trajectory.client, purpose=trajectory.purpose, outcome=trajectory.outcome)


def _taught(learner: Any, lessons: Sequence[Lesson]) -> Sequence[Learned | None]:
    if not lessons:
        return []
    with during("learning"):
        if len(lessons) == 1:
            return [learner.learn(*lessons[0])]
        together: Sequence[Learned | None] = learner.learn_together(lessons)
        return together


def groups(plans: Mapping[str, Sequence[Episode]], most: int) -> Iterator[list[str]]:
    """Names of clients in their order, as many together as have at most so many episodes; at least one."""
    group: list[str] = []
    planned = 0
    for name, episodes in plans.items():
        if group and planned + len(episodes) > most:
            yield group
            group, planned = [], 0
        group.append(name)
        planned += len(episodes)
    yield group
