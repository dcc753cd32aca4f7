"""The agent reads hints, and what is learned is the same conversation without them, token for token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fedse.models.chat import ByteChat
from fedse.policies.scripted import ScriptedPolicy
from fedse.protocols import Reply
from fedse.rollouts.hinted import hint_tokens, hinted
from fedse.rollouts.player import Player
from fedse.types import Episode, Outcome, Purpose, Sampling, Task, Trajectory
from fedse.worlds.maze import Maze

CHAT = ByteChat()
MARK = "Hint: A good next action is: "


def make_maze() -> Maze:
    return Maze(mode="original")


def episodes(hint: int = 0, learns_hint: bool = False) -> list[Episode]:
    return [
        Episode("c", "maze", make_maze, Task(task), Purpose.EXPLORE, 1, 0, Sampling(number, 1.0), hint, learns_hint)
        for number, task in enumerate(("3", "17", "18", "5", "9", "11", "24", "0"))
    ]


class Told(ScriptedPolicy):
    """Keeps what it reads. It wanders, whatever the hints say."""

    def __init__(self) -> None:
        super().__init__(CHAT, lambda turn, draw: f"Action: move {('up', 'down', 'left', 'right')[int(draw * 4)]}")
        self.read: list[str] = []

    def answer(self, turn: str, draw: float, temperature: float) -> str:
        self.read.append(turn)
        return super().answer(turn, draw, temperature)


def play(asked: list[Episode], context: int = 100_000, **options: Any) -> tuple[list[Trajectory], Told]:
    policy = Told()
    return Player(policy, CHAT, context, **options).play(asked, "digest"), policy


def bare(trajectory: Trajectory) -> Trajectory:
    return replace(trajectory, steps=tuple(replace(step, hint="") for step in trajectory.steps))


def test_what_is_learned_is_what_it_would_be_had_the_same_been_said_without_hints() -> None:
    plain, _ = play(episodes())
    helped, policy = play(episodes(hint=3))
    assert all(MARK in turn for turn in policy.read)
    assert [bare(item) for item in helped] == plain
    assert {item.outcome for item in plain} == {Outcome.SUCCESS, Outcome.FAILURE}
    assert all("Hint" not in CHAT.text(item.token_ids) for item in helped)


def test_all_that_was_read_is_what_is_learned_and_the_hints_that_are_counted() -> None:
    helped, policy = play(episodes(hint=2))
    counted = sum(hint_tokens(CHAT, item) for item in helped)
    assert counted == sum(len(f"\nHint: {step.hint}".encode()) for item in helped for step in item.steps) > 1000
    assert policy.usage.prefilled + policy.usage.decoded == counted + sum(len(item.token_ids) for item in helped)


def test_each_step_tells_the_hint_for_what_was_seen() -> None:
    [trajectory, *_], _ = play(episodes(hint=1))
    [aimed, *_], _ = play(episodes(hint=2))
    world = make_maze()
    world.reset(options={"task": trajectory.task})
    for general, step in zip(trajectory.steps, aimed.steps, strict=True):
        assert (general.hint, step.hint) == (world.hint(1), world.hint(2))
        world.step(step.action)


def test_hints_are_learned_where_that_is_asked_for() -> None:
    for item in play(episodes(hint=3, learns_hint=True))[0]:
        ids, mask = CHAT.opening(item.rules), [False] * len(CHAT.opening(item.rules))
        for step in item.steps:
            turn, reply = CHAT.turn(hinted(step.observation, step.hint)), CHAT.reply(step.reply)
            ids += turn + reply
            mask += [False] * len(turn) + [True] * len(reply)
        assert (list(item.token_ids), list(item.train_mask)) == (ids, mask)


def test_a_hint_without_room_is_left_out_and_the_conversation_never_grows_beyond_the_context() -> None:
    world = make_maze()
    first, _ = world.reset(options={"task": "3"})
    least = len(CHAT.opening(world.rules)) + len(CHAT.turn(first))
    [tight], policy = play(episodes(hint=3)[:1], context=least + 5)
    assert MARK not in policy.read[0] and tight.steps[0].hint == ""
    for context in range(least + 300, least + 1300, 250):
        [item], policy = play(episodes(hint=3)[:1], context=context)
        replied = len(CHAT.reply(item.steps[-1].reply))
        assert len(item.token_ids) + hint_tokens(CHAT, item) - replied < context
        assert item.steps[0].hint and len(item.steps) < 15


def test_worlds_in_other_processes_give_the_same_hints() -> None:
    assert play(episodes(hint=3), processes=1)[0] == play(episodes(hint=3))[0]


@pytest.mark.parametrize("purpose", [Purpose.EVALUATE, Purpose.DEMONSTRATE])
def test_nothing_is_measured_with_hints(purpose: Purpose) -> None:
    with pytest.raises(ValueError, match="hints and prefixes are for explorations only"):
        replace(episodes()[0], purpose=purpose, hint=1)


class Breaking(Maze):
    def hint(self, level: int) -> str:
        raise KeyError(level)


def test_a_world_that_breaks_in_a_hint_is_an_error_of_the_world() -> None:
    [item], _ = play([replace(episodes(hint=1)[0], make_world=lambda: Breaking(mode="original"))])
    assert (item.outcome, item.error) == (Outcome.ERROR, "KeyError")


class Sure(Told):
    """Tells of every reply how likely each token was."""

    def ready(self) -> list[Reply]:
        return [replace(reply, log_probs=(-0.5,) * len(reply.ids)) for reply in super().ready()]


def test_how_likely_a_reply_was_is_kept_unless_it_was_drawn_behind_a_hint_that_is_left_out() -> None:
    for hint, learns_hint in ((0, False), (3, True), (3, False)):
        for item in Player(Sure(), CHAT, 100_000).play(episodes(hint, learns_hint), "digest"):
            known = not hint or learns_hint
            assert item.log_probs == ((-0.5,) * item.agent_tokens if known else ())
            assert not item.reshaped
    assert not any(item.log_probs for item in play(episodes())[0]), "this policy does not tell"
