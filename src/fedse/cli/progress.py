"""What happens, as it happens: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from fedse.cli.tables import percent
from fedse.federation.standing import Standing


def duration(seconds: float) -> str:
    """
    >>> duration(42), duration(600), duration(7500)
    ('42 s', '10 min', '2 h 05 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


@dataclass
class _ClientRow:
    doing: str = "waiting"
    planned: int = 0
    played: int = 0
    successes: int = 0
    errors: int = 0
    buffer: int | None = None
    loss: float | None = None
    success: float | None = None


class Progress:
    """A tracker. Use as a context manager, so that the terminal is left in order."""

    def __init__(self, console: Console, rounds: int) -> None:
        self.console = console
        self.rounds = rounds
        self.round = 0
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

    def record(self, event: str, **fields: Any) -> None:
        handler = getattr(self, f"_on_{event}", None)
        if handler is not None:
            handler(**fields)

    def _on_run_started(self, round: int, rounds: int) -> None:
        if self.console.is_terminal:
            self._live.start()
        if 0 < round < rounds:
            self.console.print(f"Going on after round {round} of {rounds}.")

    def _on_round_started(self, round: int) -> None:
        self.round = round
        self._began = time.monotonic()

    def _on_episodes_planned(self, clients: dict[str, int]) -> None:
        for name, planned in clients.items():
            old = self._rows.get(name, _ClientRow())
            self._rows[name] = _ClientRow("playing", planned, buffer=old.buffer, loss=old.loss, success=old.success)

    def _on_episode(self, client: str, purpose: str, outcome: str) -> None:
        row = self._rows[client]
        row.played += 1
        row.successes += purpose == "explore" and outcome == "success"
        row.errors += outcome == "error"

    def _on_episodes_played(
        self, round: int, episodes: int, prefilled: int, prefilled_without_cache: int, decoded: int, uncounted: int
    ) -> None:
        self.console.print(
            f"round {round}: {episodes} episodes; tokens an episode: {decoded / episodes:,.0f} decoded, "
            f"{prefilled / episodes:,.0f} prefilled ({prefilled_without_cache / episodes:,.0f} without the cache)"
            f"{f', NOT COUNTED: {uncounted} replies whose tokens the server did not tell' if uncounted else ''}",
            soft_wrap=True,
        )

    def _on_client_learning(self, client: str, round: int) -> None:
        del round
        self._rows[client].doing = "learning"

    def _on_client_finished(
        self,
        client: str,
        round: int,
        sent: bool,
        state: str,
        counts: dict[str, int],
        metrics: dict[str, float],
        scores: list[dict[str, Any]],
    ) -> None:
        row = self._rows.setdefault(client, _ClientRow())
        played = sum(score["episodes"] for score in scores)
        row.doing = state
        sits_out = state == Standing.NOTHING_TO_LEARN_FROM
        meant_to = state in (Standing.KEPT, Standing.MEASURED)
        self._apart = self._apart or meant_to
        row.buffer = counts["buffer"]
        row.loss = metrics.get("loss")
        row.success = sum(score["successes"] for score in scores) / played if played else row.success
        loss = "" if row.loss is None else f", loss {row.loss:.3f}"
        padded = f", padded {percent(metrics['padded_share'])} %" if "padded_share" in metrics else ""
        self.console.print(
            f"round {round}, {client}: validation success {percent(row.success)} %, explored {counts['explored']}, "
            f"successes {counts['successes']}, errors {counts['errors']}, buffer {counts['buffer']}{loss}{padded}"
            f"{'' if sent or sits_out else f', {state}' if meant_to else f', NO UPDATE: {state}'}",
            soft_wrap=True,
        )
        if sits_out:
            found = "no success yet" if not counts["successes"] else f"none of {counts['successes']} successes was kept"
            self.console.print(
                f"  {client}: {found}, nothing to learn from: sits out round {round}", soft_wrap=True, markup=False
            )

    def _on_warning(self, message: str, kind: str = "", **fields: Any) -> None:
        if kind != "mostly_invalid" or self._is_new(**fields):
            self.console.print(f"  {message}", soft_wrap=True, markup=False)

    def _is_new(self, client: str, world: str, round: int, **_: Any) -> bool:
        """Whether the last round did not say the same. What is said of one world covers what is said of all together."""
        known = self._invalid.setdefault(client, {})
        last = [known[world]] if world in known else [] if world else list(known.values())
        known[world] = round
        return max(last, default=-1) < round - 1

    def _on_waiting(self, task: str, clients: list[str]) -> None:
        self.console.print(f"{task}: waiting for {', '.join(clients)}", soft_wrap=True)

    def _on_round_finished(
        self,
        round: int,
        seconds: float,
        refused: dict[str, str],
        contributed: list[str],
        absent: dict[str, str] | None = None,
        late: int = 0,
    ) -> None:
        self._times.append(seconds)
        for client, reason in (absent or {}).items():
            self.console.print(f"round {round}: no answer of {client} ({reason})", soft_wrap=True)
        if late:
            self.console.print(f"round {round}: {late} updates of earlier rounds came too late and were dropped")
        for client, reason in refused.items():
            self.console.print(f"round {round}: the update of {client} was refused: {reason}", soft_wrap=True)
        if not contributed and not self._apart:
            self.console.print(f"round {round}: no update to aggregate; the adapter stays as it was")
        self.console.print(f"round {round} of {self.rounds} done in {duration(seconds)}{self._left()}")

    def _on_evaluated(self, round: int, split: str, macro: float | None, micro: float | None) -> None:
        self.console.print(f"{split}, adapter after round {round}: macro {percent(macro)} %, micro {percent(micro)} %")

    def _left(self) -> str:
        left = self.rounds - self.round
        if not self._times or not left:
            return ""
        return f", about {duration(left * sum(self._times) / len(self._times))} left"

    def _table(self) -> Table:
        elapsed = duration(time.monotonic() - self._began)
        table = Table(title=f"round {self.round} of {self.rounds}, {elapsed}{self._left()}", title_justify="left")
        table.add_column("client")
        table.add_column("now")
        for column in ("episodes", "successes", "errors", "buffer", "loss", "validation %"):
            table.add_column(column, justify="right")
        for name, row in sorted(self._rows.items()):
            table.add_row(
                name,
                row.doing,
                f"{row.played}/{row.planned}",
                str(row.successes),
                str(row.errors),
                "-" if row.buffer is None else str(row.buffer),
                "-" if row.loss is None else f"{row.loss:.3f}",
                percent(row.success),
            )
        return table
