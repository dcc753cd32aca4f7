"""What is told before clients begin to share: a choice that does not do what it is for, and who sees what."""

from __future__ import annotations

from collections.abc import Iterator

from fedse.events import Warned
from fedse.federation.governance import ENOUGH
from fedse.protocols import Aggregator, DependsOnNumbers

OTHERS_SEE = (
    "every client is sent the single updates of all the others, by their names, and not only what is made of them"
)
"""For the author of an experiment whose mix needs a library, and for the operator of each site."""

IN_A_SUM_OF_TWO = "with two sites in a secure sum, each takes its own update out of the mean and has the other's"
"""For the author of an experiment, and for the operator of each site that takes part in such sums."""


def advice(aggregator: Aggregator, sending: int) -> Iterator[Warned]:
    """What the aggregator has to say about the number of clients that send something in a round."""
    if isinstance(aggregator, DependsOnNumbers) and (message := aggregator.advice(sending)):
        yield Warned(kind="aggregator", message=message)


def nobody_to_compare_with(sending: int) -> Warned:
    told = (
        f"`checks.governance` judges the updates of rounds that have {ENOUGH} or more, and a round has at most {sending} "
        "here: nobody is ever left out; let more clients that learn take part in every round, or leave it out."
    )
    return Warned(kind="governance", message=told)


def seen_by_others(mix: str, clients: int) -> Warned:
    told = f"`mix: {mix}`: {OTHERS_SEE}; each downloads {clients} adapters more in every round."
    return Warned(kind="library", message=told)


def seen_in_a_sum_of_two() -> Warned:
    told = f"`sending.secure_sum.min_sites: 2`: {IN_A_SUM_OF_TWO}; three sites or more are hidden from each other."
    return Warned(kind="sum_of_two", message=told)
