"""What stands between an update and the way out: guards, one after another, each of which may take something away or refuse.

A guard sees the update as it would leave and returns it as it may leave. None of them adds anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from pydantic import Field

from fedse.errors import TooMuchLeaves
from fedse.plugins import PluginOptions
from fedse.privacy.contents import contents
from fedse.privacy.names import YES_OR_NO
from fedse.types import ClientUpdate

Told = Literal["exact", "rounded", "withheld"]


class Guard(Protocol):
    def __call__(self, update: ClientUpdate) -> ClientUpdate:
        """What may leave of an update. Raises where nothing of it may."""
        ...


class LeavingOptions(PluginOptions):
    """What a site tells beside its adapter. The default tells everything that the lists of names allow."""

    metrics: list[str] | None = None
    """Metrics that may leave, such as `[loss]`; null: all of them."""
    counts: Told = "exact"
    """Counts of a round: as they are, rounded down to multiples of `rounded_to`, or not at all. An aggregator that weighs by
    counts needs them."""
    rounded_to: int = Field(default=10, ge=2)
    """What rounded counts are multiples of."""
    scores: Literal["exact", "withheld"] = "exact"
    """Counts of each world's evaluation and of probes. Without them the hub does not know how well this site does."""


@dataclass(frozen=True)
class WithholdMetrics:
    """Keeps some metrics at the site, and others that have the value of one of them: after a single epoch the loss is the
    first loss, under another name."""

    names: frozenset[str]

    def __call__(self, update: ClientUpdate) -> ClientUpdate:
        secret = {update.metrics[name] for name in self.names & update.metrics.keys()}
        left = {name: value for name, value in update.metrics.items() if name not in self.names and value not in secret}
        return replace(update, metrics=left)


@dataclass(frozen=True)
class OnlyMetrics:
    """Lets some metrics out and no others."""

    names: frozenset[str]

    def __call__(self, update: ClientUpdate) -> ClientUpdate:
        return replace(update, metrics={key: value for key, value in update.metrics.items() if key in self.names})


@dataclass(frozen=True)
class RoundCounts:
    """Rounds counts down, so that they still agree with each other: successes and errors are no more than explorations."""

    step: int

    def __call__(self, update: ClientUpdate) -> ClientUpdate:
        counts = {
            name: count if name in YES_OR_NO else count // self.step * self.step
            for name, count in update.counts.items()
        }
        for whole, parts in (("explored", ("steps", "invalid", "agent_tokens")), ("hinted", ("hint_tokens",))):
            counts |= {part: 0 for part in parts if part in counts and not counts.get(whole)}
        if "kept" in counts:
            # Of a failure that was rescued both are kept, and the sum of what was rounded may be less than what it was.
            most = counts["explored"] - counts["errors"] + counts.get("rescued", 0)
            counts |= {name: min(counts[name], most) for name in ("kept", "added")}
        return replace(update, counts=counts)


class WithholdCounts:
    def __call__(self, update: ClientUpdate) -> ClientUpdate:
        return replace(update, counts={})


class WithholdScores:
    def __call__(self, update: ClientUpdate) -> ClientUpdate:
        return replace(update, scores=(), probes={})


@dataclass(frozen=True)
class Cap:
    """Refuses an update that is too large."""

    megabytes: float

    def __call__(self, update: ClientUpdate) -> ClientUpdate:
        size = sum(len(content) for _, _, content in contents(update))
        if size > 1e6 * self.megabytes:
            raise TooMuchLeaves(
                f"the update of client '{update.client}' for {update.task} takes {size / 1e6:.3f} MB, more than "
                f"sending.max_megabytes = {self.megabytes:g} allows; nothing was sent."
            )
        return update


def guards_of(options: LeavingOptions) -> Sequence[Guard]:
    """Those that a site's own file asks for."""
    found: list[Guard] = []
    if options.metrics is not None:
        found.append(OnlyMetrics(frozenset(options.metrics)))
    counting: Mapping[Told, Guard] = {"rounded": RoundCounts(options.rounded_to), "withheld": WithholdCounts()}
    if options.counts in counting:
        found.append(counting[options.counts])
    if options.scores == "withheld":
        found.append(WithholdScores())
    return found
