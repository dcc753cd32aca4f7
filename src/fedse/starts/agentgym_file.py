"""Reads conversations in AgentGym's JSON layout, and says of each one that cannot be used where it stands and why.

The file is a JSON array of records, or one record a line. Read off AgentGym's trainers and clients: `human` speaks first
(the rules), `gpt` accepts them, then observations and replies take turns; `item_id` is the environment and a number.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedse.errors import BadInput
from fedse.rollouts.replies import UNPARSABLE, parse
from fedse.types import Step

_BLANK = re.compile(r"[ \t\r\n]*")
_SPEAKERS = ("human", "gpt")
_LARGEST_REWARD = 1e9


@dataclass(frozen=True, slots=True)
class Record:
    """One conversation that can be learned from."""

    line: int
    item: str
    rules: str
    steps: tuple[Step, ...]
    closing: str
    score: float
    client: str
    """Whose experience it is, where the file says so; empty otherwise."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a record cannot be used. Quotes nothing of what the conversation says."""

    line: int
    """Where it begins; a file may be all on one line."""
    number: int
    """Which record of the file it is, from 1."""
    reason: str

    @property
    def place(self) -> str:
        return f"line {self.line}, record {self.number}"


@dataclass(frozen=True, slots=True)
class RecordFile:
    """Everything a file holds, in its order."""

    records: tuple[Record, ...]
    problems: tuple[Problem, ...]
    digest: str
    """Hash of the file's bytes."""


class _Unusable(Exception):
    """A record breaks the layout."""


def read_records(path: Path) -> RecordFile:
    """The usable and the unusable records of a file. A file that is not JSON at all is `BadInput`."""
    try:
        content = path.read_bytes()
        text = content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"start: cannot read {path}: {error}.") from error
    records: list[Record] = []
    problems: list[Problem] = []
    # A world's rules stand in every one of its records; one copy of them is enough.
    texts: dict[str, str] = {}
    for number, (line, value) in enumerate(_values(path, text), start=1):
        try:
            if isinstance(value, _Unusable):
                raise value
            records.append(_record(line, value, texts))
        except _Unusable as reason:
            problems.append(Problem(line, number, str(reason)))
    if not records and not problems:
        raise BadInput(f"start: {path} holds no records.")
    return RecordFile(tuple(records), tuple(problems), hashlib.sha256(content).hexdigest())


def _values(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    """Each value with the line it begins on. A line that is not JSON is given as `_Unusable`."""
    begin = _after_blanks(text, 0)
    return _in_array(path, text, begin) if text.startswith("[", begin) else _on_lines(text, begin)


def _in_array(path: Path, text: str, begin: int) -> Iterator[tuple[int, Any]]:
    """The records of an array. What follows a mistake between them cannot be told, so it ends the reading."""
    lines = _Lines(text)
    at = _after_blanks(text, begin + 1)
    more = not text.startswith("]", at)
    while more:
        line = lines.line(at)
        try:
            value, at = json.JSONDecoder().raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            broken = error.lineno if isinstance(error, json.JSONDecodeError) else line
            raise _not_an_array(path, broken, _reason(error)) from error
        yield line, value
        at = _after_blanks(text, at)
        more = text.startswith(",", at)
        if more:
            at = _after_blanks(text, at + 1)
        elif not text.startswith("]", at):
            raise _not_an_array(path, lines.line(at), "',' or ']' is missing")
    end = _after_blanks(text, at + 1)
    if end < len(text):
        raise _not_an_array(path, lines.line(end), "something follows its end")


def _on_lines(text: str, at: int) -> Iterator[tuple[int, Any]]:
    lines = _Lines(text)
    while at < len(text):
        line = lines.line(at)
        try:
            value, at = json.JSONDecoder().raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            value = _Unusable(f"it is not JSON ({_reason(error)})")
            line_end = text.find("\n", at)
            at = len(text) if line_end < 0 else line_end
        yield line, value
        at = _after_blanks(text, at)


class _Lines:
    """Line numbers of positions that are asked for in rising order, so that a large file is gone through once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._line, self._counted = 1, 0

    def line(self, position: int) -> int:
        self._line += self._text.count("\n", self._counted, position)
        self._counted = position
        return self._line


def _reason(error: Exception) -> str:
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error)


def _after_blanks(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _not_an_array(path: Path, line: int, reason: str) -> BadInput:
    return BadInput(f"start: {path}, line {line}: the file is not a JSON array ({reason}): mend it, or write it again.")


def _record(line: int, value: Any, texts: dict[str, str]) -> Record:
    if not isinstance(value, dict):
        raise _Unusable("it is not an object")
    if "conversations" not in value and {"steps", "token_ids"} <= value.keys():
        raise _Unusable("it is in fedse's own form; `fedse export RUN NAME.json` writes one that can be read here")
    item = _item(value)
    messages = _messages(value)
    replies = range(3, len(messages), 2)
    if not replies:
        raise _Unusable("it holds no reply to an observation")
    if messages[1]["loss"] or parse(messages[1]["value"]).action != UNPARSABLE:
        raise _Unusable("message 2 must be the agent's acceptance of the rules, with loss false and without an action")
    steps = tuple(_step(messages, place) for place in replies)
    if not any(step.learned for step in steps):
        raise _Unusable("all of its replies have loss false, so there is nothing to learn from")
    closing = str(messages[-1]["value"]) if len(messages) % 2 else ""
    rules = str(messages[0]["value"])
    return Record(line, item, texts.setdefault(rules, rules), steps, closing, _score(value), _client(value))


def _client(value: dict[str, Any]) -> str:
    """fedse's own exports say which client a conversation belongs to; AgentGym's files do not."""
    client = value.get("client", "")
    if not isinstance(client, str):
        raise _Unusable("its 'client' is not a text")
    return client


def _item(value: dict[str, Any]) -> str:
    if "item_id" not in value:
        raise _Unusable("it has no 'item_id'")
    item = value["item_id"]
    world, _, task = item.partition("_") if isinstance(item, str) else ("", "", "")
    if not world or not task or not _is_text(item):
        raise _Unusable("its 'item_id' must be the name of a world, '_' and a task, such as \"maze_12\"")
    return str(item)


def _messages(value: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages, each with its `loss`, after a look at every one of them."""
    if "conversations" not in value:
        raise _Unusable("it has no 'conversations'")
    messages = value["conversations"]
    if not isinstance(messages, list):
        raise _Unusable("its 'conversations' is not a list")
    if not messages:
        raise _Unusable("its conversation is empty")
    for number, message in enumerate(messages, start=1):
        if not isinstance(message, dict):
            raise _Unusable(f"message {number} is not an object")
        due = _SPEAKERS[(number - 1) % 2]
        if message.get("from") != due:
            raise _Unusable(f"message {number} must be from '{due}': human and gpt take turns, human begins")
        if not isinstance(message.get("value"), str) or not _is_text(message["value"]):
            raise _Unusable(f"the 'value' of message {number} is not a text")
        if not isinstance(message.get("loss"), bool | None):
            raise _Unusable(f"the 'loss' of message {number} must be true, false or null")
        if due == "human" and message.get("loss"):
            raise _Unusable(f"message {number} is from 'human' and cannot have loss true")
    return [{"loss": None, **message} for message in messages]


def _is_text(value: str) -> bool:
    """JSON can spell half of a character; no tokenizer and no file takes it."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _step(messages: list[dict[str, Any]], place: int) -> Step:
    reply = messages[place]["value"]
    parsed = parse(reply)
    # AgentGym's trainer learns from every reply, whatever its loss says; its controller only where loss is true. Null
    # stands for "as usual" here, false for "not from this one".
    learned = messages[place]["loss"] is not False
    if learned and parsed.action == UNPARSABLE:
        raise _Unusable(f"message {place + 1} needs one line 'Action: ...' with an action, or loss false")
    return Step(
        messages[place - 1]["value"], reply, parsed.thought, parsed.action, parsed.action != UNPARSABLE, learned
    )


def _score(value: dict[str, Any]) -> float:
    """AgentGym's own rollouts carry a reward; a demonstration counts as solved."""
    reward = value.get("reward", 1.0)
    if isinstance(reward, bool) or not isinstance(reward, (int, float)):
        raise _Unusable("its 'reward' is not a number")
    if not 0 < reward < _LARGEST_REWARD:
        raise _Unusable("its 'reward' is not above 0, so it is no success, or is no reward at all")
    return float(reward)
