"""Parts of a world's training tasks: disjoint, together all of them, and nothing else of a world is divided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

import fedse
from fedse.errors import BadInput
from fedse.experience.buffer import read_file
from fedse.experience.export import export
from fedse.experience.journal import Journal
from fedse.experiments.building import build_clients
from fedse.experiments.components import build_components
from fedse.experiments.estimate import estimate
from fedse.experiments.options import Experiment
from fedse.models.chat import ByteChat
from fedse.plugins import resolve
from fedse.runs.folder import RunFolder
from fedse.starts.demonstrations import Demonstrations, demonstrate
from fedse.starts.recorded import Recorded
from fedse.types import SPLITS, Purpose, Split
from fedse.worlds.answers import tasks_of
from fedse.worlds.maze import Maze
from fedse.worlds.textcraft import TextCraft
from fedse.worlds.training_part import TrainingPart
from fedse.worlds.wordle import Wordle

Make = Callable[..., Experiment]
MAZE = {"name": "maze", "size": 4, "train_tasks": 60}
HALVES = {
    "north": {"worlds": [MAZE], "training": {"part": 1, "of": 2}},
    "south": {"worlds": [MAZE], "training": {"part": 2, "of": 2}},
}


def part(world: Any, number: int, of: int) -> Any:
    world.training_part = TrainingPart(part=number, of=of)
    return world


def ids(world: Any, split: Split = "train") -> list[str]:
    return [task.id for task in tasks_of(world, split)]


@pytest.mark.parametrize("name", ["maze", "wordle", "textcraft", "babyai", "webshop"])
@pytest.mark.parametrize("of", [2, 5])
def test_parts_have_nothing_in_common_and_are_all_together(name: str, of: int) -> None:
    kind = resolve("world", name)
    whole = kind()
    parts = [part(kind(), number, of) for number in range(1, of + 1)]
    tasks = [ids(world) for world in parts]
    assert sorted(chain(*tasks)) == sorted(ids(whole))
    assert all(own == [task for task in ids(whole) if task in own] for own in tasks), "in the world's own order"
    subjects = [{whole.subject(task) for task in own} for own in tasks]
    assert sum(map(len, subjects)) == len(set.union(*subjects)), "no word, goal or product at two sites"
    for split in SPLITS[1:]:
        assert all(ids(world, split) == ids(whole, split) for world in parts)


def test_every_category_is_divided_about_evenly() -> None:
    in_all = Counter(task.category for task in tasks_of(Maze(train_tasks=3000), "train"))
    for number in (1, 2, 3):
        own = Counter(task.category for task in tasks_of(part(Maze(train_tasks=3000), number, 3), "train"))
        # 1,000 tasks of a category, a third of each: five standard deviations are 75.
        assert all(abs(own[category] - count / 3) < 75 for category, count in in_all.items())


def test_what_a_task_is_about_decides_and_nothing_else() -> None:
    other = Maze(train_tasks=200, mix=0.5, mix_seed=3, rules="brief", directions="compass")
    assert set(ids(part(Maze(train_tasks=400), 1, 2))).isdisjoint(ids(part(other, 2, 2)))
    for world in (Wordle(pool=1), TextCraft(pool=1)):
        about = {world.subject(task) for task in ids(part(world, 1, 2))}
        there = type(world)()
        assert about.isdisjoint(there.subject(task) for task in ids(part(there, 2, 2)))


def test_subjects_are_what_is_played() -> None:
    wordle, textcraft = Wordle(), TextCraft()
    assert [wordle.subject(task) for task in ids(wordle)] == [wordle.game(task).hidden for task in ids(wordle)]
    assert [textcraft.subject(task) for task in ids(textcraft)[:80]] == [
        textcraft.offer(task).goal for task in ids(textcraft)[:80]
    ]


def seen(folder: Path, client: str) -> dict[Purpose, set[tuple[str, str]]]:
    """Worlds and tasks of everything a client remembers or has played, by what it was for."""
    found: dict[Purpose, set[tuple[str, str]]] = {purpose: set() for purpose in Purpose}
    journal = Journal(folder / "clients" / client / "episodes")
    played = [item for name in journal.names() for item in journal.read(name)]
    for item in [*read_file(folder / "clients" / client / "buffer.sqlite"), *played]:
        found[item.purpose].add((item.world, item.task))
    return found


@pytest.mark.slow
def test_a_site_demonstrates_and_explores_its_own_tasks_alone(table_experiment: Make, tmp_path: Path) -> None:
    experiment = table_experiment(clients=HALVES, start={"tasks": 15}, exploration={"tasks": 20})
    folder = fedse.run(experiment, tmp_path).folder
    whole = Maze(**{key: value for key, value in MAZE.items() if key != "name"})  # type: ignore[arg-type]
    tested = []
    for number, client in enumerate(HALVES, 1):
        own = {("maze", task) for task in ids(part(whole, number, 2))}
        found = seen(folder, client)
        assert len(found[Purpose.DEMONSTRATE]) == 15 and found[Purpose.DEMONSTRATE] < own
        assert len(found[Purpose.EXPLORE]) >= 20 and found[Purpose.EXPLORE] <= own
        tested.append(found[Purpose.EVALUATE])
    assert tested[0] == tested[1] != set()


@pytest.mark.slow
def test_the_pooled_client_has_both_parts_as_worlds_of_their_own(table_experiment: Make, tmp_path: Path) -> None:
    changes = {"clients": HALVES, "start": {"tasks": 15}, "exploration": {"tasks": 20}, "rounds": 1}
    together = fedse.run(table_experiment(method="centralized_se", **changes), tmp_path / "pooled").folder
    apart = fedse.run(table_experiment(**changes), tmp_path / "apart").folder
    pooled = seen(together, "pooled")
    for client, label in (("north", "maze"), ("south", "maze#2")):
        alone = seen(apart, client)
        for purpose in Purpose:
            assert {task for world, task in pooled[purpose] if world == label} == {task for _, task in alone[purpose]}


def test_estimates_and_sizes_are_those_of_the_part(table_experiment: Make, tmp_path: Path) -> None:
    experiment = table_experiment(clients=HALVES, start={"tasks": 60})
    parts = build_components(experiment)
    clients = build_clients(experiment, parts, RunFolder(tmp_path))
    sizes = [Demonstrations(60).size(client.name, "maze", client.site.places["maze"].world) for client in clients]
    assert sum(sizes) == 60 and 0 < sizes[0] < 60
    adapter = parts.model.initial_adapter(0)
    assert estimate(clients, parts.model, parts.policy, parts.learner, adapter, 1).episodes > 0


class OthersTasks:
    """Shows the first training tasks of a world, whoever they belong to."""

    def trajectories(self, client: str, label: str, world: Any, chat: Any, seed: int) -> Any:
        return [demonstrate(client, label, world, task, chat) for task in world.tasks("train")[:10]]


class OthersExplored(resolve("curriculum", "uniform")):  # type: ignore[misc]
    def chosen(self, label: str, round: int, past: Any) -> Any:
        return list(self.site.places[label].world.tasks("train"))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"start": OthersTasks}, "not in the part of the training tasks that site 'north' has"),
        ({"curriculum": OthersExplored}, "is not a training task of the world 'maze'"),
    ],
)
def test_plugins_that_take_the_tasks_of_others_are_refused(
    table_experiment: Make, tmp_path: Path, changes: Any, sentence: str
) -> None:
    with pytest.raises(BadInput, match=sentence):
        fedse.run(table_experiment(clients=HALVES, **changes), tmp_path)


def test_of_a_file_a_site_takes_the_records_of_its_part(tmp_path: Path) -> None:
    whole = Maze(train_tasks=60)
    shown = Demonstrations(60).trajectories("elsewhere", "maze", whole, ByteChat(), 0)
    export(shown, tmp_path / "shown.json")
    half = part(Maze(train_tasks=60), 1, 2)
    recorded = Recorded(tmp_path / "shown.json")
    taken = recorded.trajectories("north", "maze", half, ByteChat(), 0)
    assert sorted(item.task for item in taken) == sorted(ids(half))
    assert recorded.size("north", "maze", half) == len(taken) < 60 == recorded.size("north", "maze", whole)
    export([item for item in shown if item.task not in ids(half)], tmp_path / "others.json")
    with pytest.raises(
        BadInput, match=r"none of the \d+ records .* shows a training task of the part that client 'north'"
    ):
        Recorded(tmp_path / "others.json").trajectories("north", "maze", half, ByteChat(), 0)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"part": 3, "of": 2}, "there is no part 3 of 2: choose one from 1 to 2"),
        ({"part": 0, "of": 2}, "training.part: input should be greater than or equal to 1"),
        ({"part": 1, "of": 1}, "training.of: input should be greater than or equal to 2"),
        ({"part": 1}, "training.of: this key is missing"),
        ("half", "clients.maze.training: "),
    ],
)
def test_bad_parts_are_named(tiny_file: Path, given: Any, sentence: str) -> None:
    content = yaml.safe_load(tiny_file.read_text())
    content["clients"]["maze"]["training"] = given
    tiny_file.write_text(yaml.safe_dump(content))
    with pytest.raises(BadInput) as raised:
        fedse.load_experiment(tiny_file)
    assert sentence in str(raised.value), raised.value


def test_a_part_without_a_task_is_refused_before_anything_is_written(table_experiment: Make, tmp_path: Path) -> None:
    clients = {"north": {"worlds": [MAZE], "training": {"part": 1, "of": 10_000}}}
    with pytest.raises(BadInput, match=r"clients.north.training: part 1 of 10000 holds none of the training tasks"):
        fedse.run(table_experiment(clients=clients), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
