"""Corrections: what a player records when the replies of a failure, then those of a success, are given; and whole runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from rescued_by import rescued_by

import fedse
from fedse.clients.guards import checked_rescue
from fedse.clients.site import ExplorationOptions, Origin, Place, Site
from fedse.errors import BadInput
from fedse.experience.buffer import read_file
from fedse.experience.journal import Journal
from fedse.experiments.options import Experiment
from fedse.models.chat import ByteChat
from fedse.page.catalogue import Catalogue
from fedse.plugins import resolve
from fedse.policies.scripted import ScriptedPolicy
from fedse.protocols import Reply
from fedse.rescues.correct import Correct
from fedse.rollouts.player import Player
from fedse.runs.reading import RunView
from fedse.types import Outcome, Purpose, Sampling, Task, Trajectory
from fedse.worlds.maze import Maze
from fedse.worlds.world import Turn

Make = Callable[..., Experiment]
CHAT = ByteChat()


class Wanderer(ScriptedPolicy):
    """Plays a world's thoughtless actions, with thoughts that no other attempt has; the first turns of all are alike."""

    def __init__(self, made: Callable[[], Any], task: str, same: int) -> None:
        super().__init__(CHAT)
        self.world, self.same = made(), same
        self.world.reset(options={"task": task})

    def answer(self, turn: str, draw: float, temperature: float) -> str:
        self.same -= 1
        action = self.world.trivial(0.0 if self.same >= 0 else draw)
        self.world.step(action)
        return f"Thought: {draw:.9f}\nAction: {action}"


class Repeating(ScriptedPolicy):
    def __init__(self, replies: Sequence[tuple[int, ...]]) -> None:
        super().__init__(CHAT, lambda turn, draw: "")
        self.replies = list(replies)

    def ready(self) -> list[Reply]:
        return [replace(reply, ids=self.replies.pop(0)) for reply in super().ready()]


class Flaky(Maze):
    """Breaks in some of all attempts at a task, and in the same ones whoever asks."""

    def begin(self, task: str) -> str:
        self.done = task
        return super().begin(task)

    def act(self, action: str) -> Turn:
        self.done += action
        if crc32(self.done.encode()) % 60 == 0:
            raise RuntimeError("The connection was lost.")
        return super().act(action)


def site(context: int = 1 << 30) -> Site:
    place = Place("maze", resolve("world", "maze"), Origin("c", "maze"))
    return Site("c", {"maze": place}, CHAT, 0, Path("nowhere"), ExplorationOptions(attempts=8), context=context)


def attempts(here: Site, tasks: int, each: int) -> list[Trajectory]:
    found, place = [], here.places["maze"]
    for task in place.tasks("train")[:tasks]:
        for number in range(each):
            episode = here.episode("maze", task, Purpose.EXPLORE, 1, number, 1.0)
            policy = Wanderer(place.make, task.id, same=2)
            found += Player(policy, CHAT, 100_000).play([replace(episode, sampling=Sampling(number, 1.0))], "digest")
    return found


def corrected(here: Site, given: Sequence[Trajectory]) -> list[Trajectory]:
    return rescued_by(Correct(here), given)


def said(item: Trajectory) -> list[tuple[int, ...]]:
    return [tuple(CHAT.reply(step.reply)) for step in item.steps]


def test_a_correction_is_a_success_that_a_player_records_and_of_which_one_reply_is_learned() -> None:
    here = site()
    given = attempts(here, 6, 8)
    made = corrected(here, given)
    assert checked_rescue(here, given, made) == made
    solved = {item.task for item in given if item.outcome is Outcome.SUCCESS}
    failures = [item for item in given if item.outcome is Outcome.FAILURE and item.task in solved]
    assert len(made) == len(failures) > 5
    for failure, item in zip(failures, made, strict=True):
        (at,) = [number for number, step in enumerate(item.steps) if step.learned]
        others = [other for other in given if other.task == item.task and other.outcome is Outcome.SUCCESS]
        (success,) = [other for other in others if other.steps[at].reply == item.steps[at].reply]
        assert at >= 2, "all attempts begin alike"
        assert said(item) == [*said(failure)[:at], *said(success)[at:]]
        assert failure.steps[at].action != success.steps[at].action
        assert [step.action for step in failure.steps[:at]] == [step.action for step in success.steps[:at]]
        for other in others:
            apart = next(n for n, step in enumerate(failure.steps) if step.action != other.steps[n].action)
            assert apart <= at, "of several successes, that which the failure kept to longest"
        episode = here.episode("maze", Task(item.task, item.category), Purpose.EXPLORE, 1)
        (again,) = Player(Repeating(said(item)), CHAT, 100_000).play([episode], "digest")
        assert (again.token_ids, again.outcome, again.closing) == (item.token_ids, Outcome.SUCCESS, item.closing)
        runs = [(mark, len(list(run))) for mark, run in groupby(item.train_mask)]
        assert [length for mark, length in runs if mark] == [len(said(item)[at])]
        start = item.train_mask.index(True)
        assert item.token_ids[start : start + len(said(item)[at])] == said(item)[at]


def test_an_invalid_action_of_a_success_is_no_correction() -> None:
    here = site()
    for item in corrected(here, given := attempts(here, tasks=4, each=8)):
        (at,) = [number for number, step in enumerate(item.steps) if step.learned]
        spoilt = [
            replace(
                one, steps=tuple(replace(step, valid=False) if n == at else step for n, step in enumerate(one.steps))
            )
            for one in given
            if (one.world, one.task) == (item.world, item.task)
        ]
        assert all(not made.steps[at].learned for made in corrected(here, spoilt) if len(made.steps) > at)


def test_nothing_is_corrected_without_a_success_nor_beyond_the_context() -> None:
    here = site()
    given = attempts(here, 3, 8)
    made = corrected(here, given)
    assert made
    assert corrected(here, [item for item in given if item.outcome is Outcome.FAILURE]) == []
    assert corrected(here, [replace(item, world=str(number)) for number, item in enumerate(given)]) == []
    longest = max(len(item.token_ids) for item in made)
    assert len(corrected(site(longest - 1), given)) < len(made)


def keys(**changes: Any) -> dict[str, Any]:
    maze = {"name": "maze", "size": 4, "train_tasks": 30, "observation_length": "brief", "rules": "bare"}
    return {
        "clients": {"east": {"worlds": [maze]}},
        "exploration": {"tasks": 6, "attempts": 6},
        "start": "none",
        "rescue": "correct",
        "rounds": 2,
        **changes,
    }


@pytest.mark.slow
def test_a_run_learns_corrections_and_is_the_same_after_a_stop(table_experiment: Make, tmp_path: Path) -> None:
    whole = fedse.run(table_experiment(**keys()), tmp_path / "whole")
    for rounds in (1, 2):
        halting = fedse.run(table_experiment(**keys(rounds=rounds)), tmp_path / "halting")
    assert halting.adapter.digest() == whole.adapter.digest()
    plain = fedse.run(table_experiment(**keys(rescue="none")), tmp_path / "plain")
    assert plain.adapter.digest() != whole.adapter.digest()
    counts = json.loads((whole.folder / "rounds/0001/report.json").read_text())["clients"]["east"]["counts"]
    kept = read_file(whole.folder / "clients/east/buffer.sqlite")
    made = [item for item in kept if item.purpose is Purpose.RELABEL and item.round == 1]
    assert counts["rescued"] >= len(made) > 0
    assert all(sum(step.learned for step in item.steps) == 1 for item in made)


def test_a_world_that_breaks_in_the_last_attempt_at_a_task_ends_no_run(table_experiment: Make, tmp_path: Path) -> None:
    flaky = {"name": f"{__name__}:Flaky", "size": 4, "train_tasks": 30, "observation_length": "brief", "rules": "bare"}
    changed = keys(clients={"east": {"worlds": [flaky]}}, limits={"max_error_share": 0.5}, rounds=3)
    run = fedse.run(table_experiment(**changed), tmp_path).folder
    logged = [item for n in (1, 2, 3) for item in Journal(run / "clients/east/episodes").read(f"{n:04d}")]
    broken = {place(item) for item in logged if item.outcome is Outcome.ERROR}
    kept = {place(item) for item in read_file(run / "clients/east/buffer.sqlite")}
    assert broken & kept, "a correction may have the number of an attempt in which the world broke"
    marked = [row for row in Catalogue(RunView.existing(run)).every() if row["kept"]]
    assert {(row["round"], row["task"], row["attempt"]) for row in marked} == kept and len(marked) == len(kept)


def place(item: Trajectory) -> tuple[int, str, int]:
    return item.round, item.task, item.attempt


def test_one_attempt_at_each_task_is_refused(table_experiment: Make, tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match="rescue 'correct': it compares attempts at the same task, and there is one of each"
    ):
        fedse.run(table_experiment(**keys(exploration={"tasks": 6})), tmp_path)
    assert list(tmp_path.iterdir()) == []
