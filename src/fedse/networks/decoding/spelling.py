"""How a tokenizer spells the action line of a reply: which tokens lead to it, along it and out of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from fedse.conversation import ACTION_MARK
from fedse.errors import BadInput
from fedse.protocols import Chat
from fedse.types import LegalActions

Ids = npt.NDArray[np.int64]

MARK = "Action:"
FREE_TOKENS = 8
"""Room that is kept for the agent's own words in an open action. It uses more where its thought leaves more."""
_ALMOST_MARK = re.compile(r"[ \t]*(?:a|ac|act|acti|actio|action[ \t]*)?", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class OpenWords:
    """The agent's own words in an open action."""

    closes: frozenset[int]
    """Tokens that end with what follows the words."""
    barred: Ids
    """Tokens that neither are words nor close them."""
    closing: tuple[int, ...]
    """What follows the words, and the end of the reply."""


@dataclass(frozen=True, eq=False)
class Beginning:
    """Tokens with which the agent's own words begin. One may hold the rest of what stands before the words, too."""

    ids: Ids
    words: OpenWords


@dataclass(eq=False)
class Node:
    """A place in the tree of all legal actions, token by token. A reply ends where there is nothing more to say."""

    children: dict[int, Node] = field(default_factory=dict)
    beginnings: list[Beginning] = field(default_factory=list)

    @cached_property
    def next_ids(self) -> Ids:
        return np.concatenate([np.array([*self.children], np.int64), *(item.ids for item in self.beginnings)])


@dataclass(frozen=True, eq=False)
class Tree:
    root: Node
    most: int
    """Tokens that every action can be said in, its end included."""
    longest: str
    """The action that needs them."""


class Spelling:
    """Spells actions as the tokenizer writes them behind "Action:", the way demonstrations have them."""

    def __init__(self, chat: Chat, vocabulary: int, name: str) -> None:
        self._chat = chat
        self._name = name
        self.end_ids = chat.end_ids
        self.ending = tuple(chat.reply(""))
        self._mark = self._ids(MARK)
        self._from_anywhere = self._ids(f"\n{MARK}")
        # Some tokenizers drop the blank of a token that stands first, so each is looked at behind others.
        shown = chat.text(self._mark)
        self.pieces = [chat.text([*self._mark, token])[len(shown) :] for token in range(vocabulary)]
        self._behind_colons = [token for token, piece in enumerate(self.pieces) if ":" in piece[:-1]]
        # What is left of the mark once a line holds its first tokens.
        self._rests = {self._text(self._mark[:count]): self._mark[count:] for count in range(len(self._mark))}
        self.line_tokens = max(len(self._mark), len(self._from_anywhere))
        for ids in (self._mark, self._from_anywhere):
            marks = list(ACTION_MARK.finditer(self._text(ids)))
            if len(marks) != 1 or marks[0].end() != len(self._text(ids)):
                raise BadInput(
                    f"policy.legal_actions: the tokenizer of {name} cannot write a line that begins '{MARK}'."
                )
        self.tree = lru_cache(maxsize=1024)(self._tree)
        self._crossing = lru_cache(maxsize=256)(self._find_crossing)
        self._spelled = lru_cache(maxsize=65536)(self._spell)
        self._words = lru_cache(maxsize=64)(self._find_words)
        self._beginning = lru_cache(maxsize=256)(self._find_beginning)

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._chat.reply(text)[: -len(self.ending)])

    def _text(self, ids: Sequence[int]) -> str:
        return "".join(self.pieces[token] for token in ids)

    def needed(self, actions: LegalActions) -> tuple[int, str]:
        """Tokens of a reply without a thought, and the action that needs so many."""
        tree = self.tree(actions)
        return len(self._mark) + tree.most, tree.longest

    def to_action(self, line: str) -> tuple[int, ...]:
        """Tokens that open the action line, after the last line of the thought."""
        return self._rests.get(line, self._from_anywhere)

    def crossing(self, line: str) -> Ids:
        """Tokens that would open the action line and go on in it: what they go on with need not be an action."""
        # All lines that do not begin like the mark are alike.
        return self._crossing(line if _ALMOST_MARK.fullmatch(line) else "-")

    def _find_crossing(self, line: str) -> Ids:
        found = []
        for token in self._behind_colons:
            text = line + self.pieces[token]
            mark = ACTION_MARK.search(text)
            if mark and mark.end() < len(text):
                found.append(token)
        return np.array(found, dtype=np.int64)

    def _tree(self, actions: LegalActions) -> Tree:
        root, most, longest = Node(), 0, ""
        for action in actions.listed:
            # An open action holds those that are spelled like it.
            if not any(action.startswith(before) and action.endswith(after) for before, after in actions.open):
                ids = self._spelled(action)
                self._path(root, ids)
                most, longest = max((most, longest), (len(ids), action))
        for before, after in actions.open:
            ids = self._spelled(before)[: -len(self.ending)]
            rest = f" {before}"
            for node, token in zip(self._path(root, ids), [*ids, None], strict=True):
                node.beginnings.append(self._beginning(rest, before, after))
                rest = rest[len(self.pieces[token]) :] if token is not None else ""
            needed = len(ids) + FREE_TOKENS + len(self._words(before, after).closing)
            most, longest = max((most, longest), (needed, f"{before}...{after}"))
        return Tree(root, most, longest)

    def _path(self, root: Node, ids: Sequence[int]) -> list[Node]:
        path = [root]
        for token in ids:
            path.append(path[-1].children.setdefault(token, Node()))
        return path

    def _spell(self, action: str) -> tuple[int, ...]:
        """The tokens of an action behind the mark, with the end of the reply."""
        ids = tuple(self._chat.reply(f"{MARK} {action}"))
        mark, said = ids[: len(self._mark)], self._chat.text(ids)
        if mark != self._mark or said.strip() != f"{MARK} {action}".strip() or len(action.strip().splitlines()) != 1:
            raise BadInput(
                f"policy.legal_actions: the tokenizer of {self._name} cannot write the action {action!r} behind '{MARK}' as "
                "it is: leave the option off."
            )
        return ids[len(self._mark) :]

    def _find_words(self, before: str, after: str) -> OpenWords:
        if not after or after not in self.pieces:
            raise BadInput(f"policy.legal_actions: the tokenizer of {self._name} has no token '{after}'.")
        closes, barred = [], []
        for token, piece in enumerate(self.pieces):
            if not piece or not _are_words(piece.removesuffix(after), before + after):
                barred.append(token)
            elif piece.endswith(after):
                closes.append(token)
        closing = (self.pieces.index(after), *self.ending)
        return OpenWords(frozenset(closes), np.array(barred, dtype=np.int64), closing)

    def _find_beginning(self, rest: str, before: str, after: str) -> Beginning:
        """Tokens that finish what stands before the words and say something."""
        found = [
            token
            for token, piece in enumerate(self.pieces)
            if piece.startswith(rest) and piece[len(rest) :].strip() and _are_words(piece[len(rest) :], before + after)
        ]
        return Beginning(np.array(found, dtype=np.int64), self._words(before, after))


def _are_words(text: str, around: str) -> bool:
    """Whether a text stays on its line and holds no sign of what stands around it."""
    signs = {sign for sign in around if not sign.isalnum() and not sign.isspace()}
    # A token that is only part of a character could make a line break with the next, so free words do without them.
    return signs.isdisjoint(text) and "\N{REPLACEMENT CHARACTER}" not in text and len(f"{text}.".splitlines()) == 1
