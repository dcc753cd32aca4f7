"""What became of a client in a round, in words that events, reports and people share."""

from __future__ import annotations

from enum import StrEnum

from fedse.types import ClientUpdate


class ClientStatus(StrEnum):
    """The round goes on without a client that sends nothing."""

    SENT = "sent"
    REFUSED = "refused"
    NOTHING_TO_LEARN_FROM = "nothing to learn from yet"
    ABSTAINED = "the learner abstained"
    UNTOLD = "sent nothing, and does not tell why"
    DIVERGED = "learning diverged: nothing of it is kept"
    KEPT = "learned for itself alone"
    MEASURED = "only measures"


def client_status(update: ClientUpdate, sent: bool, refused: bool = False) -> ClientStatus:
    """`sent` is told apart, because stored updates are kept without their vectors."""
    if refused:
        return ClientStatus.REFUSED
    if sent:
        return ClientStatus.SENT
    if not update.counts:
        return ClientStatus.UNTOLD
    if update.counts.get("only_measures"):
        return ClientStatus.MEASURED
    if update.counts.get("diverged"):
        return ClientStatus.DIVERGED
    if update.counts.get("learned_from") or update.counts.get("fresh"):
        return ClientStatus.KEPT
    return ClientStatus.ABSTAINED if update.counts.get("buffer") else ClientStatus.NOTHING_TO_LEARN_FROM
