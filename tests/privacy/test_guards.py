"""Guards take away or refuse; what they let through still agrees with itself and with what a hub expects."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedse.errors import TooMuchLeaves
from fedse.federation.expected import Expected
from fedse.privacy.contents import contents
from fedse.privacy.guards import Cap, LeavingOptions, OnlyMetrics, RoundCounts, WithholdMetrics, guards_of
from fedse.privacy.names import COUNTS, YES_OR_NO
from fedse.types import ClientUpdate, Encoded, RoundTask, WorldScore

SCORE = WorldScore("maze", "validation", 5, 3, 40, 900, 1, {}, 0.1, 1.0)
VECTOR = np.ones(10, np.float32)
UPDATE = ClientUpdate(
    "east",
    1,
    VECTOR,
    (("a", (10,)),),
    dict.fromkeys(sorted(COUNTS), 17),
    {"loss": 0.5, "first_loss": 0.5, "tokens": 12.0},
    (SCORE,),
    "train-0001",
    Encoded("float32", VECTOR),
    probes={"later": (SCORE,)},
)


def through(update: ClientUpdate, options: LeavingOptions) -> ClientUpdate:
    for guard in guards_of(options):
        update = guard(update)
    return update


def test_without_options_nothing_is_taken_away() -> None:
    assert guards_of(LeavingOptions()) == []


def test_withheld_metrics_do_not_leave_under_another_name() -> None:
    assert WithholdMetrics(frozenset({"first_loss"}))(UPDATE).metrics == {"tokens": 12.0}
    assert OnlyMetrics(frozenset({"loss"}))(UPDATE).metrics == {"loss": 0.5}
    assert through(UPDATE, LeavingOptions(metrics=[])).metrics == {}


def test_counts_and_scores_can_stay_and_the_adapter_still_leaves() -> None:
    left = through(UPDATE, LeavingOptions(counts="withheld", scores="withheld"))
    assert (left.counts, left.scores, left.probes) == ({}, (), {})
    assert left.vector is VECTOR and left.metrics == UPDATE.metrics
    Expected(worlds={"east": ("maze",)}).check(left, RoundTask(1, "train", VECTOR, UPDATE.layout, {}))


@pytest.mark.parametrize("step", [2, 10, 7])
def test_rounded_counts_are_multiples_that_a_hub_still_believes(step: int) -> None:
    """Whatever a round counted honestly, also in rounds so small that some counts become 0."""
    draw, task = np.random.default_rng(step), RoundTask(3, "train", VECTOR, UPDATE.layout, {})
    believes = Expected(worlds={"east": ("maze",)}, explored=60, started=20, rescues=True)
    for _ in range(300):
        explored = int(draw.integers(0, 60))
        errors = int(draw.integers(0, explored + 1))
        successes = int(draw.integers(0, explored - errors + 1))
        rescued = int(draw.integers(0, explored - errors - successes + 1))
        kept = int(draw.integers(0, explored - errors + rescued + 1))
        buffer, hinted = int(draw.integers(0, 60)), int(draw.integers(0, explored + 1))
        counts = {
            "explored": explored,
            "errors": errors,
            "successes": successes,
            "rescued": rescued,
            "kept": kept,
            "added": int(draw.integers(0, kept + 1)),
            "buffer": buffer,
            "learned_from": int(draw.integers(0, buffer + 1)),
            "steps": 9 * explored,
            "invalid": int(draw.integers(0, 9 * explored + 1)),
            "agent_tokens": 90 * explored,
            "hinted": hinted,
            "hint_tokens": 13 * hinted,
            "fresh": explored - errors,
            "only_measures": 1,
            "diverged": 1,
        }
        honest = replace(UPDATE, counts=counts, scores=(), probes={})
        believes.check(honest, task)
        rounded = RoundCounts(step)(honest)
        believes.check(rounded, task)
        assert rounded.counts.keys() == counts.keys() and {rounded.counts[name] for name in YES_OR_NO} == {1}
        for name, count in rounded.counts.items():
            assert count <= counts[name]
            assert name in YES_OR_NO or count % step == 0


def test_the_cap_weighs_what_would_leave() -> None:
    size = sum(len(content) for _, _, content in contents(UPDATE))
    assert size > 40
    assert Cap(size / 1e6)(UPDATE) is UPDATE
    with pytest.raises(TooMuchLeaves, match=r"'east' for train-0001 takes 0.00"):
        Cap((size - 1) / 1e6)(UPDATE)
