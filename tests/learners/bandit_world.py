"""Two levers, of which one pays: what every learning rule has to find out."""

from __future__ import annotations

from typing import Any

from fedse.types import Split, Task
from fedse.worlds.world import Turn, World

RANGES = {"train": range(0, 40), "validation": range(40, 60), "test": range(60, 80)}


class Bandit(World):
    """One turn. The right lever pays at every task, the left at none."""

    name, version, turn_limit = "bandit", 1, 1
    rules = "Pull a lever.\nReply with one line:\nAction: <pull left or pull right>"

    def tasks(self, split: Split) -> list[Task]:
        return [Task(str(number)) for number in RANGES[split]]

    def begin(self, task: str) -> str:
        self.task = task
        return "Two levers."

    def act(self, action: str) -> Turn:
        won = action == "pull right"
        return Turn("Paid." if won else "Nothing.", done=True, success=won, score=float(won))

    def legal_actions(self) -> list[str]:
        return ["pull left", "pull right"]

    def expert(self) -> tuple[str, str]:
        return "The right one pays.", "pull right"

    def trivial(self, draw: float) -> str:
        return "pull left" if draw < 0.5 else "pull right"

    def drawing(self) -> str:
        return self.task

    def state(self) -> Any:
        return self.task

    def set_state(self, state: Any) -> None:
        self.task = state
