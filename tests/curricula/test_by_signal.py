"""A site prefers what it can learn most from, and chooses the same whenever it is asked."""

from __future__ import annotations

from collections import Counter

import pytest
from small_site import MadeUp, attempts, played, site, training

from fedse.curricula.by_signal import BySignal
from fedse.curricula.uniform import Uniform
from fedse.types import Attempt, Task

EASY, MIDDLE, HARD = (training(category) for category in ("short", "medium", "long"))
NOTHING = MadeUp()


def solved_by_category(task: Task) -> int:
    return {"short": 4, "medium": 2, "long": 0}[task.category]


def first(curriculum: Uniform, past: MadeUp, round: int = 2, tasks: int = 30) -> list[Task]:
    return curriculum.chosen("maze", round, past)[:tasks]


def test_every_task_is_chosen_once_and_a_repeated_round_is_the_same() -> None:
    past = MadeUp(played(1, [*EASY[:5], *MIDDLE[:5], *HARD[:5]], solved_by_category, 4))
    chosen = BySignal(site()).chosen("maze", 2, past)
    assert sorted(task.id for task in chosen) == sorted(task.id for task in [*EASY, *MIDDLE, *HARD])
    assert chosen == BySignal(site()).chosen("maze", 2, past)
    assert chosen != BySignal(site()).chosen("maze", 3, past) != BySignal(site(seed=1)).chosen("maze", 3, past)


def test_without_a_share_it_is_uniform() -> None:
    past = MadeUp(played(1, EASY, solved_by_category, 4))
    assert first(BySignal(site(), share=0.0), past) == first(Uniform(site()), past)


def test_untried_tasks_count_for_what_is_known_of_their_category() -> None:
    past = MadeUp(played(1, [*EASY[:5], *MIDDLE[:5], *HARD[:5]], solved_by_category, 4))
    assert {task.category for task in first(BySignal(site(), share=1.0), past)} == {"medium"}
    half = first(BySignal(site(), share=0.5), past)
    assert {task.category for task in half[:15]} == {"medium"}
    rest = [task for task in first(Uniform(site()), past, tasks=90) if task not in half[:15]]
    assert half[15:] == rest[:15], "the others come in the uniform order"


def test_a_tasks_own_attempts_count_before_those_of_its_category() -> None:
    mixed, lost = MIDDLE[:10], MIDDLE[10:]
    past = MadeUp([*played(1, mixed, lambda task: 2, 4), *played(1, [*lost, *EASY, *HARD], lambda task: 0, 4)])
    assert set(first(BySignal(site(), share=1.0), past)[:10]) == set(mixed)
    by_category = first(BySignal(site(), share=1.0, per="category"), past)
    assert set(by_category) == set(MIDDLE)


def test_a_category_that_was_not_tried_counts_as_much_as_the_best() -> None:
    past = MadeUp(played(1, [*EASY, *MIDDLE], solved_by_category, 4))
    found = Counter(task.category for task in first(BySignal(site(), share=1.0, per="category"), past))
    assert found["short"] == 0 and found["medium"] > 5 and found["long"] > 5
    all_solved = MadeUp(played(1, [*EASY, *MIDDLE], lambda task: 4, 4))
    assert {task.category for task in first(BySignal(site(), share=1.0), all_solved)} == {"long"}


@pytest.mark.slow
def test_draws_are_in_proportion_to_the_signal() -> None:
    """AZR: 0.75 for one success in four, 0.25 for three; nothing for the third category."""
    solved = {"short": 3, "medium": 1, "long": 0}
    past = MadeUp(played(1, [*EASY, *MIDDLE, *HARD], lambda task: solved[task.category], 4))
    found: Counter[str] = Counter()
    for seed in range(600):
        found[first(BySignal(site(seed=seed), signal="azr", share=1.0), past)[0].category] += 1
    assert found["long"] == 0
    assert found["medium"] / 600 == pytest.approx(0.75, abs=0.06)


def test_what_is_long_ago_is_forgotten() -> None:
    old = played(1, [*EASY, *HARD], lambda task: 2, 4) + played(1, MIDDLE, lambda task: 0, 4)
    new = played(3, MIDDLE, lambda task: 2, 4) + played(3, [*EASY, *HARD], lambda task: 0, 4)
    chosen = first(BySignal(site(), share=1.0, rounds=2, per="category"), MadeUp(old + new), round=4)
    assert {task.category for task in chosen} == {"medium"}
    chosen = first(BySignal(site(), share=1.0, rounds=None, per="category"), MadeUp(old + new), round=4)
    assert {task.category for task in chosen} == {"short", "medium", "long"}


def test_sampling_follows_the_middle_difficulty_as_an_agent_gets_better() -> None:
    """Task number i is solved by round r in a share that falls with i and rises with r."""
    order = [*EASY, *MIDDLE, *HARD]
    known: list[Attempt] = []
    middle = []
    curriculum = BySignal(site(tasks=20), per="task", rounds=2)
    for round in range(1, 13):
        chosen = first(curriculum, MadeUp(known), round, tasks=20)
        middle.append(sum(map(order.index, chosen)) / len(chosen))
        for task in chosen:
            share = min(max(0.5 + (7 * round - order.index(task)) / 40, 0.0), 1.0)
            known += attempts(round, task, int(8 * share), 8)
    assert middle[3] < 40 and middle[11] > 55, middle


def test_an_unknown_signal_is_refused() -> None:
    from pydantic import ValidationError

    with pytest.raises(ValidationError, match="learnability"):
        BySignal.Options(signal="luck")  # type: ignore[arg-type]
