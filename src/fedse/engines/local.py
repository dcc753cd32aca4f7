"""One process, one shared base model: the episodes of all clients are one batch, then each client learns in turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from pydantic import Field

from fedse.adapters.packing import unpack
from fedse.federation.client import Client
from fedse.plugins import PluginOptions
from fedse.protocols import Model, Policy, Tracker
from fedse.rollouts.player import Episode, Player
from fedse.types import ClientUpdate, RoundTask, Trajectory


class LocalEngine:
    """Plays the plans of all clients together. Results equal those of clients that play one after another."""

    class Options(PluginOptions):
        operational: ClassVar[frozenset[str]] = frozenset({"processes"})

        processes: int = Field(default=0, ge=0)
        """Worker processes in which worlds take their steps; 0 steps them in this one. The results are the same."""

    def __init__(
        self, clients: Sequence[Client], model: Model, policy: Policy, tracker: Tracker, processes: int = 0
    ) -> None:
        self._clients = {client.name: client for client in clients}
        self.clients = tuple(sorted(self._clients))
        self.policy = policy
        self.tracker = tracker
        self.player = Player(policy, model.chat, model.context, self._episode_finished, processes)
        self._updates: Iterator[ClientUpdate] = iter(())

    def send(self, tasks: Mapping[str, RoundTask]) -> None:
        self._updates = self._work(dict(tasks))

    def poll(self) -> list[ClientUpdate]:
        return [next(self._updates)]

    def _work(self, tasks: dict[str, RoundTask]) -> Iterator[ClientUpdate]:
        names = sorted(tasks)
        plans = {name: self._clients[name].plan(tasks[name]) for name in names}
        self.tracker.record("episodes_planned", clients={name: len(plans[name]) for name in names})
        if any(not np.array_equal(tasks[name].vector, tasks[names[0]].vector) for name in names):
            raise ValueError("the local engine plays all clients with one adapter; their tasks carry different ones")
        played = self._play(tasks[names[0]], [episode for name in names for episode in plans[name]])
        for name in names:
            task = tasks[name]
            own = [trajectory for trajectory in played if trajectory.client == name]
            self.tracker.record("client_learning", client=name, round=task.round)
            # Unpacked anew for each client: nothing one client does to its arrays can reach another.
            yield self._clients[name].answer(task, unpack(task.vector, task.layout, task.config), own)

    def _play(self, task: RoundTask, episodes: Sequence[Episode]) -> list[Trajectory]:
        if not episodes:
            return []
        adapter = unpack(task.vector, task.layout, task.config)
        self.policy.load(adapter)
        before = replace(self.policy.usage)
        played = self.player.play(episodes, adapter.digest())
        usage = self.policy.usage
        self.tracker.record(
            "episodes_played",
            round=task.round,
            episodes=len(played),
            prefilled=usage.prefilled - before.prefilled,
            prefilled_without_cache=usage.prefilled_without_cache - before.prefilled_without_cache,
            decoded=usage.decoded - before.decoded,
            uncounted=usage.uncounted - before.uncounted,
        )
        return played

    def _episode_finished(self, trajectory: Trajectory) -> None:
        self.tracker.record("episode", client=trajectory.client, purpose=trajectory.purpose, outcome=trajectory.outcome)
