"""What a restricted reply may say, tried with tokenizers that join what should stay apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fedse.errors import BadInput
from fedse.networks.decoding.legal_reply import LegalReply
from fedse.networks.decoding.spelling import Spelling
from fedse.plugins import resolve
from fedse.rollouts.replies import parse
from fedse.types import LegalActions

END = 0
BEFORE_END = 1


class PiecesChat:
    """Always takes the longest piece; a reply ends with a delimiter of two tokens."""

    end_ids = frozenset({END})
    fingerprint = "pieces"

    def __init__(self, pieces: Sequence[str]) -> None:
        letters = [chr(code) for code in range(32, 127)]
        self.pieces = ["", "", *dict.fromkeys([*letters, "\n", "\x85", "\N{REPLACEMENT CHARACTER}", *pieces])]
        self._ids = {piece: token for token, piece in enumerate(self.pieces) if piece}

    def opening(self, rules: str) -> list[int]:
        return self.reply(rules)

    turn = opening

    def reply(self, text: str) -> list[int]:
        ids = []
        while text:
            piece = max((piece for piece in self._ids if text.startswith(piece)), key=len)
            ids.append(self._ids[piece])
            text = text[len(piece) :]
        return [*ids, BEFORE_END, END]

    def text(self, ids: Sequence[int]) -> str:
        return "".join(self.pieces[token] for token in ids)


JOINED = [
    "Action", "\nAction", " Action:", "Action:", ":\n", ":)", ": ", ": go", "\n\n", ".\n", "action: x\nAction:",
    "!\nAction: x", "tion:", "tion: run", " go", " left", " to", " search", "search[", "[red",
    "[]", "]]", ".]", " dress", "dress]", "]\n", "\n]",
]  # fmt: skip
WORDS = [piece for piece in JOINED if not piece.startswith(": ") and piece != "Action:"]
WALKING = LegalActions(("go", "go left", "go left 2", "look: here", "Action"))
SHOPPING = LegalActions(("click[a]", "click[red dress]", "search[all of it]"), (("search[", "]"),))


def walk(spelling: Spelling, actions: LegalActions, most: int, draws: np.random.Generator) -> list[int]:
    """A reply of an agent that has no preferences, except that it likes to begin action lines."""
    reply = LegalReply(spelling, actions)
    said: list[int] = []
    vocabulary = np.ones(len(spelling.pieces))
    for token, piece in enumerate(spelling.pieces):
        if "ction" in piece or "tion" in piece or ":" in piece or "\n" in piece:
            vocabulary[token] = 20
    while len(said) < most:
        choice = reply.choice(most - len(said))
        weights = np.zeros_like(vocabulary) if choice.only else vocabulary.copy()
        weights[choice.ids] = vocabulary[choice.ids] if choice.only else 0
        said.append(reply.take(int(draws.choice(len(weights), p=weights / weights.sum()))))
        if said[-1] == END:
            break
    return said


@pytest.mark.parametrize("actions", [WALKING, SHOPPING], ids=["walking", "shopping"])
@pytest.mark.parametrize("pieces", [JOINED, WORDS, []], ids=["joined", "words", "letters"])
def test_whatever_an_agent_likes_to_say_its_action_is_legal(pieces: list[str], actions: LegalActions) -> None:
    chat = PiecesChat(pieces)
    spelling = Spelling(chat, len(chat.pieces), "pieces")
    needed, _ = spelling.needed(actions)
    draws = np.random.default_rng(0)
    actions_seen: Counter[str] = Counter()
    thoughts = 0
    for number in range(600):
        said = walk(spelling, actions, needed + number % 40, draws)
        parsed = parse(chat.text(said))
        assert said[-2:] == [BEFORE_END, END] and said.count(END) == 1
        if parsed.action.startswith("search["):
            words = parsed.action.removeprefix("search[").removesuffix("]")
            assert (
                parsed.action.endswith("]")
                and words.strip()
                and not set(words) & set("[]\n\x85\N{REPLACEMENT CHARACTER}")
            )
        else:
            assert parsed.action in actions.listed
        actions_seen[parsed.action] += 1
        thoughts += bool(parsed.thought)
    assert thoughts > 300
    assert set(actions_seen) >= {action for action in actions.listed if not action.startswith("search[")}
    assert any(action.startswith("search[") for action in actions_seen) == bool(actions.open)


def test_an_action_is_spelled_as_in_a_demonstration_and_ends_exactly_where_it_is_complete() -> None:
    chat = PiecesChat(WORDS)
    spelling = Spelling(chat, len(chat.pieces), "pieces")
    for action in WALKING.listed:
        reply = LegalReply(spelling, WALKING)
        for token in chat.reply(f"Thought: so be it\nAction: {action}"):
            choice = reply.choice(100)
            assert (token in choice.ids) == choice.only
            assert reply.take(token) == token
    reply = LegalReply(spelling, WALKING)
    may_end = []
    for token in chat.reply("Action: go left")[:-2]:
        choice = reply.choice(100)
        may_end.append(choice.only and BEFORE_END in choice.ids)
        reply.take(token)
    assert may_end == [False, False, False, True] and BEFORE_END in reply.choice(100).ids


def test_words_of_ones_own_may_begin_in_the_token_that_ends_what_stands_before_them() -> None:
    chat = PiecesChat([" search", "[red", "search["])
    spelling = Spelling(chat, len(chat.pieces), "pieces")
    reply = LegalReply(spelling, SHOPPING)
    for token in chat.reply("Action: search[red hat]"):
        choice = reply.choice(100)
        assert (token in choice.ids) == choice.only
        reply.take(token)
    assert "[red" in chat.pieces and chat.text(chat.reply("Action: search[red hat]")[8:9]) == "[red"


def test_a_thought_that_ends_or_runs_on_gets_an_action_line_where_it_stands() -> None:
    chat = PiecesChat(["Act", "ion"])
    spelling = Spelling(chat, len(chat.pieces), "pieces")
    one = LegalActions(("go",))

    def said(thought: str, left: int) -> str:
        reply, ids = LegalReply(spelling, one), []
        for token in chat.reply(thought)[:-2]:
            reply.choice(100)
            ids.append(reply.take(token))
        while END not in ids:
            choice = reply.choice(left)
            ids.append(reply.take(int(choice.ids[0]) if choice.only else END))
        return chat.text(ids)

    for left in (100, 1):  # It ends by itself; it has used its tokens.
        assert said("hm", left) == "hm\nAction: go"
        assert said("hm\n", left) == "hm\nAction: go"
        assert said("hm\nAct", left) == "hm\nAction: go"
        assert said("hm\nAction", left) == "hm\nAction: go"
        assert said("hm\nacting", left) == "hm\nacting\nAction: go"
        assert said("", left) == "Action: go"


def test_actions_that_cannot_be_written_are_refused() -> None:
    chat = PiecesChat(["Action: g"])
    spelling = Spelling(chat, len(chat.pieces), "pieces")
    with pytest.raises(BadInput, match="cannot write the action 'go'"):
        spelling.tree(LegalActions(("look", "go")))
    for action in ("two\nlines", "", "  "):
        with pytest.raises(BadInput, match="cannot write the action"):
            spelling.tree(LegalActions((action,)))


@pytest.mark.parametrize("name", ["maze", "wordle", pytest.param("webshop", marks=pytest.mark.slow)])
def test_nano_may_say_all_that_an_expert_says(name: str) -> None:
    from fedse.models.nano import Nano

    nano: Any = Nano(threads=1)
    spelling = Spelling(nano.chat, nano.network.config.vocab_size, "nano")
    world = resolve("world", name)(rules="brief", observation_length="brief")
    for task in world.tasks("validation")[:5]:
        world.reset(options={"task": task.id})
        over = False
        while not over:
            thought, action = world.expert()
            reply = LegalReply(spelling, LegalActions(tuple(world.legal_actions()), tuple(world.open_actions())))
            for token in nano.chat.reply(f"Thought: {thought}\nAction: {action}"):
                choice = reply.choice(200)
                assert (token in choice.ids) == choice.only
                assert reply.take(token) == token
            _, _, done, cut, _ = world.step(action)
            over = done or cut
