"""Effective steps and cosines of products against dense matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedse.adapters.packing import pack
from fedse.adapters.plan import plan_of
from fedse.aggregators.check import HeldUpdate, at_client, effect, some_state, some_updates
from fedse.aggregators.effective_step import effective_steps
from fedse.aggregators.fedex_lora import FedExLora
from fedse.aggregators.fedsa_lora import FedSaLora
from fedse.aggregators.ffa_lora import FfaLora
from fedse.aggregators.flora import Flora
from fedse.aggregators.mean import Mean
from fedse.aggregators.rolora import RoLora
from fedse.aggregators.task_arithmetic import TaskArithmetic


def flat(adapter: Any) -> Any:
    return np.concatenate([np.ravel(product) for _, product in sorted(effect(adapter).items())])


@pytest.mark.parametrize("rule", [Mean(), FfaLora(), FedExLora(), Flora(), RoLora(), TaskArithmetic(scale=0.4, rank=2)])
def test_they_are_those_of_the_dense_products(rule: Any) -> None:
    state = some_state()
    for seed in range(2):  # The second round begins with a residual where the rule has one.
        updates = some_updates(rule, state, seed=seed)
        following, _ = rule.aggregate(state, updates)
        found = effective_steps(state.adapter, following.adapter, updates, plan_of(rule).in_round(state.round + 1))
        broadcast = flat(state.adapter)
        merged = flat(following.adapter) - broadcast
        changes = {update.client: flat(at_client(state, update)) - broadcast for update in updates}
        for name, change in changes.items():
            assert found["effective_step"][name] == pytest.approx(merged @ change / (change @ change), rel=1e-4)
        for pair, cosine in found["product_cosine"].items():
            one, other = (changes[name] for name in pair.split("|"))
            assert cosine == pytest.approx(
                one @ other / np.linalg.norm(one) / np.linalg.norm(other), rel=1e-4, abs=1e-6
            )
        assert len(found["product_cosine"]) == len(updates) * (len(updates) - 1) // 2
        state = following


def test_a_client_that_changed_nothing_and_clients_with_a_private_factor() -> None:
    state = some_state()
    still = HeldUpdate("still", state.adapter.layout, pack(state.adapter))
    updates = [still, *some_updates(Mean(), state)[:2]]
    following, _ = Mean().aggregate(state, updates)
    found = effective_steps(state.adapter, following.adapter, updates, plan_of(Mean()).in_round(1))
    assert found["effective_step"]["still"] == 0.0
    assert all(np.isfinite(value) for value in found["product_cosine"].values())
    private = FedSaLora()
    updates = some_updates(private, state)
    following, _ = private.aggregate(state, updates)
    assert effective_steps(state.adapter, following.adapter, updates, plan_of(private).in_round(1)) == {}
