from __future__ import annotations

import multiprocessing
import os
from functools import partial
from typing import Any

import pytest

from fedse.errors import BadInput
from fedse.models.chat import ByteChat
from fedse.rollouts.beside import begin_beside
from fedse.rollouts.stepping import MakeWorld
from fedse.starts import demonstrations
from fedse.starts.by_client import StartsByClient
from fedse.starts.demonstrations import Demonstrations
from fedse.starts.none import NoDemonstrations
from fedse.types import Trajectory
from fedse.worlds.maze import Maze
from fedse.worlds.wordle import Wordle

CHAT = ByteChat()
SHOWN = 50


def shown(worlds: dict[str, MakeWorld], processes: int = 0) -> dict[str, list[Trajectory]]:
    start = Demonstrations(SHOWN)
    begin_beside([item for label, make in worlds.items() for item in start.ahead("c", label, make, 3)], processes)
    return {label: start.trajectories("c", label, make(), CHAT, 3) for label, make in worlds.items()}


@pytest.fixture
def shown_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Labels of the worlds whose experts worked in this process."""
    labels: list[str] = []
    here = demonstrations._shown

    def noted(client: str, label: str, *others: Any) -> Any:
        labels.append(label)
        return here(client, label, *others)

    monkeypatch.setattr(demonstrations, "_shown", noted)
    return labels


@pytest.mark.slow
def test_experts_beside_this_process_show_what_they_would_show_here(shown_here: list[str]) -> None:
    worlds: dict[str, MakeWorld] = {"maze": Maze, "wordle": Wordle, "small": partial(Maze, mode="original")}
    beside = shown(worlds, processes=3)
    assert shown_here == []
    assert beside == shown(worlds)
    assert shown_here == list(worlds)
    assert {label: len(found) for label, found in beside.items()} == {"maze": SHOWN, "wordle": SHOWN, "small": 25}


class Fragile(Maze):
    """Breaks on every third task, in each process at the same."""

    def begin(self, task: str) -> str:
        if sum(task.encode()) % 3 == 0:
            raise SystemExit(f"no {task}")
        return super().begin(task)


class Homebound(Maze):
    """Can be made in the first process only."""

    def __init__(self, **options: Any) -> None:
        if multiprocessing.parent_process() is not None:
            raise ModuleNotFoundError("not here")
        super().__init__(**options)


class Deadly(Maze):
    """Ends every other process."""

    def begin(self, task: str) -> str:
        if multiprocessing.parent_process() is not None:
            os._exit(3)
        return super().begin(task)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "again"),
    [(Fragile, []), (Homebound, ["odd"]), (Deadly, ["odd", "maze"]), (lambda: Maze(), ["odd", "maze"])],
    ids=["breaks on some tasks", "cannot be made", "ends the process", "cannot be pickled"],
)
def test_what_processes_cannot_do_is_done_here(world: MakeWorld, again: list[str], shown_here: list[str]) -> None:
    worlds: dict[str, MakeWorld] = {"odd": world, "maze": Maze}
    beside = shown(worlds, processes=2)
    assert shown_here == again
    assert beside == shown(worlds)


class Hopeless(Maze):
    def expert(self) -> tuple[str, str]:
        raise OSError("no idea")


@pytest.mark.parametrize("processes", [0, 1])
def test_an_expert_who_solves_nothing_is_told_in_the_same_sentence(processes: int) -> None:
    with pytest.raises(
        BadInput,
        match=f"the expert of world 'maze' solved none of {SHOWN} training tasks .the world broke in {SHOWN} of them., so",
    ):
        shown({"maze": Hopeless}, processes)


def test_a_few_demonstrations_are_not_worth_a_process(shown_here: list[str]) -> None:
    start = Demonstrations(SHOWN - 1)
    begin_beside(start.ahead("c", "maze", Maze, 3), 8)
    assert len(start.trajectories("c", "maze", Maze(), CHAT, 3)) == SHOWN - 1
    assert shown_here == ["maze"]


def test_what_is_under_way_is_not_begun_again() -> None:
    start = Demonstrations(SHOWN)
    begin_beside(start.ahead("c", "maze", Maze, 3), 1)
    assert start.ahead("c", "maze", Maze, 3) == []
    assert start.trajectories("c", "maze", Maze(), CHAT, 3) == shown({"maze": Maze})["maze"]
    assert len(start.ahead("c", "maze", Maze, 3)) == 1


def test_clients_with_starts_of_their_own_are_prepared_each_by_its_own(shown_here: list[str]) -> None:
    start = StartsByClient({"many": Demonstrations(SHOWN), "none": NoDemonstrations(), "few": Demonstrations(4)})
    begin_beside([item for client in ("many", "none", "few") for item in start.ahead(client, client, Maze, 3)], 1)
    found = {client: start.trajectories(client, client, Maze(), CHAT, 3) for client in ("many", "none", "few")}
    assert {client: len(trajectories) for client, trajectories in found.items()} == {"many": SHOWN, "none": 0, "few": 4}
    assert shown_here == []
