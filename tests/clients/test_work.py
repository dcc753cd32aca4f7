"""A client's round as a generator: it asks, it is answered, and nothing is remembered before its lesson is granted."""

from __future__ import annotations

import gc
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fedse
from assembled import assembled
from clock import Clock
from fedse.adapters.packing import pack
from fedse.clients.requests import Teach
from fedse.clients.site import Site
from fedse.curricula.uniform import Uniform
from fedse.engines import local
from fedse.errors import BadInput, BufferUnusable
from fedse.events import EpisodesPlayed, Event
from fedse.experience.buffer import Buffer, read_file
from fedse.experience.journal import Journal
from fedse.experiments.assembling import Federation
from fedse.experiments.options import Experiment
from fedse.judges.world import WorldJudge
from fedse.protocols import Past
from fedse.types import (
    Adapter,
    Attempt,
    ClientFailure,
    ClientUpdate,
    Episode,
    Outcome,
    Planned,
    Play,
    Played,
    Purpose,
    RoundTask,
    Task,
    Trajectory,
)
from older_run import as_of_an_older_fedse
from short_maze import SHORT_MAZE

Make = Callable[..., Experiment]
MAZE = {"worlds": [SHORT_MAZE]}


def first_task(federation: Federation, seconds: float | None = None, number: int = 1) -> RoundTask:
    adapter = federation.initial_adapter()
    return RoundTask(number, "train", pack(adapter), adapter.layout, adapter.config, seconds=seconds)


def test_a_client_asks_to_play_then_to_learn_and_answers(table_experiment: Make, tmp_path: Path) -> None:
    federation = assembled(table_experiment(), tmp_path / "run")
    client, engine = federation.clients[0], federation.engine
    assert isinstance(engine, local.LocalEngine)
    work = client.work(first_task(federation))
    asked = next(work)
    assert isinstance(asked, Play)
    wanted = work.send(engine.play(asked.adapter, asked.episodes))
    assert isinstance(wanted, Teach)
    assert read_file(client.experience.buffer.path) == [] and not client.experience.journal.names()
    lesson = wanted.lesson()
    assert lesson is not None and len(read_file(client.experience.buffer.path)) >= len(lesson.trajectories)
    with pytest.raises(StopIteration) as finished:
        work.send(engine.teach([lesson], 1)[0])
    assert isinstance(finished.value.value, ClientUpdate) and finished.value.value.vector is not None


def test_a_deadline_after_the_second_of_five_lessons_leaves_the_others_as_they_were(
    table_experiment: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = assembled(table_experiment(clients=dict.fromkeys("abcde", MAZE)), tmp_path / "run")
    engine, clock = federation.engine, Clock(time.monotonic())
    assert isinstance(engine, local.LocalEngine)
    monkeypatch.setattr(local, "time", clock)
    learn, lessons = engine.learner.learn, []

    def slowly(*lesson: Any) -> Any:
        lessons.append(lesson)
        clock.sleep(10)
        return learn(*lesson)

    monkeypatch.setattr(engine.learner, "learn", slowly)
    engine.send(dict.fromkeys("abcde", first_task(federation, seconds=15.0)))
    answers = [engine.poll()[0] for _ in "abcde"]
    assert len(lessons) == 2
    assert [type(answer) for answer in answers] == [ClientUpdate] * 2 + [ClientFailure] * 3
    for client in federation.clients:
        rounds = {item.round for item in read_file(client.experience.buffer.path)}
        attempts = client.experience.past(2).attempts()
        if client.name in "ab":
            assert rounds == {0, 1} and len(attempts) == 20 and client.experience.journal.names() == ["0001"]
        else:
            # Not even what the buffer begins with: the client has not lived through this round.
            assert rounds == set() and attempts == [] and client.experience.journal.names() == []
    # The next round finds all of them ready.
    engine.send(dict.fromkeys("abcde", first_task(federation, number=2)))
    assert all(isinstance(engine.poll()[0], ClientUpdate) for _ in "abcde")


class Held:
    """Counts adapters in memory while everybody plays."""

    def __init__(self) -> None:
        self.adapters: set[int] = set()

    def record(self, event: Event) -> None:
        if isinstance(event, EpisodesPlayed):
            gc.collect()
            self.adapters.add(sum(isinstance(item, Adapter) for item in gc.get_objects()))


@pytest.mark.slow
@pytest.mark.usefixtures("only_new_objects")
def test_adapters_in_memory_do_not_grow_with_the_number_of_clients(table_experiment: Make, tmp_path: Path) -> None:
    most = []
    for count in (2, 40):
        held = Held()
        clients = {f"c{number:02d}": MAZE for number in range(count)}
        experiment = table_experiment(name=f"of{count}", clients=clients, exploration={"tasks": 1})
        fedse.run(experiment, tmp_path, trackers=[held])
        most.append(max(held.adapters))
    assert most[0] == most[1]


def test_every_attempt_is_noted_without_words_or_tokens(table_experiment: Make, tmp_path: Path) -> None:
    result = fedse.run(table_experiment(), tmp_path)
    folder = result.folder / "clients/east"
    explored = [
        item
        for name in ("0001", "0002")
        for item in Journal(folder / "episodes").read(name)
        if item.purpose is Purpose.EXPLORE
    ]
    buffer = Buffer(folder / "buffer.sqlite", "east", _fingerprint(folder))
    noted = buffer.past(3).attempts("maze")
    assert len(noted) == len(explored) == 40
    assert {(item.round, item.task, item.attempt, item.outcome, item.score) for item in noted} == {
        (item.round, item.task, item.attempt, item.outcome, item.score) for item in explored
    }
    assert {item.outcome for item in noted} == {Outcome.SUCCESS, Outcome.FAILURE}, "failures too"
    assert {item.round for item in buffer.past(2).attempts()} == {1}, "a round sees earlier ones only"
    assert buffer.past(1).attempts() == [] and buffer.past(3).attempts("elsewhere") == []


def _fingerprint(folder: Path) -> str:
    connection = sqlite3.connect(folder / "buffer.sqlite")
    try:
        return str(connection.execute("SELECT value FROM facts WHERE name = 'fingerprint'").fetchone()[0])
    finally:
        connection.close()


def test_a_run_of_an_older_fedse_goes_on_and_says_what_it_cannot(table_experiment: Make, tmp_path: Path) -> None:
    experiment = table_experiment(rounds=1)
    folder = fedse.run(experiment, tmp_path).folder
    for file in folder.glob("clients/*/buffer.sqlite"):
        connection = sqlite3.connect(file)
        connection.executescript("DROP TABLE attempts; PRAGMA user_version=2;")
        connection.close()
    as_of_an_older_fedse(folder)
    uninterrupted = fedse.run(table_experiment(), tmp_path / "new")
    assert fedse.run(table_experiment(rounds=2), tmp_path).adapter.digest() == uninterrupted.adapter.digest()
    buffer = Buffer(folder / "clients/east/buffer.sqlite", "east", _fingerprint(folder / "clients/east"))
    with pytest.raises(BufferUnusable, match=r"an older fedse, which kept no attempts: .* Begin a new run"):
        buffer.past(3).attempts()


class Stubborn(Uniform):
    """Explores first what it failed at most often."""

    def chosen(self, label: str, round: int, past: Past) -> list[Task]:
        failed = [item.task for item in past.attempts(label) if item.outcome is Outcome.FAILURE]
        return sorted(super().chosen(label, round, past), key=lambda task: -failed.count(task.id))


class Warming(Uniform):
    """Plays one task greedily before it plans, and then explores nothing else."""

    def plan(self, task: RoundTask, past: Past) -> Planned:
        (label,) = self.site.places
        first = self.chosen(label, task.round, past)[0]
        adapter = Adapter({"table": 0 * _table(task)}, task.config)
        played = yield Play(adapter, [self.site.episode(label, first, Purpose.EXPLORE, task.round, attempt=7)])
        assert [item.task for item in played] == [first.id] and played[0].adapter == adapter.digest()
        return [self.site.episode(label, Task(played[0].task), Purpose.EXPLORE, task.round, 0, 1.0)]


def _table(task: RoundTask) -> Any:
    ((_, shape),) = task.layout
    return task.vector.reshape(shape)


class Shortness(WorldJudge):
    def rewards(self, trajectory: Trajectory) -> dict[str, float]:
        return {"short": 1.0 / len(trajectory.steps)}


class TwoOpinions(WorldJudge):
    """Has the same task played once more, and asks whether that ends alike."""

    def judge(self, trajectories: Sequence[Trajectory], entering: Callable[[], Adapter]) -> Played:
        (label,) = self.site.places
        again = [self.site.episode(label, Task(item.task), Purpose.EXPLORE, item.round, 99) for item in trajectories]
        played = yield Play(entering(), again)
        return [
            replace(item, rewards={"alike": float(item.outcome is other.outcome)})
            for item, other in zip(trajectories, played, strict=True)
        ]


class Forgetful(WorldJudge):
    def judge(self, trajectories: Sequence[Trajectory], entering: Callable[[], Adapter]) -> Played:
        judged = yield from super().judge(trajectories, entering)
        return judged[1:]


@pytest.mark.parametrize(
    "slot",
    [
        pytest.param({"curriculum": "Stubborn"}, marks=pytest.mark.slow),
        {"curriculum": "Warming"},
        pytest.param({"judge": "TwoOpinions"}, marks=pytest.mark.slow),
    ],
)
def test_plug_ins_that_look_back_or_ask_for_episodes_resume_bit_for_bit(
    slot: dict[str, str], table_experiment: Make, tmp_path: Path
) -> None:
    chosen = {key: f"{__name__}:{name}" for key, name in slot.items()}
    whole = fedse.run(table_experiment(rounds=4, **chosen), tmp_path / "whole")
    for rounds in (1, 2, 4):
        halting = fedse.run(table_experiment(rounds=rounds, **chosen), tmp_path / "halting")
    assert halting.adapter.digest() == whole.adapter.digest()
    plain = fedse.run(table_experiment(rounds=4), tmp_path / "plain")
    same = plain.adapter.digest() == whole.adapter.digest()
    assert same == ("judge" in slot), "a judge changes what is noted, a curriculum what is explored"


@pytest.mark.slow
def test_rewards_are_kept_by_name_beside_the_worlds_own_score(table_experiment: Make, tmp_path: Path) -> None:
    result = fedse.run(table_experiment(judge=f"{__name__}:Shortness"), tmp_path)
    kept = [item for item in read_file(result.folder / "clients/west/buffer.sqlite") if item.round == 2]
    assert kept and all(item.rewards == {"short": 1 / len(item.steps)} for item in kept)
    assert all(item.reward == item.rewards["short"] != item.score for item in kept)
    plain = fedse.run(table_experiment(), tmp_path / "plain")
    found = [item for item in read_file(plain.folder / "clients/west/buffer.sqlite") if item.round == 2]
    assert [(item.task, item.rewards) for item in found] == [(item.task, {"world": item.score}) for item in found]
    assert [item.steps[-1].reward for item in found] == [item.score for item in found]


def test_a_judge_that_drops_something_is_named(table_experiment: Make, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="judge: it has to return every trajectory"):
        fedse.run(table_experiment(judge=f"{__name__}:Forgetful"), tmp_path)


class Flattering(WorldJudge):
    """Calls everything a success."""

    def judge(self, trajectories: Sequence[Trajectory], entering: Callable[[], Adapter]) -> Played:
        yield from ()
        return [replace(item, outcome=Outcome.SUCCESS, score=1.0, rewards={"mine": 1}) for item in trajectories]


def test_a_judge_gives_rewards_and_changes_nothing_else(table_experiment: Make, tmp_path: Path) -> None:
    flattered = fedse.run(table_experiment(judge=f"{__name__}:Flattering"), tmp_path / "flattered")
    plain = fedse.run(table_experiment(), tmp_path / "plain")
    assert flattered.adapter.digest() == plain.adapter.digest()
    noted = [item for item in read_file(flattered.folder / "clients/east/buffer.sqlite") if item.round > 0]
    assert noted and {item.reward for item in noted} == {1.0}


class Cheating(Uniform):
    def plan(self, task: RoundTask, past: Past) -> Planned:
        planned = yield from super().plan(task, past)
        return self.spoiled(planned)

    def spoiled(self, planned: list[Episode]) -> list[Episode]:
        return [replace(planned[0], task=Task("no such task"))]


class Twice(Cheating):
    def spoiled(self, planned: list[Episode]) -> list[Episode]:
        return [planned[0], planned[0]]


class Elsewhere(Cheating):
    def spoiled(self, planned: list[Episode]) -> list[Episode]:
        return [replace(planned[0], client="west")]


class Evaluating(Cheating):
    def spoiled(self, planned: list[Episode]) -> list[Episode]:
        return [replace(planned[0], purpose=Purpose.EVALUATE)]


class NoGenerator(Uniform):
    def plan(self, task: RoundTask, past: Past) -> Any:
        return []


@pytest.mark.parametrize(
    ("curriculum", "said"),
    [
        ("Cheating", "'no such task' is not a training task of the world 'maze'"),
        ("Twice", r"it planned attempt 0 at task '\d+' of 'maze' twice"),
        ("Elsewhere", "not an exploration of site 'east' in round 1"),
        ("Evaluating", "not an exploration of site 'east' in round 1"),
        ("NoGenerator", "NoGenerator: it has to be a generator"),
    ],
)
def test_what_a_curriculum_may_not_plan_is_one_sentence_and_nothing_is_kept(
    curriculum: str, said: str, table_experiment: Make, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=said):
        fedse.run(table_experiment(curriculum=f"{__name__}:{curriculum}"), tmp_path)
    assert read_file(tmp_path / "table/clients/east/buffer.sqlite") == []


class Remembering(Uniform):
    """Counts its rounds in a notebook."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.notebook = site.notebook("curriculum")

    def chosen(self, label: str, round: int, past: Past) -> list[Task]:
        seen = self.notebook.before(round).values.get("seen", [])
        self.notebook.keep(round, values={"seen": [*seen, round]})
        return super().chosen(label, round, past)[len(seen) :]


@pytest.mark.slow
def test_a_notebook_is_part_of_what_is_resumed(table_experiment: Make, tmp_path: Path) -> None:
    chosen = {"curriculum": f"{__name__}:Remembering"}
    whole = fedse.run(table_experiment(rounds=3, **chosen), tmp_path / "whole")
    for rounds in (1, 3):
        halting = fedse.run(table_experiment(rounds=rounds, **chosen), tmp_path / "halting")
    assert halting.adapter.digest() == whole.adapter.digest()
    notes = sorted((whole.folder / "clients/east/state/curriculum").iterdir())
    assert [path.name for path in notes] == [f"{number:04d}.safetensors" for number in (1, 2, 3)]


def episodes_of(events: Path) -> Iterator[int]:
    for line in events.read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "episodes_played":
            yield event["episodes"]


def test_clients_that_ask_again_are_still_played_together(table_experiment: Make, tmp_path: Path) -> None:
    result = fedse.run(table_experiment(judge=f"{__name__}:TwoOpinions", rounds=1), tmp_path)
    # Both clients: 5 validation and 20 explored each, then the 40 opinions, then both evaluations.
    assert list(episodes_of(result.folder / "events.jsonl")) == [50, 40, 10, 10]


def test_names_inside_seeds_are_what_they_always_were(table_experiment: Make, tmp_path: Path) -> None:
    """A renamed purpose, label or word would change every draw of every run."""
    assert [str(purpose) for purpose in Purpose] == ["explore", "evaluate", "demonstrate", "relabel"]
    federation = assembled(table_experiment(), tmp_path / "run")
    site = federation.clients[0].site
    episode = site.episode("maze", Task("17"), Purpose.EXPLORE, 3, 1, 1.0)
    assert episode.sampling.key == 14253916759144935200
    plan = next(federation.clients[0].work(first_task(federation)))
    assert isinstance(plan, Play)
    assert [item.task.id for item in plan.episodes[:9]] == ["1", "0", "18", "24", "16", "10", "10", "2", "2"]
    experience = federation.clients[0].experience
    experience.begin()
    lesson = experience.lesson(1, federation.initial_adapter())
    assert lesson is not None and lesson.key == 1601391824468655111
    assert [item.task for item in lesson.trajectories] == ["23", "14", "12"]


def test_attempts_are_plain_values() -> None:
    assert Attempt._fields == ("round", "world", "task", "category", "attempt", "outcome", "score", "reward", "steps")
