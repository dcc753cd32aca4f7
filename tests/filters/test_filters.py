"""Which trajectories are remembered, in the order in which they came."""

from __future__ import annotations

from dataclasses import replace

from fedse.filters.best_of_task import BestOfTask
from fedse.filters.none import KeepAll
from fedse.filters.success import Success
from fedse.filters.threshold import Threshold
from fedse.types import Outcome, Purpose, Step, Trajectory

STEP = Step("seen", "Thought: t\nAction: a", "t", "a", True)


def _played(
    task: str, outcome: Outcome, score: float, steps: int = 1, attempt: int = 0, world: str = "w"
) -> Trajectory:
    return Trajectory(
        "c", world, task, Purpose.EXPLORE, 1, attempt, "", (STEP,) * steps, "", outcome, score, (1,), (True,)
    )


WON, LOST = Outcome.SUCCESS, Outcome.FAILURE
MIXED = [
    _played("b", LOST, 0.0),
    _played("a", WON, 1.0, steps=5),
    _played("a", WON, 1.0, steps=3, attempt=1),
    _played("a", WON, 1.0, steps=3, attempt=2),
    _played("b", LOST, 0.5, attempt=1),
    _played("c", WON, 0.4, steps=1),
    _played("c", WON, 0.9, steps=9, attempt=1),
    _played("c", WON, 0.2, steps=2, world="other"),
]


def test_success_keeps_what_the_world_calls_a_success() -> None:
    assert Success().keep(MIXED) == [MIXED[1], MIXED[2], MIXED[3], MIXED[5], MIXED[6], MIXED[7]]


def test_no_filter_keeps_everything_in_a_list_of_its_own() -> None:
    kept = KeepAll().keep(MIXED)
    assert kept == MIXED
    assert kept is not MIXED


def test_the_threshold_itself_is_kept_whatever_the_outcome() -> None:
    assert Threshold(score=0.5).keep(MIXED) == [MIXED[1], MIXED[2], MIXED[3], MIXED[4], MIXED[6]]
    assert Threshold(score=0.0).keep(MIXED) == MIXED
    assert Threshold().score == Threshold.Options().score


def test_best_of_task_takes_score_then_fewest_steps_then_the_first() -> None:
    assert BestOfTask().keep(MIXED) == [MIXED[2], MIXED[6], MIXED[7]]


def test_best_of_task_keeps_one_of_two_equal_ones() -> None:
    twin = _played("a", WON, 1.0)
    assert BestOfTask().keep([twin, _played("a", WON, 1.0)]) == [twin]


def test_best_of_task_keeps_what_a_rescue_made_beside_the_best_attempt() -> None:
    made = [replace(_played("a", WON, 1.0, steps=3, attempt=number), purpose=Purpose.RELABEL) for number in (3, 4)]
    assert BestOfTask().keep([*MIXED, *made]) == [MIXED[2], MIXED[6], MIXED[7], made[0]]


def test_every_filter_takes_nothing_for_nothing() -> None:
    for chosen in (Success(), KeepAll(), Threshold(), BestOfTask()):
        assert chosen.keep([]) == []
