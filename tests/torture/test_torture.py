"""A small part of `make torture`: nothing that is damaged is taken without a word, and nothing ends in a traceback."""

from __future__ import annotations

import pytest

from .cases import OUTCOMES, outcomes

SEED = 20_260
CASES: dict[str, int] = {
    "experiments": 150,
    "tasks": 100,
    "headers": 300,
    "records": 50,
    "folders": 20,
}


@pytest.mark.parametrize(
    "kind", [kind if kind == "headers" else pytest.param(kind, marks=pytest.mark.slow) for kind in CASES]
)
def test_what_is_damaged_is_refused_or_makes_no_difference(kind: str) -> None:
    counted, wrong = outcomes(kind, SEED, range(CASES[kind]))
    assert not wrong, next(iter(wrong.items()))
    assert counted.total() == CASES[kind] and set(counted) <= set(OUTCOMES)
    # Cases that all do nothing, or are all refused, would prove nothing.
    assert counted["refused"] > CASES[kind] // 10
