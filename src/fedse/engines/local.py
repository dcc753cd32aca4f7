"""One process, one shared base model: the episodes of all clients are one batch, then each client learns in turn.

Clients that keep something private have adapters of their own; then there is one batch for each adapter.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import ClassVar

from pydantic import Field

from fedse.errors import TooLate
from fedse.federation.sites import Sites
from fedse.plugins import PluginOptions
from fedse.rollouts.player import Episode, Player
from fedse.types import Adapter, ClientFailure, ClientUpdate, RoundTask, Trajectory


class LocalEngine:
    """Plays the plans of all clients together. Results equal those of clients that play one after another."""

    class Options(PluginOptions):
        operational: ClassVar[frozenset[str]] = frozenset({"processes"})

        processes: int = Field(default=0, ge=0)
        """Worker processes in which worlds take their steps; 0 steps them in this one. The results are the same."""

    def __init__(self, sites: Sites, processes: int = 0) -> None:
        model, self.policy, clients = sites.here()
        self._clients = {client.name: client for client in clients}
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
        plans = {name: self._clients[name].plan(tasks[name]) for name in names}
        self.tracker.record("episodes_planned", clients={name: len(plans[name]) for name in names})
        batches: dict[str, tuple[Adapter, list[Episode]]] = {}
        for name in names:
            adapter = self._clients[name].adapter(tasks[name])
            batches.setdefault(adapter.digest(), (adapter, []))[1].extend(plans[name])
        seconds = tasks[names[0]].seconds
        until = None if seconds is None else began + seconds
        try:
            played = [
                trajectory
                for digest, (adapter, episodes) in batches.items()
                for trajectory in self._play(tasks[names[0]].round, adapter, digest, episodes, until)
            ]
        except TooLate:
            yield from (ClientFailure(name, tasks[name].name, TooLate.__name__) for name in names)
            return
        for name in names:
            task = tasks[name]
            if until is not None and time.monotonic() >= until:
                yield ClientFailure(name, task.name, TooLate.__name__)
                continue
            own = [trajectory for trajectory in played if trajectory.client == name]
            self.tracker.record("client_learning", client=name, round=task.round)
            # Made anew for each client: nothing one client does to its arrays can reach another.
            yield self._clients[name].answer(task, self._clients[name].adapter(task), own)

    def _play(
        self, round: int, adapter: Adapter, digest: str, episodes: Sequence[Episode], until: float | None
    ) -> list[Trajectory]:
        if not episodes:
            return []
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
