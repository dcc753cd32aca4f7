"""Read thought and action out of a reply in ReAct form: `Thought: ...`, newline, `Action: ...`; some have no thought."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fedse.conversation import ACTION_MARK

_THOUGHT = re.compile(r"^\s*thought[ \t]*:", re.IGNORECASE)

UNPARSABLE = ""
"""Given to the world in place of an action; every world answers it with its sentence for invalid actions."""


@dataclass(frozen=True, slots=True)
class ParsedReply:
    thought: str
    action: str


def parse(reply: str) -> ParsedReply:
    """The reply's thought and its one action. No action, or more than one, is unparsable.

    >>> parse("Thought: the door is left.\\nAction: move left")
    ParsedReply(thought='the door is left.', action='move left')
    >>> parse("move left").action
    ''
    """
    marks = list(ACTION_MARK.finditer(reply))
    before = reply[: marks[0].start()] if marks else reply
    thought = _THOUGHT.sub("", before, count=1).strip()
    if len(marks) != 1:
        return ParsedReply(thought, UNPARSABLE)
    lines = reply[marks[0].end() :].strip().splitlines()
    return ParsedReply(thought, lines[0].strip() if lines else UNPARSABLE)


def compose(thought: str, action: str) -> str:
    """A reply in the form `parse` reads."""
    return f"Thought: {thought}\nAction: {action}" if thought else f"Action: {action}"
