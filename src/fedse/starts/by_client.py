"""One start for all clients where some begin with something of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedse.events import Warned
from fedse.protocols import CanBeChecked, Chat, DependsOnFiles, KnowsItsSize, Model, Start, StartsAhead
from fedse.types import Ahead, Trajectory


class StartsByClient:
    """Asks the start of the client that a world was written under; what a start cannot tell, this cannot either."""

    def __init__(self, starts: Mapping[str, Start]) -> None:
        self._starts = starts

    def trajectories(self, client: str, label: str, world: Any, chat: Chat, seed: int) -> list[Trajectory]:
        return self._starts[client].trajectories(client, label, world, chat, seed)

    def size(self, client: str, label: str, world: Any) -> int:
        start = self._starts[client]
        return start.size(client, label, world) if isinstance(start, KnowsItsSize) else 0

    def ahead(self, client: str, label: str, make_world: Callable[[], Any], seed: int) -> Sequence[Ahead]:
        start = self._starts[client]
        return start.ahead(client, label, make_world, seed) if isinstance(start, StartsAhead) else ()

    def check(self, client: str, label: str, world: Any, model: Model) -> list[Warned]:
        start = self._starts[client]
        return start.check(client, label, world, model) if isinstance(start, CanBeChecked) else []

    def fingerprint(self) -> str:
        files = {start.fingerprint() for start in self._starts.values() if isinstance(start, DependsOnFiles)}
        return " ".join(sorted(files))
