"""Upper confidence bounds: the formula, what was never tried, the spread of a round, and what never succeeds."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from small_site import MadeUp, maze, played, site, training

from fedse.curricula.ucb import Ucb
from fedse.curricula.uniform import Uniform
from fedse.types import Outcome

BANDS = ("short", "medium", "long")


def drawn(curriculum: Ucb, past: MadeUp, round: int = 2) -> Counter[str]:
    return Counter(task.category for task in curriculum.chosen("maze", round, past))


def expected(tries: dict[str, int], means: dict[str, float], tasks: int, attempts: int, c: float = 2.0) -> Counter[str]:
    """The textbook's loop."""
    picked: Counter[str] = Counter()
    for _ in range(tasks):
        total = sum(tries.values())
        bounds = {arm: means[arm] + (c * math.log(total) / tries[arm]) ** 0.5 for arm in tries}
        arm = max(bounds, key=lambda name: bounds[name])
        picked[arm] += 1
        tries = {**tries, arm: tries[arm] + attempts}
    return picked


@pytest.mark.parametrize("constant", [0.0, 0.2, 2.0])
def test_categories_are_taken_by_their_bounds(constant: float) -> None:
    solved = {"short": 3, "medium": 2, "long": 0}
    tasks = [task for band in BANDS for task in training(band)[:5]]
    past = MadeUp(played(1, tasks, lambda task: solved[task.category], 4))
    means = {band: solved[band] / 4 for band in BANDS}
    found = drawn(Ucb(site(tasks=24, attempts=2), constant=constant), past)
    assert found == expected(dict.fromkeys(BANDS, 20), means, 24, 2, constant)
    assert found["short"] > found["long"]


def test_what_was_never_tried_comes_first_and_nothing_twice() -> None:
    past = MadeUp(played(1, training("short")[:5], lambda _: 4, 4))
    chosen = Ucb(site(tasks=20)).chosen("maze", 2, past)
    assert {task.category for task in chosen[:2]} == {"medium", "long"}
    assert len({task.id for task in chosen}) == len(chosen) == 20
    everything = Ucb(site(tasks=500)).chosen("maze", 2, past)
    assert {task.id for task in everything} == {task.id for task in maze().tasks("train")}


def test_tasks_as_arms_and_old_rounds() -> None:
    good, bad = training("long")[:2]
    others = [task for task in maze().tasks("train") if task not in (good, bad)]
    past = MadeUp(
        [*played(1, others, lambda _: 0, 4), *played(1, [good], lambda _: 4, 4), *played(1, [bad], lambda _: 0, 1)]
    )
    ucb = Ucb(site(tasks=2), per="task", constant=0.1)
    assert [task.id for task in ucb.chosen("maze", 2, past)] == [good.id, bad.id], "the best, then the least tried"
    forgetful = Ucb(site(tasks=30), per="task", rounds=1)
    assert forgetful.chosen("maze", 3, past) == Uniform(site()).chosen("maze", 3, past)[:30]


def test_errors_of_the_world_say_nothing() -> None:
    past = played(1, [task for band in BANDS for task in training(band)[:5]], lambda _: 2, 4)
    broken = [
        item._replace(outcome=Outcome.ERROR, attempt=item.attempt + 9) for item in past if item.category == "long"
    ]
    ucb = Ucb(site(tasks=20))
    assert ucb.chosen("maze", 2, MadeUp(past)) == ucb.chosen("maze", 2, MadeUp([*past, *broken]))
