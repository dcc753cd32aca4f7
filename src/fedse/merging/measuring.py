"""What merged adapters are worth at the clients of a run. Nothing of it is stored in the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedse.adapters.packing import pack
from fedse.clients.client import Client
from fedse.evaluation.metrics import summarise
from fedse.federation.playing import play_at
from fedse.merging.sources import Source
from fedse.probes.evaluation import Evaluation, evaluation_of
from fedse.protocols import Engine
from fedse.types import Adapter, RoundTask, Split, WorldScore


class Measuring:
    """`tasks`: validation tasks of each world; None: as many as the experiment says. Equal adapters are played once."""

    def __init__(self, engine: Engine, clients: Sequence[Client], round: int, tasks: int | None = None) -> None:
        self._engine = engine
        self._round = round
        self._evaluations: dict[str, Evaluation] = {}
        for client in sorted(clients, key=lambda client: client.name):
            options = evaluation_of(client.probes).options
            options = options if tasks is None else options.model_copy(update={"tasks": tasks})
            self._evaluations[client.name] = Evaluation(client.site, options)
        self._known: dict[tuple[str, Split], Mapping[str, Any]] = {}

    def everywhere(self, adapter: Adapter, split: Split = "validation") -> Mapping[str, Any]:
        """An adapter at all clients."""
        key = adapter.digest(), split
        if key not in self._known:
            self._known[key] = summarise(self._scores(adapter, self._evaluations, split))
        return self._known[key]

    def at(self, client: str, adapter: Adapter, split: Split = "validation") -> Mapping[str, Any]:
        """An adapter at one client."""
        return summarise(self._scores(adapter, {client: self._evaluations[client]}, split))

    def at_home(self, sources: Sequence[Source]) -> Mapping[str, Any] | None:
        """Each client's own adapter at that client alone; None where no source is a client's own."""
        own = [source for source in sources if source.client in self._evaluations]
        found: list[tuple[str, WorldScore]] = []
        for source in own:
            found += self._scores(source.adapter, {source.client: self._evaluations[source.client]}, "validation")
        return summarise(found) if own else None

    def _scores(
        self, adapter: Adapter, evaluations: Mapping[str, Evaluation], split: Split
    ) -> list[tuple[str, WorldScore]]:
        task = RoundTask(self._round, "evaluate", pack(adapter), adapter.layout, adapter.config, split)
        played = play_at(self._engine, evaluations, adapter, task)
        return [(client, score) for client in evaluations for score in played[client].scores]
