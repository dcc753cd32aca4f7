"""Break and fix: careless turns come first, the task stays the same, and what is learned is the way back."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_site import MadeUp

import fedse
from fedse.clients.guards import ENTERING, checked_plan
from fedse.clients.site import ExplorationOptions, Origin, Place, Site
from fedse.curricula.break_and_fix import BreakAndFix
from fedse.curricula.uniform import Uniform
from fedse.experiments.options import Experiment
from fedse.models.chat import ByteChat
from fedse.policies.scripted import ScriptedPolicy
from fedse.rollouts.player import Player
from fedse.rollouts.replaying import replies_of
from fedse.types import Episode, Outcome, Play, Purpose, RoundTask, Trajectory
from fedse.worlds.cut_short import MakeCutShort
from fedse.worlds.maze import Maze

Make = Callable[..., Experiment]
CHAT = ByteChat()
NOTHING: dict[str, object] = {}
TASK = RoundTask(2, "train", None, (), NOTHING)  # type: ignore[arg-type]


def maze() -> Maze:
    return Maze(train_tasks=90)


def site(tasks: int, attempts: int) -> Site:
    place = Place("maze", maze, Origin("c", "maze"))
    return Site("c", {"maze": place}, CHAT, 0, Path("nowhere"), ExplorationOptions(tasks=tasks, attempts=attempts))


def walk(turn: str, draw: float) -> str:
    return f"Thought: {draw:.9f}\nAction: move {('up', 'down', 'left', 'right')[int(4 * draw)]}"


def played(episodes: Sequence[Episode]) -> list[Trajectory]:
    return Player(ScriptedPolicy(CHAT, walk), CHAT, 100_000).play(episodes, "digest")


def planned(curriculum: Any) -> tuple[list[Trajectory], Sequence[Episode]]:
    work = curriculum.plan(TASK, MadeUp())
    asked = next(work)
    assert isinstance(asked, Play) and asked.adapter is ENTERING
    broken = played(asked.episodes)
    with pytest.raises(StopIteration) as ended:
        work.send(broken)
    return broken, checked_plan(curriculum.site, TASK, ended.value.value)


def test_tasks_are_those_of_uniform_and_a_share_begins_with_careless_turns() -> None:
    here = site(tasks=30, attempts=2)
    broken, explored = planned(BreakAndFix(here, share=0.8, turns=6, temperature=1.9))
    usual = [task.id for task in Uniform(here).chosen("maze", 2, MadeUp())[:30] for _ in range(2)]
    assert [episode.task.id for episode in explored] == usual
    assert [item.task for item in broken] == usual[:48:2], "the first of them"
    assert {item.purpose for item in broken} == {Purpose.EVALUATE}, "nobody learns from breaking"
    lucky = {item.task for item in broken if item.outcome is Outcome.SUCCESS}
    assert lucky and all(len(item.steps) == 6 for item in broken if item.task not in lucky)
    careless = {item.task: tuple(replies_of(item) or ()) for item in broken if item.task not in lucky}
    assert {episode.task.id: episode.prefix for episode in explored if episode.prefix} == careless
    for episode, item in zip(explored, played(explored), strict=True):
        marks = [step.learned for step in item.steps]
        begun = len(episode.prefix)
        assert marks == [False] * begun + [True] * (len(marks) - begun) and len(marks) > begun


def test_turns_that_ended_the_episode_or_leave_no_room_are_no_beginning() -> None:
    here = site(tasks=1, attempts=1)
    curriculum = BreakAndFix(here, share=1.0, turns=2)
    (item,), _ = planned(curriculum)
    assert item.outcome is Outcome.FAILURE and len(curriculum.broken(item)) == 2
    assert not curriculum.broken(replace(item, truncated=False)), "the world itself was over"
    needed = len(item.token_ids) + len(CHAT.turn(item.closing))
    tight = BreakAndFix(replace(here, context=needed), share=1.0, turns=2)
    roomy = BreakAndFix(replace(here, context=needed + 1), share=1.0, turns=2)
    assert not tight.broken(item) and roomy.broken(item)
    assert item.token_ids[-1] in CHAT.end_ids
    cut_off = replace(item, token_ids=item.token_ids[:-1], train_mask=item.train_mask[:-1])
    assert not tight.broken(cut_off) and roomy.broken(cut_off), "the player appends the end that such a reply lacks"


def test_a_world_that_is_cut_short_is_the_same_world_for_some_turns() -> None:
    whole, cut = maze(), MakeCutShort(maze, 3)()
    for task in maze().tasks("train")[:20]:
        assert cut.reset(options={"task": task.id})[0] == whole.reset(options={"task": task.id})[0]
        assert cut.rules == whole.rules and cut.legal_actions() == whole.legal_actions()
        for turn in range(3):
            action = whole.expert()[1] if turn else "move nowhere"
            ours, theirs = cut.step(action), whole.step(action)
            assert ours[0] == theirs[0] and ours[4]["valid"] == theirs[4]["valid"]
            if ours[2] or ours[3]:
                assert (turn == 2 and not ours[2]) or ours[4]["success"] is theirs[4]["success"]
                break


@pytest.mark.slow
def test_a_run_that_stopped_breaks_the_same(table_experiment: Make, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"curriculum": {"name": "break_and_fix", "turns": 1}}
    whole = fedse.run(table_experiment(**keys, rounds=2), tmp_path / "whole")
    for last in (1, 2):
        halting = fedse.run(table_experiment(**keys, rounds=last), tmp_path / "halting")
    told = [
        json.loads((run.folder / "rounds/0002/report.json").read_text())["clients"]["east"]["counts"]
        for run in (whole, halting)
    ]
    assert told[0] == told[1] and told[0]["prefixed"] > 0
    assert whole.adapter.digest() == halting.adapter.digest()
