"""Two levers, of which one pays: what every learning rule has to find out."""

from __future__ import annotations

import json
from pathlib import Path
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


def bandit(rule: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": rule,
        "rounds": 3,
        "model": {"name": "tiny", "width": 32, "layers": 2, "device": "cpu", "threads": 1},
        "clients": {"one": {"worlds": ["bandit_world:Bandit"]}},
        "start": "none",
        "exploration": {"tasks": 12, "attempts": 4},
        "evaluation": {"tasks": 1, "tasks_per_round": 0, "test_tasks": 0},
        "learner": {"name": rule, "learning_rate": 5e-3, "epochs": 2, "batch_size": 8},
        "policy": {"slots": 48, "reply_tokens": 24, "legal_actions": True},
        **changes,
    }


def explored(folder: Path) -> list[float]:
    """Share of successes among what each round explored."""
    reports = [json.loads(path.read_text()) for path in sorted(folder.glob("rounds/*/report.json"))]
    counts = [report["clients"]["one"]["counts"] for report in reports if report.get("clients")]
    return [count["successes"] / count["explored"] for count in counts]
