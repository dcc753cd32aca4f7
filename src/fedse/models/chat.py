"""The only renderer of text to tokens. A conversation is an append-only list of ids: past turns are never rendered again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from datetime import date
from functools import lru_cache
from typing import Any

from fedse.conversation import ACCEPTANCE
from fedse.errors import TemplateNotAppendOnly

_DAY = date(2024, 7, 26)
"""Templates that write today's date into the conversation write this one: a run must go on tomorrow as it began."""

_ASKS_FOR_THE_DAY = re.compile(r"""strftime_now\(\s*(["'])(.*?)\1\s*\)""")
_EMPTY_THOUGHT = re.compile(r"<think>\s*</think>\s*$")

_SHORT, _REMEMBERED = 1_000, 8_192
"""Characters of a text, and texts, that are remembered with their tokens: worlds say the same again and again."""

_GIVE_ANOTHER = "give another template as `model.chat_template`"


class TemplateChat:
    """Renders with the delimiters of a Hugging Face chat template, read off once when the tokenizer is loaded.

    Models that can think aloud are asked not to. Their templates open such a reply with an empty thought and take it out
    again once the next message arrives; here it stays, so that what was generated is what is learned from.
    """

    def __init__(self, tokenizer: Any, name: str, further_ends: Iterable[int] = ()) -> None:
        """`further_ends` are other tokens with which a reply may end; those that are ordinary text are left out."""
        from tokenizers import Tokenizer

        self._tokenizer = tokenizer
        # Text is tokenized once a turn; the library's call around its own fast core costs as much again.
        self._core = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._core.no_truncation()
        self._core.no_padding()
        # A world's text must not be able to write a delimiter: special tokens inside it stay ordinary text.
        self._core.encode_special_tokens = True
        self._often_said = lru_cache(maxsize=_REMEMBERED)(self._encoded)
        head, middle, between = _delimiters(tokenizer, name)
        specials = set(tokenizer.all_special_ids)
        between_ids = self._delimiter(between)
        ends = [index for index, token in enumerate(between_ids) if token in specials]
        if not ends:
            raise TemplateNotAppendOnly(
                f"the chat template of {name} marks the end of a reply with no special token, so a reply has no end to "
                f"sample: {_GIVE_ANOTHER}, one that closes each turn with such a token."
            )
        end = between_ids[ends[0]]
        self.end_ids = frozenset({end, *(specials & set(further_ends))})
        self._end = end
        self._head = self._delimiter(head)
        self._middle = self._delimiter(middle)
        self._before_end = between_ids[: ends[0]]
        self._after_reply = between_ids[ends[0] + 1 :]
        content = tokenizer.backend_tokenizer.to_str() + str(tokenizer.chat_template)
        self.fingerprint = hashlib.sha256(content.encode()).hexdigest()

    def _delimiter(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _content(self, text: str) -> Sequence[int]:
        return self._often_said(text) if len(text) <= _SHORT else self._encoded(text)

    def _encoded(self, text: str) -> tuple[int, ...]:
        return tuple(self._core.encode(text, add_special_tokens=False).ids)

    def opening(self, rules: str) -> list[int]:
        return [*self._head, *self._content(rules), *self._middle, *self.reply(ACCEPTANCE)]

    def turn(self, observation: str) -> list[int]:
        return [*self._after_reply, *self._content(observation), *self._middle]

    def reply(self, text: str) -> list[int]:
        return [*self._content(text), *self._before_end, self._end]

    def text(self, ids: Sequence[int]) -> str:
        return str(self._core.decode(list(ids), skip_special_tokens=True))


def _delimiters(tokenizer: Any, name: str) -> tuple[str, str, str]:
    """What stands before the first message, between observation and reply, and between reply and observation."""
    if not tokenizer.chat_template:
        raise TemplateNotAppendOnly(
            f"the tokenizer of {name} has no chat template: use an instruction-tuned model, or {_GIVE_ANOTHER}."
        )
    marks = [f"fedse{number}mark" for number in range(5)]
    roles = ["user", "assistant", "user", "assistant", "user"]
    messages = [{"role": role, "content": mark} for role, mark in zip(roles, marks, strict=True)]

    def rendered(count: int) -> str:
        try:
            template = _ASKS_FOR_THE_DAY.sub(lambda call: repr(_DAY.strftime(call[2])), tokenizer.get_chat_template())
            return str(
                tokenizer.apply_chat_template(
                    messages[:count],
                    chat_template=template,
                    tokenize=False,
                    add_generation_prompt=count % 2 == 1,
                    enable_thinking=False,
                )
            )
        except Exception as error:  # A template is a program; what it raises is up to it.
            reason = str(error).rstrip(".")
            raise TemplateNotAppendOnly(
                f"the chat template of {name} cannot be used ({reason}): {_GIVE_ANOTHER}."
            ) from error

    whole = rendered(5)
    found = _EMPTY_THOUGHT.search(whole)
    thought = found.group() if found else ""

    def with_thoughts(text: str) -> str:
        for mark in marks[1::2]:
            before, reply, after = text.partition(mark)
            text = before + (thought if reply and not before.endswith(thought) else "") + reply + after
        return text

    whole = with_thoughts(whole)
    for count in range(1, 5):
        part = with_thoughts(rendered(count))
        # What follows a finished reply may begin before the next message is known, so compare up to the reply.
        known = part if count % 2 == 1 else part.partition(marks[count - 1])[0] + marks[count - 1]
        if not whole.startswith(known):
            raise TemplateNotAppendOnly(
                f"the chat template of {name} rewrites earlier turns once message {count + 1} arrives, so the token ids "
                f"of a conversation could not be kept as they were generated: {_GIVE_ANOTHER}, one that only appends."
            )
    if any(whole.count(mark) != 1 for mark in marks):
        raise TemplateNotAppendOnly(
            f"the chat template of {name} does not show every message once and as it is: {_GIVE_ANOTHER}, one that does."
        )
    pieces = []
    rest = whole
    for mark in marks:
        before, _, rest = rest.partition(mark)
        pieces.append(before)
    head, middle, between, second_middle, second_between = pieces
    if (middle, between) != (second_middle, second_between) or rest != middle:
        raise TemplateNotAppendOnly(
            f"the chat template of {name} uses other delimiters in later turns than in the first, which fedse cannot "
            f"append one by one: {_GIVE_ANOTHER}, one that treats all turns alike."
        )
    return head, middle, between


class ByteChat:
    """Bytes as tokens, for agents that are no language models: needs neither tokenizer nor torch."""

    _USER, _AGENT, _END = 256, 257, 258
    end_ids = frozenset({_END})
    fingerprint = hashlib.sha256(b"fedse byte chat 1").hexdigest()

    def opening(self, rules: str) -> list[int]:
        return [self._USER, *rules.encode(), self._END, self._AGENT, *self.reply(ACCEPTANCE)]

    def turn(self, observation: str) -> list[int]:
        return [self._USER, *observation.encode(), self._END, self._AGENT]

    def reply(self, text: str) -> list[int]:
        return [*text.encode(), self._END]

    def text(self, ids: Sequence[int]) -> str:
        return bytes(token for token in ids if token < 256).decode(errors="replace")

    def messages(self, ids: Sequence[int]) -> list[dict[str, str]]:
        """A conversation as the messages it was made of; a reply that is due and has not begun is left out."""
        found: list[dict[str, str]] = []
        role, content = "user", bytearray()
        for token in ids:
            if token == self._END:
                found.append({"role": role, "content": content.decode(errors="replace")})
            elif token in (self._USER, self._AGENT):
                role, content = "user" if token == self._USER else "assistant", bytearray()
            else:
                content.append(token)
        return found
