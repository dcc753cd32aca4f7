"""Parts of a round that a test can hold and break from outside, by files in a folder. Results are those of the originals."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedse.learners.table import TableLearner
from fedse.types import Adapter, Lesson
from fedse.worlds.maze import Maze

SECRET = "patient 4711 has a rare disease"


def hold(what: str) -> None:
    """Wait while the file `what` exists in the folder that the environment names; say so by `what.held`."""
    flag = Path(os.environ["FEDSE_TEST_FLAGS"]) / what
    while flag.exists():
        flag.with_suffix(".held").touch()
        time.sleep(0.02)


class HeldMaze(Maze):
    """The maze, with a secret in its observations."""

    def begin(self, task: str) -> str:
        hold(f"exploring-{os.environ['FEDSE_TEST_SITE']}")
        return f"{SECRET} {super().begin(task)}"


class HeldLearner(TableLearner):
    def learn(self, lesson: Lesson) -> tuple[Adapter, Mapping[str, float]]:
        site = os.environ["FEDSE_TEST_SITE"]
        hold(f"learning-{site}")
        if (Path(os.environ["FEDSE_TEST_FLAGS"]) / f"raise-{site}").exists():
            raise ValueError(SECRET)
        return super().learn(lesson)


class BrokenMaze(Maze):
    def begin(self, task: str) -> str:
        raise RuntimeError(SECRET)


def release(flags: Path, what: str) -> None:
    (flags / what).unlink(missing_ok=True)


def options(**changes: Any) -> dict[str, Any]:
    """An experiment without torch, with parts that can be held."""
    world = {"name": "held_worlds:HeldMaze", "mode": "original"}
    return {
        "name": "held",
        "rounds": 4,
        "model": {"name": "table", "rows": 512},
        "policy": "table",
        "learner": "held_worlds:HeldLearner",
        "clients": {
            "east": {"worlds": [world]},
            "north": {"worlds": [{**world, "turn_limit": 15}]},
            "west": {"worlds": [{**world, "turn_limit": 12}]},
        },
        "start": {"tasks": 3},
        "exploration": {"tasks": 5, "attempts": 2},
        "evaluation": {"tasks": 2, "tasks_per_round": 0, "test_tasks": 2},
        **changes,
    }
