"""The rules that know about LoRA's factors, against dense products written out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedse.adapters.held_update import HeldUpdate
from fedse.adapters.packing import pack
from fedse.adapters.plan import RESIDUAL, in_part, part, plan_of, sent
from fedse.aggregators.check import at_client, effect, some_adapter, some_state, some_updates
from fedse.aggregators.fedex_lora import FedExLora
from fedse.aggregators.fedsa_lora import FedSaLora
from fedse.aggregators.fedsvd import FedSvd, turned
from fedse.aggregators.ffa_lora import FfaLora
from fedse.aggregators.flexlora import FlexLora
from fedse.aggregators.flora import Flora
from fedse.aggregators.lora_fair import LoraFair
from fedse.aggregators.mean import Mean
from fedse.errors import BadInput
from fedse.types import ServerState

RANK = 3
MODULE = "layers.0.q_proj.lora_A.weight"


def mean_product(state: ServerState, updates: Any, name: str = MODULE) -> Any:
    return np.mean([effect(at_client(state, update))[name] for update in updates], axis=0)


def test_flexlora_is_the_truncated_svd_of_the_dense_mean() -> None:
    state = some_state()
    updates = some_updates(FlexLora(), state, spread=1.0)
    following, numbers = FlexLora().aggregate(state, updates)
    lost = whole = 0.0
    for name in effect(state.adapter):
        dense = mean_product(state, updates, name)
        if ".lora_A." not in name:
            np.testing.assert_allclose(following.adapter.tensors[name], dense, rtol=1e-5, atol=1e-6)
            continue
        left, values, right = np.linalg.svd(dense)
        best = left[:, :RANK] * values[:RANK] @ right[:RANK]
        np.testing.assert_allclose(effect(following.adapter)[name], best, atol=1e-5)
        lost, whole = lost + float(np.sum(values[RANK:] ** 2)), whole + float(np.sum(values**2))
    assert numbers["truncated"] == pytest.approx(np.sqrt(lost / whole), rel=1e-6)


def test_nothing_of_the_same_rank_is_closer_than_flexlora() -> None:
    state = some_state()
    updates = some_updates(FlexLora(), state, spread=1.0)
    dense = mean_product(state, updates)
    gaps = {
        type(rule).__name__: np.linalg.norm(effect(rule.aggregate(state, updates)[0].adapter)[MODULE] - dense)
        for rule in (FlexLora(), LoraFair(), Mean())
    }
    assert gaps["FlexLora"] < gaps["LoraFair"] < gaps["Mean"]


def test_the_correction_of_lora_fair_is_the_ridge_regression_of_the_dense_residual() -> None:
    state = some_state()
    updates = some_updates(LoraFair(), state, spread=0.5)
    following, _ = LoraFair(strength=0.3).aggregate(state, updates)
    downs = [at_client(state, update).tensors[MODULE].astype(np.float64) for update in updates]
    up = MODULE.replace("lora_A", "lora_B")
    ups = [at_client(state, update).tensors[up].astype(np.float64) for update in updates]
    down, mean_up = np.mean(downs, axis=0), np.mean(ups, axis=0)
    ridge = 0.3 * np.sum(down**2) / RANK
    # Ridge regression as ordinary least squares on rows added for the penalty.
    longer = np.vstack([down.T, np.sqrt(ridge) * np.eye(RANK)])
    residual = mean_product(state, updates) - mean_up @ down
    target = np.vstack([residual.T, np.zeros((RANK, residual.shape[0]))])
    correction = np.linalg.lstsq(longer, target)[0].T
    np.testing.assert_allclose(following.adapter.tensors[up], mean_up + correction, atol=1e-5)
    np.testing.assert_allclose(following.adapter.tensors[MODULE], down, atol=1e-6)


def test_fedex_has_the_means_and_the_residual_of_the_definition() -> None:
    state = some_state()
    updates = some_updates(FedExLora(), state, spread=0.5)
    following, numbers = FedExLora().aggregate(state, updates)
    plain, _ = Mean().aggregate(state, updates)
    for name, tensor in plain.adapter.tensors.items():
        np.testing.assert_allclose(following.adapter.tensors[name], tensor, atol=1e-6)
    residual = (
        following.adapter.tensors[in_part(MODULE.replace("_A", "_B"), RESIDUAL)].astype(np.float64)
        @ following.adapter.tensors[in_part(MODULE, RESIDUAL)]
    )
    expected = mean_product(state, updates) - effect(plain.adapter)[MODULE]
    np.testing.assert_allclose(residual, expected, atol=1e-6)
    assert numbers["residual_lost"] < 1e-12


@pytest.mark.parametrize(
    ("kind", "growth"), [(FedExLora, lambda clients: clients - 1), (Flora, lambda clients: clients)]
)
def test_the_residual_grows_by_few_ranks_and_never_beyond_the_modules_side(kind: Any, growth: Any) -> None:
    for clients in (2, 3):
        state, ranks = some_state(), []
        for number in range(6):
            state, numbers = kind().aggregate(state, some_updates(kind(), state, number, clients, 0.5))
            ranks.append(int(numbers["residual_rank"]))
        steps = np.diff([0, *ranks])
        assert max(steps) <= growth(clients) * RANK
        assert ranks[0] == growth(clients) * RANK
        assert ranks[-1] == 12  # The smaller side of the largest module.


@pytest.mark.parametrize("kind", [FedExLora, Flora])
def test_a_bounded_residual_keeps_the_most_and_tells_what_is_lost(kind: Any) -> None:
    state = some_state()
    updates = some_updates(kind(), state, spread=0.5)
    exact, _ = kind().aggregate(state, updates)
    bounded, numbers = kind(rank=4).aggregate(state, updates)
    assert bounded.adapter.tensors[in_part(MODULE, RESIDUAL)].shape == (4, 20)
    assert kind(rank=4).promises == kind().promises - {"mean product"}
    lost = whole = 0.0
    for name, values in effect(exact.adapter).items():
        if ".lora_A." in name:
            whole += float(np.sum((values - effect(_shared(exact))[name]) ** 2))
            lost += float(np.sum((values - effect(bounded.adapter)[name]) ** 2))
    assert numbers["residual_lost"] == pytest.approx(np.sqrt(lost / whole), rel=1e-3)
    assert 0.01 < numbers["residual_lost"] < 0.9


def _shared(state: ServerState) -> Any:
    from fedse.types import Adapter

    return Adapter({name: tensor for name, tensor in state.adapter.tensors.items() if not part(name)})


def test_equal_updates_leave_no_residual() -> None:
    state = some_state()
    update = some_updates(FedExLora(), state)[0]
    assert isinstance(update, HeldUpdate)
    alike = [HeldUpdate(f"c{number}", update.layout, update.vector) for number in range(7)]
    following, numbers = FedExLora().aggregate(state, alike)
    assert numbers["residual_rank"] == 0
    assert following.adapter.layout == state.adapter.layout


def test_flora_starts_afresh_each_round_and_differently() -> None:
    state = some_state()
    first, _ = Flora().aggregate(state, some_updates(Flora(), state))
    second, _ = Flora().aggregate(first, some_updates(Flora(), first))
    for following in (first, second):
        assert not following.adapter.tensors[MODULE.replace("_A", "_B")].any()
    assert not np.array_equal(first.adapter.tensors[MODULE], second.adapter.tensors[MODULE])
    assert np.abs(first.adapter.tensors[MODULE]).max() <= 1 / np.sqrt(20)


def test_flora_draws_otherwise_for_a_run_that_began_otherwise() -> None:
    state = some_state()
    began_otherwise = {name: -tensor if "lora_A" in name else tensor for name, tensor in state.adapter.tensors.items()}
    other = replace(state, adapter=replace(state.adapter, tensors=began_otherwise))
    drawn = [
        Flora().aggregate(one, some_updates(Flora(), one))[0].adapter.tensors[MODULE] for one in (state, state, other)
    ]
    assert np.array_equal(drawn[0], drawn[1]) and not np.array_equal(drawn[0], drawn[2])


def test_ffa_lora_sends_and_changes_nothing_but_b() -> None:
    state = some_state()
    updates = some_updates(FfaLora(), state)
    assert all(".lora_A." not in name for name, _ in updates[0].layout)
    following, _ = FfaLora().aggregate(state, updates)
    for name, tensor in state.adapter.tensors.items():
        assert np.array_equal(following.adapter.tensors[name], tensor) == (".lora_A." in name)


def test_fedsvd_has_the_factors_of_the_dense_svd() -> None:
    state = some_state()
    for number in range(2):
        updates = some_updates(FedSvd(), state, seed=number, spread=1.0)
        assert all(".lora_A." not in name for name, _ in updates[0].layout)
        following, _ = FedSvd().aggregate(state, updates)
        for name in (name for name in effect(state.adapter) if ".lora_A." in name):
            dense = mean_product(state, updates, name)
            left, values, right = np.linalg.svd(dense, full_matrices=False)
            up = following.adapter.tensors[name.replace("lora_A", "lora_B")].astype(np.float64)
            down = following.adapter.tensors[name].astype(np.float64)
            np.testing.assert_allclose(up @ down, dense, atol=1e-5)
            np.testing.assert_allclose(down @ down.T, np.eye(RANK), atol=1e-6)
            np.testing.assert_allclose(np.abs(np.sum(down * right[:RANK], axis=1)), 1.0, atol=1e-5)
            np.testing.assert_allclose(np.abs(np.sum(up * left[:, :RANK], axis=0)), values[:RANK], rtol=1e-5)
        state = following


@pytest.mark.parametrize(("outputs", "inputs"), [(2, 9), (9, 2), (2, 2), (9, 9)])
def test_modules_smaller_than_the_rank_keep_their_product(outputs: int, inputs: int) -> None:
    draw = np.random.default_rng(0)
    up, down = draw.standard_normal((outputs, RANK)), draw.standard_normal((RANK, inputs))
    for given in (up, np.zeros_like(up)):
        left, right = turned(given, down)
        assert (left.shape, right.shape) == (up.shape, down.shape)
        np.testing.assert_allclose(left @ right, given @ down, atol=1e-12)
        np.testing.assert_allclose(right @ right.T, np.diag(np.arange(RANK) < inputs).astype(float), atol=1e-12)


def test_fedsa_lora_sends_and_changes_nothing_but_a() -> None:
    state = some_state()
    following, _ = FedSaLora().aggregate(state, some_updates(FedSaLora(), state))
    for name, tensor in state.adapter.tensors.items():
        assert np.array_equal(following.adapter.tensors[name], tensor) == (".lora_B." in name)


def test_an_update_with_more_than_was_asked_for_is_refused() -> None:
    state = some_state()
    whole = HeldUpdate("c", state.adapter.layout, pack(state.adapter))
    with pytest.raises(BadInput, match="other tensors or ranks than FfaLora"):
        FfaLora().aggregate(state, [whole])
    assert sent(state.adapter, plan_of(FfaLora()).in_round(1)).size < some_adapter(0).size


def test_an_adapter_without_pairs_is_averaged_by_every_rule() -> None:
    from fedse.types import Adapter

    state = ServerState(0, Adapter({"table": np.zeros((3, 4), dtype=np.float32)}))
    updates = [HeldUpdate(f"c{n}", state.adapter.layout, np.full(12, n, dtype=np.float32)) for n in (1, 2, 6)]
    for rule in (FlexLora(), LoraFair(), FedExLora(), Flora(), FfaLora(), FedSaLora()):
        following, numbers = rule.aggregate(state, updates)
        assert set(following.adapter.tensors["table"].ravel()) == {3.0}
        assert all(np.isfinite(value) for value in numbers.values())
