"""Curricula in whole runs of a table that learns a maze: what is explored, again after a stop, and in every engine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedse
from fedse.experience.buffer import Buffer, BufferOptions
from fedse.experiments.options import Experiment
from fedse.models.chat import ByteChat
from fedse.types import Attempt
from short_maze import SHORT_MAZE

Make = Callable[..., Experiment]
CURRICULA: list[Any] = [{"name": "by_signal", "per": "category"}, "by_signal", "sec", "federated_sec", "hints"]


def explored(run: Path, client: str = "east") -> list[Attempt]:
    buffer = Buffer(run / f"clients/{client}/buffer.sqlite", client, ByteChat().fingerprint, BufferOptions())
    try:
        return list(buffer.attempts(before=1000))
    finally:
        buffer.close()


@pytest.mark.slow
@pytest.mark.parametrize("curriculum", CURRICULA, ids=str)
def test_a_run_that_stopped_after_a_round_goes_on_as_if_it_had_not(
    curriculum: Any, table_experiment: Make, tmp_path: Path
) -> None:
    whole = fedse.run(table_experiment(curriculum=curriculum, rounds=4), tmp_path / "whole")
    for rounds in (1, 2, 4):
        halting = fedse.run(table_experiment(curriculum=curriculum, rounds=rounds), tmp_path / "halting")
    assert halting.adapter.digest() == whole.adapter.digest()
    assert explored(halting.folder) == explored(whole.folder)
    assert Counter(item.round for item in explored(whole.folder)) == dict.fromkeys((1, 2, 3, 4), 20)


@pytest.mark.slow
@pytest.mark.parametrize(
    "curriculum",
    [
        {"name": "sec", "temperature": 0.2},
        pytest.param({"name": "by_signal", "share": 1.0}, marks=pytest.mark.torture),
    ],
    ids=str,
)
def test_exploration_moves_on_from_what_is_mastered(curriculum: Any, table_experiment: Make, tmp_path: Path) -> None:
    """Of the 25 starts in the maze, 5 are near the goal, 8 at medium range and 12 far. Without demonstrations a table solves
    the near ones first, then those at medium range now and then. Single runs differ: `by_signal` returns to the far ones
    once its last attempts at them are five rounds old."""
    early: Counter[str] = Counter()
    late: Counter[str] = Counter()
    for seed in (0, 1, 2):
        experiment = table_experiment(
            curriculum=curriculum,
            seed=seed,
            rounds=10,
            clients={"east": {"worlds": [SHORT_MAZE]}},
            start="none",
            exploration={"tasks": 6, "attempts": 6},
        )
        attempts = explored(fedse.run(experiment, tmp_path / str(seed)).folder)
        early.update(item.category for item in attempts if item.round <= 4)
        late.update(item.category for item in attempts if item.round >= 8)
    assert late["short"] / late.total() < early["short"] / early.total() / 2
    assert late["medium"] / late.total() > 0.5, "drawn uniformly it is 8 of 25"


def test_sums_of_categories_are_in_the_ledger_and_stay_at_home_where_nothing_is_shared(
    table_experiment: Make, tmp_path: Path
) -> None:
    shared = fedse.run(table_experiment(curriculum="federated_sec"), tmp_path / "shared")
    lines = [json.loads(line) for line in (shared.folder / "clients/east/ledger.jsonl").read_text().splitlines()]
    sums = [(line["task"], line["field"], line["bytes"]) for line in lines if line["field"].startswith("shared/")]
    assert sums == [
        (f"train-{round:04d}", f"shared/categories/{name}", 4096)
        for round in (1, 2)
        for name in ("advantages", "tries")
    ]
    alone = fedse.run(table_experiment(curriculum="federated_sec", method="local", rounds=3), tmp_path / "alone")
    assert "shared/" not in (alone.folder / "clients/east/ledger.jsonl").read_text()


@pytest.mark.torture
@pytest.mark.usefixtures("ray_is_not_nice")
@pytest.mark.parametrize("curriculum", ["federated_sec", "by_signal", "hints"])
def test_flower_explores_the_same(curriculum: str, table_experiment: Make, tmp_path: Path) -> None:
    here = fedse.run(table_experiment(curriculum=curriculum, rounds=3), tmp_path / "here")
    there = fedse.run(table_experiment(curriculum=curriculum, rounds=3, engine="flower"), tmp_path / "there")
    assert explored(here.folder, "west") == explored(there.folder, "west")
    assert here.adapter.digest() == there.adapter.digest()
