"""What sites tell each other about categories: sums by place, whose quotients steer them all."""

from __future__ import annotations

import numpy as np
import pytest
from small_site import MadeUp, attempts, site, training

from fedse.curricula.federated_sec import PLACES, FederatedSec, place_of
from fedse.curricula.sec import Sec
from fedse.plugins import resolve
from fedse.types import RoundTask, Tensors

EASY, MIDDLE, HARD = (training(category) for category in ("short", "medium", "long"))
CATEGORIES = ["long", "medium", "short"]


def planned(curriculum: Sec, round: int, past: MadeUp) -> None:
    task = RoundTask(round, "train", np.zeros(1, dtype=np.float32), (), {})
    for _ in curriculum.plan(task, past):
        raise AssertionError("it asks for nothing")


def told(round: int, past: MadeUp) -> Tensors:
    curriculum = FederatedSec(site(attempts=4))
    planned(curriculum, round, past)
    return curriculum.give(round)


def at(tensors: Tensors, name: str, category: str) -> float:
    return float(tensors[name][place_of("maze", category)])


def test_a_site_tells_sums_in_which_older_rounds_count_less() -> None:
    past = MadeUp([*attempts(1, EASY[0], 2, 4), *attempts(2, EASY[1], 1, 4), *attempts(2, HARD[0], 0, 4)])
    given = told(3, past)
    assert given.keys() == FederatedSec.gives and {tensor.shape for tensor in given.values()} == {(PLACES,)}
    assert at(given, "tries", "short") == 0.5 * 4 + 4
    assert at(given, "advantages", "short") == pytest.approx(0.5 * 4 * 1.0 + 4 * 0.8660254)
    assert (at(given, "tries", "long"), at(given, "advantages", "long")) == (4, 0)
    assert np.count_nonzero(given["tries"]) == 2


def test_what_others_found_steers_a_site_that_has_tried_nothing() -> None:
    one = told(2, MadeUp([*attempts(1, EASY[0], 2, 4), *attempts(1, HARD[0], 0, 4)]))
    other = told(2, MadeUp([*attempts(1, EASY[0], 4, 4), *attempts(1, MIDDLE[0], 1, 4)]))
    merged = {name: (one[name] + other[name]) / 2 for name in one}
    new = FederatedSec(site(attempts=4))
    new.take(3, merged)
    expected = {"short": 0.5, "medium": 0.8660254, "long": 0.0}
    assert new.values("maze", CATEGORIES, []) == pytest.approx(expected)
    assert new.values("maze#2", CATEGORIES, []) == pytest.approx(expected), "the second maze of a site is a maze"


def test_before_anything_came_of_others_a_site_goes_by_its_own() -> None:
    curriculum = FederatedSec(site(attempts=4))
    past = MadeUp(attempts(1, EASY[0], 2, 4))
    curriculum.take(2, {})
    planned(curriculum, 2, past)
    assert curriculum.values("maze", CATEGORIES, []) == {"short": 1.0, "medium": 0.0, "long": 0.0}


def test_where_those_who_took_part_know_nothing_of_a_category_a_site_goes_by_its_own() -> None:
    past = MadeUp([*attempts(1, EASY[0], 2, 4), *attempts(1, MIDDLE[0], 1, 4)])
    curriculum = FederatedSec(site(attempts=4))
    curriculum.take(3, told(2, MadeUp(attempts(1, HARD[0], 2, 4))))
    planned(curriculum, 3, past)
    known = {"long": 1.0, "medium": 0.8660254, "short": 1.0}
    assert curriculum.values("maze", CATEGORIES, []) == pytest.approx(known)
    curriculum.take(3, told(2, MadeUp(attempts(1, EASY[0], 0, 4))))
    known = {"long": 0.0, "medium": 0.8660254, "short": 0.0}
    assert curriculum.values("maze", CATEGORIES, []) == pytest.approx(known), "what others know of it comes first"


def test_odd_numbers_of_others_do_no_harm() -> None:
    curriculum = FederatedSec(site(attempts=4))
    curriculum.take(2, {"tries": np.ones(3, dtype=np.float32), "advantages": np.ones(3, dtype=np.float32)})
    assert set(curriculum.values("maze", CATEGORIES, []).values()) == {0.0}
    tiny, huge = (np.full(PLACES, value, dtype=np.float32) for value in (1e-38, 1e38))
    curriculum.take(2, {"tries": tiny, "advantages": huge})
    assert set(curriculum.values("maze", CATEGORIES, []).values()) == {1.0}
    curriculum.take(2, {"tries": tiny, "advantages": -huge})
    assert set(curriculum.values("maze", CATEGORIES, []).values()) == {0.0}
    assert len(curriculum.chosen("maze", 2, MadeUp())) == 30


@pytest.mark.slow
def test_categories_of_the_packages_worlds_have_places_of_their_own() -> None:
    names = [
        (name, category)
        for name in ("maze", "wordle", "textcraft", "babyai", "webshop")
        for category in {task.category for task in resolve("world", name)().tasks("train")}
    ]
    assert len(names) == 28
    assert len({place_of(*name) for name in names}) == 28
