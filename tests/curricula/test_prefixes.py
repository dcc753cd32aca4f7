"""Starts where remembered episodes have been: which, how many, how far, again after a stop, and what is noted of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_site import MadeUp, attempts, maze, site

import fedse
from fedse.curricula.prefixes import Prefixes
from fedse.errors import BadInput
from fedse.experience.buffer import Buffer, read_file
from fedse.experience.journal import Journal
from fedse.experiments.options import Experiment
from fedse.models.chat import ByteChat
from fedse.policies.scripted import ScriptedPolicy
from fedse.rollouts.player import Player
from fedse.rollouts.replaying import has_prefix
from fedse.starts.canaries import CATEGORY
from fedse.starts.demonstrations import Demonstrations
from fedse.types import Attempt, Episode, Purpose, RoundTask, Trajectory

Make = Callable[..., Experiment]
CHAT = ByteChat()


class Shown(MadeUp):
    """A past with what the buffer began with."""

    def __init__(self, known: list[Attempt], shown: list[Trajectory]) -> None:
        super().__init__(known)
        self.shown = shown

    def remembered(self, world: str) -> list[Trajectory]:
        return self.shown


def shown(tasks: int = 30) -> list[Trajectory]:
    return Demonstrations(tasks=tasks).trajectories("east", "maze", maze(), CHAT, 0)


def planned(curriculum: Prefixes, past: Any, round: int = 2) -> list[Episode]:
    none: dict[str, object] = {}
    work = curriculum.plan(RoundTask(round, "train", None, (), none), past)  # type: ignore[arg-type]
    with pytest.raises(StopIteration) as ended:
        next(work)
    return list(ended.value.value)


def test_a_share_of_a_round_begins_within_remembered_episodes() -> None:
    here, begun = site(tasks=20, attempts=2), shown()
    episodes = planned(Prefixes(here, signal=None, share=0.25), Shown([], begun))
    assert len(episodes) == 40 and len({(item.task, item.attempt) for item in episodes}) == 40
    led = [item for item in episodes if item.prefix]
    assert len(led) == 10 and len({item.task for item in led}) == 5
    by_task = {item.task: item for item in begun}
    for item in led:
        said = [step.reply for step in by_task[item.task.id].steps]
        assert 1 <= len(item.prefix) < len(said)
        assert [CHAT.text(reply) for reply in item.prefix] == said[: len(item.prefix)]
    assert planned(Prefixes(here, signal=None, share=0.25), Shown([], begun)) == episodes
    assert planned(Prefixes(here, signal=None, share=0.25), Shown([], begun), round=3) != episodes
    assert not any(item.prefix for item in planned(Prefixes(here), Shown([], [])))


def test_a_prefix_is_no_longer_than_the_context_has_room_for() -> None:
    begun = shown()
    full = planned(Prefixes(site(tasks=30), signal=None, share=1.0), Shown([], begun))
    beginning = max(item.train_mask.index(True) for item in begun)
    for context in (beginning + 50, beginning + 400):
        tight = replace(site(tasks=30), context=context)
        episodes = planned(Prefixes(tight, signal=None, share=1.0), Shown([], begun))
        assert [item.task for item in episodes] == [item.task for item in full]
        cut = [len(item.prefix) - len(whole.prefix) for item, whole in zip(episodes, full, strict=True)]
        assert min(cut) < 0 and any(item.prefix for item in episodes) == (context > beginning + 50)
        for item, whole in zip(episodes, full, strict=True):
            assert item.prefix == whole.prefix[: len(item.prefix)]
            (led,) = Player(ScriptedPolicy(CHAT, lambda turn, draw: "Action: move up"), CHAT, context).play([item], "d")
            assert len(led.steps) > len(item.prefix)
            if item.prefix != whole.prefix:
                longer = replace(item, prefix=whole.prefix[: len(item.prefix) + 1])
                with pytest.raises(BadInput, match="and the model's context holds"):
                    Player(ScriptedPolicy(CHAT, lambda turn, draw: ""), CHAT, context).play([longer], "d")


def test_an_invented_episode_is_no_beginning() -> None:
    begun = shown()
    canaries = [replace(item, attempt=1, category=CATEGORY) for item in begun]
    without = planned(Prefixes(site(tasks=30), signal=None, share=1.0), Shown([], begun))
    assert planned(Prefixes(site(tasks=30), signal=None, share=1.0), Shown([], [*begun, *canaries])) == without
    assert not any(item.prefix for item in planned(Prefixes(site(), signal=None), Shown([], canaries)))


def test_the_signal_says_which_tasks_are_begun_so() -> None:
    begun = shown()
    mixed = [task for task in maze().tasks("train") if task.id in {item.task for item in begun[:3]}]
    known = [item for task in maze().tasks("train") for item in attempts(1, task, int(task in mixed), 2)]
    episodes = planned(Prefixes(site(tasks=20), per="task", share=0.5), Shown(known, begun))
    assert {item.task for item in episodes if item.prefix} == set(mixed)


def keys(**changes: Any) -> dict[str, Any]:
    return {
        "curriculum": {"name": "prefixes", "signal": None},
        "clients": {"east": {"worlds": [{"name": "maze", "size": 4, "train_tasks": 30}]}},
        "start": {"name": "demonstrations", "tasks": 10},
        "exploration": {"tasks": 6, "attempts": 2},
        "rounds": 2,
        **changes,
    }


@pytest.mark.slow
def test_a_run_that_stopped_begins_at_the_same_places(table_experiment: Make, tmp_path: Path) -> None:
    whole = fedse.run(table_experiment(**keys()), tmp_path / "whole")
    for rounds in (1, 2):
        halting = fedse.run(table_experiment(**keys(rounds=rounds)), tmp_path / "halting")
    assert halting.adapter.digest() == whole.adapter.digest()
    folder = whole.folder / "clients/east"
    explored = [
        item
        for round in (1, 2)
        for item in Journal(folder / "episodes").read(f"{round:04d}")
        if item.purpose is Purpose.EXPLORE
    ]
    # In round 1 the buffer has not begun.
    assert Counter(item.round for item in explored if has_prefix(item)) == {2: 6}
    counts = [
        json.loads((whole.folder / f"rounds/{round:04d}/report.json").read_text())["clients"]["east"]["counts"]
        for round in (1, 2)
    ]
    assert [item.get("prefixed") for item in counts] == [None, 6]
    buffer = Buffer(folder / "buffer.sqlite", "east", CHAT.fingerprint)
    noted = buffer.attempts(before=1000)
    buffer.close()
    assert Counter(item.round for item in noted) == {1: 12, 2: 6}, "attempts are those from the beginning"
    led = [item for item in read_file(folder / "buffer.sqlite") if has_prefix(item)]
    assert led and all(any(item.train_mask) for item in led)


@pytest.mark.torture
@pytest.mark.usefixtures("ray_is_not_nice")
def test_flower_begins_at_the_same_places(table_experiment: Make, tmp_path: Path) -> None:
    here = fedse.run(table_experiment(**keys()), tmp_path / "here")
    there = fedse.run(table_experiment(**keys(engine="flower")), tmp_path / "there")
    assert here.adapter.digest() == there.adapter.digest()
