"""The only renderer of text to tokens. A conversation is an append-only list of ids: past turns are never rendered again."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from fedse.errors import TemplateNotAppendOnly

ACCEPTANCE = "OK."
"""The agent's fixed answer to the rules. It stands in every conversation and is never learned from."""


class TemplateChat:
    """Renders with the delimiters of a Hugging Face chat template, read off once when the tokenizer is loaded."""

    def __init__(self, tokenizer: Any, name: str) -> None:
        self._tokenizer = tokenizer
        head, middle, between = _delimiters(tokenizer, name)
        specials = set(tokenizer.all_special_ids)
        between_ids = self._delimiter(between)
        ends = [index for index, token in enumerate(between_ids) if token in specials]
        if not ends:
            raise TemplateNotAppendOnly(
                f"the chat template of {name} marks the end of a reply with no special token, so a reply has no end to "
                "sample: give the model a template that closes each turn with one."
            )
        end = between_ids[ends[0]]
        self.end_ids = frozenset({end})
        self._end = end
        self._head = self._delimiter(head)
        self._middle = self._delimiter(middle)
        self._before_end = between_ids[: ends[0]]
        self._after_reply = between_ids[ends[0] + 1 :]
        content = tokenizer.backend_tokenizer.to_str() + str(tokenizer.chat_template)
        self.fingerprint = hashlib.sha256(content.encode()).hexdigest()

    def _delimiter(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _content(self, text: str) -> list[int]:
        # A world's text must not be able to write a delimiter: special tokens inside it stay ordinary text.
        return list(self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])

    def opening(self, rules: str) -> list[int]:
        return [*self._head, *self._content(rules), *self._middle, *self.reply(ACCEPTANCE)]

    def turn(self, observation: str) -> list[int]:
        return [*self._after_reply, *self._content(observation), *self._middle]

    def reply(self, text: str) -> list[int]:
        return [*self._content(text), *self._before_end, self._end]

    def text(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))


def _delimiters(tokenizer: Any, name: str) -> tuple[str, str, str]:
    """What stands before the first message, between observation and reply, and between reply and observation."""
    if not tokenizer.chat_template:
        raise TemplateNotAppendOnly(f"the tokenizer of {name} has no chat template: use an instruction-tuned model.")
    from jinja2 import TemplateError

    marks = [f"fedse{number}mark" for number in range(5)]
    roles = ["user", "assistant", "user", "assistant", "user"]
    messages = [{"role": role, "content": mark} for role, mark in zip(roles, marks, strict=True)]

    def rendered(count: int) -> str:
        try:
            return str(
                tokenizer.apply_chat_template(messages[:count], tokenize=False, add_generation_prompt=count % 2 == 1)
            )
        except TemplateError as error:
            raise TemplateNotAppendOnly(f"the chat template of {name} cannot be used: {error}.") from error

    whole = rendered(5)
    for count in range(1, 5):
        part = rendered(count)
        # What follows a finished reply may begin before the next message is known, so compare up to the reply.
        known = part if count % 2 == 1 else part.partition(marks[count - 1])[0] + marks[count - 1]
        if not whole.startswith(known):
            raise TemplateNotAppendOnly(
                f"the chat template of {name} rewrites earlier turns once message {count + 1} arrives, so the token ids "
                "of a conversation could not be kept as they were generated: use a template that only appends."
            )
    if any(whole.count(mark) != 1 for mark in marks):
        raise TemplateNotAppendOnly(
            f"the chat template of {name} does not show every message once and as it is: use one that does."
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
            "append one by one: use a template that treats all turns alike."
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
