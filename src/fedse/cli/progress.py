"""What happens, as it happens: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from fedse.cli.tables import percent
from fedse.evaluation.metrics import summarise
from fedse.events import (
    ClientFinished,
    ClientLearning,
    EpisodeFinished,
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
from fedse.federation.client_status import ClientStatus
from fedse.types import Outcome, Purpose, WorldScore

ENOUGH_TO_GROW, LATELY = 3, 20
"""Rounds that show whether rounds grow, and the most that are looked at."""


def duration(seconds: float) -> str:
    """
    >>> duration(42), duration(600), duration(7500)
    ('42 s', '10 min', '2 h 05 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


def counted(number: int, noun: str) -> str:
    """
    >>> counted(1, "round"), counted(4, "round")
    ('1 round', '4 rounds')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


@dataclass
class _ClientRow:
    doing: str = "waiting"
    to_measure: int = 0
    measured: int = 0
    to_explore: int = 0
    explored: int = 0
    successes: int = 0
    """Of the explorations."""
    errors: int = 0
    buffer: int | None = None
    loss: float | None = None
    success: float | None = None


class Progress:
    """A tracker. Use as a context manager, so that the terminal is left in order."""

    def __init__(self, console: Console, rounds: int, verbose: bool = False) -> None:
        """`verbose` tells how many tokens were prefilled, decoded and padded."""
        self.console = console
        self.rounds = rounds
        self.verbose = verbose
        self.round = 0
        self._in_round = False
        self._scores: list[tuple[str, WorldScore]] = []
        """Of the adapter that entered the round."""
        self._rows: dict[str, _ClientRow] = {}
        self._times: list[float] = []
        self._apart = False
        self._invalid: dict[str, dict[str, int]] = {}
        """Of each client the worlds that were warned of, and the round in which they were last."""
        self._began = time.monotonic()
        self._live = Live(console=console, get_renderable=self._table, refresh_per_second=4, transient=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live.is_started:
            self._live.stop()

    def record(self, event: Event) -> None:
        handler = getattr(self, f"_on_{event.name}", None)
        if handler is not None:
            handler(event)

    def _on_run_started(self, event: RunStarted) -> None:
        if self.console.is_terminal:
            self._live.start()
        if 0 < event.round < event.rounds:
            self.console.print(f"Resuming after round {event.round} of {event.rounds}.")

    def _on_round_started(self, event: RoundStarted) -> None:
        self.round, self._in_round, self._scores = event.round, True, []
        self._began = time.monotonic()

    def _on_episodes_planned(self, event: EpisodesPlanned) -> None:
        for name, planned in event.clients.items():
            old, explores = self._rows.get(name, _ClientRow()), event.exploring.get(name, 0)
            self._rows[name] = _ClientRow(
                doing="playing",
                to_measure=planned - explores,
                to_explore=explores,
                buffer=old.buffer,
                loss=old.loss,
                success=old.success,
            )
        if not self._in_round:
            many = counted(sum(event.clients.values()), "episode")
            self.console.print(f"playing {many} with the adapter after round {self.rounds}")

    def _on_episode(self, event: EpisodeFinished) -> None:
        row = self._rows[event.client]
        explores = event.purpose == Purpose.EXPLORE
        row.explored += explores
        row.measured += not explores
        row.successes += explores and event.outcome == Outcome.SUCCESS
        row.errors += event.outcome == "error"

    def _on_episodes_played(self, event: EpisodesPlayed) -> None:
        if not self.verbose and not event.uncounted:
            return
        missing = f"{event.uncounted} replies whose tokens the server did not tell" if event.uncounted else ""
        when = f"round {event.round}" if self._in_round else f"after round {event.round}"
        self.console.print(
            f"{when}: {counted(event.episodes, 'episode')}; tokens per episode: {event.decoded / event.episodes:,.0f} "
            f"decoded, {event.prefilled / event.episodes:,.0f} prefilled "
            f"({event.prefilled_without_cache / event.episodes:,.0f} without the cache)"
            f"{f', NOT COUNTED: {missing}' if missing else ''}",
            soft_wrap=True,
        )

    def _on_client_learning(self, event: ClientLearning) -> None:
        self._rows[event.client].doing = "learning"

    def _on_client_finished(self, event: ClientFinished) -> None:
        client, round, state = event.client, event.round, event.state
        counts, metrics, scores = event.counts, event.metrics, event.scores
        row = self._rows.setdefault(client, _ClientRow())
        played = sum(score["episodes"] for score in scores)
        row.doing = state
        sits_out = state == ClientStatus.NOTHING_TO_LEARN_FROM
        meant_to = state in (ClientStatus.KEPT, ClientStatus.MEASURED)
        self._apart = self._apart or meant_to
        row.buffer = counts.get("buffer")
        row.loss = metrics.get("loss")
        row.success = sum(score["successes"] for score in scores) / played if played else row.success
        loss = "" if row.loss is None else f", loss {row.loss:.3f}"
        epsilon = "" if (spent := metrics.get("epsilon")) is None else f", epsilon {spent:.2f}"
        self._scores += [(client, WorldScore(**score)) for score in scores]
        share = metrics.get("padded_share") if self.verbose else None
        padded = "" if share is None else f", padded {percent(share)} %"
        tokens = counts.get("hint_tokens", 0)
        hints = f", {counts['hinted']} with hints ({tokens} tokens)" if tokens else ""
        told = (
            f"explored {counts['explored']}{hints}, successes {counts['successes']}, errors {counts['errors']}, "
            f"buffer {counts['buffer']}"
            if counts
            else "counts withheld"
        )
        self.console.print(
            f"round {round}, {client}: validation success {percent(row.success)} %, {told}{loss}{epsilon}{padded}"
            f"{'' if event.sent or sits_out else f', {state}' if meant_to else f', NO UPDATE: {state}'}",
            soft_wrap=True,
        )
        if sits_out:
            successes = counts.get("successes")
            kept = (
                "no success yet, "
                if successes == 0
                else f"none of {successes} successes was kept, "
                if successes
                else ""
            )
            self.console.print(
                f"  {client}: {kept}nothing to learn from: sits out round {round}", soft_wrap=True, markup=False
            )

    def _on_warning(self, event: Warned) -> None:
        if event.kind != "mostly_invalid" or self._is_new(**event.details):
            self.console.print(f"  {event.message}", soft_wrap=True, markup=False)

    def _is_new(self, client: str, world: str, round: int, **_: Any) -> bool:
        """Whether the last round did not say the same. What is said of one world covers what is said of all together."""
        known = self._invalid.setdefault(client, {})
        last = [known[world]] if world in known else [] if world else list(known.values())
        known[world] = round
        return max(last, default=-1) < round - 1

    def _on_waiting(self, event: Waiting) -> None:
        self.console.print(f"{event.task}: waiting for {', '.join(event.clients)}", soft_wrap=True)

    def _on_round_finished(self, event: RoundFinished) -> None:
        round = event.round
        self._in_round = False
        self._times.append(event.seconds)
        for client, reason in event.absent.items():
            self.console.print(f"round {round}: no answer of {client} ({reason})", soft_wrap=True)
        if event.late:
            self.console.print(f"round {round}: {event.late} updates of earlier rounds came too late and were dropped")
        for client, reason in event.refused.items():
            self.console.print(f"round {round}: the update of {client} was refused: {reason}", soft_wrap=True)
        if not event.contributed and not self._apart:
            self.console.print(f"round {round}: no update to aggregate; the adapter stays as it was")
        found = summarise(self._scores)
        played = counted(found["episodes"], "task")
        measured = f"; macro {percent(found['macro'])} % on {played} with the adapter that entered it" * bool(
            self._scores
        )
        self.console.print(f"round {round} of {self.rounds} done in {duration(event.seconds)}{measured}{self._left()}")

    def _on_evaluated(self, event: Evaluated) -> None:
        self.console.print(
            f"{event.split}, adapter after round {event.round}: "
            f"macro {percent(event.macro)} %, micro {percent(event.micro)} %"
        )

    def _left(self) -> str:
        left = self.rounds - self.round
        if not self._times or not left:
            return ""
        return f"; about {duration(seconds_of_rounds(self._times, left))} of rounds left"

    def _table(self) -> Table:
        elapsed = duration(time.monotonic() - self._began)
        doing = f"round {self.round} of {self.rounds}, {elapsed}" if self._in_round else "measuring"
        table = Table(title=f"{doing}{self._left()}", title_justify="left")
        table.add_column("client")
        table.add_column("now")
        for column in ("measured", "explored", "solved", "errors", "buffer", "loss", "validation %"):
            table.add_column(column, justify="right")
        for name, row in sorted(self._rows.items()):
            table.add_row(
                name,
                row.doing,
                f"{row.measured}/{row.to_measure}",
                f"{row.explored}/{row.to_explore}",
                str(row.successes),
                str(row.errors),
                "-" if row.buffer is None else str(row.buffer),
                "-" if row.loss is None else f"{row.loss:.3f}",
                percent(row.success),
            )
        return table


def seconds_of_rounds(times: Sequence[float], left: int) -> float:
    """How long so many further rounds may take. Rounds grow longer with the buffer, and the first one has to warm up.

    Medians (Theil and Sen's line), because a busy machine makes single rounds several times as long. What three rounds or
    more show of growth is believed for as many rounds again; after that they are taken to stay as long.

    >>> seconds_of_rounds([9.0, 10.0, 13.0, 16.0], 2), seconds_of_rounds([9.0, 10.0, 13.0, 16.0], 100)
    (41.0, 2491.0)
    >>> seconds_of_rounds([29.0, 37.0, 120.0], 3), seconds_of_rounds([29.0, 37.0, 120.0, 51.0], 2)
    (235.5, 123.0)
    """
    settled = (times[1:] or times)[-LATELY:]
    seen = len(settled)
    slopes = [(after - before) / (at - of) for (of, before), (at, after) in combinations(enumerate(settled), 2)]
    growth = max(0.0, median(slopes)) if seen >= ENOUGH_TO_GROW else 0.0
    first = median(seconds - growth * at for at, seconds in enumerate(settled))
    return sum(first + growth * min(seen + ahead, 2 * seen - 1) for ahead in range(left))
