"""The part of a site that lives from round to round: the loaded model, the open buffer, and a socket to be asked through."""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection, Listener
from pathlib import Path

from fedse.apps import asked
from fedse.apps.budget import Account
from fedse.apps.site_file import Site
from fedse.apps.site_sums import adds_with_one_other, own_member
from fedse.clients.own_record import OwnRecord
from fedse.engines.flower.seal import SealOfHub
from fedse.engines.flower.wire import (
    Parcel,
    from_bytes,
    pack_reply,
    pack_task,
    renamed,
    to_bytes,
)
from fedse.engines.flower.work import carry_out
from fedse.engines.local import LocalEngine
from fedse.errors import FedseError, OtherTerms, UnreadableTask
from fedse.events import Event, Warned
from fedse.experience.archive import set_aside
from fedse.experiments.building import build_clients
from fedse.experiments.components import build_components
from fedse.experiments.known_before import names_of
from fedse.federation.advice import IN_A_SUM_OF_TWO, OTHERS_SEE
from fedse.federation.sites import Household, Sites
from fedse.privacy.door import ORACLES
from fedse.privacy.guards import WithholdMetrics, guards_of
from fedse.runs.folder import RunFolder
from fedse.runs.trackers import Trackers
from fedse.types import ClientFailure, ClientReply, ClientUpdate, RoundTask

Say = Callable[[str], None]


class Worker:
    """Does one task after another. It is the local engine with this site as its only client."""

    def __init__(self, site: Site, say: Say) -> None:
        self.site = site
        self._say = say
        experiment = site.experiment
        components = build_components(experiment)
        self._record = OwnRecord(RunFolder(site.run_folder).client_folder(site.name))
        self._record.check()
        member = own_member(site.name, site.options.secure_sum)
        (self._client,) = build_clients(experiment, components, RunFolder(site.run_folder), member=member)
        self._client.door.names = names_of(experiment, self._client.site.places, site.common)
        self._client.door.guards = [WithholdMetrics(ORACLES), *guards_of(site.options.leaves)]
        sites = Sites(
            names=(site.name,),
            run=experiment.name,
            terms=site.terms,
            plan=components.plan,
            tracker=Trackers([_Warnings(say)]),
            here=lambda: Household(components.model, components.policy, components.learner, [self._client]),
        )
        self._engine = LocalEngine(sites)
        self._expected = asked.Expected.of(
            components.model.initial_adapter(experiment.seed),
            frozenset(self._client.site.places),
            frozenset(experiment.shares),
            site.options.budget.rank,
            experiment.has_library,
        )
        if experiment.has_library:
            say(f"{OTHERS_SEE} (`mix: {experiment.mix.name}`)")
        if adds_with_one_other(site.options.secure_sum, experiment):
            say(f"{IN_A_SUM_OF_TWO} (`secure_sum.min_sites: 2`)")
        self._account = Account(self._own / "asked.json", self._client.experience.buffer.path, site.options.budget)
        key = site.options.hub_key
        self._seal = None if key is None else SealOfHub.read(key)
        self._last: tuple[str, ClientUpdate] | None = None

    @property
    def _own(self) -> Path:
        return self._client.site.folder

    def serve(self, address: Path) -> None:
        """ClientReply until the process ends. Messages come one at a time, as Flower hands them out."""
        with Listener(str(address), family="AF_UNIX") as listener:
            while True:
                with listener.accept() as connection:
                    self._serve_one(connection)

    def _serve_one(self, connection: Connection) -> None:
        try:
            connection.send_bytes(to_bytes(self.answer_to_bytes(connection.recv_bytes())))
        except (EOFError, OSError):
            # Whoever asked is gone. A task that was done is answered at once when it is sent again.
            self._say("the message was withdrawn while it was being answered")

    def answer_to_bytes(self, content: bytes) -> Parcel:
        """Whatever comes in, the worker lives on."""
        try:
            parcel = from_bytes(content)
        except Exception as error:
            self._say(f"failed: what came is not a message of fedse ({type(error).__name__})")
            return pack_reply(ClientFailure(self.site.name, "", UnreadableTask.__name__))
        return self.answer(parcel)

    def answer(self, parcel: Parcel) -> Parcel:
        """The reply to a message. Errors are told here in full and cross as the name of their class only."""
        try:
            head = asked.read_header(parcel)
            if self._seal is not None:
                self._seal.check(parcel)
            self._check(head)
            task = asked.read_task(head, parcel.array, self._expected)
            task = self._account.admit(task, self.site.experiment.name)
            self._say(f"{task.name}: begins")
            began = time.monotonic()
            try:
                answer = self._carry_out(task)
            finally:
                self._account.note_work(time.monotonic() - began)
            if isinstance(answer, ClientUpdate):
                self._account.note_answer(task)
            self._say(f"{task.name}: {_in_words(answer)} in {time.monotonic() - began:.2f} s")
            return pack_reply(answer)
        except Exception as error:
            said = str(error) if isinstance(error, FedseError) else "".join(traceback.format_exception(error))
            self._say(f"failed: {said}")
            return pack_reply(ClientFailure(self.site.name, "", renamed(error)))

    def _check(self, head: asked.Header) -> None:
        if (head.client, head.run) != (self.site.name, self.site.experiment.name):
            raise OtherTerms(
                f"the hub has a task of run {head.run[:100]!r} for {head.client[:100]!r}; this is '{self.site.name}' in run "
                f"'{self.site.experiment.name}': use the hub's experiment file."
            )
        if head.terms != self.site.terms:
            raise OtherTerms(
                "the hub's experiment differs from this site's (model, learner, exploration, sending or another key that "
                "both must agree on): use the same file."
            )

    def _carry_out(self, task: RoundTask) -> ClientReply:
        key = _key(task)
        if self._last is not None and self._last[0] == key:
            return self._client.door.repeat(self._last[1])
        if task.kind == "train":
            self._set_aside(task)
            self._record.open_round(task.round)
        answer = carry_out(task, self.site.name, self._engine)
        if task.kind == "train":
            self._record.close_round(task.round)
        if isinstance(answer, ClientUpdate):
            self._last = key, answer
        return answer

    def _set_aside(self, task: RoundTask) -> None:
        """A round that is done again replaces what it left in the buffer; that is kept beside it."""
        archive = self._own / "archive.sqlite"
        if count := set_aside(self._client.experience.buffer.path, archive, task.round):
            self._say(f"{task.name}: done again; the {count} trajectories of its last time are in {archive}")


class _Warnings:
    """Of everything that is told while a task is done, what the site's operator should read."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def record(self, event: Event) -> None:
        if isinstance(event, Warned):
            self._say(event.message)


def _key(task: RoundTask) -> str:
    """Of everything in a task but the time that is left, which differs when it is sent again."""
    return hashlib.sha256(to_bytes(pack_task(replace(task, seconds=None), "", "", ""))).hexdigest()


def _in_words(answer: ClientReply) -> str:
    if isinstance(answer, ClientFailure):
        return f"given up ({answer.kind})"
    if answer.encoded is None:
        return "answered without an adapter"
    if answer.vector is None:
        return f"answered with its part of a secure sum, {answer.encoded.array.nbytes / 1e6:.3f} MB"
    return f"answered with an adapter of {answer.encoded.array.nbytes / 1e6:.3f} MB"
