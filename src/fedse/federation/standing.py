"""What became of a client in a round, in words that events, reports and people share."""

from __future__ import annotations

from enum import StrEnum

from fedse.types import ClientUpdate


class Standing(StrEnum):
    """The round goes on without a client that sends nothing."""

    SENT = "sent"
    REFUSED = "refused"
    NOTHING_TO_LEARN_FROM = "nothing to learn from yet"
    ABSTAINED = "the learner abstained"
    KEPT = "learned for itself alone"
    MEASURED = "only measures"


def standing(update: ClientUpdate, sent: bool, refused: bool = False) -> Standing:
    """`sent` is told apart, because stored updates are kept without their vectors."""
    if refused:
        return Standing.REFUSED
    if sent:
        return Standing.SENT
    if update.counts.get("only_measures"):
        return Standing.MEASURED
    if update.counts.get("learned_from"):
        return Standing.KEPT
    return Standing.ABSTAINED if update.counts.get("buffer") else Standing.NOTHING_TO_LEARN_FROM
