"""AUC and true positives at few false ones, against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from fedse.audits.rates import FALSE_POSITIVES, rates


def by_pairs(members: list[float], others: list[float]) -> float:
    won = sum((a > b) + 0.5 * (a == b) for a in members for b in others)
    return won / (len(members) * len(others))


def by_thresholds(members: list[float], others: list[float]) -> float:
    best = 0.0
    for threshold in {*members, *others}:
        if sum(b >= threshold for b in others) <= FALSE_POSITIVES * len(others):
            best = max(best, sum(a >= threshold for a in members) / len(members))
    return best


@pytest.mark.parametrize(("shift", "decimals"), [(0.0, 6), (1.0, 6), (1.0, 0), (-0.5, 1)])
def test_rates_are_those_of_counting_pairs_and_trying_thresholds(shift: float, decimals: int) -> None:
    random = np.random.default_rng(3)
    members = random.normal(shift, 1, 130).round(decimals).tolist()
    others = random.normal(0, 1, 250).round(decimals).tolist()
    found = rates(members, others)
    assert found.auc == pytest.approx(by_pairs(members, others), abs=1e-12)
    assert found.auc == pytest.approx(mannwhitneyu(members, others).statistic / (130 * 250), abs=1e-12)
    assert found.tpr == by_thresholds(members, others)
    assert found.auc_interval[0] <= found.auc <= found.auc_interval[1]


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(5)
    covered = 0
    for _ in range(30):
        found = rates(random.normal(0, 1, 80).tolist(), random.normal(0, 1, 80).tolist())
        covered += found.auc_interval[0] <= 0.5 <= found.auc_interval[1]
    assert 25 <= covered <= 30


def test_the_bootstrap_is_as_wide_as_the_theory_says() -> None:
    random = np.random.default_rng(7)
    found = rates(random.normal(0.5, 1, 200).tolist(), random.normal(0, 1, 300).tolist())
    a = found.auc
    first, second = a / (2 - a), 2 * a * a / (1 + a)
    variance = (a * (1 - a) + 199 * (first - a * a) + 299 * (second - a * a)) / (200 * 300)  # Hanley and McNeil
    width = found.auc_interval[1] - found.auc_interval[0]
    assert width == pytest.approx(2 * 1.96 * variance**0.5, rel=0.15)


def test_perfect_and_blind_attacks() -> None:
    perfect = rates([2.0, 3.0], [0.0, 1.0])
    assert (perfect.auc, perfect.tpr, perfect.auc_interval) == (1.0, 1.0, (1.0, 1.0))
    blind = rates([1.0, 1.0], [1.0, 1.0])
    assert (blind.auc, blind.tpr) == (0.5, 0.0)
    with pytest.raises(ValueError, match="finite"):
        rates([float("nan")], [0.0])
    with pytest.raises(ValueError, match="members and non-members"):
        rates([], [0.0])
