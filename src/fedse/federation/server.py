"""The loop over rounds: resume, run, store, stop. The state after each round is exactly what is on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field
from safetensors.numpy import save

from fedse.adapters.files import write_adapter
from fedse.adapters.packing import pack
from fedse.clients.kept import kept
from fedse.errors import Stopped, TooManyErrors, WorldBroke
from fedse.evaluation.metrics import summarise
from fedse.events import ClientFinished, Evaluated, RoundFinished, RoundStarted, RunStarted, Warned
from fedse.federation.checks import CheckOptions
from fedse.federation.client_status import client_status
from fedse.federation.exchange import Exchange, ParticipationOptions, Summing
from fedse.federation.governance import standings
from fedse.federation.invalid_actions import mostly_invalid
from fedse.federation.library import library_of
from fedse.federation.promotion import PromotionOptions, Rows, confirmed, doubted
from fedse.federation.report import RoundReport, rows_of, to_json
from fedse.federation.round import run_round
from fedse.federation.stored_state import stored_state
from fedse.federation.usual import earlier_norms
from fedse.plugins import PluginOptions
from fedse.protocols import Aggregator, Engine, Tracker
from fedse.runs.folder import RunFolder
from fedse.runs.reports import write_report
from fedse.runs.shared_adapter import mean_of_last
from fedse.stopwatch import during
from fedse.types import Adapter, ClientFailure, ClientUpdate, RoundTask, ServerState, Split


class LimitOptions(PluginOptions):
    """When to give up."""

    operational: ClassVar[frozenset[str]] = frozenset({"max_error_share"})

    max_error_share: float = Field(default=0.1, ge=0, le=1)
    """Act when a larger share of a client's episodes in one round ended in an error of the world."""
    on_errors: Literal["stop", "leave_out"] = "stop"
    """What to do then: stop the run, or leave the client's update out of the round. A run that leaves updates out is resumed
    with the same `max_error_share`."""

    def identity(self) -> dict[str, Any]:
        """Where to stop changes no result; whom to leave out does."""
        return super().identity() if self.on_errors == "stop" else self.model_dump()


class Server:
    """Owns the run folder and the aggregator; knows the clients only through the engine."""

    def __init__(
        self,
        run: RunFolder,
        engine: Engine,
        aggregator: Aggregator,
        checks: CheckOptions,
        limits: LimitOptions,
        tracker: Tracker,
        participation: ParticipationOptions | None = None,
        seed: int = 0,
        shares: frozenset[str] = frozenset(),
        joins: Mapping[str, int] | None = None,
        mean_of_last: int = 1,
        library: bool = False,
        summing: Summing | None = None,
        promotion: PromotionOptions | None = None,
        learners: Collection[str] | None = None,
    ) -> None:
        """`mean_of_last`: of so many rounds the mean adapter is evaluated. `learners` do not only measure (default: all)."""
        self.run = run
        self.engine = engine
        self.aggregator = aggregator
        self.checks = checks
        self.limits = limits
        self.tracker = tracker
        self.shares = shares
        self.mean_of_last = mean_of_last
        self.library = library
        self.promotion = promotion
        self.exchange = Exchange(
            engine,
            participation or ParticipationOptions(),
            seed,
            tracker,
            self._client_failed,
            joins,
            summing,
            learners,
        )
        self._noted: dict[str, set[str]] | None = None

    def federate(self, rounds: int, begin: Callable[[], Adapter], deadline: float | None = None) -> ServerState:
        """Run up to round `rounds` from the newest complete one. Raises `Stopped` at the first round past the deadline."""
        if self.run.last_round() is None:
            self._save(ServerState(0, begin()), None)
        state = self.load(self.run.last_round() or 0)
        self.tracker.record(RunStarted(round=state.round, rounds=rounds))
        while state.round < rounds:
            if deadline is not None and time.monotonic() >= deadline:
                raise Stopped
            self.tracker.record(RoundStarted(round=state.round + 1))
            state, report = run_round(
                state,
                self.exchange,
                self.aggregator,
                self.checks,
                self.run.spool,
                self._client_finished,
                self.shares,
                earlier_norms(self.run, state.round),
                self.library,
                standings(self.run, state.round) if self.checks.governance else None,
            )
            state, report = self._promoted(state, report)
            self._save(state, report)
            self._tell_void(report)
            self.tracker.record(
                RoundFinished(
                    round=state.round,
                    seconds=report.seconds,
                    refused=report.refused,
                    contributed=report.diagnostics.get("contributed", []),
                    absent=dict(report.absent),
                    late=report.late,
                )
            )
        return state

    def _promoted(self, state: ServerState, report: RoundReport) -> tuple[ServerState, RoundReport]:
        """What the round made, or the best round's state if what entered it had gone wrong."""
        if self.promotion is None:
            return state, report
        drop, rows = self.promotion.drop, to_json(report)["evaluation"]["worlds"]
        doubt = doubted(self.run, state.round, rows, drop)
        if doubt is None:
            return state, report
        # Whoever joined after the better adapter says nothing of it in any round; whoever has not joined is not asked.
        before, joined = self.exchange.joined(doubt.best + 1), self.exchange.joined(state.round)

        def measured(number: int) -> Rows:
            found = self.evaluate_once(number, "validation", joined)["worlds"]
            return [row for row in found if row["client"] in before]

        fell = confirmed(doubt, measured, drop)
        told = {"doubted": doubt.adapter, "best": doubt.best, "fell": doubt.fell, "fell_on_all": fell}
        if fell is not None:
            state = replace(self.load(doubt.best), round=state.round)
            message = (
                f"the adapter of round {doubt.adapter} solves {100 * fell:.1f} points fewer validation tasks than that of "
                f"round {doubt.best}: it is taken back, with what was learned from it in round {state.round}, and the next "
                f"round begins with the adapter of round {doubt.best}."
            )
            self.tracker.record(Warned(kind="rolled_back", message=message, details={"round": state.round, **told}))
        return state, replace(
            report, adapter=state.adapter.digest(), diagnostics={**report.diagnostics, "promotion": told}
        )

    def _tell_void(self, report: RoundReport) -> None:
        if why := report.diagnostics.get("secure_sum", {}).get("void"):
            message = f"round {report.round} is void: {why}; the shared adapter stays as it was, and the run goes on."
            self.tracker.record(Warned(kind="void_sum", message=message, details={"round": report.round}))

    def _client_finished(self, update: ClientUpdate) -> bool:
        sent = update.vector is not None or update.encoded is not None
        self.tracker.record(
            ClientFinished(
                client=update.client,
                round=update.round,
                sent=sent,
                state=client_status(update, sent),
                counts=dict(update.counts),
                metrics=dict(update.metrics),
                scores=[asdict(score) for score in update.scores],
            )
        )
        for item in mostly_invalid(update):
            message = item.message(update.round)
            about = {"round": update.round, **asdict(item)}
            self.tracker.record(Warned(kind="mostly_invalid", message=message, details=about))
        return self._tolerates_errors(update)

    def _tolerates_errors(self, update: ClientUpdate) -> bool:
        """Whether the update can be used; stop, or leave it out, when worlds break more often than the experiment allows."""
        broken = sum(sum(score.errors.values()) for score in update.scores) + update.counts.get("errors", 0)
        played = update.counts.get("explored", 0) + sum(
            score.episodes + sum(score.errors.values()) for score in update.scores
        )
        if not played or broken / played <= self.limits.max_error_share:
            return True
        kinds = sorted({kind for score in update.scores for kind in score.errors})
        message = (
            f"{broken} of {played} episodes of client '{update.client}' in round {update.round} ended in an error of "
            f"the world ({', '.join(kinds) or 'while exploring'}), more than limits.max_error_share = "
            f"{self.limits.max_error_share:g} allows; `fedse show {self.run.path} --round {update.round} --outcome error` "
            "prints them."
        )
        if self.limits.on_errors == "stop":
            raise TooManyErrors(message)
        about = {"client": update.client, "round": update.round}
        self.tracker.record(Warned(kind="left_out", message=f"left out: {message}", details=about))
        return False

    def _client_failed(self, failure: ClientFailure) -> None:
        """A world that cannot even be played is as bad as one in which every episode breaks."""
        if failure.kind == WorldBroke.__name__ and self.limits.on_errors == "stop":
            raise TooManyErrors(
                f"client '{failure.client}' could not do {failure.task}, because a world of its own broke (what it said "
                "stands above, or in the site's log): mend the world, or set `limits.on_errors: leave_out`; the same "
                "command repeats the round."
            )

    def evaluate(
        self, number: int, split: Split, world: str = "", clients: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Play the adapter after round `number` on a split at the clients (default: all), and store the result. Nothing is
        learned."""
        state = self.load(number)
        adapter = mean_of_last(self.run, number, self.mean_of_last)
        task = RoundTask(
            number,
            "evaluate",
            pack(adapter),
            adapter.layout,
            adapter.config,
            split,
            world,
            contributed=state.contributed,
            library=library_of(state),
        )
        self.exchange.settle()
        asked = self.engine.clients if clients is None else clients
        answers = self.exchange.ask(asked, task, lambda got: got if self._tolerates_errors(got) else None)
        received = answers.updates
        scores = [(client, score) for client in sorted(received) for score in received[client].scores]
        result = {"round": number, "split": split, "adapter": state.adapter.digest(), **summarise(scores)}
        if self.mean_of_last > 1:
            result["mean_of_last"] = self.mean_of_last
        if clients is not None:
            result["asked"] = sorted(clients)
        if probed := {client: rows_of(received[client]) for client in sorted(received) if received[client].probes}:
            result["probes"] = probed
        if answers.absent:
            result["absent"] = answers.absent
        with during("disk"):
            journals = [
                self.run.client_folder(client) / "episodes" / f"{task.name}.jsonl" for client in sorted(received)
            ]
            self.run.store_evaluation(self.run.evaluation_path(split, number, world), result, journals)
        self.tracker.record(Evaluated(round=number, split=split, macro=result["macro"], micro=result["micro"]))
        return result

    def evaluate_once(self, number: int, split: Split, clients: Sequence[str] | None = None) -> dict[str, Any]:
        """The stored result if this adapter was measured on the split at these clients already, otherwise a new one."""
        stored, asked = self.run.evaluation(split, number), self.engine.clients if clients is None else clients
        if (
            stored is not None
            and stored.get("adapter") == self.run.digest_of(number)
            and set(asked) <= set(stored.get("asked", asked))
        ):
            return stored
        return self.evaluate(number, split, clients=clients)

    def load(self, number: int) -> ServerState:
        """The state after a round, verified against the manifest."""
        return stored_state(self.run, number)

    def _kept(self, number: int) -> dict[str, dict[str, str]]:
        """What clients on this disk keep after a round that no record names yet."""
        if self._noted is None:
            records = [self.run.record_of(earlier) for earlier in range(number)]
            self._noted = {}
            for client in self.engine.clients:
                named = [record.clients.get(client, {}) for record in records if record is not None]
                self._noted[client] = {name for digests in named for name in digests}
        found = {}
        for client, noted in self._noted.items():
            if new := kept(self.run.client_folder(client), number, noted):
                found[client] = new
                noted |= new.keys()
        return found

    def _save(self, state: ServerState, report: RoundReport | None) -> None:
        def write(folder: Path) -> None:
            (folder / "adapter").mkdir()
            write_adapter(state.adapter, folder / "adapter")
            if state.memory:
                (folder / "server").mkdir()
                (folder / "server" / "memory.safetensors").write_bytes(save(dict(state.memory)))
            if report is not None:
                write_report(folder, to_json(report))

        with during("disk"):
            self.run.save_round(
                state.round,
                state.adapter.digest(),
                write,
                lambda: self._kept(state.round),
                report.absent if report is not None else (),
                state.contributed,
            )
