"""The only door of a site. What leaves is an update with known fields; each one is written down before it leaves."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from pydantic import Field, model_validator

from fedse.adapters.rounding import decode, encode, loss
from fedse.plugins import PluginOptions
from fedse.privacy.answered import AnsweredOnce
from fedse.privacy.contents import contents
from fedse.privacy.guards import Cap, Guard
from fedse.privacy.names import Names
from fedse.privacy.noise_share import NoiseShare
from fedse.privacy.secure_sum import SecureSumOptions, SumMember
from fedse.storage import atomic
from fedse.types import ClientUpdate, Encoded, Precision, RoundTask, Vector

ALLOWED = ("vector", "layout", "counts", "metrics", "scores")
"""Fields of every update that carry content, beside `shared/` and `probes/` where plug-ins have something to tell. Engines
send these, the names of client and task, and nothing else."""


ORACLES = frozenset({"first_loss"})
"""Metrics that tell how well the adapter that came in knows the site's experience. Whoever chooses it could ask with
them whether something is in the buffer."""


class SendingOptions(PluginOptions):
    """What a site sends. An update in the clear tells as `rounding` what share of its change was rounded away."""

    operational: ClassVar[frozenset[str]] = frozenset({"max_megabytes"})

    precision: Precision = "float32"
    """float32 sends the adapter as it is; float16 and int8 send its change, in half and a quarter of the bytes."""
    max_megabytes: float | None = Field(default=None, gt=0)
    """Refuse to send more than this in one update."""
    secure_sum: SecureSumOptions | None = None
    """`{}`, or options, for updates that are masked so that the hub reads their sum alone; null sends each in the clear."""

    @model_validator(mode="after")
    def _one_rounding(self) -> SendingOptions:
        if self.secure_sum is not None and self.precision != "float32":
            raise ValueError(
                f"`precision: {self.precision}` rounds updates that are sent in the clear, and a secure sum rounds by "
                "`secure_sum.bits`: leave `precision` out"
            )
        return self


class Door:
    """Rounds, measures and records an update. A client hands out nothing that did not pass here."""

    def __init__(
        self,
        ledger: Path,
        options: SendingOptions,
        names: Names,
        member: SumMember | None = None,
        once: AnsweredOnce | None = None,
        share: NoiseShare | None = None,
    ) -> None:
        """A `member` of secure sums lets no adapter out unmasked, and with a `share` none without its part of the noise.
        With `once` a round gets one answer."""
        self.ledger = ledger
        self.options = options
        self.names = names
        self.member = member
        self.once = once
        self.share = share
        self.guards: Sequence[Guard] = ()
        """Those of the site's own file; the cap on what is sent comes after them."""

    def admit(self, task: RoundTask) -> None:
        """Refuse a task whose answer could not leave, before any work is done for it."""
        for keeper in (self.member, self.once, self.share):
            if keeper is not None and task.kind == "train":
                keeper.check(task)

    def release(self, update: ClientUpdate, broadcast: Vector, task: RoundTask) -> ClientUpdate:
        """The update as the server will see it, and its line for each field in the ledger."""
        update = self.names.only_known(update)
        if self.once is not None and update.vector is not None:
            update = replace(update, vector=self.once.first(update.vector, task))
        if self.member is not None and task.kind == "train":
            update = _masked(update, broadcast, task, self.member, self.share)
        elif update.vector is not None:
            encoded = encode(update.vector, broadcast, self.options.precision)
            arrives = decode(encoded, broadcast)
            metrics = dict(update.metrics)
            if self.options.precision != "float32":
                metrics["rounding"] = loss(update.vector, arrives, broadcast)
            update = replace(update, vector=arrives, encoded=encoded, metrics=metrics)
        most = self.options.max_megabytes
        for guard in [*self.guards, *([] if most is None else [Cap(most)])]:
            update = guard(update)
        self._write(update)
        return update

    def repeat(self, update: ClientUpdate) -> ClientUpdate:
        """Write down that an update that was released before leaves once more."""
        self._write(update)
        return update

    def _write(self, update: ClientUpdate) -> None:
        lines = [
            {
                "time": round(time.time(), 3),
                "task": update.task,
                "round": update.round,
                "field": field,
                "shape": list(shape),
                "bytes": len(content),
                "sha256": hashlib.sha256(content).hexdigest(),
            }
            for field, shape, content in contents(update)
        ]
        with atomic.explained(self.ledger):
            self.ledger.parent.mkdir(parents=True, exist_ok=True)
            with self.ledger.open("a", encoding="utf-8") as file:
                file.write("".join(json.dumps(line) + "\n" for line in lines))
                file.flush()
                # On disk before anything leaves: a power cut must not make a site forget what it sent.
                os.fsync(file.fileno())


def _masked(
    update: ClientUpdate, broadcast: Vector, task: RoundTask, member: SumMember, share: NoiseShare | None
) -> ClientUpdate:
    """Every member adds something to the sum, if only zeros: without its masks nobody could open it."""
    vector = update.vector if share is None else share.hidden(update.vector, broadcast, task)
    hidden = Encoded(member.fixed_point(task).precision, member.masked(vector, broadcast, task))
    # The rounding is not told: its length is known, and as a share of the change it would tell how long that one is.
    return replace(update, vector=None, encoded=hidden)
