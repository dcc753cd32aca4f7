"""A world that is on another machine."""

from __future__ import annotations

from typing import Any

from fedse.errors import BadInput
from fedse.worlds.world import Turn, World

_NOT_HERE = "the worlds of this run are on the machines of its sites, and can be played there only."


class Elsewhere(World):
    """Stands in the copies that others have of an experiment for worlds that only their site knows. Nobody can play it."""

    name = "elsewhere"
    version = 1
    rules = ""
    turn_limit = 0

    def __init__(self, **options: Any) -> None:
        del options
        raise BadInput(_NOT_HERE)

    def begin(self, task: str) -> str:
        del task
        raise BadInput(_NOT_HERE)

    def act(self, action: str) -> Turn:
        del action
        raise BadInput(_NOT_HERE)
