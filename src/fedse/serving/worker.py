"""Answers requests with a policy, many at once: whoever comes while others are answered joins them."""

from __future__ import annotations

import queue
import secrets
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

from fedse.protocols import Chat, Policy, Reply
from fedse.seeds import stream
from fedse.serving.asked import Asked
from fedse.serving.refused import Refused
from fedse.serving.transcript import Prompt, Transcript
from fedse.types import Sampling

_OPENINGS = 64
"""Policies keep what they computed for an opening, so only so many different ones are called one."""
_LOOK_UP = 0.5
"""Seconds after which a worker without work looks whether it should end."""


@dataclass(frozen=True)
class Choice:
    """One of the replies that a request asks for."""

    text: str
    finish: str
    """`stop`, or `length` where it was cut."""
    tokens: int


@dataclass
class _Request:
    asked: Asked
    prompt: Prompt
    answer: Future[list[Choice]]
    choices: dict[int, Choice] = field(default_factory=dict)


class Worker:
    """`ask` is for any thread; everything else happens in the one that calls `work`."""

    def __init__(self, policy: Policy, chat: Chat, context: int) -> None:
        self._policy, self._chat, self._context = policy, chat, context
        self._transcript = Transcript(chat)
        self._waiting: queue.SimpleQueue[tuple[_Request, int]] = queue.SimpleQueue()
        self._open: dict[int, tuple[_Request, int]] = {}
        self._openings: set[tuple[int, ...]] = set()

    def ask(self, asked: Asked) -> tuple[int, Future[list[Choice]]]:
        """How many tokens the conversation has, and where its answer will be."""
        prompt = self._transcript.prompt(asked.messages)
        length = len(prompt.ids)
        if length >= self._context:
            raise Refused(
                400,
                f"messages: the maximum context length is {self._context} tokens, and the conversation has {length}.",
                "messages",
                "context_length_exceeded",
            )
        if asked.n > self._policy.slots:
            raise Refused(400, f"n: at most {self._policy.slots} replies are made at once.", "n")
        request = _Request(asked, prompt, Future())
        for number in range(asked.n):
            self._waiting.put((request, number))
        return length, request.answer

    def work(self, over: Callable[[], bool] = lambda: False) -> None:
        """Answer until `over` says that there is nobody left to answer."""
        while not over():
            try:
                self._step()
            except Exception as error:
                self._give_up(error)

    def _step(self) -> None:
        with suppress(queue.Empty):
            while len(self._open) < self._policy.slots:
                request, number = self._waiting.get(timeout=_LOOK_UP) if not self._open else self._waiting.get_nowait()
                try:
                    self._begin(request, number)
                except Exception as error:
                    _settle(request, _broken(error))
                    raise
        for reply in self._policy.ready() if self._open else []:
            request, number = self._open.pop(reply.slot)
            self._policy.close(reply.slot)
            self._transcript.remember(request.prompt, reply)
            request.choices[number] = self._choice(request.asked, reply)
            if len(request.choices) == request.asked.n:
                _settle(request, [choice for _, choice in sorted(request.choices.items())])

    def _begin(self, request: _Request, number: int) -> None:
        asked, prompt = request.asked, request.prompt
        seed = secrets.randbits(63) if asked.seed is None else asked.seed
        opening, before = prompt.opening, prompt.before
        if opening not in self._openings and len(self._openings) >= _OPENINGS:
            opening, before = opening[:1], (*opening[1:], *before)
        self._openings.add(opening)
        slot = self._policy.open(opening, Sampling(stream("served", seed, number), asked.temperature))
        self._open[slot] = (request, number)
        if before:
            self._policy.extend(slot, before)
        self._policy.extend(slot, prompt.turn)

    def _choice(self, asked: Asked, reply: Reply) -> Choice:
        ids = reply.ids if asked.most is None else reply.ids[: asked.most]
        ended = bool(ids) and ids[-1] in self._chat.end_ids
        text = self._chat.text(ids)
        if cuts := [place for stop in asked.stops if (place := text.find(stop)) >= 0]:
            shown = next(end for end in range(len(ids) + 1) if _holds(self._chat.text(ids[:end]), asked.stops))
            return Choice(text[: min(cuts)], "stop", shown)
        return Choice(text, "stop" if ended else "length", len(ids))

    def _give_up(self, error: Exception) -> None:
        """What is under way cannot be finished; whoever comes next is tried again."""
        for slot, (request, _) in list(self._open.items()):
            with suppress(Exception):
                self._policy.close(slot)
            _settle(request, _broken(error))
        self._open.clear()


def _broken(error: Exception) -> Refused:
    return Refused(500, f"the reply could not be made ({type(error).__name__}: {error}).")


def _holds(text: str, stops: list[str]) -> bool:
    return any(stop in text for stop in stops)


def _settle(request: _Request, result: list[Choice] | Exception) -> None:
    if request.answer.done():
        return
    if isinstance(result, Exception):
        request.answer.set_exception(result)
    else:
        request.answer.set_result(result)
