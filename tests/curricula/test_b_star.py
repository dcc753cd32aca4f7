"""B-STaR: the balance by hand, the temperature that is taken, and the same after a stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from small_site import MadeUp, maze, site

import fedse
from fedse.adapters.files import read_adapter
from fedse.clients.guards import ENTERING, with_adapter
from fedse.curricula.b_star import BStar
from fedse.experiments.options import Experiment
from fedse.types import Adapter, Episode, Outcome, Play, Purpose, RoundTask, Trajectory

Make = Callable[..., Experiment]
WON, LOST, BROKE = Outcome.SUCCESS, Outcome.FAILURE, Outcome.ERROR


def attempt(task: str, outcome: Outcome, said: int, score: float | None = None) -> Trajectory:
    worth = float(outcome is WON) if score is None else score
    return Trajectory("c", "maze", task, Purpose.EVALUATE, 1, 0, "", (), "", outcome, worth, (said,), (True,))


@pytest.mark.parametrize(
    ("played", "threshold", "expected"),
    [
        # Two different successes of four that are enough; the repeated one counts once.
        ([(WON, 1, 1), (WON, 1, 1), (WON, 2, 1), (LOST, 3, 0)], None, 2 / 4),
        # Kept are three different ones, two of them successes.
        ([(WON, 1, 1), (WON, 1, 1), (WON, 2, 1), (LOST, 3, 0.5)], 0.5, 2 / 4 * 2 / 3),
        ([(WON, 1, 1), (WON, 2, 1), (LOST, 3, 0.4)], 0.5, 2 / 4),
        # More than enough.
        ([(WON, number, 1) for number in range(6)] + [(LOST, 9, 1)] * 3, 0.5, 6 / 7),
        ([(LOST, 1, 0), (BROKE, 2, 0)], 0.0, 0.0),
        ([(BROKE, 1, 0)], None, 0.0),
    ],
)
def test_the_balance_of_a_task(
    played: list[tuple[Outcome, int, float]], threshold: float | None, expected: float
) -> None:
    curriculum = BStar(site(), enough=4, threshold=threshold)
    found = [attempt("a", *item) for item in played]
    assert curriculum.balance(found) == pytest.approx(expected)
    nothing = [attempt("b", LOST, 1)]
    assert curriculum.balance([*found, *nothing]) == pytest.approx(expected / 2), "a mean over tasks"


def planned(curriculum: BStar, wins: Callable[[Episode], int]) -> tuple[list[Episode], Sequence[Episode]]:
    """What is explored, and what was tried before, if so many different attempts of a trial succeed."""
    none: dict[str, object] = {}
    adapter = Adapter({}, {"here": True})
    task = RoundTask(2, "train", None, (), none)  # type: ignore[arg-type]
    work = with_adapter(curriculum.plan(task, MadeUp()), lambda: adapter)
    asked = next(work)
    assert isinstance(asked, Play) and asked.adapter is adapter and asked.adapter is not ENTERING
    played = [
        attempt(item.task.id, WON if item.attempt % 4 < wins(item) else LOST, item.attempt) for item in asked.episodes
    ]
    with pytest.raises(StopIteration) as ended:
        work.send(played)
    return ended.value.value, asked.episodes


def test_the_temperature_with_the_best_balance_is_explored_with() -> None:
    curriculum = BStar(site(tasks=5), temperatures=[1.2, 0.4, 0.9], tasks=3, samples=4, enough=4)
    explored, tried = planned(curriculum, lambda item: {0.4: 1, 0.9: 3, 1.2: 2}[item.sampling.temperature])
    assert {item.sampling.temperature for item in explored} == {0.9} and len(explored) == 5
    assert {item.purpose for item in tried} == {Purpose.EVALUATE}, "nobody learns from a trial"
    assert len(tried) == 36 and len({item.sampling.key for item in tried}) == 36
    by_heat = {heat: {item.task for item in tried if item.sampling.temperature == heat} for heat in (0.4, 0.9, 1.2)}
    assert len(by_heat[0.4]) == 3 and by_heat[0.4] == by_heat[0.9] == by_heat[1.2]
    assert {item.task.id for item in tried} <= {task.id for task in maze().tasks("train")}
    # The usual one is 1.0: the nearest of equals, and taken where nothing succeeded.
    assert {item.sampling.temperature for item in planned(curriculum, lambda _: 2)[0]} == {0.9}
    assert {item.sampling.temperature for item in planned(curriculum, lambda _: 0)[0]} == {1.0}


def test_only_the_temperature_is_another() -> None:
    from fedse.curricula.uniform import Uniform

    explored, _ = planned(BStar(site(tasks=5, attempts=2)), lambda _: 1)
    none: dict[str, object] = {}
    plain = Uniform(site(tasks=5, attempts=2)).plan(RoundTask(2, "train", None, (), none), MadeUp())  # type: ignore[arg-type]
    with pytest.raises(StopIteration) as ended:
        next(plain)
    same = [replace(item, sampling=replace(item.sampling, temperature=1.0)) for item in explored]
    assert same == ended.value.value


def test_a_run_that_stopped_takes_the_same_temperatures(table_experiment: Make, tmp_path: Path) -> None:
    keys = {"curriculum": {"name": "b_star", "tasks": 2, "samples": 2}, "method": "local_se"}
    whole = fedse.run(table_experiment(**keys, rounds=2), tmp_path / "whole")
    for rounds in (1, 2):
        halting = fedse.run(table_experiment(**keys, rounds=rounds), tmp_path / "halting")
    own = [read_adapter(run.folder / "clients/east/adapters/0002").digest() for run in (whole, halting)]
    assert own[0] == own[1]
