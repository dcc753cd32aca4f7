"""A world that is on another machine."""

from __future__ import annotations

from collections.abc import Sequence

from fedse.errors import BadInput
from fedse.types import Split, Task
from fedse.worlds.world import Turn, World


class Elsewhere(World):
    """Stands in the hub's copy of an experiment for worlds that only their site knows."""

    name = "elsewhere"
    version = 1

    def tasks(self, split: Split) -> Sequence[Task]:
        del split
        return []

    def begin(self, task: str) -> str:
        raise BadInput(f"task '{task}' is of a world on another machine: it can be played at its site only.")

    def act(self, action: str) -> Turn:
        raise BadInput(f"the action '{action}' is for a world on another machine.")
