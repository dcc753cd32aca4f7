"""Rules and how far each of them goes. The rules are the aggregators; a merge is one round of theirs, from the beginning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from fedse.adapters.held_update import HeldUpdate
from fedse.adapters.packing import pack
from fedse.adapters.plan import TensorPlan, plan_of
from fedse.errors import BadAggregate, BadInput
from fedse.federation.checks import CheckOptions, unfit
from fedse.merging.sources import Gathered
from fedse.plugins import options_of, resolve
from fedse.protocols import Aggregator
from fedse.types import Adapter, ServerState

RULES = (
    "mean",
    "task_arithmetic",
    "ties_merge",
    "tsv_merge",
    "iso_merge",
    "compress_then_merge",
    "fedexp",
    "fedexp_products",
)
"""Aggregators that are for merging, and the mean to compare them with."""
SCALES = (0.3, 0.5, 1.0, 1.5)
_HOW_FAR = ("scale", "gain")
"""Options of aggregators that say how far to go."""


@dataclass(frozen=True)
class Candidate:
    rule: str
    scale: float | None
    """None where the rule has no such option."""
    aggregator: Aggregator

    def merge(self, gathered: Gathered) -> Adapter:
        sources = sorted(gathered.sources, key=lambda source: source.name)
        updates = [HeldUpdate(source.name, source.adapter.layout, pack(source.adapter)) for source in sources]
        before = ServerState(0, gathered.initial)
        made = self.aggregator.aggregate(before, updates)
        # How large a value may be is a bound of runs.
        if reason := unfit(made, before, CheckOptions(max_value=None)):
            raise BadAggregate(
                f"the aggregator {type(self.aggregator).__name__} made an adapter that cannot be used ({reason}): nothing "
                f"was written; choose another --rule than {self.rule}."
            )
        return made[0].adapter


def candidates(rules: Sequence[str], scales: Sequence[float]) -> list[Candidate]:
    """Every rule with every scale; one without such an option once."""
    found = []
    for rule in dict.fromkeys(rules):
        options = options_of("aggregator", rule).model_fields
        option = next((name for name in _HOW_FAR if name in options), "")
        # Where frozen ranks beside the pair can be bounded they are not: how many there may be is asked of the result.
        unbounded = {"rank": None} if "rank" in options else {}
        for scale in dict.fromkeys(scales) if option else (None,):
            found.append(Candidate(rule, scale, _made(rule, {**unbounded, **({option: scale} if option else {})})))
    return found


def _made(rule: str, given: dict[str, Any]) -> Aggregator:
    try:
        options = options_of("aggregator", rule).model_validate(given).model_dump()
    except ValidationError as error:
        raise BadInput(f"--rule {rule}: it cannot be used with {given} ({error.errors()[0]['msg']}).") from error
    made: Aggregator = resolve("aggregator", rule)(**options)
    if plan_of(made) != TensorPlan():
        raise BadInput(f"--rule {rule}: it combines a part of each adapter only: choose one that takes whole adapters.")
    return made
