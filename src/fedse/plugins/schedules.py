"""Numbers that change from round to round: `{from: 1e-3, to: 1e-4, over: 20}` in place of one number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

from pydantic_core import PydanticCustomError, core_schema

Ramp = TypedDict("Ramp", {"from": float, "to": float, "over": int, "curve": NotRequired[Literal["cosine"]]})
"""`from` in round 1, `to` in round `over` and later; between them a straight line, or half a wave of a cosine."""
_KEYS = frozenset({"from", "to", "over"})


def at(number: float | Ramp, round: int) -> float:
    """
    >>> [at({"from": 4.0, "to": 1.0, "over": 4}, round) for round in (1, 2, 3, 4, 9)]
    [4.0, 3.0, 2.0, 1.0, 1.0]
    >>> [round(at({"from": 0.0, "to": 1.0, "over": 4, "curve": "cosine"}, number), 2) for number in (1, 2, 3, 4)]
    [0.0, 0.25, 0.75, 1.0]
    """
    if not isinstance(number, Mapping):
        return number
    done = min(1.0, (round - 1) / (number["over"] - 1)) if number["over"] > 1 else 1.0
    if number.get("curve") == "cosine":
        done = (1 - math.cos(math.pi * done)) / 2
    return number["from"] + (number["to"] - number["from"]) * done


class Scheduled:
    """Annotation of an option that is a number or a ramp, whose ends keep the same bounds."""

    def __init__(self, above: float = -math.inf, least: float = -math.inf, most: float = math.inf) -> None:
        self.above, self.least, self.most = above, least, most

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.checked)

    def checked(self, value: Any) -> float | Ramp:
        if not isinstance(value, Mapping):
            return self._number(value)
        if value.keys() - {"curve"} != _KEYS:
            raise PydanticCustomError(
                "schedule",
                "a number that changes has the keys from, to and over, may have `curve: cosine`, and no other",
            )
        if value.get("curve", "cosine") != "cosine":
            raise PydanticCustomError("schedule", "curve should be cosine, or not be there for a straight line")
        if type(value["over"]) is not int or value["over"] < 1:
            raise PydanticCustomError("schedule", "over counts rounds, so it should be a whole number from 1 on")
        ramp: Ramp = {"from": self._number(value["from"]), "to": self._number(value["to"]), "over": value["over"]}
        if "curve" in value:
            ramp["curve"] = "cosine"
        return ramp

    def _number(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise PydanticCustomError("schedule", "Input should be a valid number")
        if not _is_finite(value):
            raise PydanticCustomError("schedule", "Input should be a finite number")
        for wrong, bound, words in (
            (value <= self.above, self.above, "greater than"),
            (value < self.least, self.least, "greater than or equal to"),
            (value > self.most, self.most, "less than or equal to"),
        ):
            if wrong:
                raise PydanticCustomError("schedule", f"Input should be {words} {bound:g}")
        return value


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
