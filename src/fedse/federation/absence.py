"""Since when clients are out of reach."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from fedse.protocols import Engine

LOOK = 1.0
"""Least seconds between two looks at who is there."""


@runtime_checkable
class KnowsWhoIsThere(Protocol):
    """An engine some of whose clients may be out of reach; those of any other always can be reached."""

    def present(self) -> Sequence[str]:
        """The clients that can be reached now."""
        ...

    def give_up(self, client: str) -> None:
        """Forget what a client was sent: it is not brought again, and its answer is not waited for."""
        ...


class Absence:
    """Looks at an engine now and then. Clients of an engine that does not know are always there."""

    def __init__(self, engine: Engine, patience: float) -> None:
        self.patience = patience
        self._engine = engine
        self._since: dict[str, float] = {}
        self._there: set[str] = set()
        self._looked = -LOOK

    def there(self) -> set[str]:
        """The clients that can be reached now."""
        now = time.monotonic()
        self._looked = now
        engine = self._engine
        self._there = set(engine.present() if isinstance(engine, KnowsWhoIsThere) else engine.clients)
        self._since = {client: self._since.get(client, now) for client in engine.clients if client not in self._there}
        return self._there

    def lost(self, clients: Iterable[str]) -> set[str]:
        """Those of the clients that have been out of reach for longer than patience lasts."""
        if time.monotonic() - self._looked >= min(LOOK, self.patience):
            self.there()
        now = time.monotonic()
        return {client for client in clients if now - self._since.get(client, now) >= self.patience}

    def give_up(self, client: str) -> None:
        """What was sent to a client is no longer waited for; if it comes back, it must not get it then."""
        if isinstance(self._engine, KnowsWhoIsThere):
            self._engine.give_up(client)
