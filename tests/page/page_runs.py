"""A small finished run to look at: two clients, one of which lives in a world that says hostile things."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fedse
from fedse.experiments.options import Experiment
from fedse.worlds.maze import Maze
from fedse.worlds.world import Turn

HOSTILE = (
    "<script>window.pwned = 1</script><img src='https://example.invalid/spy.png' onerror='window.pwned = 1'>"
    "</pre></script><style>body{display:none}</style>[a](javascript:window.pwned=1) "
    "\x1b]0;title\x07\x1b[2J \u202eturned\u2066 &amp; {{7*7}} ${7*7}"
)
SAID = "</pre></script><style>body{display:none}</style>"


class Hostile(Maze):
    """A maze that lies in wait for whoever reads it."""

    def begin(self, task: str) -> str:
        return f"{super().begin(task)}\n{HOSTILE}"

    def drawing(self) -> str:
        return f"{super().drawing()}\n\x1b[31mred\x1b[0m {HOSTILE}"


class Broken(Maze):
    def act(self, action: str) -> Turn:
        raise RuntimeError("It fell apart.")


CONTENT: dict[str, Any] = {
    "name": "small",
    "rounds": 2,
    "model": {"name": "table", "rows": 512},
    "policy": "table",
    "learner": "table",
    "clients": {
        "east": {"worlds": [{"name": "maze", "mode": "original"}]},
        "west": {"worlds": [{"name": Hostile, "mode": "original"}]},
    },
    "start": {"name": "demonstrations", "tasks": 3},
    "exploration": {"tasks": 10, "attempts": 2},
    "evaluation": {"tasks": 6, "test_tasks": 5, "after_learning": 3},
}


def make_run(folder: Path, **changes: Any) -> Path:
    return fedse.run(Experiment(**{**CONTENT, **changes}), folder).folder
