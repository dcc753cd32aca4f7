"""The synergy gap of each world, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from fedse.evaluation.synergy import synergy_gaps


def cells(**rows: list[float | None]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (name, world): {"success": value}
        for name, values in rows.items()
        for world, value in zip(("maze", "wordle", "shop"), values, strict=True)
    }


def test_a_gap_is_what_the_shared_adapter_lacks_to_the_best_single_one() -> None:
    found = cells(first=[0.9, 0.9, 0.9], shared=[0.3, 0.6, 0.2], east=[0.4, 0.1, 0.0], west=[0.2, 0.5, 0.0])
    gaps = synergy_gaps(found, "shared", "first")
    assert gaps == {"maze": pytest.approx(0.25), "wordle": pytest.approx(-0.2), "shop": None}


def test_what_was_not_measured_counts_for_nothing() -> None:
    assert synergy_gaps(cells(east=[0.4, 0.1, 0.0]), "shared", "first") == {}
    found = cells(shared=[None, 0.6, 0.2], east=[0.4, None, 0.4])
    assert synergy_gaps(found, "shared", "first") == {"maze": None, "wordle": None, "shop": pytest.approx(0.5)}
