"""An episode that begins after a prefix is the same conversation; only what the agent then says itself is learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from fedse.models.chat import ByteChat
from fedse.policies.scripted import ScriptedPolicy
from fedse.protocols import Reply
from fedse.rollouts.player import Player
from fedse.rollouts.replaying import has_prefix, replies_of
from fedse.types import Episode, Outcome, Purpose, Sampling, Task, Trajectory
from fedse.worlds.maze import Maze
from fedse.worlds.textcraft import TextCraft

CHAT = ByteChat()


class Repeating(ScriptedPolicy):
    """Says what it is told to say, and keeps what it reads first."""

    def __init__(self, said: Sequence[Sequence[int]]) -> None:
        super().__init__(CHAT, lambda turn, draw: "")
        self.said = list(said)
        self.read: list[int] = []

    def open(self, opening: Sequence[int], sampling: Sampling) -> int:
        self.read += opening
        return super().open(opening, sampling)

    def extend(self, slot: int, ids: Sequence[int]) -> None:
        self.read += ids
        super().extend(slot, ids)

    def ready(self) -> list[Reply]:
        replies = [replace(reply, ids=tuple(self.said.pop(0))) for reply in super().ready()]
        self.read += replies[0].ids
        return [replace(reply, ended=reply.ids[-1] in CHAT.end_ids) for reply in replies]


def episode(world: Any, task: str, prefix: tuple[tuple[int, ...], ...] = ()) -> Episode:
    return Episode("c", "w", world, Task(task), Purpose.EXPLORE, 1, 0, Sampling(1, 1.0), prefix=prefix)


def replies(world: Any, task: str) -> list[tuple[int, ...]]:
    """The expert's, every other one without its end."""
    here, found, over = world(), [], False
    here.reset(options={"task": task})
    while not over:
        thought, action = here.expert()
        ids = CHAT.reply(f"Thought: {thought}\nAction: {action}")
        found.append(tuple(ids[:-1] if len(found) % 2 else ids))
        over = here.step(action)[2]
    return found


def play(asked: list[Episode], policy: ScriptedPolicy, **options: Any) -> list[Trajectory]:
    return Player(policy, CHAT, 100_000, **options).play(asked, "digest")


@pytest.mark.parametrize(("world", "task"), [(Maze, "train-long-0"), (TextCraft, "train-depth3-0")])
@pytest.mark.parametrize("processes", [0, 1])
def test_the_conversation_is_the_same_and_only_its_rest_is_learned(world: Any, task: str, processes: int) -> None:
    said = replies(world, task)
    assert len(said) > 3
    plain = Repeating(said)
    (whole,) = play([episode(world, task)], plain)
    assert whole.outcome is Outcome.SUCCESS and not has_prefix(whole)
    assert replies_of(whole) == said
    for turns in (1, len(said) - 1) if processes == 0 else (2,):
        policy = Repeating(said[turns:])
        (led,) = play([episode(world, task, tuple(said[:turns]))], policy, processes=processes)
        assert led.token_ids == whole.token_ids and policy.read == plain.read
        assert [replace(step, learned=True) for step in led.steps] == list(whole.steps)
        assert [step.learned for step in led.steps] == [False] * turns + [True] * (len(said) - turns)
        learned = [place for place, flag in enumerate(whole.train_mask) if flag][sum(map(len, said[:turns])) :]
        assert [place for place, flag in enumerate(led.train_mask) if flag] == learned
        assert (led.outcome, led.score, led.closing) == (whole.outcome, whole.score, whole.closing)
        assert has_prefix(led) and replies_of(led) is None


def test_episodes_with_and_without_a_prefix_are_played_together() -> None:
    tasks = [task.id for task in Maze().tasks("train")[:6]]
    said = {task: replies(Maze, task) for task in tasks}

    def asked(task: str, number: int) -> Episode:
        prefix = tuple(said[task][: 1 if number % 2 and len(said[task]) > 1 else 0])
        return replace(episode(Maze, task, prefix), attempt=number)

    def script(turn: str, draw: float) -> str:
        return f"Action: move {('up', 'down', 'left', 'right')[int(draw * 4)]}"

    episodes = [asked(task, number) for number, task in enumerate(tasks)]
    together = play(episodes, ScriptedPolicy(CHAT, script, 4))
    alone = [play([item], ScriptedPolicy(CHAT, script))[0] for item in episodes]
    assert together == alone == play(episodes, ScriptedPolicy(CHAT, script, 4), processes=1)
    assert 0 < sum(map(has_prefix, together)) < len(together)


def test_a_prefix_that_ends_the_episode_is_an_episode_from_which_nothing_is_learned() -> None:
    said = replies(Maze, "train-short-0")
    (led,) = play([episode(Maze, "train-short-0", tuple(said))], Repeating([]))
    assert led.outcome is Outcome.SUCCESS and not any(led.train_mask)


def test_what_is_measured_never_begins_after_a_prefix() -> None:
    with pytest.raises(ValueError, match="hints and prefixes are for explorations only"):
        replace(episode(partial(Maze), "train-short-0", ((1,),)), purpose=Purpose.EVALUATE)
