"""Thought and action out of a reply, whatever a model may write."""

from __future__ import annotations

import pytest

from fedse.rollouts.replies import UNPARSABLE, ParsedReply, compose, parse


@pytest.mark.parametrize(
    ("reply", "thought", "action"),
    [
        ("Thought: go left.\nAction: move left", "go left.", "move left"),
        ("Thought: a\n\nAction:   move left  \n", "a", "move left"),
        ("Action: move left", "", "move left"),
        ("Action:move left", "", "move left"),
        ("thought: a\naction: move left", "a", "move left"),
        ("THOUGHT: a\nACTION : MOVE", "a", "MOVE"),
        ("  \n  Thought: a\n  Action: b", "a", "b"),
        ("Thought: a\r\nAction: b\r\n", "a", "b"),
        ("no label\nAction: b", "no label", "b"),
        ("Thought: one\ntwo\nthree\nAction: b", "one\ntwo\nthree", "b"),
        ("Thought: a\nAction: b\nI hope this works.", "a", "b"),
        ("Thought: a\nAction: b\nObservation: c", "a", "b"),
        ("Thought: a\nAction:\nb", "a", "b"),
        ("Thought: Action: b is tempting\nAction: c", "Action: b is tempting", "c"),
        ("Thought: my reaction: none\nAction: c", "my reaction: none", "c"),
        ("Thought: Überlegung 漢字 🙂\nAction: gehe weiß", "Überlegung 漢字 🙂", "gehe weiß"),
        ("Action: say Action: b", "", "say Action: b"),
        ("Thought: a\nAction: search[x]: y", "a", "search[x]: y"),
        ("Thought: first\nThought: second\nAction: b", "first\nThought: second", "b"),
    ],
)
def test_a_reply_with_one_action_is_read(reply: str, thought: str, action: str) -> None:
    assert parse(reply) == ParsedReply(thought, action)


@pytest.mark.parametrize(
    ("reply", "thought"),
    [
        ("", ""),
        ("   \n\t\n", ""),
        ("move left", "move left"),
        ("Thought: go left.", "go left."),
        ("Thought: go left. Action: move left", "go left. Action: move left"),
        ("Thought: a\nAction:", "a"),
        ("Thought: a\nAction:   \n  \n", "a"),
        ("Thought: a\nAction: b\nAction: c", "a"),
        ("Thought: a\nAction: b\nThought: c\nAction: b", "a"),
        ("Thought: a\nActions: b", "a\nActions: b"),
        ("Thought: a\nAction b", "a\nAction b"),
        ("\ufffd\ufffd\x00", "\ufffd\ufffd\x00"),
    ],
)
def test_no_action_or_more_than_one_is_unparsable(reply: str, thought: str) -> None:
    assert parse(reply) == ParsedReply(thought, UNPARSABLE)


def test_the_unparsable_action_is_no_action_a_reply_can_contain() -> None:
    assert UNPARSABLE == ""


@pytest.mark.parametrize(("thought", "action"), [("a", "b"), ("", "b"), ("two\nlines", "move: left"), ("é 漢", "ß")])
def test_a_composed_reply_is_read_back(thought: str, action: str) -> None:
    assert parse(compose(thought, action)) == ParsedReply(thought, action)


def test_a_long_reply_without_structure_is_read_in_linear_time() -> None:
    assert parse(" \t" * 200_000).action == UNPARSABLE
    assert parse("action " * 100_000).action == UNPARSABLE
