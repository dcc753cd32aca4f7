"""Hindsight: what a failure reached, played again by a policy that repeats it, is what was relabelled; and whole runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rescued_by import rescued_by

import fedse
from fedse.clients.guards import checked_rescue
from fedse.clients.site import ExplorationOptions, Origin, Place, Site
from fedse.errors import BadInput
from fedse.experience.buffer import Buffer, read_file
from fedse.experience.journal import Journal
from fedse.experiments.options import Experiment
from fedse.models.chat import ByteChat
from fedse.plugins import resolve
from fedse.policies.scripted import ScriptedPolicy
from fedse.protocols import Reply
from fedse.rescues.hindsight import Hindsight
from fedse.rollouts.player import Player
from fedse.types import Episode, Outcome, Purpose, Sampling, Trajectory
from fedse.worlds.made import base_of, is_made
from fedse.worlds.maze import Maze
from fedse.worlds.transcripts import sample
from fedse.worlds.world import World

Make = Callable[..., Experiment]
CHAT = ByteChat()
REACHES = ("maze", "textcraft", "babyai", "webshop")


class Thoughtless(ScriptedPolicy):
    """Plays the actions that a world's own thoughtless player takes, some replies without their end."""

    def __init__(self, made: Callable[[], World], task: str) -> None:
        super().__init__(CHAT)
        self.world = made()
        self.world.reset(options={"task": task})

    def answer(self, turn: str, draw: float, temperature: float) -> str:
        action = self.world.trivial(draw)
        self.world.step(action)
        return f"Thought: {draw:.2f}\nAction: {action}"

    def ready(self) -> list[Reply]:
        cut = [replace(reply, ids=reply.ids[:-1], ended=False) for reply in super().ready()]
        return [
            reply if len(reply.ids) % 3 else replace(reply, ids=(*reply.ids, max(CHAT.end_ids)), ended=True)
            for reply in cut
        ]


class Repeating(ScriptedPolicy):
    """Gives the same token ids again, whatever it reads."""

    def __init__(self, replies: Sequence[tuple[int, ...]]) -> None:
        super().__init__(CHAT, lambda turn, draw: "")
        self.replies = list(replies)

    def ready(self) -> list[Reply]:
        return [
            replace(reply, ids=(ids := self.replies.pop(0)), ended=ids[-1] in CHAT.end_ids) for reply in super().ready()
        ]


def site(name: str) -> Site:
    make = resolve("world", name)
    return Site(
        "c", {name: Place(name, make, Origin("c", name))}, CHAT, 0, Path("nowhere"), ExplorationOptions(tasks=10)
    )


def failures(here: Site, name: str, most: int) -> list[Trajectory]:
    found = []
    for number, task in enumerate(sample(here.places[name].tasks("train"), most)):
        episode = here.episode(name, task, Purpose.EXPLORE, 1, temperature=1.0)
        policy = Thoughtless(here.places[name].make, task.id)
        (item,) = Player(policy, CHAT, 100_000).play([replace(episode, sampling=Sampling(number, 1.0))], "digest")
        found += [item] if item.outcome is Outcome.FAILURE else []
    return found


def rescued(here: Site, given: Sequence[Trajectory]) -> list[Trajectory]:
    return rescued_by(Hindsight(here), given)


def replies(item: Trajectory) -> list[tuple[int, ...]]:
    """Of the steps, by their texts and whether an end follows in the ids."""
    found, place = [], 0
    for step in item.steps:
        start = item.train_mask.index(True, place)
        place = start + len(CHAT.reply(step.reply)) - 1
        place += item.train_mask[place : place + 1] == (True,)
        found.append(item.token_ids[start:place])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", REACHES)
def test_what_was_relabelled_is_what_a_player_records_when_the_same_is_said_in_the_made_task(name: str) -> None:
    here = site(name)
    given = [
        replace(item, log_probs=(-1.0,), reshaped=True)
        for item in failures(here, name, 40 if name == "webshop" else 12)
    ]
    made = rescued(here, given)
    assert not any(item.log_probs or item.reshaped for item in made), "they would be of another conversation"
    assert made and len(made) <= len(given)
    by_key = {(item.task, item.attempt): item for item in given}
    for item in made:
        failed = by_key[base_of(item.task), item.attempt]
        world = here.places[name].world
        episode = Episode(
            "c", name, here.places[name].make, world.made(item.task), Purpose.EXPLORE, 1, 0, Sampling(0, 1.0)
        )
        (again,) = Player(Repeating(replies(failed)), CHAT, 100_000).play([episode], "digest")
        assert replace(again, purpose=Purpose.RELABEL) == item
        assert item.outcome is Outcome.SUCCESS and len(item.steps) <= len(failed.steps)
        assert [step.reply for step in item.steps] == [step.reply for step in failed.steps[: len(item.steps)]]
        assert item.steps[0].observation != failed.steps[0].observation, "it tells its own goal from the beginning"


def test_nothing_is_made_of_successes_nor_of_what_does_not_fit_the_model() -> None:
    here = site("maze")
    given = failures(here, "maze", 6)
    assert rescued(here, [replace(item, outcome=Outcome.SUCCESS) for item in given]) == []
    made = rescued(here, given)
    longest = max(len(item.token_ids) for item in made)
    assert len(rescued(replace(here, context=longest - 1), given)) < len(made)
    assert rescued(site("wordle"), failures(site("wordle"), "wordle", 6)) == []


def test_how_likely_replies_were_elsewhere_is_not_told_of_a_relabelled_episode(tmp_path: Path) -> None:
    here = site("maze")
    given = [replace(item, log_probs=(-0.5,) * item.agent_tokens) for item in failures(here, "maze", 4)]
    made = rescued(here, given)
    assert made and not any(item.log_probs for item in made)
    kept = checked_rescue(here, given, [replace(item, log_probs=(-0.5,)) for item in made])
    buffer = Buffer(tmp_path / "buffer.sqlite", "c", "print")
    buffer.remember(1, kept)
    assert len(buffer.read()) == len(made) and not any(item.log_probs for item in buffer.read())


def test_what_somebody_else_explored_or_nobody_may_explore_is_refused() -> None:
    here = site("maze")
    given = failures(here, "maze", 4)
    made = rescued(here, given)[0]
    assert checked_rescue(here, given, [made]) == [made]
    for wrong, said in (
        ([replace(made, purpose=Purpose.EXPLORE)], "with the purpose `RELABEL`"),
        ([replace(made, adapter="another")], "that it made of those it was given"),
        ([replace(made, task="test-short-0")], "'test-short-0' is not a training task"),
        ([made, made], "is there already"),
    ):
        with pytest.raises(BadInput, match=said):
            checked_rescue(here, given, wrong)


def keys(**changes: Any) -> dict[str, Any]:
    maze = {"name": "maze", "size": 4, "train_tasks": 30, "observation_length": "brief", "rules": "bare"}
    return {
        "clients": {"east": {"worlds": [maze]}},
        "exploration": {"tasks": 6, "attempts": 2},
        "start": "none",
        "rescue": "hindsight",
        "rounds": 2,
        **changes,
    }


def test_a_run_remembers_what_failures_reached_and_counts_them_apart(table_experiment: Make, tmp_path: Path) -> None:
    whole = fedse.run(table_experiment(**keys()), tmp_path / "whole")
    for rounds in (1, 2):
        halting = fedse.run(table_experiment(**keys(rounds=rounds)), tmp_path / "halting")
    assert halting.adapter.digest() == whole.adapter.digest()
    plain = fedse.run(table_experiment(**keys(rescue="none")), tmp_path / "plain")
    assert plain.adapter.digest() != whole.adapter.digest()
    folder = whole.folder / "clients/east"
    kept = read_file(folder / "buffer.sqlite")
    made = [item for item in kept if item.purpose is Purpose.RELABEL]
    assert made and all(is_made(item.task) and item.rewards == {"world": 1.0} for item in made)
    counts = [
        json.loads((whole.folder / f"rounds/{round:04d}/report.json").read_text())["clients"]["east"]["counts"]
        for round in (1, 2)
    ]
    logged = Counter(
        (item.purpose, item.outcome) for round in (1, 2) for item in Journal(folder / "episodes").read(f"{round:04d}")
    )
    assert sum(item["rescued"] for item in counts) == logged[Purpose.RELABEL, Outcome.SUCCESS] > 6
    assert sum(item["explored"] for item in counts) == 24
    assert sum(item["successes"] for item in counts) == logged[Purpose.EXPLORE, Outcome.SUCCESS]
    assert counts[0]["kept"] == counts[0]["successes"] + counts[0]["rescued"]
    buffer = Buffer(folder / "buffer.sqlite", "east", CHAT.fingerprint)
    attempts = buffer.attempts(before=1000)
    buffer.close()
    assert len(attempts) == 24 and not any(is_made(item.task) for item in attempts), "nobody attempted a made task"


def test_what_a_curriculum_explored_itself_is_not_made_again() -> None:
    here = site("maze")
    given = failures(here, "maze", 4)
    made = rescued(here, given)
    played = replace(made[0], purpose=Purpose.EXPLORE, outcome=Outcome.SUCCESS)
    assert rescued(here, [*given, played]) == made[1:]


def test_what_a_curriculum_explored_otherwise_is_made_beside_it() -> None:
    here = site("maze")
    given = failures(here, "maze", 4)
    made = rescued(here, given)
    other = replace(
        made[0], purpose=Purpose.EXPLORE, outcome=Outcome.SUCCESS, token_ids=(1, 2), train_mask=(False, True)
    )
    explored = [*given, other, replace(other, attempt=6)]
    assert (beside := rescued(here, explored)) == [replace(made[0], attempt=7), *made[1:]]
    assert checked_rescue(here, explored, beside) == beside


@pytest.mark.torture
@pytest.mark.usefixtures("ray_is_not_nice")
def test_flower_makes_the_same(table_experiment: Make, tmp_path: Path) -> None:
    here = fedse.run(table_experiment(**keys()), tmp_path / "here")
    there = fedse.run(table_experiment(**keys(engine="flower")), tmp_path / "there")
    assert here.adapter.digest() == there.adapter.digest()


def test_a_world_that_makes_no_tasks_is_refused(table_experiment: Make, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="rescue: it needs tasks that worlds make, and the world 'maze' of client"):
        fedse.run(table_experiment(rescue="hindsight"), tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert not Maze(mode="original").makes_tasks
