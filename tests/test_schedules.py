"""Numbers that change from round to round."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import ValidationError

from fedse.plugins import PluginOptions
from fedse.plugins.schedules import Ramp, Scheduled, at


class Options(PluginOptions):
    rate: Annotated[float | Ramp, Scheduled(above=0, most=8)] = 1


def test_a_number_stays_what_it_is() -> None:
    assert [at(Options(rate=2).rate, round) for round in (1, 7)] == [2, 2]
    assert type(Options(rate=2).rate) is int and Options.model_validate(Options().model_dump()) == Options()


def test_a_ramp_goes_from_the_first_round_to_its_last_and_stays_there() -> None:
    rate = Options(rate={"from": 4, "to": 1, "over": 4}).rate
    assert [at(rate, round) for round in (1, 2, 3, 4, 5, 100)] == [4, 3, 2, 1, 1, 1]
    assert Options.model_validate(Options(rate=rate).model_dump()).rate == rate
    assert at({"from": 4, "to": 1, "over": 1}, 1) == 1


def test_a_ramp_may_rise_as_half_a_wave() -> None:
    rate = Options(rate={"from": 1, "to": 5, "over": 5, "curve": "cosine"}).rate
    assert [at(rate, round) for round in (1, 2, 3, 4, 5, 9)] == pytest.approx([1, 3 - 2**0.5, 3, 3 + 2**0.5, 5, 5])
    assert Options.model_validate(Options(rate=rate).model_dump()).rate == rate


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0, "greater than 0"),
        (9, "less than or equal to 8"),
        (float("inf"), "finite number"),
        (10**400, "finite number"),
        (True, "valid number"),
        ("1", "valid number"),
        ({"from": 1, "to": 2}, "from, to and over"),
        ({"from": 1, "to": 2, "over": 3, "by": 1}, "from, to and over"),
        ({"from": 1, "to": 0, "over": 3}, "greater than 0"),
        ({"from": 1, "to": 2, "over": 3, "curve": "wave"}, "curve should be cosine"),
        ({"from": 1, "to": 2, "over": 0}, "whole number from 1 on"),
        ({"from": 1, "to": 2, "over": 2.5}, "whole number from 1 on"),
    ],
)
def test_what_is_no_number_is_told_in_one_sentence(value: Any, told: str) -> None:
    with pytest.raises(ValidationError, match=told) as caught:
        Options(rate=value)
    assert caught.value.error_count() == 1
