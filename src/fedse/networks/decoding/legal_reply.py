"""One reply under way whose action has to be legal: what it may say next, and what follows from what it said."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedse.conversation import ACTION_MARK
from fedse.networks.decoding.spelling import Ids, Node, OpenWords, Spelling
from fedse.types import LegalActions


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The tokens that may come next: only these, or all but these."""

    ids: Ids
    only: bool


class LegalReply:
    """A free thought, then "Action:", then a way down the tree of legal actions.

    A thought that ends without an action line gets one in place of its end, and so does one that has used all tokens but
    those which the longest action needs.
    """

    def __init__(self, spelling: Spelling, actions: LegalActions) -> None:
        self._spelling = spelling
        self._tree = spelling.tree(actions)
        self._line = ""
        """The last line of the thought."""
        self._node: Node | None = None
        """Where the action stands; None before it and in the agent's own words."""
        self._words: OpenWords | None = None
        """Set while the action holds words of the agent's own."""
        self._fixed: tuple[int, ...] = ()
        """Tokens that come next whatever the model says."""

    def choice(self, left: int) -> Choice:
        """What may come next if the reply can have `left` more tokens."""
        if not self._fixed and self._words and left <= len(self._words.closing):
            self._fixed = self._words.closing
        if not self._fixed and self._in_thought and left <= self._spelling.line_tokens + self._tree.most:
            self._fixed = self._spelling.to_action(self._line)
        if self._fixed:
            return Choice(np.array(self._fixed[:1], dtype=np.int64), only=True)
        if self._words:
            return Choice(self._words.barred, only=False)
        if self._node:
            return Choice(self._node.next_ids, only=True)
        return Choice(self._spelling.crossing(self._line), only=False)

    @property
    def _in_thought(self) -> bool:
        return self._node is None and self._words is None

    def take(self, token: int) -> int:
        """Go on with a token that was drawn; returns the one that is said."""
        if self._fixed:
            self._fixed = self._fixed[1:]
        elif self._in_thought and token in self._spelling.end_ids:
            token, *rest = self._spelling.to_action(self._line)
            self._fixed = tuple(rest)
        if self._node:
            self._go_down(self._node, token)
        elif self._words:
            if token in self._words.closes and not self._fixed:
                self._fixed = self._spelling.ending
        else:
            lines = self._line + self._spelling.pieces[token]
            if ACTION_MARK.search(lines):
                self._node = self._tree.root
            self._line = lines.rpartition("\n")[2]
        return token

    def _go_down(self, node: Node, token: int) -> None:
        self._node = node.children.get(token)
        if self._node is None:
            self._words = next(item.words for item in node.beginnings if token in item.ids)
