"""Where worlds live while they are played: in this process, or in worker processes beside it. Same results either way.

Work is asked for first and fetched afterwards, in the same order, so that several workers step their worlds at once.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from fedse.types import LegalActions
from fedse.worlds.answers import BREAKING, detail_of, finite_number, kind_of, legal_actions, plain_text
from fedse.worlds.world import World

MakeWorld = Callable[[], World]
_TOLD_AT_ONCE = 8
"""Answers that a worker tells together: talking to another process takes longer than most steps."""


class WorldReply(NamedTuple):
    """What a world said to a reset or a step; `error` names the exception if it broke instead."""

    observation: str = ""
    rules: str = ""
    over: bool = False
    truncated: bool = False
    """Whether a limit of turns made it so."""
    valid: bool = True
    success: bool = False
    score: float = 0.0
    reward: float = 0.0
    """What the world gave for this action by itself."""
    error: str = ""
    detail: str = ""
    actions: LegalActions | None = None
    """What may be done next, if that was asked for and the world lists it."""
    hint: str = ""
    """Help with this observation, if that was asked for."""


class WorldsHere:
    """Worlds in this process, each under a number. With `listing`, they tell each turn what may be done next."""

    homes = 1
    """Places where worlds can live: world n lives in place n modulo this."""

    def __init__(self, listing: bool = False) -> None:
        self._listing = listing
        self._worlds: dict[int, World] = {}
        self._answers: deque[tuple[int, WorldReply]] = deque()

    def ask_reset(self, number: int, make_world: MakeWorld, task: str, hint: int = 0) -> None:
        """Begin a task in world `number`, which is made if it is not there. `hint` is the level of help."""
        self._answers.append((number, self._guarded(number, lambda: self._reset(number, make_world, task, hint))))

    def ask_step(self, number: int, action: str, hint: int = 0) -> None:
        self._answers.append((number, self._guarded(number, lambda: self._step(number, action, hint))))

    def begin(self) -> None:
        """Do not wait for `answer` to work on what was asked: here everything is done at once."""

    def answer(self, number: int) -> WorldReply:
        """The answer to the oldest question to world `number` that was not fetched yet. Everything is answered in the order
        it was asked: what comes before was asked by somebody who was interrupted, and is of no use."""
        while True:
            asked, answer = self._answers.popleft()
            if asked == number:
                return answer

    def close(self) -> None:
        self._worlds.clear()

    def _guarded(self, number: int, work: Callable[[], WorldReply]) -> WorldReply:
        try:
            return work()
        except BREAKING as error:
            # A world that broke may be in any state, so it is not used again.
            self._worlds.pop(number, None)
            return WorldReply(error=kind_of(error), detail=detail_of(error))

    def _reset(self, number: int, make_world: MakeWorld, task: str, hint: int) -> WorldReply:
        if number not in self._worlds:
            self._worlds[number] = make_world()
        world = self._worlds[number]
        observation, _ = world.reset(options={"task": task})
        return WorldReply(
            plain_text(observation, "the first observation"),
            plain_text(world.rules, "what the rules say"),
            actions=self._actions(world, over=False),
            hint=_hint(world, hint),
        )

    def _step(self, number: int, action: str, hint: int) -> WorldReply:
        world = self._worlds[number]
        observation, reward, terminated, truncated, info = world.step(action)
        over = bool(terminated or truncated)
        return WorldReply(
            plain_text(observation, "an observation"),
            over=over,
            truncated=bool(truncated and not terminated),
            valid=bool(info["valid"]),
            success=over and bool(info["success"]),
            score=finite_number(info["score"], "the score") if over else 0.0,
            reward=finite_number(reward, "the reward"),
            actions=self._actions(world, over),
            hint="" if over else _hint(world, hint),
        )

    def _actions(self, world: World, over: bool) -> LegalActions | None:
        return legal_actions(world) if self._listing and not over else None


def _hint(world: World, level: int) -> str:
    return plain_text(world.hint(level), "a hint") if level else ""


class WorldsInProcesses:
    """Worlds in worker processes, dealt out by their numbers. Makers of worlds must be picklable."""

    def __init__(self, processes: int, listing: bool = False) -> None:
        # Started afresh rather than forked: a fork would copy the locks of torch's threads.
        context = multiprocessing.get_context("spawn")
        self.homes = processes
        self._ends: list[Connection] = []
        self._workers = []
        self._unsent: list[list[tuple[Any, ...]]] = [[] for _ in range(processes)]
        self._asked: list[deque[int]] = [deque() for _ in range(processes)]
        self._under_way = [0] * processes
        self._fetched: list[deque[WorldReply]] = [deque() for _ in range(processes)]
        for _ in range(processes):
            ours, theirs = context.Pipe()
            worker = context.Process(target=_serve, args=(theirs, listing), daemon=True)
            worker.start()
            # With its other end closed here, a worker whose parent was killed reads the end of the pipe and leaves.
            theirs.close()
            self._ends.append(ours)
            self._workers.append(worker)

    def ask_reset(self, number: int, make_world: MakeWorld, task: str, hint: int = 0) -> None:
        self._ask("reset", number, make_world, task, hint)

    def ask_step(self, number: int, action: str, hint: int = 0) -> None:
        self._ask("step", number, action, hint)

    def _ask(self, kind: str, number: int, *rest: Any) -> None:
        self._asked[number % self.homes].append(number)
        self._unsent[number % self.homes].append((kind, number, *rest))

    def begin(self) -> None:
        for worker, questions in enumerate(self._unsent):
            if questions:
                self._send(worker)

    def answer(self, number: int) -> WorldReply:
        self.begin()
        worker = number % self.homes
        while True:
            if not self._fetched[worker]:
                self._fetch(worker)
            answer = self._fetched[worker].popleft()
            if self._asked[worker].popleft() == number:
                return answer

    def _send(self, worker: int) -> None:
        # Pipes hold little: a worker that has something to tell could wait for us to read while we wait for it.
        while self._under_way[worker]:
            self._fetch(worker)
        questions, self._unsent[worker] = self._unsent[worker], []
        self._under_way[worker] = len(questions)
        self._ends[worker].send(questions)

    def _fetch(self, worker: int) -> None:
        answers = self._ends[worker].recv()
        self._under_way[worker] -= len(answers)
        self._fetched[worker].extend(answers)

    def close(self) -> None:
        for end in self._ends:
            end.close()
        for worker in self._workers:
            worker.join()


def _serve(end: Connection, listing: bool) -> None:
    """A worker: answer questions until the other side is gone."""
    worlds = WorldsHere(listing)
    with suppress(EOFError, ConnectionError, KeyboardInterrupt):
        while True:
            questions = end.recv()
            for first in range(0, len(questions), _TOLD_AT_ONCE):
                end.send([_answered(worlds, *question) for question in questions[first : first + _TOLD_AT_ONCE]])


def _answered(worlds: WorldsHere, kind: str, number: int, *rest: Any) -> WorldReply:
    if kind == "reset":
        worlds.ask_reset(number, *rest)
    else:
        worlds.ask_step(number, *rest)
    return worlds.answer(number)


def worlds_in(processes: int, listing: bool = False) -> WorldsHere | WorldsInProcesses:
    """Worlds in this process (0) or in as many workers."""
    return WorldsInProcesses(processes, listing) if processes else WorldsHere(listing)
