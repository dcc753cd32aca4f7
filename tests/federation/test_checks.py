"""Every reason to refuse an update, and none for a good one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from fedse.adapters.packing import pack
from fedse.federation.checks import CheckOptions, refusal
from fedse.federation.collected import SingleUpdates
from fedse.federation.exchange import Replies
from fedse.types import Adapter, ClientUpdate, Encoded, Vector

BROADCAST = Adapter({"a": np.full((2, 3), 0.5, dtype=np.float32), "b": np.zeros(4, dtype=np.float32)})
START = pack(BROADCAST)


def _update(vector: Vector | None) -> ClientUpdate:
    return ClientUpdate("site", 1, vector, BROADCAST.layout, {}, {})


def _reason(vector: Vector | None, **bounds: float) -> str | None:
    return refusal(_update(vector), START, BROADCAST.layout, CheckOptions(**bounds))


def _changed(index: int, value: float) -> Vector:
    vector = START.copy()
    vector[index] = value
    return vector


def test_an_update_that_does_not_tell_what_the_aggregator_weighs_by_is_refused(tmp_path: Path) -> None:
    collected = SingleUpdates(BROADCAST, CheckOptions(), tmp_path, {"learned_from"})
    collected.take(replace(_update(_changed(0, 1.0)), client="silent"))
    collected.take(replace(_update(_changed(0, 1.0)), counts={"learned_from": 3}))
    assert collected.refused == {"silent": "it does not tell learned_from, which the aggregator needs"}
    assert [update.client for update in collected.usable(Replies(), [])] == ["site"]


def test_a_masked_update_where_there_is_no_secure_sum_is_refused(tmp_path: Path) -> None:
    collected = SingleUpdates(BROADCAST, CheckOptions(), tmp_path)
    collected.take(replace(_update(None), encoded=Encoded("sum32", np.zeros(11, np.uint32))))
    assert collected.refused == {"site": "it is masked, and updates of this experiment are sent in the clear"}


def test_a_good_update_is_taken() -> None:
    assert _reason(_changed(0, 1.0)) is None
    assert _reason(_changed(0, 1.0), max_norm=0.5, max_value=1.0) is None


def test_an_update_without_a_vector_is_nothing_to_refuse() -> None:
    assert _reason(None) is None


@pytest.mark.parametrize(
    "layout",
    [
        (("a", (3, 2)), ("b", (4,))),
        (("a", (2, 3)), ("c", (4,))),
        (("a", (2, 3)),),
        (("b", (4,)), ("a", (2, 3))),
        (),
    ],
)
def test_other_names_shapes_or_order_are_refused(layout: tuple[tuple[str, tuple[int, ...]], ...]) -> None:
    update = replace(_update(_changed(0, 1.0)), layout=layout)
    assert refusal(update, START, BROADCAST.layout, CheckOptions()) == (
        "its tensors have other names or shapes than the broadcast adapter"
    )


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", ">f4"])
def test_other_types_are_refused(dtype: str) -> None:
    reason = _reason(_changed(0, 1.0).astype(dtype))
    assert reason is not None
    assert reason.endswith("not float32")


@pytest.mark.parametrize("vector", [START[:-1], np.append(START, START), START.reshape(2, 5), START[:0]])
def test_another_length_is_refused(vector: Vector) -> None:
    assert _reason(vector) == f"it holds {vector.size} values, the adapter has 10"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_counted_and_refused(value: float) -> None:
    vector = _changed(0, value)
    vector[5] = value
    assert _reason(vector) == "2 of its values are not finite"


def test_an_update_that_changes_nothing_is_refused() -> None:
    assert _reason(START.copy()) == "it equals the broadcast adapter: learning changed nothing"


def test_the_smallest_change_there_is_counts_as_a_change() -> None:
    assert _reason(_changed(9, 1e-45)) is None
    assert _reason(_changed(0, float(np.nextafter(np.float32(0.5), np.float32(1))))) is None


def test_a_change_above_the_bound_is_refused_with_its_norm() -> None:
    vector = _changed(6, 3.0)
    vector[7] = 4.0
    assert _reason(vector, max_norm=5.0) is None
    assert _reason(vector, max_norm=4.9) == "its change has norm 5, above the bound 4.9"


def test_a_value_above_the_bound_is_refused_whatever_its_sign() -> None:
    assert _reason(_changed(6, -3.0), max_value=3.0) is None
    assert _reason(_changed(6, -3.0), max_value=2.5) == "its largest value is 3, above the bound 2.5"


def test_the_largest_floats_do_not_overflow_the_check() -> None:
    vector = np.full(10, 3.4e38, dtype=np.float32)
    assert _reason(vector) == "its largest value is 3.4e+38, above the bound 1e+06"
    assert refusal(_update(vector), START, BROADCAST.layout, CheckOptions(max_value=None)) is None
    assert "above the bound" in str(_reason(vector, max_norm=1e38))


@pytest.mark.parametrize(
    "bounds", [{"max_norm": 0.0}, {"max_value": -1.0}, {"max_norm": float("nan")}, {"max_nrm": 1.0}]
)
def test_bounds_that_bound_nothing_are_refused(bounds: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        CheckOptions(**bounds)
