"""The bandit over categories: its values by hand, its draws by their shares."""

from __future__ import annotations

from collections import Counter
from math import exp

import pytest
from small_site import MadeUp, attempts, played, site, training

from fedse.curricula.sec import Sec
from fedse.types import Task

EASY, MIDDLE, HARD = (training(category) for category in ("short", "medium", "long"))
CATEGORIES = ["long", "medium", "short"]


def values(curriculum: Sec, past: MadeUp) -> dict[str, float]:
    return curriculum.values("maze", CATEGORIES, past.attempts("maze"))


def test_values_are_those_of_the_paper_by_hand() -> None:
    past = MadeUp(
        [
            # Round 1: half of the easy attempts succeed at each task, |A| = 1; a quarter of one middle one, |A| = 0.866.
            *attempts(1, EASY[0], 2, 4),
            *attempts(1, EASY[1], 2, 4),
            *attempts(1, MIDDLE[0], 1, 4),
            *attempts(1, MIDDLE[1], 0, 4),
            # Round 2: easy is solved; the middle was not drawn.
            *attempts(2, EASY[0], 4, 4),
            *attempts(2, HARD[0], 2, 4),
        ]
    )
    found = values(Sec(site(attempts=4), rate=0.5), past)
    assert found == pytest.approx({"short": 0.25, "medium": 0.5 * 0.5 * 0.8660254 / 2, "long": 0.5})


def test_with_one_attempt_at_each_task_the_category_is_the_group() -> None:
    past = MadeUp([*(item for task in EASY[:3] for item in attempts(1, task, 1, 1)), *attempts(1, EASY[3], 0, 1)])
    assert values(Sec(site(attempts=1)), past)["short"] == pytest.approx(0.5 * 0.8660254)
    assert values(Sec(site(attempts=2)), past)["short"] == 0, "one attempt in a group of its own has no advantage"


def test_a_round_that_a_site_missed_or_in_which_all_broke_changes_nothing() -> None:
    broken = [item._replace(outcome=type(item.outcome)("error")) for item in attempts(2, EASY[0], 0, 4)]
    past = MadeUp([*attempts(1, EASY[0], 2, 4), *broken])
    later = MadeUp([*past.known, *attempts(7, MIDDLE[0], 2, 4)])
    assert values(Sec(site(attempts=4)), past) == {"short": 0.5, "medium": 0.0, "long": 0.0}
    assert values(Sec(site(attempts=4)), later) == {"short": 0.25, "medium": 0.5, "long": 0.0}


def test_categories_are_drawn_by_the_exponentials_of_their_values() -> None:
    past = MadeUp([*attempts(1, EASY[0], 2, 4), *attempts(1, MIDDLE[0], 1, 4), *attempts(1, HARD[0], 0, 4)])
    weights = {"short": exp(0.5 / 0.2), "medium": exp(0.4330127 / 0.2), "long": 1.0}
    drawn = Counter(
        Sec(site(tasks=1, attempts=4, seed=seed), temperature=0.2).chosen("maze", 2, past)[0].category
        for seed in range(1000)
    )
    for category, weight in weights.items():
        assert drawn[category] / 1000 == pytest.approx(weight / sum(weights.values()), abs=0.05)


def test_no_task_twice_and_an_exhausted_category_leaves_its_draws_to_the_others() -> None:
    past = MadeUp([*attempts(1, EASY[0], 2, 4), *attempts(1, HARD[0], 0, 4)])
    chosen = Sec(site(tasks=50, attempts=4), temperature=0.01).chosen("maze", 2, past)
    assert len({task.id for task in chosen}) == 50
    assert set(chosen[:30]) == set(EASY)
    everything = Sec(site(tasks=200, attempts=4)).chosen("maze", 2, past)
    assert {task.id for task in everything} == {task.id for task in [*EASY, *MIDDLE, *HARD]}


def test_the_same_past_gives_the_same_round_and_another_round_other_tasks() -> None:
    past = MadeUp(played(1, [*EASY[:5], *HARD[:5]], lambda task: 1, 2))

    def chosen(round: int, seed: int = 0) -> list[Task]:
        return Sec(site(attempts=2, seed=seed)).chosen("maze", round, past)

    assert chosen(2) == chosen(2)
    assert chosen(2) != chosen(3) and chosen(2) != chosen(2, seed=1)
