"""Which tensors are trained, sent and kept."""

from __future__ import annotations

import numpy as np
import pytest

from fedse.adapters.plan import PERSONAL, RESIDUAL, TensorPlan, frozen, in_part, part, plan_of, private, sent
from fedse.mixes.personal import first_pair
from fedse.types import Adapter

A, B, ALONE = "x.lora_A.weight", "x.lora_B.weight", "table"
FURTHER = [in_part(name, other) for name in (A, B) for other in (PERSONAL, RESIDUAL)]
ADAPTER = Adapter({name: np.zeros((2, 2), dtype=np.float32) for name in (A, B, ALONE, *FURTHER)}, {"r": 2})


@pytest.mark.parametrize(
    ("plan", "leaves", "stays", "fixed"),
    [
        (TensorPlan(), {A, B}, set(), set()),
        (TensorPlan(trained="B", sent="B"), {B}, set(), {A}),
        (TensorPlan(trained="AB", sent="A"), {A}, {B}, set()),
    ],
)
def test_a_plan_sorts_tensors_by_their_names(
    plan: TensorPlan, leaves: set[str], stays: set[str], fixed: set[str]
) -> None:
    personal = {in_part(name, PERSONAL) for name in (A, B)}
    residual = {in_part(name, RESIDUAL) for name in (A, B)}
    assert sent(ADAPTER, plan).tensors.keys() == leaves | {ALONE}
    assert private(ADAPTER, plan).tensors.keys() == stays | personal
    assert frozen(ADAPTER, plan) == fixed | residual
    # Every tensor is sent, kept, or left as it was broadcast, and nothing is two of these.
    assert leaves | {ALONE} | stays | personal | fixed | residual == ADAPTER.tensors.keys()


def test_a_module_of_the_base_may_be_called_anything() -> None:
    assert part("model.residual.head") == ""
    assert part("model.personal.q_proj.lora_A.weight") == ""
    assert part(in_part("model.personal.q_proj.lora_A.weight", RESIDUAL)) == RESIDUAL


def test_an_aggregator_that_says_nothing_asks_for_everything() -> None:
    assert plan_of(object()) == TensorPlan("AB", "AB")


def test_a_personal_pair_begins_as_nothing_and_is_each_clients_own() -> None:
    one, other = (first_pair(ADAPTER, 5, client, 0) for client in ("east", "west"))
    up, down = in_part(B, PERSONAL), in_part(A, PERSONAL)
    assert one.keys() == {up, down}
    assert (one[down].shape, one[up].shape) == ((5, 2), (2, 5))
    assert not (one[up] @ one[down]).any() and one[down].any()
    assert not np.array_equal(one[down], other[down])
    assert np.array_equal(one[down], first_pair(ADAPTER, 5, "east", 0)[down])
