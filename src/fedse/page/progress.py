"""How far a run has come, told by its events: what each client does, how long it will take, what went wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from fedse.events import (
    ClientFinished,
    ClientLearning,
    EpisodesPlanned,
    EpisodesPlayed,
    Evaluated,
    Event,
    RoundFinished,
    RoundStarted,
    RunStarted,
    Waiting,
    Warned,
)
from fedse.runs.event_log import Logged

_RECENT = 5
"""Rounds whose time tells how long the next ones will take."""


class Progress:
    """Follows the events in their order. A round that is done again replaces what was told of it before."""

    def __init__(self, events: Sequence[Logged]) -> None:
        self.round = 0
        self.planned = 0
        self.began: float | None = None
        self.latest: float | None = None
        self.doing: dict[str, str] = {}
        self.states: dict[str, str] = {}
        """What became of each client in the newest round it answered."""
        self.unfinished: dict[str, Mapping[str, int]] | None = None
        """Counts of the clients that have answered in a round that is not complete."""
        self.problems: list[dict[str, Any]] = []
        self.feed: list[dict[str, Any]] = []
        self._seconds: dict[int, float] = {}
        self._finished = 0
        self._round_began = math.inf
        for logged in events:
            self._time = logged.time
            self.began = logged.time if self.began is None else self.began
            self.latest = logged.time
            handler = getattr(self, f"_on_{logged.event.name}", None)
            if handler is not None and _has_numbers(logged.event):
                # The log is for people, and may be damaged: what cannot be read is left out.
                with suppress(TypeError, ValueError, AttributeError):
                    handler(logged.event)

    def left(self, now: float) -> float | None:
        """Seconds that the remaining rounds will take, as the latest did; `now` is in the middle of one of them."""
        recent = list(self._seconds.values())[-_RECENT:]
        remaining = self.planned - self._finished
        if not recent or remaining <= 0:
            return None
        usual = sum(recent) / len(recent)
        return remaining * usual - min(max(0.0, now - self._round_began), usual)

    def _on_run_started(self, event: RunStarted) -> None:
        self.planned, self._finished, self.round, self.unfinished = event.rounds, event.round, event.round, None
        again = f" after round {event.round}" if event.round else ""
        self._tell(f"The run starts{again}: {event.rounds} rounds are planned.")

    def _on_round_started(self, event: RoundStarted) -> None:
        self.round = event.round
        self._round_began = self._time
        self.unfinished = {}
        self._tell(f"Round {event.round} starts.")

    def _on_episodes_planned(self, event: EpisodesPlanned) -> None:
        for client, count in event.clients.items():
            self.doing[client] = f"plays {count} episodes"

    def _on_episodes_played(self, event: EpisodesPlayed) -> None:
        self._tell(f"{event.episodes} episodes were played, {event.decoded:,} tokens sampled.")

    def _on_client_learning(self, event: ClientLearning) -> None:
        self.doing[event.client] = "learns"

    def _on_client_finished(self, event: ClientFinished) -> None:
        self.doing[event.client] = self.states[event.client] = event.state
        if self.unfinished is not None:
            self.unfinished[event.client] = dict(event.counts)
        self._tell(f"{event.client}: {event.state}.")

    def _on_waiting(self, event: Waiting) -> None:
        for client in event.clients:
            self.doing[client] = "is waited for"

    def _on_warning(self, event: Warned) -> None:
        self._wrong(event.message, event.details.get("round", self.round))

    def _on_round_finished(self, event: RoundFinished) -> None:
        self._finished, self._round_began, self.unfinished = event.round, math.inf, None
        self._seconds[event.round] = event.seconds
        for client, why in event.refused.items():
            self._wrong(f"The update of {client} was refused: {why}", event.round)
        for client, why in event.absent.items():
            self._wrong(f"{client} did not answer: {why}", event.round)
        if event.late:
            self._wrong(f"{event.late} updates of earlier rounds came too late and were dropped.", event.round)
        self._tell(f"Round {event.round} is complete after {event.seconds:.0f} s.")

    def _on_evaluated(self, event: Evaluated) -> None:
        self.doing.update(self.states)
        if event.macro is not None:
            self._tell(
                f"Adapter after round {event.round} on {event.split} tasks: macro success {100 * event.macro:.1f} %."
            )

    def _tell(self, text: str) -> None:
        self.feed.append({"time": self._time, "text": text})

    def _wrong(self, text: str, round: Any) -> None:
        known = next((problem for problem in self.problems if problem["text"] == text), None)
        if known is None:
            self.problems.append({"time": self._time, "round": round, "text": text, "times": 1})
        else:
            known["times"] += 1


def _has_numbers(event: Event) -> bool:
    """Whether what is counted with later can be counted with."""
    values = [getattr(event, name, 0) for name in ("round", "rounds", "seconds")]
    return all(isinstance(value, int | float) and math.isfinite(value) for value in values)
