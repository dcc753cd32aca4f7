"""A federation of many small sites, which learn with a table from one demonstration each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedse.experiments.options import Experiment
from short_maze import SHORT_MAZE


def many_sites(make: Callable[..., Experiment], number: int, **changes: Any) -> Experiment:
    world = {"worlds": [SHORT_MAZE]}
    return make(
        **{
            "clients": {f"site{index:03d}": world for index in range(number)},
            "exploring": False,
            "model": {"name": "table", "rows": 64},
            "start": {"name": "demonstrations", "tasks": 1},
            "evaluation": {"tasks": 1, "test_tasks": 0, "tasks_per_round": 0},
            **changes,
        }
    )
